"""`commit_history`: the last operator of `prepare`; until here a shorter history is only a proposal."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.edits import Edit, edits_between
from agentscope_rx.errors import EditRefused, HistoryConflict, StateConflict
from agentscope_rx.history import History
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.messages import timestamp_of
from agentscope_rx.records import HistoryEdited, LimitLearned
from agentscope_rx.state import AgentState
from agentscope_rx.step import Step

_TO_RECORD: Final = frozenset({CompactionOutcome.DONE, CompactionOutcome.REFUSED, CompactionOutcome.FAILED})


def commit_history() -> Operator:
    """Make the proposed working history the session's, with what was decided about a compaction.

        --s-------|
        commit_history
        --t-------|     t.state.context is t.history

        --s-------|
        commit_history     the session has changed meanwhile
        --#

    A model that stands in for the agent's own leaves nothing behind that was shortened only for its window. Where
    there is a log, what the session has recorded so far is in it before the step goes on.

    Raises:
        HistoryConflict: The session's history is no longer the one that the request was prepared from.
        StateConflict: Something else of its state changed meanwhile.
        EditRefused: The proposal reorders exchanges or adds some where none were.
    """

    @effect_operator
    def commit_history(step: Step) -> Step | Awaitable[Step]:
        newest = step.run.state
        if newest.context is not step.state.context:
            raise HistoryConflict(
                f"the history of session {step.identity.session_id!r} changed while step {step.number} was being "
                "prepared; nothing was committed"
            )
        if newest is not step.state:
            raise StateConflict(
                f"the state of session {step.identity.session_id!r} changed while step {step.number} was being "
                "prepared; nothing was committed"
            )
        if step.dry_run:
            return step
        step.run.keep_notes()
        state = _committed(step, newest)
        committed = replace(step, state=state, history=state.context)
        return _written(committed) if step.run.pending else committed

    return commit_history


async def _written(step: Step) -> Step:
    await step.run.barrier()
    return step


def _committed(step: Step, newest: AgentState) -> AgentState:
    proposal = step.history if step.lasting is None else step.lasting
    decision = _to_record(step)
    if step.pressed is not None and step.pressed.learned is not None:
        newest = step.run.record(LimitLearned(step.card.name, step.pressed.learned))
    if proposal is newest.context and decision is None:
        return newest
    at = timestamp_of(step.run.runtime.clock.now())
    return step.run.record(HistoryEdited(_edits(newest.context, proposal), decision, at))


def _to_record(step: Step) -> CompactionDecision | None:
    decision = step.compaction
    return decision if decision is not None and step.card.own and decision.outcome in _TO_RECORD else None


def _edits(stored: History, proposal: History) -> tuple[Edit, ...]:
    try:
        return edits_between(stored, proposal)
    except ValueError as error:
        raise EditRefused("commit_history", str(error)) from error
