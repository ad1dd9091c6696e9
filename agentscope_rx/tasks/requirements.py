"""The tool by which a model proposes requirements; it cannot decide about them."""

from __future__ import annotations

from typing import Final, Literal

from agentscope_rx.errors import TaskRefused
from agentscope_rx.permissions.decision import session_only
from agentscope_rx.task_state import RequirementKind, TaskContextState
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.wire import clean_text

PROPOSE_TOOL: Final = "task_requirement_propose"
GUIDANCE: Final = (
    "Where you find something that the work must keep to or that shows when it is done, propose it with "
    "task_requirement_propose, with its source. A proposal binds nobody before the user or the application confirms it."
)


@tool(name=PROPOSE_TOOL, concurrency_safe=False, check=session_only)
async def task_requirement_propose(
    kind: Literal["CONSTRAINT", "ACCEPTANCE_CRITERION"], text: str, source_ref: str, context: ToolContext
) -> str:
    """Propose a requirement of this task; others decide about it.

    Args:
        kind: CONSTRAINT for what the work must keep to, ACCEPTANCE_CRITERION for what can be checked when it is done.
        text: The requirement, up to 2,000 characters.
        source_ref: Where it comes from: a message, a file, a document; up to 2,000 characters.
    """
    words = RequirementKind(kind), clean_text(text), clean_text(source_ref)

    def proposed(state: TaskContextState) -> TaskContextState:
        return state.propose(*words)

    found = context.update_tasks(proposed).proposed(*words)
    if found is None:
        raise TaskRefused("the proposal was taken in other words than it was made")
    return f"The requirement {found.id} is {found.status}."
