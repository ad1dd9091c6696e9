"""One runner a session, across processes: who comes second waits, and who comes back too late changes nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentscope_rx.errors import LeaseLost, ReentrantCall, SessionBusy
from agentscope_rx.events import Custom
from agentscope_rx.messages import Msg
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session.folding import fold_whole
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing import calls
from agentscope_rx.tools import tool
from tests.session.support import KEY, agent_on, input_of, opened, said
from tests.stores.conftest import Place
from tests.stores.places import store_at
from tests.support import watch
from tests.virtual import virtual

ROOT = Path(__file__).resolve().parents[2]
ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
SHARED = pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)


class Holding:
    """Another process that has the session, and whose tool waits for us."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    def let_go(self) -> None:
        """Let its tool end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def stop(self) -> None:
        """Take all time from it."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Give it back."""
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def holding(place: str, *, lease: float) -> AsyncGenerator[Holding]:
    """A process that has the session, in its tool."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.session.holding", place, str(lease)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        other = Holding(process)
        assert await other.says() == "begun"
        yield other
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def texts_of(place: str) -> list[str]:
    return [message.text for message in await agent_on(store_at(place)).session_log(ALICE).transcript()]


@pytest.mark.slow
@SHARED
async def test_the_second_process_waits_or_is_told(place: Place) -> None:
    """While a process lives it has the session, however long its tool takes; who does not wait gets SessionBusy, who
    waits goes on from what it has written."""
    at = await asyncio.to_thread(place)
    async with holding(at, lease=0.3) as other:
        for seconds in (0, 0.5):  # longer than its lease, which it renews
            with pytest.raises(SessionBusy, match="is held by 'tester in process"):
                await agent_on(store_at(at), ["too early"], wait_timeout=seconds).call("asked here", ALICE)
        second = asyncio.create_task(agent_on(store_at(at), ["said here"], wait_timeout=50).acall("asked here", ALICE))
        other.let_go()
        assert await other.says() == "said there"
        assert (await second).text == "said here"
    assert [text for text in await texts_of(at) if text] == ["asked there", "said there", "asked here", "said here"]


@pytest.mark.slow
@SHARED
async def test_a_process_that_comes_back_too_late(place: Place) -> None:
    """A process that was stopped until its lease ran out finds that it has lost the session, and changes nothing."""
    at = await asyncio.to_thread(place)
    async with holding(at, lease=2) as other:  # and stop it long before it is renewed, in the middle of no verb
        other.stop()
        seen = await watch(agent_on(store_at(at), ["said here"], wait_timeout=50), "asked here", ALICE)
        assert (seen.error, seen.result.text) == (None, "said here")
        ((uncertain,),) = [e.value["uncertain_tool_calls"] for e in seen.of(Custom) if e.name == "recovery"]
        assert uncertain == "theirs"
        before = await fold_whole(store_at(at), KEY)
        checkpoint = await store_at(at).get(KEY)
        other.let_go()
        other.go_on()
        assert await other.says() == "LeaseLost"
        after = await fold_whole(store_at(at), KEY)
        assert (after.state, after.seq, after.mark) == (before.state, before.seq, before.mark)
        assert await store_at(at).get(KEY) == checkpoint
        assert (await agent_on(store_at(at), ["more"], wait_timeout=0).call("again", ALICE)).text == "more"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "files", "sqlite", "postgres", "redis"], indirect=True)
async def test_sixty_four_writers(place: Place) -> None:
    """Agents that know nothing of one another write to one session at once: there is one order, and nothing is lost."""
    at = await asyncio.to_thread(place)
    store = store_at(at)
    agents = [agent_on(store, [f"answer {n}"], wait_timeout=50) for n in range(64)]
    await asyncio.gather(*(agent.acall(f"question {n}", ALICE) for n, agent in enumerate(agents)))
    fresh = agent_on(store)
    texts = [message.text for message in await fresh.session_log(ALICE).transcript()]
    order = [int(text.split()[1]) for text in texts[::2]]
    assert sorted(order) == list(range(64))
    assert texts == [text for n in order for text in (f"question {n}", f"answer {n}")]
    records = [record async for record in fresh.session_log(ALICE).scan()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert len({record.event_id for record in records}) == len(records)
    open_run = ""
    for record in records:  # no run writes between the beginning and the end of another
        if record.type == "run/start":
            assert open_run == ""
            open_run = record.run_id
        assert record.run_id == open_run
        if record.type == "run/end":
            open_run = ""


# -- leases -------------------------------------------------------------------------------------------------


@virtual
async def test_a_lease_is_kept_as_long_as_the_session_is_open() -> None:
    """Nobody gets the session while it is open, and everybody once it is closed."""
    store = InMemoryStore()
    session = await opened(store, lease=3)
    for _ in range(5):
        await asyncio.sleep(2.9)
        with pytest.raises(SessionBusy):
            await opened(store)
    await session.close()
    await (await opened(store)).close()


@virtual
async def test_who_lost_the_lease_writes_nothing() -> None:
    """Once somebody else has had the session, what was noted is not written, then or later; closing harms nobody."""
    store = InMemoryStore()
    session = await opened(store, lease=3)
    session.record(input_of(said("a")))
    await session.barrier()
    session.record(input_of(said("late")))
    await store.delete(KEY)  # takes the lease, too
    other = await opened(store, run_id="run2")
    with pytest.raises(LeaseLost):
        await session.barrier()
    with pytest.raises(LeaseLost):
        await session.save()
    await asyncio.sleep(10)
    with pytest.raises(LeaseLost):
        await session.barrier()
    await session.close()
    other.record(input_of(said("b")))
    await other.save()
    await other.close()
    assert [message.id for message in (await fold_whole(store, KEY)).state.context.messages] == ["b"]


@virtual
async def test_waiting_ends_in_time() -> None:
    """Who waits for a session gets it soon after it is free, and gives up when its time is over."""
    store, loop = InMemoryStore(), asyncio.get_running_loop()
    session = await opened(store)
    with pytest.raises(SessionBusy):
        await opened(store, wait=7.3)
    assert loop.time() == pytest.approx(7.3)
    waiting = asyncio.create_task(opened(store, wait=60))
    await asyncio.sleep(20)
    await session.close()
    freed = loop.time()
    await (await waiting).close()
    assert loop.time() - freed <= 1.0


@virtual
async def test_a_call_from_inside_its_own_session() -> None:
    """A tool that calls its agent on the session of its own call gets an error at once; on another an answer."""
    store, loop = InMemoryStore(), asyncio.get_running_loop()
    elsewhere = RuntimeContext(user_id=KEY.user_id, session_id="s2")

    @tool
    async def ask(how: str) -> str:
        """Ask the agent that is asking."""
        began = loop.time()
        match how:
            case "call":
                attempt = agent.acall("inside", ALICE)
            case "observe":
                attempt = agent.observe(Msg.user("inside"), ALICE)
            case _:
                attempt = agent.clear_context(ALICE)
        with pytest.raises(ReentrantCall):
            await attempt
        assert loop.time() == began
        return (await agent.call("elsewhere", elsewhere)).text

    hows = ("call", "observe", "clear")
    script = [turn for how in hows for turn in (calls((how, "ask", f'{{"how": "{how}"}}')), "there")]
    agent = agent_on(store, [*script, "done"], tools=[ask])
    assert (await agent.call("go", ALICE)).text == "done"
    texts = [message.text for message in await agent.session_log(ALICE).transcript()]
    assert [text for text in texts if text] == ["go", "done"]
    results = [m.tool_result.text for m in await agent.session_log(ALICE).transcript() if m.tool_result]
    assert results == ["there"] * 3
