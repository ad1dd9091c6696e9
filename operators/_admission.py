"""Which calls of a reply may run: asked once for all of them, before the first one starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from agentscope_rx.frozen import frozen
from agentscope_rx.interactions import PERMISSION_KEY, is_confirmed, question
from agentscope_rx.messages import TextBlock, ToolCallState, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.permissions import PermissionDecision, judge
from agentscope_rx.step import Step
from agentscope_rx.tools import ToolContext, Toolkit
from agentscope_rx.tools.execution import fits, reached
from agentscope_rx.tools.session_tool import SessionTool

_DENIED: Final = "This call was not run, because permission was denied: {}. Do not try to get the same in another way."


@frozen
class Admission:
    """What becomes of the calls of a step before any of them runs.

    Args:
        allowed: The calls that may run.
        asked: Those that wait for a person, with the question in their metadata. As long as there are any, none runs.
        denied: The results of those that never run.
    """

    allowed: tuple[ToolUseBlock, ...] = ()
    asked: tuple[ToolUseBlock, ...] = ()
    denied: tuple[ToolResultBlock, ...] = ()


async def admit(
    step: Step,
    calls: Iterable[ToolContext],
    toolkit: Toolkit,
    policy: PermissionContextState,
    *,
    standing: Callable[[ToolUseBlock], PermissionDecision],
) -> Admission:
    """Decide about calls, by what holds for the session now.

    Args:
        step: The step that they belong to.
        calls: The calls, as their tools are told of them.
        toolkit: The tools.
        policy: What the agent says of all its sessions.
        standing: What the state of the session says of a call, beside its rules.
    """
    permissions = step.run.state.permission_context.under(policy)
    allowed, asked, denied = list[ToolUseBlock](), list[ToolUseBlock](), list[ToolResultBlock]()
    for context in calls:
        call = context.call
        found = reached(toolkit, call, step.state.tool_context.activated_groups)
        if found is None:  # no tool is reached: running the call gives the error that says why
            allowed.append(call)
            continue
        tool, arguments = found
        judged = tool.judged_in(context) if isinstance(tool, SessionTool) else tool
        decision = await judge(judged, arguments, permissions, standing=standing(call), confirmed=is_confirmed(call))
        if decision.behavior == "deny":
            denied.append(denial(call, decision))
        elif decision.behavior == "ask" and fits(tool, arguments):
            asked.append(_asked(call, decision))
        else:
            allowed.append(call)
    return Admission(allowed=tuple(allowed), asked=tuple(asked), denied=tuple(denied))


def marked(calls: Sequence[ToolUseBlock], state: ToolCallState) -> tuple[ToolUseBlock, ...]:
    """Calls in another state."""
    return tuple(replace(call, state=state) for call in calls)


def _asked(call: ToolUseBlock, decision: PermissionDecision) -> ToolUseBlock:
    told = {**call.metadata, PERMISSION_KEY: question(decision.message, decision.suggestions)}
    return replace(call, state=ToolCallState.ASKING, metadata=told)


def denial(call: ToolUseBlock, decision: PermissionDecision) -> ToolResultBlock:
    """The result of a call that is not run, with the reason for the model."""
    text = _DENIED.format(decision.message)
    return ToolResultBlock(id=call.id, name=call.name, output=(TextBlock(text=text),), state=ToolResultState.DENIED)
