"""The rules of a store about several at once, and about those who leave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from agentscope_rx.errors import SessionBusy, StateConflict
from agentscope_rx.stores.store import Lease, SessionStore, Stored
from agentscope_rx.testing._rules import require
from agentscope_rx.testing._store_leases import KEY, LONG, PATIENCE, SHORT, acquire_when_free

_WRITERS: Final = 16


# -- at once ----------------------------------------------------------------------------------------------------


async def lets_one_win(store: SessionStore) -> None:
    for turn in range(3):
        puts = [store.put(KEY, b"%d" % n, expected_version=turn) for n in range(_WRITERS)]
        won = _winner(await asyncio.gather(*puts, return_exceptions=True), StateConflict, "put")
        require(await store.get(KEY) == Stored(b"%d" % won, turn + 1), "what is stored is the winner's")
        batches = [[b"%d" % n, b"!"] for n in range(_WRITERS)]
        appends = [store.append(KEY, batch, expected_seq=2 * turn) for batch in batches]
        won = _winner(await asyncio.gather(*appends, return_exceptions=True), StateConflict, "append")
        require(list(await store.read_after(KEY, 2 * turn)) == batches[won], "what is added is the winner's")
        asked = [store.acquire(KEY, f"holder {n}", ttl=LONG) for n in range(_WRITERS)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        lease = done[_winner(done, SessionBusy, "acquire")]
        assert isinstance(lease, Lease)
        await store.release(lease)


async def is_made_from_all_sides(store: SessionStore) -> None:
    for number in range(_WRITERS):
        key = replace(KEY, session_id=f"s{number}")
        version, seq, lease = await asyncio.gather(
            store.put(key, b"{}", expected_version=0),
            store.append(key, [b"{}"], expected_seq=0),
            store.acquire(key, "me", ttl=LONG),
        )
        require((version, seq) == (1, 1), "a first state and a first record are in each other's way nowhere")
        await store.renew(lease, ttl=LONG)


def _winner(done: Sequence[object], loss: type[Exception], verb: str) -> int:
    won = [number for number, answer in enumerate(done) if not isinstance(answer, BaseException)]
    lost = [answer for answer in done if isinstance(answer, loss)]
    require((len(won), len(lost)) == (1, len(done) - 1), f"of those who {verb} at once, one wins: {done}")
    return won[0]


async def puts_all_in_one_order(store: SessionStore) -> None:
    async def add(number: int) -> None:
        seq = 0
        while True:
            try:
                await store.append(KEY, [b"%d" % number], expected_seq=seq)
                return
            except StateConflict:
                seq += len(await store.read_after(KEY, seq))

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*map(add, range(_WRITERS)))
    log = await store.read_after(KEY, 0)
    require(sorted(log) == sorted(b"%d" % number for number in range(_WRITERS)), f"nothing is lost or doubled: {log}")


async def serves_several_loops(store: SessionStore) -> None:
    async def count_up() -> None:
        for _ in range(3):
            while True:
                stored = await store.get(KEY)
                number, version = (int(stored.body), stored.version) if stored else (0, 0)
                try:
                    await store.put(KEY, b"%d" % (number + 1), expected_version=version)
                    break
                except StateConflict:
                    continue

    threads = [asyncio.to_thread(lambda: asyncio.run(count_up())) for _ in range(3)]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(count_up(), *threads)
    require(await store.get(KEY) == Stored(b"12", 12), "a store belongs to no event loop")
    require({store: 1}.get(store) == 1, "a store can be the key of a dict")


# -- cancelled --------------------------------------------------------------------------------------------------


async def survives_cancellation(store: SessionStore) -> None:
    """Each verb is left at several moments; it has been done or not, and the store goes on."""
    for moment in (0, 1, 2, 3, 5, 8, 0.2, 0.5, 1.0, 1.5, 2.5):
        stored = await store.get(KEY)
        version, log = stored.version if stored else 0, list(await store.read_after(KEY, 0))
        await _leave(store.put(KEY, b"%d" % version, expected_version=version), moment)
        after = await store.get(KEY)
        require(after in (stored, Stored(b"%d" % version, version + 1)), "a cancelled put is done, or it is not")
        await store.put(KEY, b"next", expected_version=after.version if after else 0)
        batch = [b"%d" % number for number in range(20)]
        await _leave(store.append(KEY, batch, expected_seq=len(log)), moment)
        found = list(await store.read_after(KEY, 0))
        require(found in (log, log + batch), "a cancelled append is done whole, or it is not")
        await store.append(KEY, [b"next"], expected_seq=len(found))
        await _leave(store.acquire(KEY, "left", ttl=SHORT), moment)
        lease = await acquire_when_free(store, "next", ttl=LONG)
        for work in (store.get(KEY), store.read_after(KEY, 0), store.list(), store.prune(untouched_for=LONG)):
            await _leave(work, moment)
        await _leave(store.renew(lease, ttl=LONG), moment)
        await store.renew(lease, ttl=LONG)
        await _leave(store.release(lease), moment)
        await store.release(lease)
        await _leave(store.delete(KEY), moment)
        there = await store.get(KEY) is not None
        require(there == bool(await store.read_after(KEY, 0)), "a cancelled delete is done whole, or it is not")
        require(list(await store.list()) == ([KEY] if there else []), "a session is listed as long as it is there")
        await store.delete(KEY)


async def _leave(work: Coroutine[Any, Any, object], moment: float) -> None:
    """Begin a verb and cancel it, after so many turns of the loop (an int) or milliseconds (a float)."""
    task = asyncio.ensure_future(work)
    if isinstance(moment, int):
        for _ in range(moment):
            await asyncio.sleep(0)
    else:
        await asyncio.wait({task}, timeout=moment / 1000)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    require(bool(done), "who is cancelled ends")
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
