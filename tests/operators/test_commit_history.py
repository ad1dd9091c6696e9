"""commit_history: a proposal becomes the session's history, or nothing does."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import EditRefused, HistoryConflict
from agentscope_rx.history import Exchange, History
from agentscope_rx.lifting import chain, history_operator
from agentscope_rx.messages import Msg
from agentscope_rx.operators import commit_history
from agentscope_rx.pulling import last
from agentscope_rx.records import HistoryEdited, InputAccepted
from agentscope_rx.step import Step
from agentscope_rx.testing import a_history, a_run, a_step, check_operator, record, run_virtual
from tests.virtual import virtual


def _shorter(exchange: Exchange) -> Exchange:
    return exchange.map(lambda message: message.with_text(message.text[:3]) if len(message.text) > 3 else message)


@history_operator
def shorten(history: History, step: Step) -> History:
    return history.map(_shorter)


def proposing(history: History) -> Step:
    """A step that proposes its history shortened."""
    return replace(a_step(history=history), history=history.map(_shorter))


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator: with nothing to commit, and with something."""
    await check_operator(commit_history)
    await check_operator(commit_history, step=proposing)


@virtual
async def test_without_a_proposal_nothing_is_recorded() -> None:
    """The step passes as it is."""
    run = a_run()
    step = a_step(run=run)
    after = await last(chain((commit_history(),), step))
    assert (run.records, after.state is step.state, after.history is step.history) == ([], True, True)


@virtual
async def test_a_proposal_becomes_the_sessions_history() -> None:
    """One record of the edits; step, state and session then hold the same history."""
    run = a_run(a_history(["a long question", "ok"]))
    after = await last(chain((shorten, commit_history()), a_step(run=run)))
    (edited,) = run.records
    assert isinstance(edited, HistoryEdited)
    assert [edit.removed[0].id for edit in edited.edits] == ["m0"]
    assert [message.text for message in run.state.context.messages] == ["a l", "ok"]
    assert after.history is after.state.context is run.state.context


@virtual
async def test_a_second_request_commits_on_top_of_the_first() -> None:
    """What was committed is the next request's beginning, and is not committed again."""
    run = a_run(a_history(["a long question", "a long answer"]))
    await last(chain((shorten, commit_history()), a_step(run=run)))
    await last(chain((shorten, commit_history()), a_step(run=run)))
    assert len(run.records) == 1


@virtual
async def test_a_history_that_changed_meanwhile_is_a_conflict() -> None:
    """Nothing is committed, with a proposal or without; the error names the session."""
    for operators in ((commit_history(),), (shorten, commit_history())):
        run = a_run(a_history(["a long question"]))
        step = a_step(run=run)
        run.record(InputAccepted((replace(Msg.user("late"), id="m9"),)))
        recorded = await record(chain(operators, step)).ended()
        assert isinstance(recorded.error, HistoryConflict)
        assert "'session'" in str(recorded.error)
        assert [message.text for message in run.state.context.messages] == ["a long question", "late"]


@virtual
async def test_a_proposal_that_is_no_replacement_is_refused() -> None:
    """One that went past the kernel's own check, through an effect operator, is refused here."""
    a, b = a_history(["a", "b"])
    run = a_run(History([a, b]))
    recorded = await record(chain((commit_history(),), a_step(run=run, history=History([b, a])))).ended()
    assert isinstance(recorded.error, EditRefused)
    assert recorded.error.operator == "commit_history"
    assert run.records == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["keep", "rewrite", "drop"]), st.text(max_size=3)), min_size=1, max_size=9))
def test_what_is_proposed_is_what_is_committed(plan: list[tuple[str, str]]) -> None:
    """Invariant: after the commit the session holds exactly the proposal, message by message."""
    old = a_history([f"message {at}" for at in range(len(plan))])
    new = History(
        exchange if what == "keep" else exchange.map(lambda message, said=said: message.with_text(said))
        for exchange, (what, said) in zip(old, plan, strict=True)
        if what != "drop"
    )
    run = a_run(old)

    async def commit() -> Step:
        return await last(chain((commit_history(),), a_step(run=run, history=new)))

    run_virtual(commit)
    assert list(run.state.context.messages) == list(new.messages)
