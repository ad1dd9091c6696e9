"""Chunks as providers write them, and answers put together the way an agent does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentscope_rx.models.chat_chunks import ChatChunkParser
from agentscope_rx.requests import ModelChunk
from agentscope_rx.usage import ChatUsage

DONE = b"[DONE]"


@dataclass
class Call:
    """A tool call as it was put together."""

    id: str
    name: str
    arguments: str
    opaque: Mapping[str, object] | None = None


@dataclass
class Answer:
    """An answer as it was put together; it refuses what an agent could not follow."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    usage: ChatUsage | None = None
    finish_reason: str | None = None
    opaque: Mapping[str, object] | None = None
    texts: list[str] = field(default_factory=list[str])

    def add(self, chunk: ModelChunk) -> None:
        assert chunk != ModelChunk(), "a chunk says something"
        self.text += chunk.text
        self.thinking += chunk.thinking
        if chunk.text:
            self.texts.append(chunk.text)
        for delta in chunk.calls:
            if delta.index == len(self.calls):
                assert delta.id, "the first delta of a call brings its id"
                self.calls.append(Call(delta.id, delta.name, delta.arguments, delta.opaque))
            else:
                call = self.calls[delta.index]
                assert not delta.id, "an id never changes"
                assert not (call.name and delta.name), "a name never changes"
                call.name = call.name or delta.name
                call.arguments += delta.arguments
                call.opaque = delta.opaque or call.opaque
        self.usage = chunk.usage or self.usage
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.opaque = chunk.opaque or self.opaque

    def triples(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each call."""
        return [(call.id, call.name, call.arguments) for call in self.calls]


def chunk(delta: Mapping[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    """A chunk with one choice."""
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}).encode()


def calls(*entries: Mapping[str, Any]) -> bytes:
    """A chunk with pieces of tool calls."""
    return chunk({"tool_calls": list(entries)})


def piece(index: int | None = None, id: str | None = None, **function: Any) -> dict[str, Any]:
    """A piece of a tool call; None leaves the field out."""
    named = {"index": index, "id": id, "function": function}
    return {key: value for key, value in named.items() if value is not None}


def read(*data: bytes, call_id: str = "r1") -> Answer:
    """Read the data of events to the end."""
    parser, answer = ChatChunkParser(call_id), Answer()
    for each in data:
        for found in parser.feed(each):
            answer.add(found)
    for found in parser.finish():
        answer.add(found)
    return answer
