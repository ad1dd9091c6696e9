"""A model's answer as it arrives: each piece becomes an event at once, and part of the reply in the end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import agentscope_rx.events as ev
from agentscope_rx.condensing import OPAQUE_KEY, CallPieces, ReplyBuilder
from agentscope_rx.messages import Msg
from agentscope_rx.requests import CallDelta, ModelChunk
from agentscope_rx.step import Step
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import json_object

_TEXT: Final = "text"
_THINKING: Final = "thinking"


class ReplyWriter:
    """One model call: emits its events, balanced, and builds its message.

    Opening text closes thinking and the other way round; opening a tool call closes both, and every call whose
    arguments are complete. Providers may write several calls at once: a call that is not complete stays open.

    Args:
        step: The step whose model call this is; its `call_id` is the stage's `reply_id`.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._emit = step.emit
        self._reply_id = step.call_id
        self._builder = ReplyBuilder()
        self._pending: dict[int, CallPieces] = {}  # calls that have no name yet
        self._open_calls: dict[int, CallPieces] = {}
        self._closed_calls: set[int] = set()
        self._open = ""  # the id of the open text or thinking block
        self._segments = {_TEXT: 0, _THINKING: 0}
        self.finish_reason: str | None = None
        self.started: datetime | None = None

    def start(self) -> None:
        """Say that the request goes out."""
        event = self._emit(ev.ModelCallStart(reply_id=self._reply_id, model=self._step.card.name))
        self.started = event.created_at

    def take(self, chunk: ModelChunk) -> None:
        """One piece of the answer."""
        if chunk.thinking:
            self._block(_THINKING)
            self._builder.thoughts.append(chunk.thinking)
            self._emit(ev.ThinkingBlockDelta(reply_id=self._reply_id, block_id=self._open, delta=chunk.thinking))
        if chunk.text:
            self._block(_TEXT)
            self._builder.texts.append(chunk.text)
            self._emit(ev.TextBlockDelta(reply_id=self._reply_id, block_id=self._open, delta=chunk.text))
        for delta in chunk.calls:
            self._call(delta)
        if chunk.usage is not None:
            self._builder.usage = chunk.usage
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if chunk.opaque:
            self._builder.opaque = {**self._builder.opaque, **chunk.opaque}

    def end(self, *, time: float, error: Mapping[str, object] | None = None) -> None:
        """Close what is open, and say that the call has ended.

        Args:
            time: Seconds since the request went out.
            error: Class and kind of the failure, where it failed.
        """
        self._show_pending()
        self._close_block()
        for index in [*self._open_calls]:
            self._close_call(index)
        builder = self._builder
        if builder.usage is not None:
            usage = builder.usage
            builder.usage = ChatUsage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                time=round(time, 6),
            )
        metadata = {
            key: value
            for key, value in (
                ("error", error),
                ("finish_reason", self.finish_reason),
                (OPAQUE_KEY, builder.opaque),
            )
            if value
        }
        self._emit(ev.ModelCallEnd(reply_id=self._reply_id, usage=builder.usage, metadata=metadata or None))

    @property
    def empty(self) -> bool:
        """Whether there is neither visible text nor a call."""
        return self._builder.empty

    @property
    def begun(self) -> bool:
        """Whether anything has arrived."""
        builder = self._builder
        return bool(builder.texts or builder.thoughts or builder.calls or self._pending)

    def message(self) -> Msg:
        """The reply, as far as it has been written."""
        return self._builder.build(id=self._reply_id, name=self._step.identity.agent_name, started=self.started)

    # -- blocks ---------------------------------------------------------------------------------------------

    def _block(self, kind: str) -> None:
        if self._open.startswith(kind):
            return
        self._close_block()
        self._segments[kind] += 1
        number = self._segments[kind]
        self._open = kind if number == 1 else f"{kind}-{number}"
        start = ev.TextBlockStart if kind == _TEXT else ev.ThinkingBlockStart
        self._emit(start(reply_id=self._reply_id, block_id=self._open))

    def _close_block(self) -> None:
        if self._open:
            end = ev.TextBlockEnd if self._open.startswith(_TEXT) else ev.ThinkingBlockEnd
            self._emit(end(reply_id=self._reply_id, block_id=self._open))
            self._open = ""

    # -- calls ----------------------------------------------------------------------------------------------

    def _call(self, delta: CallDelta) -> None:
        if delta.index in self._closed_calls:
            return  # its arguments were whole: what comes after them is no part of them
        pieces = self._open_calls.get(delta.index)
        if pieces is None:
            pieces = self._pending.setdefault(delta.index, CallPieces())
        pieces.id, pieces.name = pieces.id or delta.id, pieces.name or delta.name
        if delta.opaque:
            pieces.opaque = {**pieces.opaque, **delta.opaque}
        if delta.index in self._open_calls:
            if delta.arguments:
                self._arguments(pieces, delta.arguments)
            return
        if delta.arguments:
            pieces.arguments.append(delta.arguments)
        if pieces.name and pieces.id:
            self._show_pending()

    def _show_pending(self) -> None:
        """Show the calls that have been waiting for their name, in order: one that has it, or the end, has come."""
        for index, pieces in [*self._pending.items()]:
            if pieces.id or pieces.name or pieces.arguments:  # an index with nothing behind it is no call
                del self._pending[index]
                pieces.id = self._unused_id(pieces.id or f"call_{self._reply_id}_{index}")
                self._show_call(index, pieces)

    def _show_call(self, index: int, pieces: CallPieces) -> None:
        self._close_block()
        for other in [*self._open_calls]:
            if json_object("".join(self._open_calls[other].arguments)) is not None:
                self._close_call(other)
        self._open_calls[index] = pieces
        self._builder.calls[pieces.id] = pieces
        self._emit(ev.ToolCallStart(reply_id=self._reply_id, tool_call_id=pieces.id, tool_call_name=pieces.name))
        written = "".join(pieces.arguments)
        if written:
            pieces.arguments.clear()
            self._arguments(pieces, written)

    def _unused_id(self, wanted: str) -> str:
        """Two calls under one id would become one, and could not have a result each."""
        id, number = wanted, 1
        while id in self._builder.calls:
            number += 1
            id = f"{wanted}_{number}"
        return id

    def _arguments(self, pieces: CallPieces, delta: str) -> None:
        pieces.arguments.append(delta)
        self._emit(
            ev.ToolCallDelta(reply_id=self._reply_id, tool_call_id=pieces.id, tool_call_name=pieces.name, delta=delta)
        )

    def _close_call(self, index: int) -> None:
        pieces = self._open_calls.pop(index)
        self._closed_calls.add(index)
        self._emit(
            ev.ToolCallEnd(
                reply_id=self._reply_id,
                tool_call_id=pieces.id,
                tool_call_name=pieces.name,
                metadata={OPAQUE_KEY: pieces.opaque} if pieces.opaque else None,
            )
        )
