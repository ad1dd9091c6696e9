"""The rules of a store about who may write, and what may be thrown away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from agentscope_rx.errors import LeaseLost, SessionBusy
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import Lease, SessionStore
from agentscope_rx.testing._rules import refused, require

KEY: Final = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
LONG: Final = 3600.0  # seconds that do not pass while a rule is checked
SHORT: Final = 0.02  # seconds that do
PATIENCE: Final = 60.0


async def refuses_fence(store: SessionStore, lease: Lease, where: str) -> None:
    """Hold that nothing can be written under a lease."""
    stored, log = await store.get(lease.key), list(await store.read_after(lease.key, 0))
    version, seq, fence = stored.version if stored else 0, len(log), lease.fence
    with refused(LeaseLost, f"put under an old fence, in {where}"):
        await store.put(lease.key, b"late", expected_version=version, fence=fence)
    with refused(LeaseLost, f"append under an old fence, in {where}"):
        await store.append(lease.key, [b"late"], expected_seq=seq, fence=fence)
    with refused(LeaseLost, f"put under an old fence and on a version that never was, in {where}"):
        await store.put(lease.key, b"late", expected_version=version + 3, fence=fence)
    with refused(LeaseLost, f"delete under an old fence, in {where}"):
        await store.delete(lease.key, fence=fence)
    with refused(LeaseLost, f"renew an old lease, in {where}"):
        await store.renew(lease, ttl=LONG)
    await store.release(lease)
    require(await store.get(lease.key) == stored, f"a late put changes nothing, in {where}")
    require(list(await store.read_after(lease.key, 0)) == log, f"a late append changes nothing, in {where}")


async def leases(store: SessionStore) -> None:
    mine = await store.acquire(KEY, "me", ttl=LONG)
    require(mine == Lease(KEY, "me", mine.fence), "a lease says of which session, and whose it is")
    for holder in ("you", "me"):
        with refused(SessionBusy, f"{holder} cannot have what I have"):
            await store.acquire(KEY, holder, ttl=LONG)
    await store.put(KEY, b"1", expected_version=0, fence=mine.fence)
    await store.append(KEY, [b"1"], expected_seq=0, fence=mine.fence)
    await store.put(KEY, b"2", expected_version=1)
    await store.renew(mine, ttl=LONG)
    for fence in (mine.fence + 1, mine.fence - 1, 0):
        await refuses_fence(store, replace(mine, fence=fence), "a session whose fence is another")
    with refused(SessionBusy, "the release of another lease releases nothing"):
        await store.acquire(KEY, "you", ttl=LONG)
    await store.release(mine)
    await refuses_fence(store, mine, "a session that was released")
    yours = await store.acquire(KEY, "you", ttl=LONG)
    require(yours.fence > mine.fence, "each lease has a newer fence")
    await refuses_fence(store, mine, "a session that somebody else has")
    await store.append(KEY, [b"2"], expected_seq=1, fence=yours.fence)
    require(await store.delete(KEY, fence=yours.fence) is True, "who holds a session may delete it")
    other = await store.acquire(replace(KEY, session_id="s2"), "you", ttl=LONG)
    require(other.key.session_id == "s2", "sessions are held one by one")


async def leases_run_out(store: SessionStore) -> None:
    mine = await store.acquire(KEY, "me", ttl=SHORT)
    yours = await acquire_when_free(store, "you", ttl=LONG)
    require(yours.fence > mine.fence, "who takes over has a newer fence")
    await refuses_fence(store, mine, "a session that was taken over")
    await store.renew(yours, ttl=SHORT)
    third = await acquire_when_free(store, "third", ttl=SHORT)
    await asyncio.sleep(SHORT * 2)
    await store.put(KEY, b"1", expected_version=0, fence=third.fence)
    await store.renew(third, ttl=LONG)
    with refused(SessionBusy, "a lease that has run out and that nobody took is renewed"):
        await store.acquire(KEY, "you", ttl=LONG)


async def acquire_when_free(store: SessionStore, holder: str, *, ttl: float) -> Lease:
    """Ask for the session until it is free."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.acquire(KEY, holder, ttl=ttl)
            except SessionBusy:
                await asyncio.sleep(SHORT)


async def prunes(store: SessionStore) -> None:
    old, held = replace(KEY, session_id="old"), replace(KEY, session_id="held")
    for key in (old, held):
        await store.put(key, b"{}", expected_version=0)
        await store.append(key, [b"{}"], expected_seq=0)
    lease = await store.acquire(held, "me", ttl=LONG)
    empty = await store.acquire(replace(KEY, session_id="empty"), "me", ttl=LONG)
    await store.release(empty)
    require(await store.prune(untouched_for=LONG) == 0, "what is young is kept")
    require(set(await store.list()) == {old, held}, "what is kept is listed")
    require(await store.prune(untouched_for=0) == 1, "prune counts sessions, and not what is only a lease")
    require(list(await store.list()) == [held], "what somebody holds is kept, and what nobody holds is not")
    require(await store.get(old) is None, "what was pruned has no state")
    require(list(await store.read_after(old, 0)) == [], "what was pruned has no records")
    await store.append(held, [b"{}"], expected_seq=1, fence=lease.fence)
    await store.release(lease)
    require(await store.prune(untouched_for=0) == 1, "what was released is pruned")
