"""Calls that have run already in another future of their session: they get the results that were recorded there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.past import REUSED_KEY, RecordedEffect
from agentscope_rx.permissions.decision import session_only
from agentscope_rx.step import RunHandle
from agentscope_rx.tools import Toolkit
from agentscope_rx.tools.execution import ToolOutcome

_UNKNOWN_TEXT: Final = (
    "This call was made before, in another course of this conversation. It was not run again; whether it had any "
    "effect then is not known."
)


def already_run(
    calls: Iterable[ToolUseBlock], effects: Iterable[RecordedEffect], toolkit: Toolkit
) -> Mapping[str, RecordedEffect]:
    """Which of the calls have run already, by their ids; each effect answers one call.

    Tools that only read run again, and so do those that change nothing but the session.

    Args:
        calls: The calls of a step.
        effects: What has run in another future.
        toolkit: The tools.
    """
    left, found = list(effects), dict[str, RecordedEffect]()
    for call in calls if left else ():
        entry = toolkit.entry(call.name)
        if entry is None or entry.tool.read_only or getattr(entry.tool, "check", None) is session_only:
            continue
        effect = next((each for each in left if each.is_of(call)), None)
        if effect is not None:
            left.remove(effect)
            found[call.id] = effect
    return found


async def recalled(run: RunHandle, call: ToolUseBlock, effect: RecordedEffect) -> ToolOutcome:
    """What became of a call when it ran.

    Args:
        run: The run that makes it again.
        call: The call.
        effect: What was recorded of it.
    """
    recorded = await run.recorded_result(effect)
    session_id = None if effect.result is None else effect.result.session_id
    source = {"session_id": session_id, "tool_call_id": effect.call_id}
    if recorded is None:
        recorded = ToolResultBlock(
            id=call.id,
            name=call.name,
            output=(TextBlock(text=_UNKNOWN_TEXT),),
            state=ToolResultState.INTERRUPTED,
        )
    result = replace(recorded, id=call.id, name=call.name, metadata={**recorded.metadata, REUSED_KEY: source})
    return ToolOutcome(result=result)
