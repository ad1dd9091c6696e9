"""A store that lives and dies with the process."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice

from agentscope_rx.runtime import Clock, SystemClock
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.refusals import (
    busy,
    check_age,
    check_lease,
    check_limit,
    check_read,
    check_records,
    check_ttl,
    conflict,
    lease_lost,
    log_conflict,
)
from agentscope_rx.stores.store import ABSENT, ANYBODY, Anybody, Lease, Stored


@dataclass(slots=True)
class _Session:
    state: Stored | None = None
    log: list[bytes] = field(default_factory=list[bytes])
    lease: Lease | None = None
    leased_until: float = 0.0
    touched: float = 0.0

    @property
    def is_there(self) -> bool:
        return self.state is not None or bool(self.log)


class InMemoryStore:
    """Keeps sessions in a dict; safe from any thread.

    Args:
        clock: What leases run out by, and what `prune` goes by.
    """

    local = True

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._sessions: dict[SessionKey, _Session] = {}
        self._watchers: defaultdict[SessionKey, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)
        self._fences = count(1)  # of all sessions, so that one that is begun anew never has an old one

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key."""
        session = self._sessions.get(key)
        return session and session.state

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        """Store a state in the place of the version that the caller knows."""
        with self._lock:
            session = self._fenced(key, fence)
            version = ABSENT if session.state is None else session.state.version
            if version != expected_version:
                raise conflict(key, expected_version, version)
            session.state = Stored(bytes(body), version + 1)
            self._touch(key, session)
            return version + 1

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Add records at the end of the session's log."""
        check_records(records)
        with self._lock:
            session = self._fenced(key, fence)
            if len(session.log) != expected_seq:
                raise log_conflict(key, expected_seq, len(session.log))
            session.log.extend(map(bytes, records))
            self._touch(key, session)
            last, watchers = len(session.log), self._watchers.pop(key, ())
        for loop, watcher in watchers:
            with suppress(RuntimeError):  # its loop was closed
                loop.call_soon_threadsafe(watcher.set)
        return last

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """The records after a number."""
        check_read(seq, limit)
        with self._lock:
            session = self._sessions.get(key)
            return () if session is None else tuple(session.log[seq : seq + limit])

    async def watch(self, key: SessionKey, seq: int, /, *, timeout: float) -> None:
        """Wait until the session's log has grown."""
        check_read(seq, 1)
        here = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            session = self._sessions.get(key)
            if session is not None and len(session.log) > seq:
                return
            self._watchers[key].add(here)
        try:
            async with asyncio.timeout(timeout):
                await here[1].wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                if key in self._watchers:
                    self._watchers[key].discard(here)
                    if not self._watchers[key]:
                        del self._watchers[key]

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Become the one that may write to the session."""
        check_lease(holder, ttl)
        with self._lock:
            session, now = self._fenced(key, None), self._clock.monotonic()
            if session.lease is not None and now < session.leased_until:
                raise busy(key, session.lease.holder)
            session.lease, session.leased_until = Lease(key, holder, next(self._fences)), now + ttl
            self._touch(key, session)
            return session.lease

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        """Have the lease for longer."""
        check_ttl(ttl)
        with self._lock:
            session = self._fenced(lease.key, lease.fence)
            session.leased_until = self._clock.monotonic() + ttl
            self._touch(lease.key, session)

    async def release(self, lease: Lease, /) -> None:
        """Let others have the lease."""
        with self._lock:
            session = self._sessions.get(lease.key)
            if session is not None and session.lease is not None and session.lease.fence == lease.fence:
                session.lease = None

    async def list(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        after: SessionKey | None = None,
        limit: int = 100,
    ) -> Sequence[SessionKey]:
        """Sessions that are there, by agent, user and session."""
        check_limit(limit)
        with self._lock:
            found = sorted(
                (_order(key), key)
                for key, session in self._sessions.items()
                if session.is_there
                and agent_id in (None, key.agent_id)
                and user_id in (ANYBODY, key.user_id)
                and (after is None or _order(key) > _order(after))
            )
        return tuple(key for _, key in islice(found, limit))

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        """Remove a session."""
        with self._lock:
            session = self._fenced(key, fence)
            self._sessions.pop(key, None)
            return session.is_there

    async def prune(self, *, untouched_for: float) -> int:
        """Delete sessions that nobody uses."""
        check_age(untouched_for)
        with self._lock:
            now = self._clock.monotonic()
            unused = [
                key
                for key, session in self._sessions.items()
                if session.touched + untouched_for <= now and (session.lease is None or session.leased_until <= now)
            ]
            return sum(self._sessions.pop(key).is_there for key in unused)

    def _fenced(self, key: SessionKey, fence: int | None) -> _Session:
        """The session, which a write under an old fence may not have."""
        session = self._sessions.get(key) or _Session()
        if fence is not None and (session.lease is None or session.lease.fence != fence):
            raise lease_lost(key, fence)
        return session

    def _touch(self, key: SessionKey, session: _Session) -> None:
        session.touched = self._clock.monotonic()
        self._sessions[key] = session


def _order(key: SessionKey) -> tuple[str, bool, str, str]:
    return key.agent_id, key.user_id is not None, key.user_id or "", key.session_id
