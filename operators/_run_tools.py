"""`run_tools`: the calls of a reply, side by side; whatever becomes of one, it has a result."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.operators._tool_batch import ToolBatch
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.step import Mode, Step
from agentscope_rx.tasks import PlanModeConfig
from agentscope_rx.tools import Toolkit

_NOTHING_SAID: Final = PermissionContextState()


def run_tools(
    *,
    toolkit: Toolkit,
    plan_mode: PlanModeConfig | None = None,
    permissions: PermissionContextState = _NOTHING_SAID,
    stop_on_reject: bool = False,
) -> Operator:
    """Run the tool calls of the reply that may run; each gives a result, whatever happens to it.

        --s-----------|
        run_tools
        -------t------|     t.state holds one result per call, in call order
        --S----(rE)         events: S TOOL_RESULT_START, r TOOL_RESULT_TEXT_DELTA, E TOOL_RESULT_END

        --s-----------|
        run_tools     a call waits for a person
        --t-----------|     t is finished, and no call has run
        --R                 events: R REQUIRE_USER_CONFIRM

    Where a person has to be asked about one call, none of the step runs before the answer.

    Args:
        toolkit: The tools.
        plan_mode: How a session plans. While it does, a call that may change something is denied, and a person is
            asked about the end of planning, from its state and whatever this says. Default: as `PlanModeConfig()` has
            it.
        permissions: What the agent says of all its sessions. Default: nothing.
        stop_on_reject: Whether the run ends when all calls of a step were denied. Default False.

    Emits:
        Start, text and end for each call that is denied; `REQUIRE_USER_CONFIRM` where a person is asked. Else
        `TOOL_RESULT_START` for all calls that run at once, deltas as tools report them, `TOOL_RESULT_END` in call
        order when all are done; `REQUIRE_EXTERNAL_EXECUTION` for calls that somebody outside has to run.
        `ALL_TOOLS_DENIED` where none was allowed.
    """

    @effect_operator
    def run_tools(step: Step) -> Step | Awaitable[Step]:
        if step.reply is None or not step.reply.tool_calls:
            return step
        if step.run.stopping:
            return step  # the calls stay open, and the run says what becomes of them
        calls = step.reply.tool_calls if step.mode is not Mode.RESUME else step.run.state.context.open_calls
        batch = ToolBatch(step, calls, toolkit, permissions, plan_mode=plan_mode or PlanModeConfig())
        return batch.run(stop_on_reject=stop_on_reject)

    return run_tools
