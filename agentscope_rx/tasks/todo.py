"""The to-do list: the tool that replaces it, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, cast

from pydantic import WithJsonSchema

from agentscope_rx.errors import TaskRefused
from agentscope_rx.messages import NOTHING, TextBlock, ToolResultBlock, ToolResultState
from agentscope_rx.permissions.decision import session_only
from agentscope_rx.task_state import Task, TaskContextState, TaskState
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.wire import clean_text

TODO_TOOL: Final = "todo_write"
STATE_KEY: Final = "context.state_key"
STATE_REVISION: Final = "context.state_revision"
REPRESENTATION: Final = "context.representation"
TASKS_CONTEXT: Final = "tasksContext"
FULL: Final = "full"
RECEIPT: Final = "receipt"
GUIDANCE: Final = (
    "Keep a to-do list with todo_write for work of several steps: write it before you begin, keep exactly one item in "
    "progress, and mark an item completed as soon as it is done. Each call replaces the whole list."
)
_CLEARED: Final = "The to-do list is empty."
_MARKS: Final = {TaskState.PENDING: "[ ]", TaskState.IN_PROGRESS: "[~]", TaskState.COMPLETED: "[x]"}
_PRIORITIES: Final = ("high", "medium", "low")
_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "description": "The complete new list, in order.",
    "items": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "description": "What is to be done."},
            "status": {"type": "string", "enum": [state.value for state in TaskState]},
            "priority": {"type": "string", "enum": list(_PRIORITIES)},
        },
        "required": ["content", "status"],
    },
}


@tool(name=TODO_TOOL, concurrency_safe=False, check=session_only)
async def todo_write(todos: Annotated[list[Any], WithJsonSchema(_SCHEMA)], context: ToolContext) -> ToolResultBlock:
    """Replace the to-do list of this task by another one.

    The list is shown to you as long as the task lasts. At most one item may be in progress.
    """
    proposals = context.proposals
    try:
        wanted = [_item(each, at) for at, each in enumerate(todos, 1)]
        if sum(task.state is TaskState.IN_PROGRESS for task in wanted) > 1:
            raise TaskRefused("more than one item is in_progress; work on one at a time")
    except TaskRefused as error:
        return _result(context, f"Error: {error}", state=ToolResultState.ERROR)

    def replaced(state: TaskContextState) -> TaskContextState:
        known = list(state.tasks)
        now = proposals.now()

        def same_or_new(task: Task) -> Task:
            before = next((each for each in known if each.subject == task.subject), None)
            if before is None:
                return replace(task, id=proposals.new_id("task"), created_at=now)
            known.remove(before)  # of several with the same words each is found once
            return replace(before, state=task.state, metadata={**before.metadata, **task.metadata})

        return state.replace_tasks([same_or_new(task) for task in wanted], state.revision)

    state = context.update_tasks(replaced)
    marks = {STATE_KEY: TASKS_CONTEXT, STATE_REVISION: state.revision, REPRESENTATION: FULL}
    return _result(context, rendered(state.tasks), metadata=marks)


def rendered(tasks: Sequence[Task]) -> str:
    """The list as the model reads it.

    Examples:
        >>> print(rendered([Task(subject="fix", state=TaskState.IN_PROGRESS), Task(subject="verify")]))
        2 open todo(s):
        - [~] fix
        - [ ] verify
    """
    if not tasks:
        return _CLEARED
    left = sum(task.state is not TaskState.COMPLETED for task in tasks)
    return "\n".join([f"{left} open todo(s):", *map(_line, tasks)])


def _line(task: Task) -> str:
    priority = task.metadata.get("priority")
    return f"- {_MARKS[task.state]} {task.subject}" + (f" (priority: {priority})" if priority else "")


def _item(given: object, at: int) -> Task:
    if not isinstance(given, Mapping):
        raise TaskRefused(f"item {at} is {given!r:.40}; give an object with content and status")
    item = cast("Mapping[str, object]", given)
    content, status = item.get("content"), item.get("status") or TaskState.PENDING
    if not isinstance(content, str) or not content.strip():
        raise TaskRefused(f"the content of item {at} is blank; say what is to be done")
    if not isinstance(status, str) or (status := status.strip() or TaskState.PENDING) not in tuple(TaskState):
        raise TaskRefused(f"the status of item {at} is {status!r:.40}; it is one of {', '.join(TaskState)}")
    priority = str(item.get("priority") or "").strip().lower()
    # One line for each: what is shown is a list, and an item may not look like several.
    subject = " ".join(clean_text(content).split())
    return Task(
        subject=subject,
        description=subject,
        state=TaskState(status),
        metadata={"priority": priority} if priority in _PRIORITIES else NOTHING,
    )


def _result(
    context: ToolContext,
    text: str,
    *,
    state: ToolResultState = ToolResultState.SUCCESS,
    metadata: Mapping[str, object] = NOTHING,
) -> ToolResultBlock:
    return ToolResultBlock(
        id=context.call.id, name=TODO_TOOL, output=(TextBlock(text=text),), metadata=metadata, state=state
    )
