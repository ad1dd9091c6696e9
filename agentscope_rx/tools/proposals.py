"""What the tools of one step want to change in their session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from agentscope_rx.errors import RunError, TaskRefused
from agentscope_rx.messages import timestamp_of
from agentscope_rx.records import PlanModeChanged, TasksChanged
from agentscope_rx.runtime import Runtime
from agentscope_rx.state import Record
from agentscope_rx.task_state import PlanModeContextState, TaskContextState

S = TypeVar("S", TaskContextState, PlanModeContextState)


class Proposals:
    """The task and the plan of a session while the tools of one step are at work; safe from any thread.

    Each tool sees what those before it have changed. The session gets all of it at once, with the results.

    Args:
        tasks: The task as the step found it.
        plan: Whether the session is planning, as the step found it.
        runtime: Where ids and moments come from. Default: one of its own.
    """

    def __init__(
        self,
        tasks: TaskContextState | None = None,
        plan: PlanModeContextState | None = None,
        *,
        runtime: Runtime | None = None,
    ) -> None:
        self._tasks_before = self._tasks = tasks or TaskContextState()
        self._plan_before = self._plan = plan or PlanModeContextState()
        self._runtime = runtime or Runtime()
        self._lock = threading.RLock()
        self._closed = False

    @property
    def tasks(self) -> TaskContextState:
        """The task, with all that was changed so far."""
        return self._tasks

    @property
    def plan(self) -> PlanModeContextState:
        """Whether the session is planning, with all that was changed so far."""
        return self._plan

    def new_id(self, kind: str) -> str:
        """A new id."""
        return self._runtime.ids.new_id(kind)

    def now(self) -> str:
        """This moment, in the form of `Msg.timestamp`."""
        return timestamp_of(self._runtime.clock.now())

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState]) -> TaskContextState:
        """Change the task; gives the new one.

        Args:
            change: Gets the task, gives another value of it.

        Raises:
            TaskConflict: It was decided on another revision than the newest.
            TaskRefused: It breaks a rule.
            RunError: The step is over.
        """
        with self._lock:
            self._tasks = changed(self._tasks, self._open(change))
            return self._tasks

    def update_plan(self, change: Callable[[PlanModeContextState], PlanModeContextState]) -> PlanModeContextState:
        """Change whether the session is planning; arguments and errors as for `update_tasks`."""
        with self._lock:
            self._plan = self._open(change)(self._plan)
            return self._plan

    def close(self) -> tuple[Record, ...]:
        """End the step: what has changed, as records. Later changes are refused."""
        with self._lock:
            self._closed = True
            records: list[Record] = []
            if self._tasks is not self._tasks_before:
                records.append(TasksChanged(self._tasks))
            if self._plan != self._plan_before:
                records.append(PlanModeChanged(self._plan))
            return tuple(records)

    def _open(self, change: Callable[[S], S]) -> Callable[[S], S]:
        if self._closed:
            raise RunError("the step of this tool call is over; nothing of the session can be changed by it any more")
        return change


def changed(before: TaskContextState, change: Callable[[TaskContextState], TaskContextState]) -> TaskContextState:
    """What a change makes of a task.

    Args:
        before: The task.
        change: Gets it, gives another value of it.

    Raises:
        TypeError: It gives something else.
        TaskRefused: It gives another task under the same revision, or an older one.
    """
    after = change(before)
    if not isinstance(after, TaskContextState):  # type: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a TaskContextState was expected of the change, and it gave {after!r:.80}")
    if after == before:
        return before
    if after.revision <= before.revision:
        raise TaskRefused(
            f"the change gives another task under revision {after.revision}, and {before.revision} has been; use the "
            "methods of TaskContextState, which count"
        )
    return after
