"""What a run tells those who listen, kept for those who listen later or elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias, cast

from agentscope_rx.events import (
    AgentEvent,
    TextBlockDelta,
    ThinkingBlockDelta,
    ToolCallDelta,
    ToolResultTextDelta,
)
from agentscope_rx.records import EventsEmitted
from agentscope_rx.state import Record
from agentscope_rx.wire import from_json

Delta: TypeAlias = TextBlockDelta | ThinkingBlockDelta | ToolCallDelta | ToolResultTextDelta
_DELTAS: Final = (TextBlockDelta, ThinkingBlockDelta, ToolCallDelta, ToolResultTextDelta)


class Journal(Protocol):
    """What is taken down beside a session's records, and becomes one of them whenever records are written."""

    @property
    def filled(self) -> bool:
        """Whether something was taken down that is in no record yet."""
        ...

    def record(self) -> Record:
        """What was taken down since the last one."""
        ...


class EventJournal:
    """Takes the events of a run, and gives them away together; safe from any thread.

    Taking one is an append: it happens for every token.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: list[AgentEvent] = []

    @property
    def filled(self) -> bool:
        """Whether something was taken that was not given away."""
        return bool(self._taken)

    def take(self, event: AgentEvent) -> None:
        """Take an event."""
        with self._lock:
            self._taken.append(event)

    def record(self) -> EventsEmitted:
        """All that was taken, as plain data; deltas of one block that follow one another are one."""
        with self._lock:
            taken, self._taken = self._taken, []
        return EventsEmitted(tuple(_data_of(event) for event in merged(taken)))


def merged(events: Iterable[AgentEvent]) -> Iterator[AgentEvent]:
    """The events, with deltas of one block that follow one another as one: the last one's, with the text of all."""
    held: list[Delta] = []
    for event in events:
        if held and _block_of(held[0]) != _block_of(event):
            yield _joined(held)
            held = []
        if isinstance(event, _DELTAS):
            held.append(event)
        else:
            yield event
    if held:
        yield _joined(held)


def _joined(deltas: list[Delta]) -> Delta:
    return deltas[0] if len(deltas) == 1 else replace(deltas[-1], delta="".join(each.delta for each in deltas))


def _block_of(event: AgentEvent) -> Hashable:
    """What a delta is a piece of; None for other events."""
    if not isinstance(event, _DELTAS):
        return None
    within = event.block_id if isinstance(event, TextBlockDelta | ThinkingBlockDelta) else event.tool_call_id
    return type(event), event.reply_id, within, event.source, repr(event.metadata)


def _data_of(event: AgentEvent) -> Mapping[str, object]:
    return cast("dict[str, Any]", from_json(event.to_json()))
