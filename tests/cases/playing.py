"""Plays a case: its replies through the strict provider, its tools as an agent's."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ToolSpec
from agentscope_rx.testing.fake_provider import FakeProvider, from_case
from agentscope_rx.tools import Tool, ToolContext
from tests.support import ONE_ATTEMPT, builder_for


@dataclass
class CaseTool(Tool):
    """A tool that takes anything, answers with a text, and counts."""

    name: str
    answer: str
    calls: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])

    @property
    def spec(self) -> ToolSpec:
        """Any arguments."""
        return ToolSpec(name=self.name, description=f"The tool {self.name}.", parameters={"type": "object"})

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Note the call and answer."""
        self.calls.append(arguments)
        return self.answer


@dataclass
class Played:
    """A case at play."""

    agent: ReActAgent
    provider: FakeProvider
    tools: dict[str, CaseTool]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the accepted requests."""
        return [request.body for request in self.provider.requests if not request.refused]


@asynccontextmanager
async def playing(replies: list[Any], tools: Mapping[str, str] | None = None, **options: Any) -> AsyncGenerator[Played]:
    """An agent with the case's tools before a provider with its replies; the provider must refuse nothing."""
    made = {name: CaseTool(name, answer) for name, answer in (tools or {}).items()}
    async with FakeProvider([from_case(reply) for reply in replies]) as provider:
        keywords: dict[str, Any] = {"tools": list(made.values()), "execution": ONE_ATTEMPT, **options}
        async with builder_for(provider, **keywords).build() as agent:
            yield Played(agent, provider, made)
    assert provider.refusals == []


def check_pairs(body: Mapping[str, Any]) -> None:
    """I1: each call has exactly one tool message in the block right after it, in order; no result without a call."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert waiting, message
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting, f"calls without a result before {message['role']}: {waiting}"
        for id, name, _ in _calls(message):
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
            waiting.append(id)
    assert not waiting, waiting


def calls_of(body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of all calls in a request."""
    return [call for message in body["messages"] for call in _calls(message)]


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
