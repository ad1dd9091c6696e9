"""A process that works on a session beside others: `-m tests.stores.contending <work> <place> <times> <name>`."""

from __future__ import annotations

import asyncio
import sys

from agentscope_rx.errors import SessionBusy, StateConflict
from agentscope_rx.stores import Lease, SessionKey, SessionStore
from tests.stores.places import store_at

KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")


async def append(store: SessionStore, name: str, times: int) -> None:
    """Add records of one's own to the log, wherever it ends."""
    seq = 0
    for turn in range(times):
        while True:
            try:
                seq = await store.append(KEY, [f"{name}:{turn}".encode()], expected_seq=seq)
                break
            except StateConflict:
                seq += len(await store.read_after(KEY, seq))


async def hold(store: SessionStore, name: str, times: int) -> None:
    """Add the next number, under a lease; a conflict ends the process."""
    for _ in range(times):
        lease = await acquire(store, name)
        log = await store.read_after(KEY, 0)
        number = int(log[-1]) if log else 0
        await store.append(KEY, [b"%d" % (number + 1)], expected_seq=len(log), fence=lease.fence)
        await store.release(lease)


async def acquire(store: SessionStore, name: str) -> Lease:
    """Ask until it is free."""
    while True:
        try:
            return await store.acquire(KEY, name, ttl=60)
        except SessionBusy:
            await asyncio.sleep(0.005)


if __name__ == "__main__":
    _, work, place, times, name = sys.argv
    asyncio.run({"append": append, "hold": hold}[work](store_at(place), name, int(times)))
