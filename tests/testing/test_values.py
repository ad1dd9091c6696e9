"""Steps, histories and runs for tests: sound, and the same each time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.events import Custom
from agentscope_rx.messages import Msg
from agentscope_rx.records import InputAccepted
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.step import Mode
from agentscope_rx.testing import a_history, a_run, a_runtime, a_step
from tests.virtual import virtual


@settings(deadline=None)
@given(st.integers(0, 300))
def test_a_history_has_as_many_messages_as_asked_for(count: int) -> None:
    """Invariant: never an open call, ids by place, and it can be stored."""
    history = a_history(count)
    assert [message.id for message in history.messages] == [f"m{at}" for at in range(count)]
    assert history.open_calls == ()
    assert AgentState.from_json(AgentState(context=history).to_json()).context == history


def test_a_history_of_words() -> None:
    """By turns the user's and the model's; a message keeps its id where it has one."""
    history = a_history(["hi", "hello", Msg.user("again")])
    assert [(message.role.value, message.text) for message in history.messages] == [
        ("USER", "hi"),
        ("ASSISTANT", "hello"),
        ("USER", "again"),
    ]


def test_a_step_is_as_after_begin_request() -> None:
    """State, history and draft hold one and the same conversation; every field can be another."""
    step = a_step(number=3, mode=Mode.CONCLUDE)
    assert (step.number, step.mode, step.call_id) == (3, Mode.CONCLUDE, "call-1")
    assert step.draft.conversation is step.history is step.state.context is step.run.state.context
    history = a_history(9)
    assert a_step(history=history).run.state.context is history
    run = a_run(history)
    assert a_step(run=run).history is history
    assert a_step() == a_step()


@virtual
async def test_a_run_keeps_what_operators_do() -> None:
    """Events with ids and moments that are the same each time; records, folded into the state."""
    run = a_run(a_history(["hi"]), context=RuntimeContext(user_id="bob"))
    step = a_step(run=run)
    await asyncio.sleep(60)
    step.emit(Custom(name="x"))
    (event,) = run.events
    assert (event.id, event.created_at) == ("event-1", datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    record = InputAccepted((Msg.user("more"),))
    assert run.record(record) is run.state
    assert run.records == [record]
    assert [message.text for message in run.state.context.messages] == ["hi", "more"]
    assert run.context.user_id == "bob"


def test_a_runtime_is_steady() -> None:
    """Ids count by kind, the clock stands still without a loop, waits have no jitter."""
    runtime = a_runtime()
    assert [runtime.ids.new_id(kind) for kind in ("call", "event", "call")] == ["call-1", "event-1", "call-2"]
    assert runtime.clock.now() == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=runtime.clock.monotonic())
    assert runtime.jitter() == 1.0
