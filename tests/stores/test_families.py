"""Every family of stores keeps every rule, on the servers that people use."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from agentscope_rx import Msg, ReActAgent, RuntimeContext
from agentscope_rx.history import History
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore, Stored
from agentscope_rx.testing import ScriptedModel, check_store
from tests.stores.conftest import Place
from tests.stores.places import store_at

ROOT = Path(__file__).resolve().parents[2]
KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
PROCESSES = pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis", "mysql"], indirect=True)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_store_keeps_every_rule(place: Place) -> None:
    """The suite that others can run on their stores passes on ours."""
    await check_store(making(place), examples=10)


@pytest.mark.soak
async def test_a_store_keeps_every_rule_for_long(place: Place) -> None:
    """As above, with many histories."""
    await check_store(making(place), examples=500)


def making(place: Place) -> Callable[[], AbstractAsyncContextManager[SessionStore]]:
    @asynccontextmanager
    async def make() -> AsyncGenerator[SessionStore]:
        yield store_at(await asyncio.to_thread(place))

    return make


async def test_a_state_of_odd_texts_survives(place: Place) -> None:
    """NUL, halves of surrogate pairs and every other character are stored on every store (O28, O29)."""
    store = store_at(await asyncio.to_thread(place))
    odd = AgentState(session_id="s", context=History.of(Msg.user("a\0b \\u0000 \ud83d 🍸"), Msg.assistant("x\0y")))
    await store.put(KEY, odd.to_json(), expected_version=0)
    stored = await store.get(KEY)
    assert stored is not None
    texts = [message.text for message in AgentState.from_json(stored.body).context.messages]
    assert texts == ["a\0b \\u0000 \ufffd 🍸", "x\0y"]


@PROCESSES
def test_a_conversation_goes_on_in_another_loop(place: Place) -> None:
    """An agent that is built anew, with a store object of its own, knows what was said."""
    where = place()

    def said(text: str) -> list[str]:
        store = store_at(where)
        builder = ReActAgent.builder(name="a", model=ScriptedModel([f"to {text}"]), state_store=store)
        context = RuntimeContext(user_id="alice", session_id="s1")

        async def talk() -> list[str]:
            await builder.call(text, context)
            stored = await store.get(SessionKey(agent_id="a", user_id="alice", session_id="s1"))
            assert stored is not None
            return [message.text for message in AgentState.from_json(stored.body).context.messages]

        return asyncio.run(talk())

    assert said("one") == ["one", "to one"]
    assert said("two") == ["one", "to one", "two", "to two"]


@PROCESSES
def test_one_store_object_serves_loops_one_after_the_other(place: Place) -> None:
    """Connections end with their loop, without a complaint, and the next loop gets its own."""
    store = store_at(place())

    async def count_up(version: int) -> None:
        assert await store.put(KEY, b"%d" % version, expected_version=version) == version + 1

    for version in range(3):
        asyncio.run(count_up(version))
    gc.collect()  # a connection that nobody closed complains when it is collected
    assert asyncio.run(_get(store)) == Stored(b"2", 3)


async def _get(store: SessionStore) -> Stored | None:
    return await store.get(KEY)


# -- processes --------------------------------------------------------------------------------------------------


def contend(work: str, place: str, times: int, processes: int = 2) -> None:
    command = [sys.executable, "-m", "tests.stores.contending", work, place, str(times)]
    running = [subprocess.Popen([*command, str(number)], cwd=ROOT) for number in range(processes)]
    assert [process.wait(timeout=50) for process in running] == [0] * processes


@PROCESSES
@pytest.mark.slow
def test_processes_append_in_one_order(place: Place) -> None:
    """Processes that add to one log side by side lose nothing; each finds its own records in its order."""
    where = place()
    contend("append", where, 20)
    log = asyncio.run(_read(store_at(where)))
    for number in range(2):
        own = [record for record in log if record.startswith(b"%d:" % number)]
        assert own == [b"%d:%d" % (number, turn) for turn in range(20)]
    assert len(log) == 40


@PROCESSES
@pytest.mark.slow
def test_processes_hold_a_session_in_turn(place: Place) -> None:
    """Who has the lease is alone: what it read is still the end of the log when it writes."""
    where = place()
    contend("hold", where, 10)
    assert [int(record) for record in asyncio.run(_read(store_at(where)))] == list(range(1, 21))


async def _read(store: SessionStore) -> list[bytes]:
    return [*await store.read_after(KEY, 0)]
