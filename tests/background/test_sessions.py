"""AgentSession on the runner of a process: what it is told is done, each thing once, in its order."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

import agentscope_rx.inbox as inbox
from agentscope_rx.background import AgentSession, InProcessRunner, SessionEvent, TaskStatus
from agentscope_rx.errors import (
    AgentClosed,
    InteractionMismatch,
    InvalidOption,
    NothingRunning,
    ServerFailed,
    TaskNotResumable,
)
from agentscope_rx.events import AgentEnd, AgentResult, Custom, TextBlockDelta
from agentscope_rx.messages import GenerateReason, Msg
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing import ScriptedModel, calls, text
from agentscope_rx.tools import ToolContext, tool
from tests.background.support import ALICE, ByTurn, Gate, builder_on, told
from tests.support import watch
from tests.virtual import virtual

ONCE = ExecutionConfig(max_attempts=1)
CALL = calls(("c1", "work", "{}"))


async def said(session: AgentSession) -> list[str]:
    """What was said in words."""
    return [message.text for message in await session.transcript() if message.text]


async def all_of(session: AgentSession, after: int | str = 0) -> list[SessionEvent]:
    return [each async for each in session.events(after=after, follow=False)]


# -- submit -------------------------------------------------------------------------------------------------


@virtual
async def test_what_is_submitted_is_done_in_order() -> None:
    """Each task has its own answer; the next begins when the one before has ended."""
    async with InProcessRunner(builder_on(InMemoryStore(), ["one", "two", "three"])) as runner:
        session = runner.session(ALICE)
        tasks = [await session.submit(f"question {n}") for n in range(3)]
        reports = [await task for task in tasks]
        assert [(each.status, each.reply and each.reply.text) for each in reports] == [
            (TaskStatus.COMPLETED, "one"),
            (TaskStatus.COMPLETED, "two"),
            (TaskStatus.COMPLETED, "three"),
        ]
        assert await said(session) == ["question 0", "one", "question 1", "two", "question 2", "three"]
        assert [each.id for each in await session.tasks()] == [task.id for task in tasks]
        assert len({each.turn_id for each in reports} | {each.run_id for each in reports}) == 6


@virtual
async def test_a_key_is_used_once() -> None:
    """The same key with the same input is the same task, before, during and after it; with another it is refused."""
    gate = Gate()
    store = InMemoryStore()
    async with InProcessRunner(builder_on(store, [CALL, "done"], tool(gate.work))) as runner:
        session = runner.session(ALICE)
        first, second = await asyncio.gather(session.submit("go", key="k"), session.submit(Msg.user("go"), key="k"))
        assert first.turn_id == second.turn_id
        await gate.begun.wait()
        assert (await session.submit("go", key="k")).turn_id == first.turn_id
        with pytest.raises(InvalidOption, match="used for another input"):
            await session.submit("something else", key="k")
        gate.opened.set()
        assert (await first).status is TaskStatus.COMPLETED
        assert (await session.submit("go", key="k")).turn_id == first.turn_id
        assert len(await session.tasks()) == 1
    assert await said(session) == ["go", "done"]


@virtual
@pytest.mark.parametrize("key", ["", "  ", "x" * 201])
async def test_keys_that_are_none(key: str) -> None:
    """A key is refused before anything is written."""
    store = InMemoryStore()
    async with InProcessRunner(builder_on(store)) as runner:
        with pytest.raises(InvalidOption, match="key"):
            await runner.session(ALICE).submit("go", key=key)
        with pytest.raises(InvalidOption, match="input"):
            await runner.session(ALICE).submit([])
    assert await store.list() == ()


@virtual
async def test_keys_are_known_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state remembers the newest tasks; of older ones the log knows what became of them."""
    monkeypatch.setattr(inbox, "KEPT", 2)
    async with InProcessRunner(builder_on(InMemoryStore(), [str(n) for n in range(5)])) as runner:
        session = runner.session(ALICE)
        for n in range(5):
            await (await session.submit(f"question {n}", key=f"k{n}"))
        assert [each.id for each in await session.tasks()] == ["k3", "k4"]
        old = await session.submit("question 0", key="k0")
        report = await old
        assert (report.status, report.id) == (TaskStatus.COMPLETED, "k0")
        with pytest.raises(InvalidOption, match="used for another input"):
            await session.submit("another", key="k1")
        with pytest.raises(InvalidOption, match="no such task"):
            await session.report("never")
        assert len(await said(session)) == 10


@virtual
async def test_waiting_has_an_end() -> None:
    """Who waits no longer leaves the task alone."""
    gate = Gate()
    async with InProcessRunner(builder_on(InMemoryStore(), [CALL, "done"], tool(gate.work))) as runner:
        session, loop = runner.session(ALICE), asyncio.get_running_loop()
        task = await session.submit("go")
        with pytest.raises(TimeoutError):
            await session.wait(task, timeout=30)
        assert loop.time() == pytest.approx(30, abs=0.01)
        gate.opened.set()
        assert (await session.wait(task.id, timeout=30)).status is TaskStatus.COMPLETED


@virtual
async def test_a_task_that_fails_is_a_report() -> None:
    """The error is no exception of the one who waits; what was submitted behind it is done."""
    script = [ServerFailed("down", status=500), "fine"]
    async with InProcessRunner(builder_on(InMemoryStore(), script, execution=ONCE)) as runner:
        session = runner.session(ALICE)
        first, second = await session.submit("one"), await session.submit("two")
        failed = await first
        assert (failed.status, failed.reason, failed.reply) == (TaskStatus.FAILED, "server_failed", None)
        assert (await second).status is TaskStatus.COMPLETED
        ends = [each.event for each in await all_of(session) if isinstance(each.event, AgentEnd)]
        assert [end.metadata for end in ends] == [{"error": {"class": "ServerFailed", "code": "server_failed"}}, None]


# -- steer, inject, interrupt -------------------------------------------------------------------------------


@virtual
async def test_steering_reaches_the_next_request() -> None:
    """What a run is told while its tool works is in its next request, behind the result; and in the transcript."""
    gate, model = Gate(), ScriptedModel([CALL, "done"])
    async with InProcessRunner(builder_on(InMemoryStore(), model, tool(gate.work))) as runner:
        session = runner.session(ALICE)
        with pytest.raises(NothingRunning):
            await session.steer("too early")
        task = await session.submit("go")
        await gate.begun.wait()
        id = await session.steer("be brief")
        gate.opened.set()
        assert (await task).status is TaskStatus.COMPLETED
        assert [message.text for message in model.requests[1].messages][-2:] == ["", "be brief"]
        assert await said(session) == ["go", "be brief", "done"]
        (taken,) = [
            e.event.value for e in await all_of(session) if isinstance(e.event, Custom) and "ids" in e.event.value
        ]
        assert taken == {"ids": [id]}


@virtual
async def test_steering_a_run_that_is_about_to_end() -> None:
    """A message that comes while the last answer is written is answered by the same run."""
    model = ScriptedModel([text("an", "swer").after(10), "and more"])
    async with InProcessRunner(builder_on(InMemoryStore(), model)) as runner:
        session = runner.session(ALICE)
        task = await session.submit("go")
        await asyncio.sleep(15)
        await session.steer("more")
        report = await task
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "and more")
        assert await said(session) == ["go", "answer", "more", "and more"]
        assert len(await session.tasks()) == 1


class Unwatched:
    """A store that tells nobody when a log has grown."""

    def __init__(self) -> None:
        self._store = InMemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name == "watch":
            raise AttributeError(name)
        return getattr(self._store, name)


@virtual
async def test_steering_in_the_last_moment() -> None:
    """What came when nobody has looked at the log any more is found before the run ends, over any store."""
    model = ScriptedModel([text("an", "swer").after(9.99), "and more"])  # between two looks, at 29.8 s and at 30 s
    async with InProcessRunner(builder_on(Unwatched(), model)) as runner:  # type: ignore[arg-type]
        session = runner.session(ALICE)
        task = await session.submit("go")
        await asyncio.sleep(29.9)
        await session.steer("more")
        report = await task
        assert report.reply is not None
        assert report.reply.text == "and more"
        assert await said(session) == ["go", "answer", "more", "and more"]


@virtual
async def test_what_is_injected_waits_for_a_run() -> None:
    """It starts none; the next run has it behind its input, also a plain call."""
    store = InMemoryStore()
    async with InProcessRunner(builder_on(store, ["one"])) as runner:
        session = runner.session(ALICE)
        await session.inject("by the way")
        await asyncio.sleep(100)
        assert await said(session) == []
        await (await session.submit("go"))
        assert await said(session) == ["go", "by the way", "one"]
        await session.inject("and this")
    agent = builder_on(store, ["two"]).build()
    assert (await agent.call("again", ALICE)).text == "two"
    assert (await said(session))[-3:] == ["again", "and this", "two"]


@virtual
async def test_an_interrupt_from_elsewhere() -> None:
    """Another process ends the run with what it has, and what was submitted behind it is done."""
    gate, store = Gate(), InMemoryStore()
    async with (
        InProcessRunner(builder_on(store, [CALL, "second"], tool(gate.work))) as runner,
        InProcessRunner(builder_on(store)) as elsewhere,
    ):
        session, other = runner.session(ALICE), elsewhere.session(ALICE)
        assert not await other.interrupt()
        first, second = await session.submit("one"), await session.submit("two")
        await gate.begun.wait()
        assert await other.interrupt()
        report = await first
        assert (report.status, report.reason) == (TaskStatus.INTERRUPTED, GenerateReason.INTERRUPTED.value)
        assert (await second).status is TaskStatus.COMPLETED
        assert not await other.interrupt()


# -- questions ----------------------------------------------------------------------------------------------


def guarded() -> tuple[list[str], object]:
    ran: list[str] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(str(amount))
        return f"paid {amount}"

    return ran, pay


PAY = calls(("p1", "pay", '{"amount": 3}'))


@virtual
async def test_a_question_parks_the_session() -> None:
    """Nothing else begins before the answer, from any process; the answer goes on with the turn, and then the rest."""
    store, (ran, pay) = InMemoryStore(), guarded()
    builder = builder_on(store, [PAY, "paid", "and on"], pay).permission_rules([PermissionRule.ask("pay")])
    async with InProcessRunner(builder) as runner, InProcessRunner(builder_on(store)) as elsewhere:
        session, other = runner.session(ALICE), elsewhere.session(ALICE)
        first, second = await session.submit("pay"), await session.submit("go on")
        asked = await first
        assert (asked.status, ran) == (TaskStatus.SUSPENDED, [])
        (waiting,) = await other.pending()
        assert waiting.id == "p1"
        await asyncio.sleep(1_000)
        assert (await second.report()).status is TaskStatus.QUEUED
        with pytest.raises(InteractionMismatch):
            await session.respond({"p2": True})
        with pytest.raises(InvalidOption, match="answers"):
            await session.respond({})
        answer = await session.respond({"p1": True})
        again = await session.respond({"p1": True})
        assert (answer.turn_id, again.id) == (asked.turn_id, answer.id)
        report = await answer
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "paid")
        assert (await second).status is TaskStatus.COMPLETED
        assert ran == ["3"]


# -- resume -------------------------------------------------------------------------------------------------


@virtual
async def test_a_turn_that_failed_is_gone_on_with() -> None:
    """With what was said already, without saying it again; only the newest turn, and only one that did not complete."""
    script = [CALL, ServerFailed("down", status=500), "done"]
    counted = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal counted
        counted += 1
        return "worked"

    async with InProcessRunner(builder_on(InMemoryStore(), script, work, execution=ONCE)) as runner:
        session = runner.session(ALICE)
        with pytest.raises(TaskNotResumable, match="not the newest"):
            await session.resume()
        failed = await (await session.submit("go"))
        with pytest.raises(TaskNotResumable, match="not the newest"):
            await session.resume("another")
        report = await (await session.resume(failed.turn_id))
        assert (report.status, report.turn_id, counted) == (TaskStatus.COMPLETED, failed.turn_id, 1)
        assert await said(session) == ["go", "done"]
        with pytest.raises(TaskNotResumable, match="completed"):
            await session.resume()


# -- ends ---------------------------------------------------------------------------------------------------


@virtual
async def test_leaving_the_runner_leaves_the_work_for_the_next() -> None:
    """A run stops where it suits, its task is not settled, and the next process ends it; its tool ran once."""
    gate, store = Gate(), InMemoryStore()
    async with InProcessRunner(builder_on(store, [CALL], tool(gate.work)), grace=100) as runner:
        session = runner.session(ALICE)
        await session.submit("go", key="k")
        await gate.begun.wait()
        asyncio.get_running_loop().call_later(5, gate.opened.set)
    assert (await session.report("k")).status is TaskStatus.RUNNING
    with pytest.raises(AgentClosed):
        await session.submit("late")
    assert [each.id for each in await session.tasks()] == ["k"]
    async with InProcessRunner(builder_on(store, ["done"])) as runner:
        report = await runner.session(ALICE).wait("k", timeout=100)
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "done")
        results = [m.tool_result.text for m in await runner.session(ALICE).transcript() if m.tool_result]
        assert results == ["worked"]


@virtual
async def test_closing_a_session_lets_go_of_it() -> None:
    """Its run stops, others go on; what it is told is refused, what it is asked is answered; `start` goes on."""
    gate, store = Gate(), InMemoryStore()
    model = ScriptedModel([CALL, "other", "done"])
    async with InProcessRunner(builder_on(store, model, tool(gate.work))) as runner:
        session = runner.session(ALICE)
        await session.submit("go", key="k")
        await gate.begun.wait()
        other = await runner.session(RuntimeContext(user_id="bob", session_id="s1")).submit("hello")
        asyncio.get_running_loop().call_later(1, gate.opened.set)
        await session.close()
        assert (await other).status is TaskStatus.COMPLETED
        for command in (
            session.submit("x"),
            session.steer("x"),
            session.inject("x"),
            session.start(),
            session.resume(),
        ):
            with pytest.raises(AgentClosed):
                await command
        assert (await session.report("k")).status is TaskStatus.RUNNING
        again = runner.session(ALICE)
        await again.start()
        assert (await again.wait("k", timeout=10)).status is TaskStatus.COMPLETED


@virtual
async def test_a_process_that_is_cancelled_leaves_the_work_for_the_next() -> None:
    """Whatever tears a run down, it is not taken for the user's wish: the next process ends it."""
    gate, store = Gate(), InMemoryStore()

    async def serve() -> None:
        async with InProcessRunner(builder_on(store, [CALL], tool(gate.work)), grace=0) as runner:
            await runner.session(ALICE).submit("go", key="k")
            await gate.begun.wait()

    await serve()
    async with InProcessRunner(builder_on(store, ["done"])) as runner:
        assert (await runner.session(ALICE).wait("k", timeout=100)).status is TaskStatus.COMPLETED


@virtual
async def test_how_many_sessions_at_once() -> None:
    """No more than `at_once`; the others are done afterwards."""
    at_work, most = 0, 0

    @tool
    async def work() -> str:
        """Work for a second."""
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(1)
        at_work -= 1
        return "worked"

    async with InProcessRunner(builder_on(InMemoryStore(), ByTurn(), work), at_once=3) as runner:
        contexts = [RuntimeContext(user_id="u", session_id=f"s{n}") for n in range(12)]
        tasks = [await runner.session(each).submit("go") for each in contexts]
        assert {(await task).status for task in tasks} == {TaskStatus.COMPLETED}
    assert most == 3


def test_options_are_checked() -> None:
    """What cannot be is said when the runner is made."""
    for options in ({"at_once": 0}, {"take_up_every": 0.0}, {"grace": -1.0}):
        with pytest.raises(InvalidOption):
            InProcessRunner(builder_on(InMemoryStore()), **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="state_only"):
        InProcessRunner(builder_on(InMemoryStore()).state_only(True))


# -- forks --------------------------------------------------------------------------------------------------


@virtual
async def test_a_fork_has_the_past_and_none_of_the_queue() -> None:
    """What was said is there, what was submitted is not done twice, and both go on by themselves."""
    store, (ran, pay) = InMemoryStore(), guarded()
    builder = builder_on(store, ["one", PAY, "paid", "two"], pay).permission_rules([PermissionRule.ask("pay")])
    async with InProcessRunner(builder) as runner:
        session = runner.session(ALICE)
        await (await session.submit("first"))
        await (await session.submit("pay"))
        await session.submit("later", key="later")
        other = await session.fork(RuntimeContext(user_id="alice", session_id="s2"))
        assert await other.tasks() == ()
        assert (await said(other))[:2] == ["first", "one"]
        assert (await (await other.respond({"p1": True}))).status is TaskStatus.COMPLETED
        assert ran == ["3"]
        assert (await session.report("later")).status is TaskStatus.QUEUED


# -- contexts -----------------------------------------------------------------------------------------------


@virtual
async def test_the_context_of_a_run_is_made_anew() -> None:
    """Ids and attributes are kept with the command, and no secrets nor what cannot be written; a hook adds the rest."""
    seen: list[tuple[object, ...]] = []

    @tool
    async def work(context: ToolContext) -> str:
        """Look."""
        seen.append((context.user_id, context.get("tenant"), context.get("api_key"), context.get(int)))
        return "seen"

    store = InMemoryStore()
    given = ALICE.with_(3.5, tenant="acme", api_key="sk-planted-1234", connection=object())
    builder = builder_on(store, [CALL, "done"], work)
    async with InProcessRunner(
        builder,
        contexts=lambda kept: RuntimeContext(
            user_id=kept.user_id, session_id=kept.session_id, attributes=kept.attributes
        ).with_(7),
    ) as runner:
        await (await runner.session(given).submit("go"))
    assert seen == [("alice", "acme", None, 7)]
    for body in await store.read_after(runner.session(ALICE).key, 0):
        assert b"sk-planted" not in body


# -- events -------------------------------------------------------------------------------------------------


async def one_run() -> tuple[InProcessRunner, AgentSession]:
    script = [calls(("c1", "work", '{"a": 1}'), text="let me see"), text("an", "swer", thinking="hm")]

    @tool
    async def work(a: int) -> str:
        """Work."""
        return f"worked {a}"

    runner = InProcessRunner(builder_on(InMemoryStore(), script, work))
    async with runner:
        session = runner.session(ALICE)
        await (await session.submit("go"))
    return runner, session


@virtual
async def test_the_log_has_the_events_that_a_subscriber_gets() -> None:
    """The same types in the same order, each with its identity, from the first to the last; texts are whole."""
    _, session = await one_run()
    events = [each.event for each in await all_of(session)]
    script = [calls(("c1", "work", '{"a": 1}'), text="let me see"), text("an", "swer", thinking="hm")]

    @tool
    async def work(a: int) -> str:
        """Work."""
        return f"worked {a}"

    live = await watch(builder_on(InMemoryStore(), script, work).build(), "go", ALICE)
    assert told(events) == told(live.events)
    assert "".join(each.delta for each in events if isinstance(each, TextBlockDelta)) == "let me seeanswer"
    assert len({each.id for each in events}) == len(events)
    assert {each.execution.run_id for each in events if each.execution} == {(await session.tasks())[0].run_id}
    assert isinstance(events[-2], AgentResult)
    assert events[-2].result == (await session.tasks())[0].reply or events[-2].result.text == "answer"


def test_no_gap_and_no_duplicate_behind_any_cursor() -> None:
    """Whoever goes on behind the cursor of an event gets exactly what came after it."""

    @virtual
    async def run() -> None:
        _, session = await one_run()
        events = await all_of(session)
        for at, each in enumerate(events):
            assert [e.event.id for e in await all_of(session, each.cursor)] == [e.event.id for e in events[at + 1 :]]
        for wrong in ("x", "-1", "1:x", ":"):
            with pytest.raises(InvalidOption, match="after"):
                session.events(after=wrong)

    run()


@virtual
async def test_events_come_as_they_happen() -> None:
    """A reader that follows sees a text grow while it is written, and the end soon after it."""
    model = ScriptedModel([text(*[f"{n} " for n in range(40)]).after(0.1)])
    async with InProcessRunner(builder_on(InMemoryStore(), model)) as runner:
        session, loop = runner.session(ALICE), asyncio.get_running_loop()
        await session.submit("count")
        seen: list[tuple[float, str]] = []
        async with aclosing(aiter(session.events())) as events:
            async for each in events:
                if isinstance(each.event, TextBlockDelta):
                    seen.append((loop.time(), each.event.delta))
                if isinstance(each.event, AgentEnd):
                    break
        assert "".join(delta for _, delta in seen) == "".join(f"{n} " for n in range(40))
        assert len(seen) > 10
        assert seen[0][0] < 1.0


@virtual
async def test_a_slow_reader_gets_a_text_at_once() -> None:
    """Deltas that it has not asked for yet are one; what is no delta comes one by one."""
    model = ScriptedModel([text(*[f"{n} " for n in range(40)]).after(0.1)])
    async with InProcessRunner(builder_on(InMemoryStore(), model)) as runner:
        session = runner.session(ALICE)
        await (await session.submit("count"))
        late = await all_of(session)
        assert [each.event.delta for each in late if isinstance(each.event, TextBlockDelta)] == [
            "".join(f"{n} " for n in range(40))
        ]


@virtual
async def test_calls_may_keep_their_events_too() -> None:
    """With `record_events` those of plain calls are there; without it they are not, and nothing is written for them."""
    store = InMemoryStore()
    async with InProcessRunner(builder_on(store)) as runner:
        session = runner.session(ALICE)
        await builder_on(store, ["quiet"]).build().call("one", ALICE)
        assert await all_of(session) == []
        live = await watch(builder_on(store, ["loud"], record_events=True).build(), "two", ALICE)
        assert [each.event.id for each in await all_of(session) if "DELTA" not in told([each.event])] == [
            event.id for event in live.events
        ]
    with pytest.raises(InvalidOption, match="record_events"):
        builder_on(store, record_events=True).state_only(True).build()
