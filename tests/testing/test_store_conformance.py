"""The suite for stores finds what is wrong with a store, and names the rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from agentscope_rx.errors import ConformanceFailed, LeaseLost, MissingExtra, StateConflict
from agentscope_rx.stores import ANYBODY, InMemoryStore, Lease, SessionKey, SessionStore, Stored
from agentscope_rx.testing import check_store
from agentscope_rx.testing import store_conformance as module


def making(make: Callable[[], SessionStore]) -> Callable[[], AbstractAsyncContextManager[SessionStore]]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[SessionStore]:
        yield make()

    return made


class Overwriting(InMemoryStore):
    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        stored = await self.get(key)
        version = stored.version if stored else 0
        return await super().put(key, body, expected_version=version, fence=fence)


class Hasty(Overwriting):
    """Looks, and then writes."""

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        stored = await self.get(key)
        if fence is None and (stored.version if stored else 0) != expected_version:
            raise StateConflict("too late")
        await asyncio.sleep(0)
        return await super().put(key, body, expected_version=expected_version, fence=fence)


class Text(InMemoryStore):
    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        text = body.replace(b"\0", b"")
        return await super().put(key, text, expected_version=expected_version, fence=fence)


class Unfenced(InMemoryStore):
    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        return await super().append(key, records, expected_seq=expected_seq)


class UnfencedDelete(InMemoryStore):
    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        return await super().delete(key)


class Piecemeal(InMemoryStore):
    """A batch is several records."""

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        if not records:
            return await super().append(key, records, expected_seq=expected_seq)
        for record in records:
            expected_seq = await super().append(key, [record], expected_seq=expected_seq, fence=fence)
            await asyncio.sleep(0)
        return expected_seq


class Generous(InMemoryStore):
    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        return await super().read_after(key, seq, limit=limit + 1 if limit == 3 else limit)


class Caseless(InMemoryStore):
    async def get(self, key: SessionKey, /) -> Stored | None:
        return await super().get(replace(key, session_id=key.session_id.lower()))

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        key = replace(key, session_id=key.session_id.lower())
        return await super().put(key, body, expected_version=expected_version, fence=fence)


class Open(InMemoryStore):
    """Lists everybody's."""

    async def list(self, *, user_id: object = ANYBODY, **options: Any) -> Sequence[SessionKey]:
        return await super().list(**options)


class Greedy(InMemoryStore):
    """A lease is for ever."""

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        return await super().acquire(key, holder, ttl=ttl if ttl != ttl or ttl <= 0 or ttl > 1e9 else 1e9)


class Forgetful(InMemoryStore):
    """Counts fences by session, and begins anew when the session does."""

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        lease = await super().acquire(key, holder, ttl=ttl)
        session = self._sessions[key]
        before = getattr(self, "_before", dict[SessionKey, int]())
        self._before = before
        before[key] = before.get(key, 0) + 1
        session.lease = replace(lease, fence=before[key])
        return session.lease

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        there = await super().delete(key, fence=fence)
        getattr(self, "_before", dict[SessionKey, int]()).pop(key, None)
        return there


class Careless(InMemoryStore):
    """Releases whatever is held."""

    async def release(self, lease: Lease, /) -> None:
        if lease.key in self._sessions:
            self._sessions[lease.key].lease = None


class Strict(InMemoryStore):
    """Takes a lease that has run out for lost."""

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        session = self._sessions.get(lease.key)
        if session is not None and session.leased_until <= self._clock.monotonic():
            raise LeaseLost("too late")
        await super().renew(lease, ttl=ttl)


class Ruthless(InMemoryStore):
    """Prunes what is held."""

    async def prune(self, *, untouched_for: float) -> int:
        for session in self._sessions.values():
            session.leased_until = 0
        return await super().prune(untouched_for=untouched_for)


class Halfway(InMemoryStore):
    """Deletes the state, and then the log."""

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        if fence is None and key in self._sessions and self._sessions[key].log and self._sessions[key].state:
            self._sessions[key].state = None
            await asyncio.sleep(0.0005)
            await super().delete(key)
            return True
        return await super().delete(key, fence=fence)


class Bound(InMemoryStore):
    """Belongs to the loop that used it first."""

    async def get(self, key: SessionKey, /) -> Stored | None:
        loop = asyncio.get_running_loop()
        self._loop = getattr(self, "_loop", loop)
        if self._loop is not loop:
            raise RuntimeError("attached to a different loop")
        return await super().get(key)


class Counting(InMemoryStore):
    """Is wrong where only chance looks."""

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        last = await super().append(key, records, expected_seq=expected_seq, fence=fence)
        if last > 2 and key.user_id is None:
            self._sessions[key].log[-1] = b"wrong"
        return last


@pytest.mark.parametrize(
    ("store", "rule"),
    [
        (Overwriting, "a version that never was is no version"),
        (Hasty, "of those who put at once, one wins"),
        (Text, "a body is kept byte for byte"),
        (Unfenced, "append under an old fence"),
        (UnfencedDelete, "delete under an old fence"),
        (Piecemeal, "append"),
        (Generous, r"read_after\(0, limit=3\) gives those records"),
        (Caseless, "is no other session"),
        (Open, "have 4 sessions|have 0 sessions|have 12 sessions"),
        (Greedy, "TimeoutError"),
        (Forgetful, "has a newer fence"),
        (Careless, "the release of another lease releases nothing"),
        (Strict, "too late"),
        (Ruthless, "prune counts sessions"),
        (Halfway, "a cancelled delete is done whole, or it is not"),
        (Bound, "different loop"),
        (Counting, "read_after"),
    ],
)
async def test_a_store_that_breaks_a_rule_is_found(
    store: Callable[[], SessionStore], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault is found, and the rule that it breaks is named."""
    monkeypatch.setattr("agentscope_rx.testing._store_leases.PATIENCE", 2.0)
    with pytest.raises(ConformanceFailed, match=rule):
        await check_store(making(store))


async def test_hypothesis_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hypothesis nothing is checked, and the error says what to install."""

    def find_spec(name: str) -> object:
        return None if name == "hypothesis" else object()

    monkeypatch.setattr(module, "find_spec", find_spec)
    with pytest.raises(MissingExtra, match=r"agentscope-rx\[testing\]"):
        await check_store(making(InMemoryStore))
