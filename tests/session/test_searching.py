"""Searching with an index finds what searching without one finds, and reads only what may hold it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentscope_rx.history import History
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.queries import MODES, Query
from agentscope_rx.records import ContextCleared, ReplyRecorded, ResultsRecorded
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session.reading import said_in
from agentscope_rx.session.searching import sessions_to_read, text_of
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import InMemoryStore, SessionKey, SessionStore, SqlStore
from agentscope_rx.stores.search_index import search_index_of
from tests.session.support import agent_on, input_of, opened, said
from tests.stores.places import store_at

NUMBERS = count()


async def write(store: SessionStore, key: SessionKey, *records: Record) -> None:
    """Have something happen in a session."""
    session = await opened(store, key=key)
    for record in records:
        session.record(record)
    await session.save()
    await session.close()


async def scanned(store: SessionStore, keys: Sequence[SessionKey], query: Query) -> list[SessionKey]:
    """The sessions in which something is found, each read."""
    read = [(key, await said_in(store, key)) for key in keys]
    return [key for key, found in read if found and any(query.finds(text_of(each)) for each in found.messages)]


class Counting(SqlStore):
    """A store that notes which logs are read, and from where."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.read: list[tuple[SessionKey, int]] = []

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """Read, and note it."""
        self.read.append((key, seq))
        return await super().read_after(key, seq, limit=limit)


_WORDS = st.sampled_from(
    ["treasure", "TREASURE", "trea", "sure", "is", "ΟΔΟΣ", "straße", "漢字", "a1b2c3", "x_y", "İs", "\n"]
)
_TEXTS = st.lists(_WORDS, min_size=1, max_size=4).map(" ".join) | st.lists(_WORDS, min_size=1, max_size=3).map("".join)
_STORIES = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "call", "delete", "seek"]), st.integers(0, 3), _TEXTS), max_size=12
)


@pytest.fixture(params=["sqlite", "postgres"])
def place_with_index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place whose store has an index."""
    if request.param == "sqlite":
        return f"sql sqlite:///{tmp_path}/sessions.db"
    return f"sql {request.getfixturevalue('postgres')()}"


@pytest.mark.slow
@pytest.mark.timeout(240)
@given(_STORIES, st.lists(_TEXTS, min_size=1, max_size=2))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_an_index_finds_what_reading_finds(
    place_with_index: str, story: list[tuple[str, int, str]], queries: list[str]
) -> None:
    """Whatever was said, called, deleted and begun anew, and however often was searched meanwhile: no session that
    holds what is looked for is left out, in any mode."""
    store = store_at(place_with_index)
    user = f"user{next(NUMBERS)}"
    keys = [SessionKey(agent_id=f"a{at % 2}", user_id=user, session_id=f"s{at}") for at in range(4)]
    for what, at, text in story:
        if what == "say":
            await write(store, keys[at], input_of(said(f"m{next(NUMBERS)}", text)))
        elif what == "call":
            call = ToolUseBlock(id=f"c{next(NUMBERS)}", name="look", input={text: [text, 3.5, None, True]})
            result = ToolResultBlock(id=call.id, name="look", output=(TextBlock(text=text),))
            asked = ReplyRecorded(replace(Msg.assistant(call), id=call.id))
            answer = ResultsRecorded((replace(Msg.tool(result), id=f"r{call.id}"),))
            await write(store, keys[at], asked, answer, ContextCleared())
        elif what == "delete":
            await store.delete(keys[at])
        else:
            await sessions_to_read(store, keys, Query.of(text + "x"), user_id=user)
    for query in (Query.of(text, mode) for text in queries for mode in MODES if text.strip()):
        found = await sessions_to_read(store, keys, query, user_id=user)
        assert await scanned(store, found, query) == await scanned(store, keys, query)
        ours = await sessions_to_read(store, keys[::2], query, user_id=user, agent_id="a0")
        assert await scanned(store, ours, query) == await scanned(store, keys[::2], query)


async def test_only_what_may_hold_it_is_read(place_with_index: str) -> None:
    """Sessions that lack what is looked for are read once, when they are told to the index, and then only their new
    records; others' sessions, and those without a log, are what they were."""
    store = Counting(place_with_index.removeprefix("sql "))
    keys = [SessionKey(agent_id="a", user_id="alice", session_id=f"s{at}") for at in range(5)]
    for at, key in enumerate(keys):
        await write(store, key, *(input_of(said(f"m{at}{n}", f"number {at} of many")) for n in range(3)))
    await write(store, replace(keys[0], user_id="bob"), input_of(said("b", "number 3 of bob's")))
    state = AgentState(session_id="old", context=History.of(said("o", "number 3, long ago"))).to_json()
    old = SessionKey(agent_id="a", user_id="alice", session_id="old")
    await store.put(old, state, expected_version=0)
    query = Query.of("many")
    assert await sessions_to_read(store, keys, query, user_id="alice") == keys
    await write(store, keys[2], input_of(said("new", "the Treasure Island")))
    store.read.clear()
    assert await sessions_to_read(store, [*keys, old], Query.of("treasure is"), user_id="alice") == [keys[2], old]
    assert store.read == [(keys[2], 3)]
    assert await sessions_to_read(store, keys, Query.of("nothing of it"), user_id="alice") == []
    assert await sessions_to_read(store, keys, Query.of("3"), user_id="alice") == keys  # too short to be told apart
    assert await sessions_to_read(store, keys, Query.of("number of many treasures"), user_id="alice") == []
    assert await sessions_to_read(store, keys, Query.of("islands treasure", "any"), user_id="alice") == [keys[2]]
    assert await sessions_to_read(store, keys, Query.of("island the", "all"), user_id="alice") == [keys[2]]


async def test_a_session_that_is_begun_anew(place_with_index: str) -> None:
    """What is known of a session goes with it: one of the same name and as many records is told from its beginning."""
    store = store_at(place_with_index)
    key = SessionKey(agent_id="a", user_id="alice", session_id="s")
    for text, other in (("treasure", "island"), ("island", "treasure")):
        await write(store, key, input_of(said("m1", text)))
        assert await sessions_to_read(store, [key], Query.of(text), user_id="alice") == [key]
        assert await sessions_to_read(store, [key], Query.of(other), user_id="alice") == []
        await store.delete(key)


async def test_a_text_of_more_terms_than_are_told(place_with_index: str) -> None:
    """A message with very many different words is found, and so is what is said behind it."""
    store = store_at(place_with_index)
    key = SessionKey(agent_id="a", user_id="alice", session_id="s")
    many = " ".join(f"{number:x}z{number * 7919:x}" for number in range(9_000))
    await write(store, key, input_of(said("m1", many)), input_of(said("m2", "the treasure")))
    for query in ("the treasure", f"{8_999:x}z{8_999 * 7919:x}"):
        assert await sessions_to_read(store, [key], Query.of(query), user_id="alice") == [key]
    await write(store, key, input_of(said("m3", "an island")))
    assert await sessions_to_read(store, [key], Query.of("island"), user_id="alice") == [key]


async def test_a_fork_is_read_with_its_past(place_with_index: str) -> None:
    """What was said before a fork is found in it too, also where its own log does not have it."""
    store = store_at(place_with_index)
    here = RuntimeContext(user_id="alice", session_id="s1")
    agent = agent_on(store, ["fine"])
    await agent.call("the treasure", here)
    await agent.clear_context(here)
    await agent.fork(here, to=RuntimeContext(user_id="alice", session_id="s2"))
    keys = [replace(agent.options.key_of(here), session_id=each) for each in ("s1", "s2")]
    query = Query.of("treasure")
    assert await sessions_to_read(store, keys, query, user_id="alice") == keys
    assert await scanned(store, keys, query) == keys


async def test_a_damaged_session_is_always_read(place_with_index: str) -> None:
    """A session whose terms cannot be told is among those that are read, so that the damage is told of."""
    store = store_at(place_with_index)
    key = SessionKey(agent_id="a", user_id="alice", session_id="s")
    await write(store, key, input_of(said("m1", "the treasure")))
    await store.append(key, [b"not JSON"], expected_seq=1)
    for _ in range(2):
        assert await sessions_to_read(store, [key], Query.of("nothing of it"), user_id="alice") == [key]


async def test_a_database_from_before_there_was_an_index(tmp_path: Path) -> None:
    """Tables that lack the index get it, and what they hold is found."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    key = SessionKey(agent_id="a", user_id="alice", session_id="s")
    await write(SqlStore(url), key, input_of(said("m1", "the treasure")))
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database:
        database.execute("DROP TABLE agentscope_words")
        database.execute("DROP TABLE agentscope_terms")
        database.commit()
    again = SqlStore(f"{url}?timeout=20")  # as another process has it
    assert await sessions_to_read(again, [key], Query.of("treasure"), user_id="alice") == [key]
    assert await sessions_to_read(again, [key], Query.of("nothing of it"), user_id="alice") == []


async def test_stores_without_an_index_have_all_sessions_read() -> None:
    """Where there is no index every session is read."""
    key = SessionKey(agent_id="a", user_id="alice", session_id="s")
    assert search_index_of(InMemoryStore()) is None
    assert await sessions_to_read(InMemoryStore(), [key], Query.of("nothing"), user_id="alice") == [key]
