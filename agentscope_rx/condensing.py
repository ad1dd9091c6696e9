"""From pieces to a message: the same builder serves the model's chunks and the events made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import agentscope_rx.events as ev
from agentscope_rx.messages import (
    NOTHING,
    ContentBlock,
    GenerateReason,
    MetadataKey,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    timestamp_of,
)
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import json_object, to_json

#: Where an event carries what the provider wants back word for word, and the reason of a message of ours.
OPAQUE_KEY: Final = "opaque"
REASON_KEY: Final = "generate_reason"
#: The event that tells of an answer of a given form, with the whole message.
STRUCTURED_OUTPUT: Final = "structured_output"


@dataclass(slots=True)
class CallPieces:
    """A tool call as far as it has been written."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    opaque: Mapping[str, object] = field(default_factory=lambda: NOTHING)

    def block(self) -> ToolUseBlock:
        """The call as a content block; arguments that are no JSON object are kept as `invalid_arguments`."""
        raw = "".join(self.arguments)
        parsed = json_object(raw) if raw.strip() else NOTHING
        metadata = {} if not self.opaque else {OPAQUE_KEY: self.opaque}
        if parsed is None:
            return ToolUseBlock(id=self.id, name=self.name, metadata={**metadata, "invalid_arguments": raw})
        return ToolUseBlock(
            id=self.id,
            name=self.name,
            input=parsed,
            content=raw if parsed else "{}",
            metadata=metadata or NOTHING,
        )


class ReplyBuilder:
    """An assistant message in the making: thinking first, then the text, then the calls in order of appearance."""

    __slots__ = ("calls", "opaque", "texts", "thoughts", "usage")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: dict[object, CallPieces] = {}
        self.opaque: Mapping[str, object] = NOTHING
        self.usage: ChatUsage | None = None

    def call(self, key: object) -> CallPieces:
        """The call known under `key`, made on first use."""
        pieces = self.calls.get(key)
        if pieces is None:
            pieces = self.calls[key] = CallPieces()
        return pieces

    @property
    def empty(self) -> bool:
        """Whether there is neither visible text nor a call."""
        return not self.calls and not "".join(self.texts).strip()

    def build(self, *, id: str, name: str | None, started: datetime | None) -> Msg:
        """Make the message.

        Args:
            id: Its id, which is the `reply_id` of its stage.
            name: The agent's name.
            started: When its stage began.
        """
        blocks: list[ContentBlock] = []
        if self.thoughts:
            blocks.append(ThinkingBlock(thinking="".join(self.thoughts)))
        if self.texts:
            blocks.append(TextBlock(text="".join(self.texts)))
        blocks.extend(call.block() for call in self.calls.values())
        return Msg(
            id=id,
            name=name,
            role=Role.ASSISTANT,
            content=tuple(blocks),
            metadata={MetadataKey.OPAQUE: self.opaque} if self.opaque else NOTHING,
            timestamp=timestamp_of(started) if started is not None else "",
            usage=self.usage,
        )


def condense(events: Iterable[ev.AgentEvent]) -> Msg:
    """Make the message that a call returns out of the call's other events.

    Args:
        events: The events of one call, in order; `AGENT_RESULT` is not looked at and may be missing.

    Returns:
        Exactly the message that `AGENT_RESULT` carries.

    Raises:
        ValueError: No stage of the call has written a message.
    """
    folding = _Condensing()
    for event in events:
        if event.source is None and not ev.is_aside(event):
            folding.take(event)
    return folding.result()


class _Condensing:
    def __init__(self) -> None:
        self.name: str | None = None
        self.stage = ""
        self.started: datetime | None = None
        self.builder = ReplyBuilder()
        self.reason: GenerateReason | None = None
        self.limit_reached = False
        self.answer: Msg | None = None

    def take(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.AgentStart(name=name):
                self.name = name
            case ev.ModelCallStart(reply_id=stage) | ev.TextBlockStart(reply_id=stage) if stage != self.stage:
                self._begin(event)
            case ev.TextBlockDelta(delta=delta):
                self.builder.texts.append(delta)
            case ev.ThinkingBlockDelta(delta=delta):
                self.builder.thoughts.append(delta)
            case ev.ToolCallStart(tool_call_id=id, tool_call_name=name):
                pieces = self.builder.call(id)
                pieces.id, pieces.name = id, name
            case ev.ToolCallDelta(tool_call_id=id, delta=delta):
                self.builder.call(id).arguments.append(delta)
            case ev.ToolCallEnd(tool_call_id=id, tool_call_name=name):
                pieces = self.builder.call(id)
                pieces.name, pieces.opaque = name, _opaque(event)
            case ev.ModelCallEnd(usage=usage):
                self.builder.usage, self.builder.opaque = usage, _opaque(event)
            case ev.ExceedMaxIters():
                self.limit_reached = True
            case ev.RequestStop(generate_reason=reason):
                self.reason = reason
            case ev.Custom(name=name, value={"message": message}) if name == STRUCTURED_OUTPUT:
                self.answer = Msg.from_json(to_json(message))
            case _:
                pass
        if event.metadata is not None and REASON_KEY in event.metadata:
            self.reason = GenerateReason(str(event.metadata[REASON_KEY]))

    def _begin(self, event: ev.ModelCallStart | ev.TextBlockStart) -> None:
        self.stage, self.started, self.builder = event.reply_id, event.created_at, ReplyBuilder()

    def result(self) -> Msg:
        if self.answer is not None:
            return self.answer
        if not self.stage:
            raise ValueError("these events hold no model call and no text: there is no message to make")
        message = self.builder.build(id=self.stage, name=self.name, started=self.started)
        if self.reason is not None:
            return message.with_reason(self.reason)
        if self.builder.empty:
            return message.with_reason(GenerateReason.EMPTY_REPLY)
        return message.with_reason(GenerateReason.MAX_ITERATIONS) if self.limit_reached else message


def _opaque(event: ev.AgentEvent) -> Mapping[str, object]:
    value = (event.metadata or NOTHING).get(OPAQUE_KEY)
    return value if isinstance(value, Mapping) else NOTHING  # type: ignore[reportUnknownVariableType]
