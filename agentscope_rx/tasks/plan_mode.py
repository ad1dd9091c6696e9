"""Plan mode: what may be done while a session plans, what the model is told of it, and the tools for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from agentscope_rx.blocks import PLAN_STATE, ContextBlock
from agentscope_rx.errors import RunError
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.permissions.decision import PASSTHROUGH, PermissionDecision, session_only
from agentscope_rx.task_state import PlanModeContextState
from agentscope_rx.tasks.config import PlanModeConfig
from agentscope_rx.tasks.requirements import PROPOSE_TOOL
from agentscope_rx.tasks.todo import TODO_TOOL
from agentscope_rx.tools import Tool, ToolContext, Toolkit, tool
from agentscope_rx.wire import clean_text
from agentscope_rx.workspace import WorkspaceFS

PLAN_ENTER: Final = "plan_enter"
PLAN_WRITE: Final = "plan_write"
PLAN_EXIT: Final = "plan_exit"
SHELL_TOOL: Final = "execute"
_ALLOWED: Final = frozenset({PLAN_ENTER, PLAN_WRITE, TODO_TOOL, PROPOSE_TOOL})
_RULES_PRIORITY: Final = 100
_DENIED: Final = (
    "this session is planning, and {} is no tool that only reads; what the plan says is done after its approval, which "
    "plan_exit asks for"
)
_APPROVAL: Final = "the plan in {} is to be approved, and with that planning ends"
_NO_PLAN: Final = "planning is to end, although no plan was written"
_PLANNING: Final = (
    "You are planning. Nothing may be changed: only tools that read work, and those for the to-do list, for proposals "
    "and for the plan; every other call is denied. Find out what you need, ask the user where information is missing, "
    "and write the plan with plan_write, which puts it into {}. When it is complete, ask for its approval with "
    "plan_exit."
)
_SHELL_HINT: Final = "Commands may be run with execute, so long as they only look and change nothing."
_BUILDING: Final = (
    "There is a plan in {}. That it is there shows neither that it was approved nor that any of it was done."
)
_PROOF: Final = "Neither mode nor file proves an approval, or that any work was done."


def mode_rules(plan: PlanModeContextState, config: PlanModeConfig) -> ContextBlock | None:
    """What the mode of a session means for the model; None where it never planned.

    Args:
        plan: The mode.
        config: Where plans lie, and whether commands may be run.
    """
    if plan.plan_active:
        text = _PLANNING.format(plan.current_plan_file or config.file)
        text = f"{text} {_SHELL_HINT}" if config.allow_shell else text
    elif plan.current_plan_file is not None:
        text = _BUILDING.format(plan.current_plan_file)
    else:
        return None
    return ContextBlock(id="harness:plan-mode", kind="mode_rules", text=text, required=True, priority=_RULES_PRIORITY)


def plan_state(plan: PlanModeContextState) -> ContextBlock | None:
    """The mode of a session as current state; None where it never planned."""
    if not plan.plan_active and plan.current_plan_file is None:
        return None
    mode = "PLAN (read-only)" if plan.plan_active else "BUILD"
    lines = (f"Mode: {mode}", f"Plan file: {plan.current_plan_file or '(none)'}", _PROOF)
    return ContextBlock(id="harness:plan_state", kind=PLAN_STATE, text="\n".join(lines), required=True)


# -- what may be done ---------------------------------------------------------------------------------------


def plan_gate(
    plan: PlanModeContextState, call: ToolUseBlock, toolkit: Toolkit, config: PlanModeConfig
) -> PermissionDecision:
    """What the mode of a session says of a call, whatever rules and modes of permissions say.

    The mode decides, and the tool's name: no text can change that. The end of planning is for a person to allow.

    Args:
        plan: The mode, as the calls before this one have left it.
        call: The call.
        toolkit: The tools.
        config: Where the plan lies, and whether commands may be run.
    """
    entry = toolkit.entry(call.name)
    if not plan.plan_active or entry is None or entry.tool.read_only:
        return PASSTHROUGH
    if call.name == PLAN_EXIT:
        question = _APPROVAL.format(plan.current_plan_file) if plan.current_plan_file else _NO_PLAN
        return PermissionDecision.ask(question, reason="plan_exit", non_bypassable=True)
    if call.name in _ALLOWED or (call.name == SHELL_TOOL and config.allow_shell):
        return PASSTHROUGH
    return PermissionDecision.deny(_DENIED.format(call.name), reason="planning")


# -- the tools ----------------------------------------------------------------------------------------------


def plan_tools(config: PlanModeConfig, files_of: Callable[[ToolContext], WorkspaceFS]) -> tuple[Tool, ...]:
    """The tools `plan_enter`, `plan_write` and `plan_exit`.

    Args:
        config: Where the plan lies.
        files_of: Gives what a session sees of the workspace.
    """

    @tool(name=PLAN_ENTER, concurrency_safe=False, check=session_only)
    async def plan_enter(context: ToolContext) -> str:
        """Begin to plan: from now on nothing can be changed until the plan is approved.

        Use it before work that is large, risky or unclear.
        """
        context.proposals.update_plan(lambda plan: replace(plan, plan_active=True))
        return f"Planning has begun. Write the plan with {PLAN_WRITE}; it goes into {config.file}."

    @tool(name=PLAN_WRITE, concurrency_safe=False, check=session_only)
    async def plan_write(content: str, context: ToolContext) -> str:
        """Write the plan. It replaces the one that is there as a whole.

        Args:
            content: The complete plan, in Markdown.
        """
        _check_planning(context)
        if not content.strip():
            raise ValueError("the plan is blank; write all of it")
        await files_of(context).write(config.file, clean_text(content).encode())
        context.proposals.update_plan(lambda plan: replace(plan, current_plan_file=config.file))
        return f"The plan was written to {config.file}."

    @tool(name=PLAN_EXIT, concurrency_safe=False, check=session_only)
    async def plan_exit(context: ToolContext, summary: str = "") -> str:
        """Ask for the approval of the plan; when it is given, planning ends and the work can be done.

        Args:
            summary: The plan in a few sentences, for whoever approves it.
        """
        _check_planning(context)
        context.proposals.update_plan(lambda plan: replace(plan, plan_active=False))
        return "The plan was approved. Carry it out."

    return plan_enter, plan_write, plan_exit


def _check_planning(context: ToolContext) -> None:
    if not context.proposals.plan.plan_active:
        raise RunError(f"this session is not planning; {PLAN_ENTER} begins to plan")
