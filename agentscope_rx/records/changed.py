"""Everything of a state that is no history: the task, planning, permissions, and the state as a whole."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.state import AgentState
from agentscope_rx.task_state import PlanModeContextState, TaskContextState, Verification


@frozen(kw_only=False)
class TasksChanged:
    """The task is another one: to-do list, requirements or verifications."""

    tasks_context: TaskContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, tasks_context=self.tasks_context)


@frozen(kw_only=False)
class PlanModeChanged:
    """Planning has begun or ended, or a plan was written."""

    plan_mode_context: PlanModeContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, plan_mode_context=self.plan_mode_context)


@frozen(kw_only=False)
class VerificationRecorded:
    """A criterion was checked; the report is this record.

    Raises:
        TaskConflict: When it is applied: the report is about something else than what is there.
        TaskRefused: When it is applied: it is about no confirmed criterion.
    """

    verification: Verification

    def apply(self, state: AgentState) -> AgentState:
        tasks = state.tasks_context
        return replace(state, tasks_context=tasks.record_verification(self.verification, tasks.revision))


@frozen(kw_only=False)
class PermissionModeChanged:
    """The session is in another mode; None = in the one of the agent's policy."""

    mode: PermissionMode | None

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, permission_context=state.permission_context.with_mode(self.mode))


@frozen(kw_only=False)
class PermissionsReplaced:
    """What the session may do was said anew."""

    permission_context: PermissionContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, permission_context=self.permission_context)


@frozen(kw_only=False)
class StateReplaced:
    """The state was replaced from outside, or begins with one that was kept without a log.

    Args:
        state: The state, as JSON.
        reason: Why.
    """

    state: str
    reason: str

    def apply(self, state: AgentState) -> AgentState:
        return state.replaced_by(self.state)
