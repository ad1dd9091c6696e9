"""The events of a session for who watches it from anywhere: from its log, and on as they come.

Events are records of the log, and a record says where it stands. So there is no gap and no duplicate between what has
been and what comes, and a reader that is slow reads more at once, with deltas of a block as one: nothing is kept for
it, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import cache
from typing import Final

from pydantic import TypeAdapter

from agentscope_rx.errors import InvalidOption
from agentscope_rx.events import AgentEvent, Event
from agentscope_rx.frozen import frozen
from agentscope_rx.session import LogRecord
from agentscope_rx.session.journal import merged
from agentscope_rx.stores import SessionKey, SessionStore
from agentscope_rx.stores.growing import grown

EVENTS: Final = "events/emitted"
_PAGE: Final = 200
_CURSOR: Final = "an int, the number of a record of the log; or the cursor of an event"


@frozen
class SessionEvent:
    """An event of a session.

    Args:
        event: What has happened.
        cursor: Where it stands: `events(after=cursor)` goes on behind it, also in another process.
    """

    event: AgentEvent
    cursor: str


@frozen(kw_only=False)
class _Place:
    """So many events of the record behind `seq` are known."""

    seq: int
    events: int = 0

    @classmethod
    def of(cls, after: int | str) -> _Place:
        seq, _, events = str(after).partition(":")
        if not seq.isdecimal() or (events and not events.isdecimal()):
            raise InvalidOption("after", after, _CURSOR)
        return cls(int(seq), int(events or 0))

    def __str__(self) -> str:
        return f"{self.seq}:{self.events}" if self.events else str(self.seq)


def checked_cursor(after: int | str) -> int | str:
    """The cursor.

    Raises:
        InvalidOption: It is none.
    """
    _Place.of(after)
    return after


async def events_of(
    store: SessionStore, key: SessionKey, after: int | str, *, follow: bool
) -> AsyncGenerator[SessionEvent]:
    """The events behind a cursor.

    Args:
        store: Where the session is kept.
        key: The session.
        after: The cursor; 0 = from the beginning.
        follow: Whether to wait for more at the end of the log.
    """
    place = _Place.of(after)
    while True:
        page = [LogRecord.from_json(body) for body in await store.read_after(key, place.seq, limit=_PAGE)]
        for event in _told(page, place):
            yield event
        if page:
            place = _Place(page[-1].seq)
        elif not follow:
            return
        else:
            await grown(store, key, place.seq)


def _told(page: Sequence[LogRecord], begin: _Place) -> Iterator[SessionEvent]:
    cursors: dict[str, str] = {}
    events: list[AgentEvent] = []
    for record in page:
        if record.type != EVENTS:
            continue
        told = _adapter().validate_python(record.payload["events"])
        for number, event in enumerate(told, 1):
            if record.seq - 1 == begin.seq and number <= begin.events:
                continue
            place = _Place(record.seq) if number == len(told) else _Place(record.seq - 1, number)
            cursors[event.id] = str(place)
            events.append(event)
    for event in merged(events):
        yield SessionEvent(event=event, cursor=cursors[event.id])


@cache
def _adapter() -> TypeAdapter[list[Event]]:
    return TypeAdapter(list[Event])
