"""`project_task_state`: after all shortening, since only then it is known what the conversation still shows."""

from __future__ import annotations

from agentscope_rx.draft import RequestDraft
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.step import Step
from agentscope_rx.tasks.projection import TaskProjection


def project_task_state(*, tasks: TaskProjection) -> Operator:
    """Show the task once: what the shortened conversation still shows of it is left out beside it.

        --s-------|
        project_task_state
        --t-------|     t.draft shows the newest to-do list in the conversation or behind it, and no older one

    A result that holds an outdated list is a single line in this request; the history keeps it as it is.

    Args:
        tasks: Shows tasks.
    """

    @view_operator
    def project_task_state(draft: RequestDraft, step: Step) -> RequestDraft:
        return tasks.fitted(draft, step.state.tasks_context)

    return project_task_state
