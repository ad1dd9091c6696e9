from __future__ import annotations

from dataclasses import replace

from agentscope_rx.errors import EditRefused, HistoryConflict, StateConflict
from agentscope_rx.history import edits_between
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.state import HistoryEdited
from agentscope_rx.step import Step


def commit_history() -> Operator:
    """Make the proposed working history the session's.

        --s-------|
        commit_history
        --t-------|     t.state.context is t.history

    Raises:
        HistoryConflict: The session's history is no longer the one that the request was prepared from.
        StateConflict: Something else of its state changed meanwhile.
        EditRefused: The proposal reorders exchanges or adds some where none were.
    """

    @effect_operator
    def commit_history(step: Step) -> Step:
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
        if step.history is newest.context or step.dry_run:
            return step
        try:
            edits = edits_between(newest.context, step.history)
        except ValueError as error:
            raise EditRefused("commit_history", str(error)) from error
        state = step.run.record(HistoryEdited(edits))
        return replace(step, state=state, history=state.context)

    return commit_history
