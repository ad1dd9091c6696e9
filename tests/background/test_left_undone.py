"""What processes that died have left undone, as their last records say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentscope_rx.background import InProcessRunner, TaskStatus
from agentscope_rx.errors import CommandGone
from agentscope_rx.events import AgentStart, Custom, TextBlockDelta, TextBlockStart
from agentscope_rx.inbox import MOST_ATTEMPTS, Command, CommandKind, Sender
from agentscope_rx.records import CommandBegun, CommandQueued, InputAccepted, ReplyRecorded
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import EventJournal
from agentscope_rx.state import Record
from agentscope_rx.stores import InMemoryStore, SessionKey
from agentscope_rx.testing import ScriptedModel
from tests.background.support import ALICE, builder_on
from tests.session.support import answered, crashed, said
from tests.virtual import virtual

KEY = SessionKey(agent_id="worker", user_id="alice", session_id="s1")
ASKED = said("u1", "go")
TASK = CommandQueued(
    Command(
        id="k",
        kind=CommandKind.SUBMIT,
        turn_id="turn1",
        digest="d",
        sender=Sender(user_id="alice", session_id="s1"),
        messages=(ASKED,),
    )
)
BEGUN = (CommandBegun("k", "run1"), InputAccepted((ASKED,)))


async def left(store: InMemoryStore, *records: Record) -> None:
    await crashed(store, *records, key=KEY)


@virtual
async def test_an_answer_that_was_recorded_is_not_asked_for_again() -> None:
    """Died between the answer and the end of the run: the task is completed with that answer, and no model is asked."""
    store, model = InMemoryStore(), ScriptedModel([])
    await left(store, TASK, *BEGUN, ReplyRecorded(answered("a1", "the answer")))
    async with InProcessRunner(builder_on(store, model)) as runner:
        report = await runner.session(ALICE).wait("k", timeout=100)
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "the answer")
        assert model.asked == 0


@virtual
async def test_input_is_taken_in_once() -> None:
    """Died behind the input: the next run asks the model, without the input a second time; the turn is the same."""
    store, model = InMemoryStore(), ScriptedModel(["the answer"])
    await left(store, TASK, *BEGUN)
    async with InProcessRunner(builder_on(store, model)) as runner:
        report = await runner.session(ALICE).wait("k", timeout=100)
        assert (report.status, report.turn_id) == (TaskStatus.COMPLETED, "turn1")
        assert [message.text for message in model.requests[0].conversation.messages] == ["go"]


@virtual
async def test_a_task_that_kills_its_process_is_given_up() -> None:
    """Begun so many times without an end: it is rejected, and what was submitted behind it is done."""
    store, model = InMemoryStore(), ScriptedModel(["fine"])
    await left(store, TASK, *BEGUN)
    for n in range(2, MOST_ATTEMPTS + 1):
        await left(store, CommandBegun("k", f"run{n}"))
    async with InProcessRunner(builder_on(store, model)) as runner:
        session = runner.session(ALICE)
        behind = await session.submit("and this")
        report = await session.wait("k", timeout=100)
        assert (report.status, report.reason) == (TaskStatus.REJECTED, "CRASHED")
        assert (await behind).status is TaskStatus.COMPLETED


@virtual
async def test_a_sender_whose_session_is_another_is_left_alone() -> None:
    """Where what was kept of a context leads to another session, nothing is done in either, and an error is logged."""
    store, model = InMemoryStore(), ScriptedModel([])
    elsewhere = replace(TASK.command, sender=Sender(user_id="mallory", session_id="s1"))
    await left(store, CommandQueued(elsewhere))
    async with InProcessRunner(builder_on(store, model)) as runner:
        session = runner.session(ALICE)
        with pytest.raises(TimeoutError):
            await session.wait("k", timeout=100)
        assert (model.asked, len(await store.list())) == (0, 1)
        assert await runner.session(RuntimeContext(user_id="mallory", session_id="s1")).tasks() == ()


@virtual
async def test_who_comes_too_late_does_nothing() -> None:
    """A command that somebody else has done, or that is not the next one, is not begun: nothing is written for it."""
    store, model = InMemoryStore(), ScriptedModel(["the answer"])
    await left(store, TASK)
    later = CommandQueued(replace(TASK.command, id="later", messages=(said("u2", "later"),)))
    await left(store, later)
    agent = builder_on(store, model).build()
    with pytest.raises(CommandGone):
        await agent.carry_out(ALICE, later.command)
    await agent.carry_out(ALICE, TASK.command)
    before = len(await store.read_after(KEY, 0))
    with pytest.raises(CommandGone):
        await agent.carry_out(ALICE, TASK.command)
    assert (len(await store.read_after(KEY, 0)), model.asked) == (before, 1)


def test_what_a_journal_gives_away() -> None:
    """An application's own event may hold anything: what is no JSON is kept in words, and the others as they are."""
    journal = EventJournal()
    journal.take(AgentStart(id="e1", reply_id="r", session_id="s", name="n"))
    ring: list[object] = []
    ring.append(ring)
    journal.take(Custom(id="e2", name="mine", value={"it": ring}))
    journal.take(TextBlockStart(id="e3", reply_id="r", block_id="b"))
    for n in range(3):
        journal.take(TextBlockDelta(id=f"d{n}", reply_id="r", block_id="b", delta=str(n)))
    journal.take(TextBlockDelta(id="d9", reply_id="r", block_id="c", delta="other"))
    kept = journal.record().events
    assert [(each["id"], each["type"]) for each in kept] == [
        ("e1", "AGENT_START"),
        ("e2", "CUSTOM"),
        ("e3", "TEXT_BLOCK_START"),
        ("d2", "TEXT_BLOCK_DELTA"),
        ("d9", "TEXT_BLOCK_DELTA"),
    ]
    assert kept[1]["value"] == {"it": [["…"]]}
    assert (kept[3]["delta"], journal.record().events) == ("012", ())
