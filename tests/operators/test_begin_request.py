"""begin_request: a fresh snapshot, a new id, and the guard against paying twice."""

from __future__ import annotations

from dataclasses import replace

import reactivex
from reactivex import operators as ops

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import RetryRefused
from agentscope_rx.events import Custom
from agentscope_rx.lifting import chain
from agentscope_rx.messages import Msg
from agentscope_rx.operators import begin_request
from agentscope_rx.pulling import last
from agentscope_rx.records import InputAccepted
from agentscope_rx.step import Step, Timing
from agentscope_rx.testing import a_history, a_run, a_step, check_operator, record
from tests.virtual import virtual


async def begun(step: Step) -> Step:
    return await last(chain((begin_request(),), step))


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator."""
    await check_operator(begin_request)


@virtual
async def test_the_snapshot_is_the_sessions_newest_state() -> None:
    """State, history and conversation are the session's at this moment; nothing of an earlier attempt is left."""
    run = a_run(a_history(["old"]))
    worn = a_step(
        run=run,
        draft=RequestDraft(references=(ContextBlock.reference("x", "y"),)),
        timings=(Timing("x", 1.0),),
        reply=Msg.assistant("of another attempt"),
    )
    run.record(InputAccepted((replace(Msg.user("new"), id="m1"),)))
    step = await begun(worn)
    assert [message.text for message in step.history.messages] == ["old", "new"]
    assert step.state is run.state
    assert step.history is step.draft.conversation is run.state.context
    assert step.draft == RequestDraft(conversation=run.state.context)
    assert (step.changes, step.reply) == ((), None)
    assert [timing.operator for timing in step.timings] == ["begin_request"]


@virtual
async def test_each_request_has_its_own_id() -> None:
    """A second attempt is told by request_retry, which names the call that failed; the first one is not told."""
    run = a_run()
    first = await begun(a_step(run=run))
    assert run.events == []
    second = await begun(a_step(run=run))
    assert first.call_id != second.call_id
    (event,) = run.events
    assert isinstance(event, Custom)
    assert (event.name, event.value) == ("request_retry", {"failed_call_id": first.call_id})


@virtual
async def test_another_step_is_no_retry() -> None:
    """The next step begins its first request."""
    run = a_run()
    await begun(a_step(run=run, number=0))
    await begun(a_step(run=run, number=1))
    assert run.events == []


@virtual
async def test_a_step_that_has_acted_does_not_begin_again() -> None:
    """RetryRefused says where a retry belongs; the next step may begin."""
    run = a_run()
    run.acted = 3
    recorded = await record(chain((begin_request(),), a_step(run=run, number=3))).ended()
    assert isinstance(recorded.error, RetryRefused)
    assert "step 3" in str(recorded.error)
    assert 'around("request", ops.retry(2))' in str(recorded.error)
    assert (await begun(a_step(run=run, number=4))).number == 4


@virtual
async def test_a_stock_retry_begins_afresh() -> None:
    """ops.retry behind it subscribes it again: two ids, one request_retry."""
    run, seen = a_run(), list[str]()

    def fail_once(step: Step) -> Step:
        seen.append(step.call_id)
        if len(seen) == 1:
            raise LookupError("once")
        return step

    source = reactivex.of(a_step(run=run)).pipe(begin_request(), ops.map(fail_once), ops.retry(2))
    step = await last(source)
    assert seen[1] == step.call_id != seen[0]
    assert len(run.events) == 1


def test_it_describes_itself() -> None:
    """Name and kind, as pipelines print them."""
    assert (begin_request().name, begin_request().kind) == ("begin_request", "effect")
