"""Sessions as lines of JSON, to be taken to another store.

The first line says what follows: `{"session":1,"kind":"log",...}`. Then each record of the log is a line, word for
word; of a session that is kept without a log its state is the only one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from agentscope_rx.errors import LogUnreadable, StateConflict, StateUnreadable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.session.folding import is_checkpoint
from agentscope_rx.session.lineage import records
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.state import AgentState
from agentscope_rx.stores import Lease, SessionKey, SessionStore
from agentscope_rx.wire import from_json, to_json

VERSION: Final = 1
_BATCH: Final = 500
_LEASE_SECONDS: Final = 60.0
_NO_SESSION: Final = "these lines are no exported session: the first one must be what an export begins with"


async def exported(store: SessionStore, key: SessionKey) -> AsyncIterator[bytes]:
    """The lines of a session; none where it is not there.

    Args:
        store: Where it is kept.
        key: The session.

    Raises:
        LogUnreadable: A record of its log cannot be read.
    """
    head = {"session": VERSION, "agentId": key.agent_id, "userId": key.user_id, "sessionId": key.session_id}
    stored = await store.get(key)
    if stored is not None and not is_checkpoint(stored.body):
        yield to_json(head | {"kind": "state"})
        yield stored.body
        return
    begun = False
    async for body, _ in records(store, key, 0):
        if not begun:
            yield to_json(head | {"kind": "log"})
            begun = True
        yield body


async def imported(store: SessionStore, key: SessionKey, lines: Iterable[bytes]) -> int:
    """Put an exported session into a store, under any key; all of it is read before anything is written.

    Args:
        store: Where it is to be.
        key: The session that it becomes.
        lines: Its lines.

    Returns:
        How many lines there were behind the first.

    Raises:
        StateConflict: A session is there already; it is left as it is.
        LogUnreadable: The lines are no session, or a record of it cannot be read.
        StateUnreadable: The state cannot be read.
    """
    kind, bodies = _checked(key, [line for line in (line.strip() for line in lines) if line])
    lease = await store.acquire(key, "an import", ttl=_LEASE_SECONDS)
    try:
        if await store.get(key) is not None or await store.read_after(key, 0, limit=1):
            raise StateConflict(f"session {key.session_id!r} is there already: delete it, or import under another id")
        if kind == "state":
            await store.put(key, bodies[0], expected_version=0, fence=lease.fence)
        else:
            await _append(store, lease, bodies)
    finally:
        await to_the_end(store.release(lease))
    return len(bodies)


async def _append(store: SessionStore, lease: Lease, bodies: Sequence[bytes]) -> None:
    """All records, or none."""
    try:
        for seq in range(0, len(bodies), _BATCH):
            await store.append(lease.key, bodies[seq : seq + _BATCH], expected_seq=seq, fence=lease.fence)
            await store.renew(lease, ttl=_LEASE_SECONDS)
    except BaseException:
        await to_the_end(store.delete(lease.key, fence=lease.fence))
        raise


def _checked(key: SessionKey, lines: Sequence[bytes]) -> tuple[str, Sequence[bytes]]:
    head, bodies = _head(lines), lines[1:]
    if head["kind"] == "state":
        if len(bodies) != 1:
            raise StateUnreadable(f"an exported state is one line, not {len(bodies)}")
        state = AgentState.from_json(bodies[0])
        return "state", [replace(state, session_id=key.session_id, user_id=key.user_id).to_json()]
    state = AgentState(session_id=key.session_id, user_id=key.user_id)
    for seq, body in enumerate(bodies, 1):
        record = LogRecord.from_json(body)
        if record.seq != seq:
            raise LogUnreadable(f"record {record.seq} stands where record {seq} must: lines are missing, or mixed up")
        state = record.applied_to(state)
    return "log", bodies


def _head(lines: Sequence[bytes]) -> dict[str, Any]:
    try:
        head = cast("dict[str, Any]", from_json(lines[0]))
        version, kind = head["session"], head["kind"]
    except (ValueError, KeyError, TypeError, IndexError):
        raise LogUnreadable(_NO_SESSION) from None
    if version != VERSION or kind not in ("log", "state") or len(lines) == 1:
        raise LogUnreadable(f"{_NO_SESSION}, of version {VERSION}, with lines behind it")
    return head
