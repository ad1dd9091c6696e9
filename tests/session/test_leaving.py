"""Runs with a log that end at any moment, and stores that fail: nothing is left behind, and the next call works."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentscope_rx.errors import AgentClosed, StoreUnavailable
from agentscope_rx.events import Custom
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import FoldCache, fold
from agentscope_rx.session.folding import fold_whole
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing import ScriptedTurn, calls, run_virtual, text
from agentscope_rx.testing.values import LoopClock
from agentscope_rx.tools import tool
from tests.session.support import KEY, agent_on
from tests.support import watch
from tests.virtual import virtual

ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
VERBS = ("get", "put", "append", "read_after", "acquire", "renew", "release")
TICK = 0.01


class Slow:
    """A store each of whose verbs takes a while, does what it is asked to, and takes a while until it says so.

    Args:
        fails: How often a verb was asked for when it fails, before it did anything or after, by its name.
    """

    def __init__(self, fails: tuple[str, int, str] = ("", 0, "")) -> None:
        self.inner, self.fails = InMemoryStore(), fails
        self.asked = Counter[str]()
        self.releasing = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        verb: Callable[..., Awaitable[Any]] = getattr(self.inner, name)
        if name not in VERBS:
            return verb

        async def slow(*args: Any, **keywords: Any) -> Any:
            self.asked[name] += 1
            if name == "release":
                self.releasing.set()
            moments = [moment for each, at, moment in [self.fails] if (each, at) == (name, self.asked[name])]
            await asyncio.sleep(TICK)
            if "before" in moments:
                raise StoreUnavailable("the store is away")
            done = await asyncio.shield(asyncio.ensure_future(verb(*args, **keywords)))  # as a server does
            if "after" in moments:
                raise StoreUnavailable("the store went away")
            await asyncio.sleep(TICK)
            return done

        return slow


def agent_at(store: Any) -> ReActAgent:
    """An agent with a run of all kinds before it: two tools at once, then an answer in pieces."""

    @tool(read_only=True, concurrency_safe=True)
    async def look() -> str:
        """Take a while."""
        await asyncio.sleep(TICK)
        return "seen"

    script: list[ScriptedTurn | str] = [
        calls(("c1", "look", "{}"), ("c2", "look", "{}"), text="I look. ").after(TICK),
        text("It ", "is ", "so.").after(TICK),
        *["later"] * 9,
    ]
    return agent_on(store, script, tools=[look], own=Runtime(clock=LoopClock(), jitter=lambda: 1.0))


async def nothing_is_left(store: Slow, agent: ReActAgent) -> None:
    """All tasks end, the session is free, what is in memory is what is in the log, and the agent can be called."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=1)
        assert asyncio.get_running_loop().time() < 60, others
    await store.inner.release(await store.inner.acquire(KEY, "somebody", ttl=1))
    log = agent.session_log(ALICE)
    found = await log.project()
    assert (found.active_run, found.uncertain_tool_calls, found.state.context.open_calls) == ("", (), ())
    types = [record.type async for record in log.scan()]
    assert types.count("run/start") == types.count("run/end")
    assert "recovery/applied" not in types
    before = len(await log.transcript())
    seen = await watch(agent, "again", ALICE)
    assert seen.error is None
    assert [event for event in seen.of(Custom) if event.name == "recovery"] == []
    assert len(await log.transcript()) >= before + 2
    assert (await fold(store, KEY, FoldCache())).state == (await fold_whole(store, KEY)).state  # type: ignore[arg-type]


# -- the run ends -------------------------------------------------------------------------------------------


async def by_cancelling(agent: ReActAgent, after: float) -> None:
    task = asyncio.create_task(agent.acall("go", ALICE))
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_disposing(agent: ReActAgent, after: float) -> None:
    subscription = agent.stream_events("go", ALICE).subscribe(lambda _: None)
    await asyncio.sleep(after)
    subscription.dispose()


async def by_interrupting(agent: ReActAgent, after: float) -> None:
    task = asyncio.create_task(watch(agent, "go", ALICE))
    await asyncio.sleep(after)
    agent.interrupt(ALICE)
    assert (await task).error is None


async def by_closing(agent: ReActAgent, after: float) -> None:
    task = asyncio.create_task(watch(agent, "go", ALICE))
    await asyncio.sleep(after)
    await agent.close()
    error = (await task).error
    assert error is None or isinstance(error, AgentClosed)  # who comes too late is told


def whole_run() -> float:
    """How long a run takes that nobody ends."""
    took: list[float] = []

    async def run() -> None:
        assert (await watch(agent_at(Slow()), "go", ALICE)).error is None
        took.append(asyncio.get_running_loop().time())

    run_virtual(run)
    return took[0]


@pytest.mark.parametrize("leave", [by_cancelling, by_disposing, by_interrupting])
def test_a_run_that_ends_at_any_moment(leave: Callable[[ReActAgent, float], Awaitable[None]]) -> None:
    """At each moment, in verbs of the store and between: no task is left, the session is free, its log whole."""
    took = whole_run()
    assert took > 20 * TICK

    async def left(after: float) -> None:
        store = Slow()
        agent = agent_at(store)
        await leave(agent, after)
        await nothing_is_left(store, agent)

    for moment in range(int(2 * took / TICK)):
        run_virtual(lambda after=moment * TICK / 2: left(after))


def test_an_agent_that_is_closed_at_any_moment() -> None:
    """Closing an agent gives its sessions back, to the next agent."""

    async def closed(after: float) -> None:
        store = Slow()
        await by_closing(agent_at(store), after)
        await nothing_is_left(store, agent_at(store))

    for moment in range(0, int(2 * whole_run() / TICK), 3):
        run_virtual(lambda after=moment * TICK / 2: closed(after))


async def left_at(agent: ReActAgent, last: int) -> list[Any]:
    """What a subscriber got who leaves while it is told of the event with this number."""
    seen, left = list[Any](), asyncio.Event()

    def on_next(event: Any) -> None:
        seen.append(event)
        if len(seen) == last:
            subscription.dispose()
            left.set()

    subscription = agent.stream_events("go", ALICE).subscribe(on_next)
    await left.wait()
    return seen


@virtual
async def test_leaving_at_each_event() -> None:
    """The same at each event, by who gets it."""
    count = len((await watch(agent_at(Slow()), "go", ALICE)).events)
    assert count > 20
    for last in range(1, count):
        store = Slow()
        agent = agent_at(store)
        seen = await left_at(agent, last)
        assert len(seen) == last
        await nothing_is_left(store, agent)


@virtual
async def test_who_is_cancelled_while_it_waits_for_another_process() -> None:
    """Nothing was begun: no record is written, and the session stays with who has it."""
    store = Slow()
    lease = await store.inner.acquire(KEY, "another", ttl=60)
    task = asyncio.create_task(agent_at(store).acall("go", ALICE))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await store.inner.read_after(KEY, 0) == ()
    await store.inner.renew(lease, ttl=1)


@pytest.mark.parametrize("after", [0.0, 0.5, 1.0, 1.5])
@virtual
async def test_a_cancellation_while_a_session_is_given_back(after: float) -> None:
    """Who is cancelled while the session is being closed is cancelled, once it is closed."""
    store = Slow()
    agent = agent_at(store)
    task = asyncio.create_task(agent.clear_context(ALICE))
    await store.releasing.wait()
    await asyncio.sleep(after * TICK)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_is_left(store, agent)


# -- the store fails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("verb", ["get", "put", "append", "read_after", "acquire"])
def test_a_store_that_fails_at_any_time(verb: str, moment: str) -> None:
    """Each failure is the run's error, with no task left behind; the next call finds what was written."""

    async def failed(at: int) -> int:
        store = Slow((verb, at, moment))
        agent = agent_at(store)
        seen = await watch(agent, "go", ALICE)
        if store.asked[verb] >= at:
            assert type(seen.error) is StoreUnavailable
            assert seen.types[0] == "AGENT_START"
            assert seen.types[-1] == "AGENT_END"
            assert "AGENT_RESULT" not in seen.types
        store.fails = ("", 0, "")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        again = await watch(agent, "again", ALICE)  # it may have to wait for the lease to run out
        assert again.error is None
        transcript = [message.text for message in await agent.session_log(ALICE).transcript()]
        assert transcript.count("again") == 1
        assert transcript[-1] == again.result.text
        records = [record async for record in agent.session_log(ALICE).scan()]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        return store.asked[verb]

    asked, at = 1, 1
    while at <= asked:
        counts: list[int] = []

        async def run(at: int = at, counts: list[int] = counts) -> None:
            counts.append(await failed(at))

        run_virtual(run)
        asked = min(counts[0], 9)
        at += 1
    assert at > 2 or verb in ("get", "acquire")


@pytest.mark.parametrize("verb", ["renew", "release"])
@virtual
async def test_a_lease_that_cannot_be_renewed_or_released(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on while its lease lasts, and ends well; the log says what happened."""
    store = Slow((verb, 1, "before"))

    @tool
    async def rest() -> str:
        """Take longer than a renewal."""
        await asyncio.sleep(15)
        return "rested"

    agent = agent_on(store, [calls(("c1", "rest", "{}")), "fine", "later"], tools=[rest])  # type: ignore[arg-type]
    assert (await agent.call("go", ALICE)).text == "fine"
    assert f"lease_not_{verb.removesuffix('e')}ed" in caplog.text
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (await agent.call("again", ALICE)).text == "later"


@virtual
async def test_the_renewal_says_that_the_session_is_lost() -> None:
    """A run that waits for its tool is told at the end of it, and writes nothing more."""
    store = Slow()

    @tool
    async def rest() -> str:
        """Take long, while somebody deletes the session."""
        await store.inner.delete(KEY)
        await asyncio.sleep(60)
        return "rested"

    agent = agent_on(store, [calls(("c1", "rest", "{}")), "fine"], tools=[rest])  # type: ignore[arg-type]
    seen = await watch(agent, "go", ALICE)
    assert type(seen.error).__name__ == "LeaseLost"
    assert await store.inner.read_after(KEY, 0) == ()
    assert store.asked["renew"] == 1
