"""A session's state between its store and the run that holds its turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentscope_rx.errors import InvalidToolPairs, StateConflict, StateUnreadable
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.records import InputAccepted, ReplyRecorded, ResultsRecorded
from agentscope_rx.session.stored import StateCache, StoredSession
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore, SessionKey, StateStore, Stored
from tests.strategies import result_of

KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")


class Watched(InMemoryStore):
    """A store that tells what was asked of it, and whose next puts can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[int] = []
        self.failures: list[Exception] = []

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        self.puts.append(expected_version)
        if self.failures:
            raise self.failures.pop()
        return await super().put(key, body, expected_version=expected_version, fence=fence)


class Slow(InMemoryStore):
    """A store whose put waits, as one over a network does."""

    def __init__(self) -> None:
        super().__init__()
        self.putting, self.go_on = asyncio.Event(), asyncio.Event()

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        self.putting.set()
        await self.go_on.wait()
        return await super().put(key, body, expected_version=expected_version, fence=fence)


class Shared:
    """A place that several processes write to."""

    def __init__(self) -> None:
        self.inner = InMemoryStore()

    async def get(self, key: SessionKey, /) -> Stored | None:
        return await self.inner.get(key)

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        return await self.inner.put(key, body, expected_version=expected_version)


def said(text: str) -> InputAccepted:
    return InputAccepted((replace(Msg.user(text), id=f"m-{text}"),))


async def opened(store: StateStore, key: SessionKey = KEY, cache: StateCache | None = None) -> StoredSession:
    return await StoredSession.open(key, store=store, cache=cache or StateCache())


async def saved(
    store: StateStore, *texts: str, key: SessionKey = KEY, cache: StateCache | None = None
) -> StoredSession:
    session = await opened(store, key, cache)
    for text in texts:
        session.record(said(text))
    await session.save()
    return session


def texts(state: AgentState) -> list[str]:
    return [message.text for message in state.context.messages]


# -- loading and saving -------------------------------------------------------------------------------------


async def test_a_session_begins_with_its_identity() -> None:
    """A session that is not stored begins empty, under its own ids, and is not stored by being looked at."""
    store = Watched()
    session = await opened(store)
    assert session.state == AgentState(session_id="s1", user_id="alice")
    await session.save()
    assert (store.puts, await store.get(KEY)) == ([], None)


async def test_a_session_without_a_user_is_nobodys() -> None:
    """No user is None in the state, and not a name."""
    key = SessionKey(agent_id="a1", user_id=None, session_id="s1")
    session = await saved(InMemoryStore(), "hi", key=key)
    assert session.state.user_id is None


async def test_what_was_saved_is_loaded() -> None:
    """A record changes the state at once; what is saved is what the next run finds."""
    store = InMemoryStore()
    session = await opened(store)
    assert session.record(said("one")) is session.state
    assert texts(session.state) == ["one"]
    assert await store.get(KEY) is None
    await session.save()
    assert (await opened(store)).state == session.state


async def test_only_changes_are_saved() -> None:
    """Saving writes where the state differs from what the store holds, each time on the version before."""
    store = Watched()
    session = await saved(store, "one")
    await session.save()
    session.record(ReplyRecorded(Msg.assistant("two")))
    session.record(said("three"))
    await session.save()
    await session.save()
    assert store.puts == [0, 1]
    assert texts((await opened(store)).state) == ["one", "two", "three"]


async def test_a_record_that_cannot_be_changes_nothing() -> None:
    """A record that breaks a rule of histories is an error, and the state stays as it was."""
    session = await saved(InMemoryStore(), "one")
    before = session.state
    with pytest.raises(InvalidToolPairs):
        session.record(ResultsRecorded((result_of(ToolUseBlock(id="c9", name="look")),)))
    assert session.state is before


async def test_a_conflict_overwrites_nothing() -> None:
    """Who was slower is told so, keeps its state in memory, and leaves the store as it is."""
    store = InMemoryStore()
    first, second = await opened(store), await opened(store)
    first.record(said("first"))
    second.record(said("second"))
    await first.save()
    with pytest.raises(StateConflict, match="session 's1' was changed by somebody else"):
        await second.save()
    assert texts(second.state) == ["second"]
    assert texts((await opened(store)).state) == ["first"]


async def test_a_failed_save_can_be_made_again() -> None:
    """A store that fails once has stored nothing, and nothing is remembered of it."""
    store, cache = Watched(), StateCache()
    store.failures = [OSError(28, "No space left on device")]
    session = await opened(store, cache=cache)
    session.record(said("one"))
    with pytest.raises(OSError, match="No space left"):
        await session.save()
    assert cache.find(store, KEY, Stored(session.state.to_json(), 1)) is None
    await session.save()
    assert texts((await opened(store)).state) == ["one"]


@pytest.mark.parametrize("body", [b"", b"nonsense", b"{}", b'{"session_id":"s1","context":[{"role":"TOOL"}]}'])
async def test_an_unreadable_state_is_no_fresh_one(body: bytes) -> None:
    """A state that cannot be read is an error, and stays where it is."""
    store = InMemoryStore()
    await store.put(KEY, body, expected_version=0)
    with pytest.raises(StateUnreadable):
        await opened(store)
    assert await store.get(KEY) == Stored(body, 1)


# -- the cache ----------------------------------------------------------------------------------------------


async def test_the_next_run_gets_the_very_state() -> None:
    """A state that this process saved is not read again: it keeps what is known of it."""
    store, cache = InMemoryStore(), StateCache()
    session = await saved(store, "one", cache=cache)
    again = await opened(store, cache=cache)
    assert again.state is session.state
    assert (await opened(store, cache=StateCache())).state is not session.state


async def test_another_processs_state_is_read() -> None:
    """A version that this process did not save comes from the store, and can be saved upon."""
    store, cache = InMemoryStore(), StateCache()
    await saved(store, "one", cache=cache)
    elsewhere = await saved(store, "two")  # another process has a cache of its own
    session = await opened(store, cache=cache)
    assert texts(session.state) == ["one", "two"]
    assert session.state is not elsewhere.state
    session.record(said("three"))
    await session.save()
    assert texts((await opened(store, cache=cache)).state) == ["one", "two", "three"]


async def test_stores_and_sessions_are_told_apart() -> None:
    """The same version under another key, or of another store, is another state."""
    cache = StateCache()
    store, other = InMemoryStore(), InMemoryStore()
    key = SessionKey(agent_id="a1", user_id="bob", session_id="s1")
    await saved(store, "alice's", cache=cache)
    await saved(store, "bob's", key=key, cache=cache)
    await saved(other, "elsewhere", cache=cache)
    assert texts((await opened(store, cache=cache)).state) == ["alice's"]
    assert texts((await opened(store, key, cache)).state) == ["bob's"]
    assert texts((await opened(other, cache=cache)).state) == ["elsewhere"]


async def test_a_store_that_is_gone_is_not_mistaken_for_another() -> None:
    """A new store may get the address of one that was dropped; it never gets its states."""
    cache = StateCache()
    for _ in range(50):
        store = InMemoryStore()
        await saved(store, "of the store that is gone", cache=cache)
        del store
        other = InMemoryStore()
        await saved(other, "another's")  # by another process, and so not in the cache
        assert texts((await opened(other, cache=cache)).state) == ["another's"]
        del other


async def test_the_cache_forgets_what_was_not_used_for_longest() -> None:
    """A few hundred states are kept; one that is found counts as used."""
    store, cache = InMemoryStore(), StateCache()
    stored = Stored(b"", 1)
    states = [AgentState(session_id=f"s{number}") for number in range(300)]

    def key(number: int) -> SessionKey:
        return SessionKey(agent_id="a1", user_id=None, session_id=f"s{number}")

    for number, state in enumerate(states):
        cache.keep(store, key(number), stored, state)
        assert cache.find(store, key(0), stored) is states[0]
    kept = [number for number in range(300) if cache.find(store, key(number), stored) is states[number]]
    assert kept == [0, *range(300 - len(kept) + 1, 300)]
    assert len(kept) == 256
    assert cache.find(store, key(0), Stored(b"", 2)) is None


async def test_a_session_that_begins_anew_elsewhere_is_read() -> None:
    """Versions are counts: after a folder was deleted, another process's first version has our first one's number."""
    cache, store, elsewhere = StateCache(), Shared(), InMemoryStore()
    await saved(store, "deleted", cache=cache)
    await saved(elsewhere, "anew")
    store.inner = elsewhere
    assert texts((await opened(store, cache=cache)).state) == ["anew"]


async def test_a_cancelled_save_is_made_to_its_end() -> None:
    """What a run has done is known to the next one, also where a store, over a network say, is left in its put."""
    store = Slow()
    session = await opened(store)
    session.record(said("paid"))
    saving = asyncio.create_task(session.save())
    await store.putting.wait()
    saving.cancel()
    await asyncio.sleep(0)
    saving.cancel()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert texts((await opened(store)).state) == ["paid"]
