"""What `SqlStore` does with its tables, each in one transaction. Imported on first use, as it needs SQLAlchemy.

The first statement of each transaction that writes is an UPDATE or DELETE of the session's row: it checks what the
caller expects, and locks the row until the transaction ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, case, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentscope_rx.stores.keys import SessionKey, folder_name, user_folder
from agentscope_rx.stores.refusals import busy, conflict, lease_lost, log_conflict
from agentscope_rx.stores.sql_listening import tell
from agentscope_rx.stores.sql_tables import RECORDS, SESSIONS, STATES, TERMS, Now
from agentscope_rx.stores.store import ABSENT, Anybody, Lease, Stored

_SECOND: Final = 1_000_000
_PAGE: Final = 500


class NotThere(Exception):
    """The session had no row a moment ago."""


async def get(connection: AsyncConnection, key: SessionKey) -> Stored | None:
    """The state of a session."""
    states = SESSIONS.join(STATES, STATES.c.session == SESSIONS.c.session)
    query = select(SESSIONS.c.version, STATES.c.body).select_from(states).where(SESSIONS.c.session == digest_of(key))
    row = (await connection.execute(query)).first()
    return None if row is None else Stored(bytes(row.body), row.version)


async def put(connection: AsyncConnection, key: SessionKey, body: bytes, expected: int, fence: int | None) -> int:
    """Replace the state of a session."""
    version, session = expected + 1, digest_of(key)
    found = await _advance(connection, key, fence, (SESSIONS.c.version, expected, version))
    if found != expected:
        raise conflict(key, expected, found)
    if expected == ABSENT:
        await connection.execute(insert(STATES).values(session=session, body=body))
    else:
        await connection.execute(update(STATES).where(STATES.c.session == session).values(body=body))
    return version


async def append(
    connection: AsyncConnection, key: SessionKey, records: Sequence[bytes], expected: int, fence: int | None
) -> int:
    """Add records to the log of a session."""
    last, session = expected + len(records), digest_of(key)
    found = await _advance(connection, key, fence, (SESSIONS.c.last_seq, expected, last))
    if found != expected:
        raise log_conflict(key, expected, found)
    rows = [{"session": session, "seq": seq, "body": body} for seq, body in enumerate(records, expected + 1)]
    await connection.execute(insert(RECORDS), rows)
    if connection.dialect.name == "postgresql":
        await tell(connection, session)
    return last


async def read_after(connection: AsyncConnection, key: SessionKey, seq: int, limit: int) -> tuple[bytes, ...]:
    """The records behind a number."""
    mine = RECORDS.c.session == digest_of(key), RECORDS.c.seq > seq
    query = select(RECORDS.c.body).where(*mine).order_by(RECORDS.c.seq).limit(limit)
    return tuple(bytes(row.body) for row in await connection.execute(query))


async def acquire(connection: AsyncConnection, key: SessionKey, holder: str, ttl: float) -> Lease:
    """Give a session a new lease."""
    row, now = SESSIONS.c.session == digest_of(key), Now()
    taking = update(SESSIONS).where(row, SESSIONS.c.leased_until <= now)
    taking = taking.values(
        # Above each of an earlier session of this name, whose row was deleted.
        fence=case((SESSIONS.c.fence >= now, SESSIONS.c.fence + 1), else_=now),
        holder=holder.encode(),
        leased_until=now + int(ttl * _SECOND),
        touched=now,
    )
    taken = await connection.execute(taking)
    live = (SESSIONS.c.leased_until > now).label("live")
    found = (await connection.execute(select(SESSIONS.c.fence, SESSIONS.c.holder, live).where(row))).first()
    if found is not None and taken.rowcount:
        return Lease(key, holder, found.fence)
    if found is None or not found.live:
        raise NotThere  # it may be there since
    raise busy(key, bytes(found.holder).decode())


async def renew(connection: AsyncConnection, lease: Lease, ttl: float) -> None:
    """Let a lease run out later."""
    values = {"leased_until": Now() + int(ttl * _SECOND), "touched": Now()}
    if not (await connection.execute(update(SESSIONS).where(*_of(lease)).values(values))).rowcount:
        raise lease_lost(lease.key, lease.fence)


async def release(connection: AsyncConnection, lease: Lease) -> None:
    """End a lease."""
    values = {"fence": lease.fence + 1, "leased_until": 0}
    await connection.execute(update(SESSIONS).where(*_of(lease)).values(values))


async def keys(
    connection: AsyncConnection,
    agent_id: str | None,
    user_id: str | Anybody | None,
    after: SessionKey | None,
    limit: int,
) -> tuple[SessionKey, ...]:
    """A page of sessions."""
    query = select(SESSIONS.c.ids).where(or_(SESSIONS.c.version > ABSENT, SESSIONS.c.last_seq > ABSENT))
    if agent_id is not None:
        query = query.where(SESSIONS.c.agent == folder_name(agent_id))
    if not isinstance(user_id, Anybody):
        query = query.where(SESSIONS.c.owner == user_folder(user_id))
    if after is not None:
        query = query.where(SESSIONS.c.session > digest_of(after))
    rows = await connection.execute(query.order_by(SESSIONS.c.session).limit(limit))
    return tuple(SessionKey.from_json(bytes(row.ids)) for row in rows)


async def remove(connection: AsyncConnection, key: SessionKey, fence: int | None) -> bool:
    """Delete a session; whether it was there."""
    conditions = () if fence is None else (SESSIONS.c.fence == fence,)
    found = await _remove(connection, digest_of(key), *conditions)
    if found is None and fence is not None:
        raise lease_lost(key, fence)
    return bool(found)


async def unused(connection: AsyncConnection, untouched_for: float) -> Sequence[str]:
    """The digests of sessions that may be pruned."""
    query = select(SESSIONS.c.session).where(*_unused(untouched_for)).limit(_PAGE)
    return [row.session for row in await connection.execute(query)]


async def remove_unused(connection: AsyncConnection, session: str, untouched_for: float) -> bool:
    """Delete a session that may still be pruned; whether it was there."""
    return bool(await _remove(connection, session, *_unused(untouched_for)))


async def make(connection: AsyncConnection, key: SessionKey) -> None:
    """Make the row of a session that is not there."""
    row = {"session": digest_of(key), "agent": key.agent_folder, "owner": key.user_folder, "ids": key.to_json()}
    try:
        async with connection.begin_nested():
            await connection.execute(insert(SESSIONS).values(**row, touched=Now()))
    except IntegrityError:
        return  # somebody else made it


def digest_of(key: SessionKey) -> str:
    """What the rows of a session are found by."""
    return hashlib.sha256(key.path.encode()).hexdigest()


def _of(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return SESSIONS.c.session == digest_of(lease.key), SESSIONS.c.fence == lease.fence


def _unused(untouched_for: float) -> tuple[ColumnElement[bool], ...]:
    return SESSIONS.c.touched <= Now() - int(untouched_for * _SECOND), SESSIONS.c.leased_until <= Now()


async def _advance(
    connection: AsyncConnection, key: SessionKey, fence: int | None, change: tuple[ColumnElement[Any], int, int]
) -> int:
    """Move a counter of a session on; what it was before."""
    counter, expected, new = change
    row = SESSIONS.c.session == digest_of(key)
    fenced = () if fence is None else (SESSIONS.c.fence == fence,)
    moving = update(SESSIONS).where(row, counter == expected, *fenced).values({counter: new, SESSIONS.c.touched: Now()})
    if (await connection.execute(moving)).rowcount:
        return expected
    found = (await connection.execute(select(counter.label("counter"), SESSIONS.c.fence).where(row))).first()
    if fence is not None and (found is None or found.fence != fence):
        raise lease_lost(key, fence)
    before: int = ABSENT if found is None else found.counter
    if before == expected:
        raise NotThere  # it may be there since
    return before


async def _remove(connection: AsyncConnection, session: str, *conditions: ColumnElement[bool]) -> int | None:
    """Delete a session's rows; how many states and records it had, None where the conditions do not hold."""
    removing = delete(SESSIONS).where(SESSIONS.c.session == session, *conditions)
    if not (await connection.execute(removing)).rowcount:
        return None
    states = await connection.execute(delete(STATES).where(STATES.c.session == session))
    records = await connection.execute(delete(RECORDS).where(RECORDS.c.session == session))
    await connection.execute(delete(TERMS).where(TERMS.c.session == session))
    return states.rowcount + records.rowcount
