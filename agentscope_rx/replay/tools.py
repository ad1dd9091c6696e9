"""The changes that a tool makes in its session, seen on their way."""

from __future__ import annotations

from collections.abc import Callable

from agentscope_rx.records import PlanModeChanged, TasksChanged
from agentscope_rx.task_state import PlanModeContextState, TaskContextState
from agentscope_rx.tools.proposals import Proposals


class SeenProposals(Proposals):
    """The proposals of a step, as one tool changes them.

    Args:
        inner: The proposals.
        on_change: Told of each new value.
    """

    def __init__(self, inner: Proposals, on_change: Callable[[TaskContextState | PlanModeContextState], None]) -> None:
        self._inner, self._on_change = inner, on_change

    @property
    def tasks(self) -> TaskContextState:
        """The task."""
        return self._inner.tasks

    @property
    def plan(self) -> PlanModeContextState:
        """Whether the session is planning."""
        return self._inner.plan

    def new_id(self, kind: str) -> str:
        """A new id, counted apart: a replay runs no tool, and makes none."""
        return self._inner.new_id(f"{kind} of a tool")

    def now(self) -> str:
        """This moment."""
        return self._inner.now()

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState]) -> TaskContextState:
        """Change the task."""
        new = self._inner.update_tasks(change)
        self._on_change(new)
        return new

    def update_plan(self, change: Callable[[PlanModeContextState], PlanModeContextState]) -> PlanModeContextState:
        """Change whether the session is planning."""
        new = self._inner.update_plan(change)
        self._on_change(new)
        return new

    def close(self) -> tuple[TasksChanged | PlanModeChanged, ...]:
        """Nothing: the step closes its proposals itself."""
        return ()
