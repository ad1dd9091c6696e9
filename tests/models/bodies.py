"""Requests and their bodies, for the tests of the encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentscope_rx.history import History
from agentscope_rx.messages import Base64Source, DataBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE, Provider
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec

NAMED = replace(COMPATIBLE, names=True)
ECHO = replace(COMPATIBLE, echo_reasoning=True)
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {"p": {}}})
PNG = DataBlock(source=Base64Source(media_type="image/png", data="AAA"), name="shot.png")


def request(*messages: Msg, tail: Sequence[Msg] = (), **fields: Any) -> ModelRequest:
    """A request with this conversation."""
    return ModelRequest(call_id="r1", conversation=History.of(*messages), tail=tuple(tail), **fields)


def body_of(asked: ModelRequest, provider: Provider = COMPATIBLE) -> dict[str, Any]:
    """The body, decoded."""
    return json.loads(encode(asked, model="m", provider=provider))


def sent(*messages: Msg, provider: Provider = COMPATIBLE) -> list[dict[str, Any]]:
    """The messages of the body."""
    return body_of(request(*messages), provider)["messages"]


def options(provider: Provider = COMPATIBLE, *, tools: tuple[ToolSpec, ...] = (), **given: Any) -> dict[str, Any]:
    """What options add to the body."""
    asked = request(Msg.user("q"), tools=tools, options=GenerateOptions(**given))
    body = body_of(asked, provider)
    return {key: value for key, value in body.items() if key not in ("model", "messages", "stream", "tools")}


def call(id: str, name: str = "look", content: str | None = "{}", **fields: Any) -> ToolUseBlock:
    """A tool call."""
    return ToolUseBlock(id=id, name=name, content=content, **fields)


def result(id: str, *output: str | DataBlock) -> Msg:
    """The message of a result."""
    blocks = tuple(TextBlock(text=each) if isinstance(each, str) else each for each in output)
    return Msg.tool(ToolResultBlock(id=id, name="look", output=blocks))
