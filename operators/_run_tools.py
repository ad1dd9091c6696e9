from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Final

import agentscope_rx.events as ev
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.logs import logger
from agentscope_rx.messages import (
    DataBlock,
    GenerateReason,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    timestamp_of,
)
from agentscope_rx.state import AgentState, ResultsRecorded, ToolsDispatched
from agentscope_rx.step import Mode, Step
from agentscope_rx.tools import CancelToken, ToolContext, Toolkit
from agentscope_rx.tools.execution import ToolOutcome, batches, run_call

INTERRUPTED_TEXT: Final = "This tool call was interrupted before it gave a result."
_NOT_RUN_TEXT: Final = "This tool call was not run: the limit of steps was reached."


def run_tools(*, toolkit: Toolkit) -> Operator:
    """Run the tool calls of the reply; each gives a result, whatever happens to it.

        --s-----------|
        run_tools
        --------t-----|     t.state holds one result per call, in call order

    Args:
        toolkit: The tools.

    Emits:
        `TOOL_RESULT_START` for all calls at once, deltas as tools report them, `TOOL_RESULT_END` in call order when
        all are done; `REQUIRE_EXTERNAL_EXECUTION` for calls that somebody outside has to run.
    """

    @effect_operator
    def run_tools(step: Step) -> Step | Awaitable[Step]:
        if step.reply is None or not step.reply.tool_calls:
            return step
        if step.run.stopping:
            return step  # the calls stay open, and the run says what becomes of them
        return _Batch(step, step.reply.tool_calls, toolkit).run()

    return run_tools


class _Batch:
    """The calls of one reply, from their start to their record."""

    def __init__(self, step: Step, calls: Sequence[ToolUseBlock], toolkit: Toolkit) -> None:
        self.step, self.calls, self.toolkit = step, calls, toolkit
        self.stage = step.run.runtime.ids.new_id("acting")
        self.outcomes: dict[str, ToolOutcome] = {}
        self.cancelled = CancelToken()

    async def run(self) -> Step:
        step = self.step
        step.run.acted = step.number
        for call in self.calls:
            step.emit(ev.ToolResultStart(reply_id=self.stage, tool_call_id=call.id, tool_call_name=call.name))
        try:
            if step.mode is not Mode.CONCLUDE:
                await self._announce()
                for together in batches(self.calls, self.toolkit):
                    await self._run_together(together)
        finally:  # cancelled, too: no call is ever left without a result
            self.cancelled.set()
            state = self._record()
        step = replace(step, state=state, history=state.context)
        waiting = tuple(call for call in self.calls if self._suspended(call))
        if not waiting:
            return step
        step.emit(ev.RequireExternalExecution(reply_id=self.stage, tool_calls=waiting))
        return step.finish(None, GenerateReason.TOOL_SUSPENDED)

    async def _announce(self) -> None:
        """Put into the log, where there is one, that the calls begin: from now on they may have an effect."""
        run = self.step.run
        if run.durable:
            run.record(ToolsDispatched(tuple(call.id for call in self.calls)))
            await run.barrier()

    async def _run_together(self, calls: Sequence[ToolUseBlock]) -> None:
        if len(calls) == 1:
            await self._run_one(calls[0])
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._run_one(call))

    async def _run_one(self, call: ToolUseBlock) -> None:
        step, identity = self.step, self.step.identity
        context = ToolContext(
            agent_id=identity.agent_id,
            agent_name=identity.agent_name,
            user_id=identity.user_id,
            session_id=identity.session_id,
            turn_id=identity.turn_id,
            run_id=identity.run_id,
            call=call,
            runtime_context=step.run.context,
            cancelled=self.cancelled,
            on_report=lambda output: self._emit_output(call, output),
        )
        outcome = await run_call(
            self.toolkit,
            call,
            context,
            active_groups=step.state.tool_context.activated_groups,
            executor=step.run.runtime.threads,
            jitter=step.run.runtime.jitter,
        )
        if outcome.error is not None:
            logger().warning("tool_failed", tool=call.name, error=type(outcome.error).__name__)
        self.outcomes[call.id] = outcome

    # -- results --------------------------------------------------------------------------------------------

    def _suspended(self, call: ToolUseBlock) -> bool:
        outcome = self.outcomes.get(call.id)
        return outcome is not None and outcome.suspended

    def _record(self) -> AgentState:
        step = self.step
        now = timestamp_of(step.run.runtime.clock.now())
        messages: list[Msg] = []
        groups: tuple[str, ...] | None = None
        for call in self.calls:
            outcome = self.outcomes.get(call.id)
            result = self._missing(call) if outcome is None else outcome.result
            if outcome is None or not outcome.streamed:
                for block in result.output:
                    self._emit_output(call, block)
            step.emit(
                ev.ToolResultEnd(
                    reply_id=self.stage,
                    tool_call_id=call.id,
                    tool_call_name=call.name,
                    state=result.state,
                    metadata=result.metadata or None,
                )
            )
            if outcome is not None and outcome.activated_groups is not None:
                groups = outcome.activated_groups
            if not self._suspended(call):
                id = step.run.runtime.ids.new_id("message")
                messages.append(replace(Msg.tool(result, name=step.identity.agent_name), id=id, timestamp=now))
        return step.run.record(ResultsRecorded(tuple(messages), groups))

    def _missing(self, call: ToolUseBlock) -> ToolResultBlock:
        concluding = self.step.mode is Mode.CONCLUDE
        return ToolResultBlock(
            id=call.id,
            name=call.name,
            output=(TextBlock(text=_NOT_RUN_TEXT if concluding else INTERRUPTED_TEXT),),
            state=ToolResultState.ERROR if concluding else ToolResultState.INTERRUPTED,
        )

    def _emit_output(self, call: ToolUseBlock, output: str | TextBlock | DataBlock) -> None:
        if isinstance(output, DataBlock):
            self.step.emit(
                ev.ToolResultDataDelta(reply_id=self.stage, tool_call_id=call.id, tool_call_name=call.name, data=output)
            )
            return
        self.step.emit(
            ev.ToolResultTextDelta(
                reply_id=self.stage,
                tool_call_id=call.id,
                tool_call_name=call.name,
                delta=output if isinstance(output, str) else output.text,
            )
        )
