"""Reading a session with the past that it shares with the one it was forked from.

The log of a fork begins with a record that names a point of another session's log. What lies before that point is the
fork's past too, and is read there as long as it is there; the fork itself holds the state at that point.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Final

from agentscope_rx.errors import LogUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.past import PastPoint
from agentscope_rx.records import SessionForked
from agentscope_rx.session.codecs import codec_for
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore

_PAGE: Final = 1_000


@frozen
class Stretch:
    """A part of a session's past, in the log of one session.

    Args:
        key: Whose log it is.
        through: Its last record; None = the end of the log.
    """

    key: SessionKey
    through: int | None = None


def mark_of(body: bytes) -> str:
    """A hash by which a record is known again."""
    return sha256(body).hexdigest()


def key_at(past: PastPoint) -> SessionKey:
    """The session in whose log a point lies."""
    return SessionKey(agent_id=past.agent_id, user_id=past.user_id, session_id=past.session_id)


def point_at(key: SessionKey, seq: int, mark: str) -> PastPoint:
    """A record of a session as a point."""
    return PastPoint(agent_id=key.agent_id, user_id=key.user_id, session_id=key.session_id, seq=seq, mark=mark)


async def record_at(store: SessionStore, point: PastPoint) -> bytes | None:
    """The record of a point; None where it is gone, or another one has its number by now."""
    found = await store.read_after(key_at(point), point.seq - 1, limit=1) if point.seq > 0 else ()
    return found[0] if found and mark_of(found[0]) == point.mark else None


async def records(
    store: SessionStore, key: SessionKey, after: int, through: int | None = None
) -> AsyncGenerator[tuple[bytes, LogRecord]]:
    """The records of one log behind a number, page by page.

    Args:
        store: Where it is kept.
        key: Whose log it is.
        after: The last record that is known.
        through: The last one that is wanted; None = to the end.

    Raises:
        LogUnreadable: One of them cannot be read.
    """
    while through is None or after < through:
        limit = _PAGE if through is None else min(_PAGE, through - after)
        page = await store.read_after(key, after, limit=limit)
        for body in page:
            record = LogRecord.from_json(body)
            after += 1
            if record.seq != after:
                raise LogUnreadable(f"the log of session {key.session_id!r} holds record {record.seq} at place {after}")
            yield body, record
        if len(page) < limit:
            return


async def forked_from(store: SessionStore, key: SessionKey) -> PastPoint | None:
    """The point that a session was forked from; None where it was not."""
    first = await store.read_after(key, 0, limit=1)
    record = LogRecord.from_json(first[0]) if first else None
    codec = None if record is None else codec_for(record.type)
    if record is None or codec is None or codec.record is not SessionForked:
        return None
    forked = codec.read(record.version, record.payload, AgentState())
    assert isinstance(forked, SessionForked)
    return forked.past


async def lineage(store: SessionStore, key: SessionKey) -> Sequence[Stretch]:
    """The stretches of logs that are a session's past, oldest first; the last is its own log.

    Where a source was deleted, or begun anew, the past begins behind it. A point is known by the hash of its record, so
    that no record that came from elsewhere makes the log of another session a part of this one.

    Args:
        store: Where they are kept.
        key: The session.
    """
    stretches, seen = [Stretch(key=key)], {key}
    while (past := await forked_from(store, key)) is not None:
        key = key_at(past)
        if key in seen:
            break
        if await record_at(store, past) is None:
            break
        seen.add(key)
        stretches.append(Stretch(key=key, through=past.seq))
    return tuple(reversed(stretches))


async def whole_past(store: SessionStore, key: SessionKey) -> AsyncGenerator[tuple[SessionKey, LogRecord]]:
    """All records of a session's past, oldest first, each with the session in whose log it is."""
    for stretch in await lineage(store, key):
        async with aclosing(records(store, stretch.key, 0, stretch.through)) as found:
            async for _, record in found:
                yield stretch.key, record
