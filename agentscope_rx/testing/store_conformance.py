"""What every store of sessions must do, as a check that any test framework can run.

@asynccontextmanager
async def make() -> AsyncGenerator[SessionStore]:
    yield MyStore(...)

await check_store(make)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from importlib.util import find_spec
from math import inf, nan
from typing import Final, TypeAlias, TypeVar

from agentscope_rx.errors import ConformanceFailed, InvalidIdentifier, InvalidOption, MissingExtra, StateConflict
from agentscope_rx.stores.growing import grown
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import ANYBODY, SessionStore, Stored, WatchableStore
from agentscope_rx.testing._rules import refused, require
from agentscope_rx.testing._store_leases import KEY, LONG, leases, leases_run_out, prunes, refuses_fence
from agentscope_rx.testing._store_races import (
    is_made_from_all_sides,
    lets_one_win,
    puts_all_in_one_order,
    serves_several_loops,
    survives_cancellation,
)

T = TypeVar("T")
MakeStore: TypeAlias = Callable[[], AbstractAsyncContextManager[SessionStore]]
"""Makes a fresh store without sessions, and clears it away afterwards."""

_BODIES: Final = (
    *(b"", b"{}", b"\0", b"\n", b"\r\n", b"a\nb", b'"\\u0000 \\\\u0000"', b"}", b'{"version":7,"state":{}}'),
    *(bytes(range(256)), "ünïcødé 会话 🍸".encode(), b"\xed\xa0\xbd", b'"\\ud83d"', b"x" * 300_000),
)
_IDS: Final = (
    *("../../etc/x", "..", ".", "a/b", "a\\b", "/abs", "C:\\x", "con", " lead", "trail.", "trail ", "%2e%2e%2f"),
    *(
        "n" * 300,
        "n" * 511 + "m",
        "n" * 512,
        "ünïcødé",
        "ÜNÏCØDÉ",
        "é",
        "e\u0301",
        "ß",
        "ss",
        "会话-1",
        "🍸",
        "user@example.org",
    ),
    *("a:b*?[c]", "{a}", "A", "a", "nobody", "None", "s_oma", "a_b", "0", "'; --", "%", "_"),
)


async def check_store(make: MakeStore, *, examples: int = 30) -> None:
    """Check one implementation of `SessionStore` against every rule of the protocol.

    Args:
        make: Makes the store that is checked, once for each rule.
        examples: How many random histories are held against a dict.

    Raises:
        ConformanceFailed: With the first rule that is not kept.
        MissingExtra: hypothesis is not installed.

    Examples:
        >>> await check_store(make)  # no answer is a good answer
    """
    if find_spec("hypothesis") is None:
        raise MissingExtra("check_store", "testing")

    async def keeps_to_a_dict(store: SessionStore) -> None:
        from agentscope_rx.testing._store_machine import check_histories

        await asyncio.to_thread(check_histories, store, examples)

    for check in (*_CHECKS, keeps_to_a_dict):
        async with make() as store:
            await _hold(check, store)


async def _hold(check: Callable[[SessionStore], Awaitable[None]], store: SessionStore) -> None:
    try:
        await check(store)
    except ConformanceFailed:
        raise
    except Exception as error:
        raise ConformanceFailed(f"a verb raised what no rule allows: {error!r}") from error


# -- what is kept -----------------------------------------------------------------------------------------------


async def _keeps_states(store: SessionStore) -> None:
    require(await store.get(KEY) is None, "there is nothing at first")
    with refused(StateConflict, "a version that never was is no version"):
        await store.put(KEY, b"{}", expected_version=1)
    require(await store.get(KEY) is None, "a refused put stores nothing")
    for version, body in enumerate(_BODIES):
        found = await store.put(KEY, body, expected_version=version)
        require(found == version + 1, f"put counts versions from 1: {version + 1}, not {found}")
        require(await store.get(KEY) == Stored(body, version + 1), f"a body is kept byte for byte: {body[:40]!r}")
    last = await store.get(KEY)
    for expected in (0, 1, len(_BODIES) - 1, len(_BODIES) + 1):
        with refused(StateConflict, "who knows another version overwrites nothing"):
            await store.put(KEY, b"lost", expected_version=expected)
    require(await store.get(KEY) == last, "a refused put changes nothing")


async def _keeps_logs(store: SessionStore) -> None:
    require(list(await store.read_after(KEY, 0)) == [], "a log is empty at first")
    with refused(StateConflict, "a record that never was is not the last one"):
        await store.append(KEY, [b"x"], expected_seq=1)
    require(await store.append(KEY, _BODIES, expected_seq=0) == len(_BODIES), "append gives the last number")
    for seq in range(len(_BODIES) + 2):
        for limit in range(1, len(_BODIES) - seq + 2):
            page = list(await store.read_after(KEY, seq, limit=limit))
            require(page == list(_BODIES[seq : seq + limit]), f"read_after({seq}, limit={limit}) gives those records")
    many = [b"%d" % number for number in range(5_000)]
    end = await store.append(KEY, many, expected_seq=len(_BODIES))
    require(end == len(_BODIES) + len(many), "numbers have no gaps")
    for expected in (0, 1, end - 1, end + 1):
        with refused(StateConflict, "who knows another last record adds nothing"):
            await store.append(KEY, [b"lost", b"lost"], expected_seq=expected)
    found = [*await store.read_after(KEY, 0, limit=len(_BODIES))]
    require(found == list(_BODIES), "records are kept byte for byte, in order")
    while page := await store.read_after(KEY, len(found), limit=999):
        require(len(page) <= 999, "a page is not longer than its limit")
        found += page
    require(found == [*_BODIES, *many], "pages behind one another are the log")
    require(list(await store.read_after(KEY, end - 2)) == many[-2:], "the end is read without what is before")
    require(len(await store.read_after(KEY, 0)) == 1000, "a page has 1,000 records at most where no limit is given")
    require(list(await store.read_after(KEY, end + 7)) == [], "there is nothing behind the end")
    require(await store.get(KEY) is None, "a log is no state")


async def _tells_of_growth(store: SessionStore) -> None:
    if not isinstance(store, WatchableStore):
        return
    await store.append(KEY, [b"1", b"2"], expected_seq=0)
    await asyncio.wait_for(store.watch(KEY, 1, timeout=LONG), LONG / 2)  # what is there already is told at once
    for seq in (2, 3):
        watching = asyncio.ensure_future(grown(store, KEY, seq))
        leaving = asyncio.ensure_future(grown(store, KEY, seq))
        await asyncio.sleep(0)
        leaving.cancel()
        await store.append(KEY, [b"more"], expected_seq=seq)
        await asyncio.wait_for(watching, LONG / 2)
        await asyncio.wait({leaving})
        require(leaving.cancelled(), "who is cancelled while it watches ends")
    await asyncio.wait_for(store.watch(KEY, 9, timeout=0.05), LONG / 2)


async def _refuses_nonsense(store: SessionStore) -> None:
    lease = await store.acquire(KEY, "me", ttl=LONG)
    with refused(InvalidOption, "nothing cannot be appended"):
        await store.append(KEY, [], expected_seq=0)
    for seq, limit in ((-1, 1), (0, 0), (0, -1)):
        with refused(InvalidOption, f"read_after({seq}, limit={limit}) is refused"):
            await store.read_after(KEY, seq, limit=limit)
    with refused(InvalidOption, "an empty page of sessions is refused"):
        await store.list(limit=0)
    for number in (-1.0, inf, nan):
        with refused(InvalidOption, f"a lease of {number} s is refused"):
            await store.acquire(replace(KEY, session_id="s2"), "me", ttl=number)
        with refused(InvalidOption, f"an extension of {number} s is refused"):
            await store.renew(lease, ttl=number)
        with refused(InvalidOption, f"an age of {number} s is refused"):
            await store.prune(untouched_for=number)
    for holder in ("", " ", "a\0", "\ud83d"):
        with refused(InvalidIdentifier, f"{holder!r} holds nothing"):
            await store.acquire(replace(KEY, session_id="s2"), holder, ttl=LONG)
    require(list(await store.list()) == [], "what is refused makes no session, and neither does a lease")


async def _keeps_keys_apart(store: SessionStore) -> None:
    keys = [replace(KEY, **{field: id}) for id in _IDS for field in ("agent_id", "user_id", "session_id")]
    keys += [replace(KEY, user_id=None), replace(KEY, user_id="a", session_id="b_c")]
    keys += [replace(KEY, user_id="a_b", session_id="c"), replace(KEY, user_id="alice/a"), KEY]
    for number, key in enumerate(keys):
        require(await store.get(key) is None, f"{key} is no other session")
        await store.put(key, b"%d" % number, expected_version=0)
        await store.append(key, [b"%d" % number], expected_seq=0)
    for number, key in enumerate(keys):
        require(await store.get(key) == Stored(b"%d" % number, 1), f"the state of {key} is its own")
        require(list(await store.read_after(key, 0)) == [b"%d" % number], f"the log of {key} is its own")
    require(set(await store.list(limit=1000)) == set(keys), "a listing has each session under the ids that it has")
    for key in keys[::2]:
        require(await store.delete(key), f"{key} is deleted")
    for key in keys[1::2]:
        require(await store.get(key) is not None, f"{key} is not deleted with another")


async def _lists(store: SessionStore) -> None:
    keys = [
        SessionKey(agent_id=agent, user_id=user, session_id=f"s{number}")
        for agent in ("a1", "a2", "a")
        for user in (None, "alice", "bob", "Alice")
        for number in range(4)
    ]
    for key in keys:
        await store.append(key, [b"{}"], expected_seq=0)
    await store.acquire(replace(KEY, session_id="only a lease"), "me", ttl=LONG)
    for agent in (None, "a1", "a", "a3"):
        for user in (ANYBODY, None, "alice", "Alice", "carol"):
            expected = {k for k in keys if agent in (None, k.agent_id) and user in (ANYBODY, k.user_id)}
            found: list[SessionKey] = []
            while page := await store.list(agent_id=agent, user_id=user, after=found[-1] if found else None, limit=3):
                found += page
            require(len(found) == len(set(found)), "no session is listed twice")
            require(set(found) == expected, f"agent {agent!r} and user {user!r} have {len(expected)} sessions: {found}")
    require(len(await store.list(limit=5)) == 5, "a page is full as long as there are sessions")


async def _deletes(store: SessionStore) -> None:
    require(await store.delete(KEY) is False, "what is not there is not deleted")
    for _ in range(2):
        lease = await store.acquire(KEY, "me", ttl=LONG)
        await store.put(KEY, b"1", expected_version=0, fence=lease.fence)
        await store.append(KEY, [b"1", b"2"], expected_seq=0, fence=lease.fence)
        require(await store.delete(KEY) is True, "what is there is deleted, whoever holds it")
        require(await store.get(KEY) is None, "a deleted session has no state")
        require(list(await store.read_after(KEY, 0)) == [], "a deleted session has no records")
        require(list(await store.list()) == [], "a deleted session is not listed")
        await refuses_fence(store, lease, "a session that was deleted")
        newer = await store.acquire(KEY, "you", ttl=LONG)
        require(newer.fence > lease.fence, "a session that is begun anew has a newer fence")
        await refuses_fence(store, lease, "a session that was begun anew")
        await store.release(newer)


_CHECKS: tuple[Callable[[SessionStore], Awaitable[None]], ...] = (
    _keeps_states,
    _keeps_logs,
    _tells_of_growth,
    _refuses_nonsense,
    _keeps_keys_apart,
    _lists,
    _deletes,
    leases,
    leases_run_out,
    prunes,
    is_made_from_all_sides,
    lets_one_win,
    puts_all_in_one_order,
    serves_several_loops,
    survives_cancellation,
)
