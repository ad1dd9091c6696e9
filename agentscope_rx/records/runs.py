"""Runs: when they begin, what they set going, how they end."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import Role
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class RunStarted:
    """A run has the session's turn.

    Args:
        run_id: The run: one attempt.
        turn_id: The turn: one command of the user.
    """

    run_id: str
    turn_id: str

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, active_run=self.run_id)


@frozen(kw_only=False)
class ToolsDispatched:
    """Tool calls are about to run: from now on they may have had an effect."""

    call_ids: tuple[str, ...]

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, dispatched=(*state.dispatched, *self.call_ids))


@frozen(kw_only=False)
class RunEnded:
    """A run has given the turn back.

    Args:
        run_id: The run.
        status: `completed`, `suspended`, `interrupted` or `failed`.
        reason: Why its answer ended it; for one that failed, the code of the error.
    """

    run_id: str
    status: str
    reason: str = ""

    def apply(self, state: AgentState) -> AgentState:
        last = state.context.last
        said = last.messages[-1] if last is not None else None
        reply_id = said.id if said is not None and said.role is Role.ASSISTANT else ""
        inbox = state.inbox.with_run_ended(self.run_id, self.status, self.reason, reply_id)
        return replace(state, active_run="", inbox=inbox)


@frozen(kw_only=False)
class RecoveryApplied:
    """A run was found that had ended without saying so.

    Args:
        run_id: The run.
        uncertain: The tool calls of which nobody knows whether they had an effect.
    """

    run_id: str
    uncertain: tuple[str, ...] = ()

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, active_run="")
