"""The calls of one reply: which of them may run, their running, and their record."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import agentscope_rx.events as ev
from agentscope_rx.interactions import exchange_of, is_confirmed
from agentscope_rx.logs import logger
from agentscope_rx.messages import (
    DataBlock,
    GenerateReason,
    MetadataKey,
    Msg,
    TextBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    timestamp_of,
)
from agentscope_rx.operators._admission import Admission, admit, denial, marked
from agentscope_rx.operators._reuse import already_run, recalled
from agentscope_rx.past import RecordedEffect
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.permissions import PermissionDecision
from agentscope_rx.records import CallsPaused, EffectsReused, ResultsRecorded, ToolsDispatched
from agentscope_rx.session import result_events
from agentscope_rx.state import AgentState
from agentscope_rx.step import Mode, Step
from agentscope_rx.tasks import PlanModeConfig
from agentscope_rx.tasks.observation import observed
from agentscope_rx.tasks.plan_mode import plan_gate
from agentscope_rx.tools import CancelToken, ToolContext, Toolkit
from agentscope_rx.tools.execution import ToolOutcome, batches, run_call
from agentscope_rx.tools.proposals import Proposals

_INTERRUPTED_TEXT: Final = "This tool call was interrupted before it gave a result."
_NOT_RUN_TEXT: Final = "This tool call was not run: the limit of steps was reached."


class ToolBatch:
    """The calls of one reply, from their start to their record."""

    def __init__(
        self,
        step: Step,
        calls: Sequence[ToolUseBlock],
        toolkit: Toolkit,
        policy: PermissionContextState,
        *,
        plan_mode: PlanModeConfig,
    ) -> None:
        self._step, self._toolkit, self._policy, self._plan_mode = step, toolkit, policy, plan_mode
        self._submitted = tuple(call for call in calls if call.state is ToolCallState.SUBMITTED)
        self._calls = tuple(call for call in calls if call.state is not ToolCallState.SUBMITTED)
        self._stage = step.run.runtime.ids.new_id("acting")
        self._outcomes: dict[str, ToolOutcome] = {}
        self._recorded: Mapping[str, RecordedEffect] = {}
        self._reused: list[RecordedEffect] = []
        self._begun = False
        self._cancelled = CancelToken()
        state = step.run.state
        self._proposals = Proposals(state.tasks_context, state.plan_mode_context, runtime=step.run.runtime)

    async def run(self, *, stop_on_reject: bool) -> Step:
        step = self._step
        step.run.acted = step.number
        step.run.proposals = self._proposals
        try:
            if step.mode is not Mode.CONCLUDE:
                told = map(self._context, self._calls)
                admission = await admit(step, told, self._toolkit, self._policy, standing=self._standing)
                self._deny(admission.denied)
                self._calls = admission.allowed
                if admission.asked:
                    return await self._ask(admission)
                if any(call.state is ToolCallState.ASKING for call in admission.allowed):
                    # A rule has answered for the person: that must be known before anything runs.
                    self._pause(marked(admission.allowed, ToolCallState.ALLOWED), {})
                    await step.run.save()
            await self._run_all()
        finally:  # cancelled, too: no call that has begun is ever left without a result
            self._cancelled.set()
            state = self._record()
        suspended = tuple(call for call in self._calls if self._suspended(call))
        if suspended or self._submitted:
            return await self._submit(suspended)
        return self._ended(replace(step, state=state, history=state.context), stop_on_reject=stop_on_reject)

    def _standing(self, call: ToolUseBlock) -> PermissionDecision:
        """What the mode of the session says of a call, as the calls before it have left the mode."""
        return plan_gate(self._proposals.plan, call, self._toolkit, self._plan_mode)

    def _denied_by_now(self, call: ToolUseBlock) -> ToolOutcome | None:
        """The outcome of a call that may no longer run, since one before it has begun to plan."""
        decision = self._standing(call)
        if decision.behavior == "passthrough" or (decision.behavior == "ask" and is_confirmed(call)):
            return None
        return ToolOutcome(result=denial(call, decision))

    def _begin(self) -> None:
        self._begun = True
        for call in self._calls:
            self._step.emit(ev.ToolResultStart(reply_id=self._stage, tool_call_id=call.id, tool_call_name=call.name))

    async def _run_all(self) -> None:
        self._begin()
        if self._step.mode is not Mode.CONCLUDE:
            effects = self._step.run.state.tool_context.effects
            self._recorded = already_run(self._calls, effects, self._toolkit)
            await self._announce()
            for together in batches(self._calls, self._toolkit):
                await self._run_together(together)

    async def _announce(self) -> None:
        """Put into the log, where there is one, that the calls begin: from now on they may have an effect."""
        run = self._step.run
        dispatched = tuple(call.id for call in self._calls if call.id not in self._recorded)
        if run.durable and dispatched:
            run.record(ToolsDispatched(dispatched))
            await run.barrier()

    # -- what does not run now ------------------------------------------------------------------------------

    def _deny(self, denied: Sequence[ToolResultBlock]) -> None:
        if not denied:
            return
        for result in denied:
            for event in result_events(result, self._stage):
                self._step.emit(event)
        self._step.run.record(ResultsRecorded(tuple(map(self._message, denied))))

    async def _ask(self, admission: Admission) -> Step:
        allowed = marked(admission.allowed, ToolCallState.ALLOWED)
        message = self._pause((*admission.asked, *allowed), {MetadataKey.CONFIRM_REPLY_ID: self._stage})
        await self._step.run.save()
        self._step.emit(ev.RequireUserConfirm(reply_id=self._stage, tool_calls=admission.asked))
        return self._finished(message, GenerateReason.PERMISSION_ASKING)

    async def _submit(self, suspended: Sequence[ToolUseBlock]) -> Step:
        waiting = (*self._submitted, *marked(suspended, ToolCallState.SUBMITTED))
        message = self._pause(waiting, {MetadataKey.EXTERNAL_REPLY_ID: self._stage})
        await self._step.run.save()
        self._step.emit(ev.RequireExternalExecution(reply_id=self._stage, tool_calls=waiting))
        return self._finished(message, GenerateReason.TOOL_SUSPENDED)

    def _pause(self, calls: tuple[ToolUseBlock, ...], metadata: Mapping[str, object]) -> Msg:
        run = self._step.run
        exchange = exchange_of(run.state.context, calls[0].id)
        assert exchange is not None  # the calls are open: call_model has recorded them
        state = run.record(CallsPaused(exchange.id, calls, metadata))
        paused = exchange_of(state.context, calls[0].id)
        assert paused is not None
        return paused.messages[0]

    def _finished(self, message: Msg, reason: GenerateReason) -> Step:
        state = self._step.run.state
        return replace(self._step, state=state, history=state.context, reply=message).finish(None, reason)

    def _ended(self, step: Step, *, stop_on_reject: bool) -> Step:
        """The step when all of its calls have their results."""
        last = step.state.context.last
        results = [message.tool_result for message in last.messages[1:]] if last is not None else []
        if not results or any(result is None or result.state is not ToolResultState.DENIED for result in results):
            return step
        assert last is not None  # it has results
        step.emit(ev.AllToolsDenied(denied_tool_calls=last.messages[0].tool_calls))
        return step.finish(None, GenerateReason.ALL_TOOLS_DENIED) if stop_on_reject else step

    async def _run_together(self, calls: Sequence[ToolUseBlock]) -> None:
        if len(calls) == 1:
            await self._run_one(calls[0])
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._run_one(call))

    async def _run_one(self, call: ToolUseBlock) -> None:
        proposals, binding = self._proposals, self._proposals.tasks.binding
        started = proposals.now()
        outcome = self._denied_by_now(call)
        if outcome is None and call.id in self._recorded:
            self._outcomes[call.id] = await self._recalled(call, self._recorded[call.id])
            self._reused.append(self._recorded[call.id])
            return
        outcome = outcome or await self._called(call)
        if binding is not None and not outcome.suspended:
            outcome = observed(
                outcome, action_id=proposals.new_id("action"), binding=binding, started=started, ended=proposals.now()
            )
        self._outcomes[call.id] = outcome

    def _context(self, call: ToolUseBlock) -> ToolContext:
        step, identity = self._step, self._step.identity
        return ToolContext(
            agent_id=identity.agent_id,
            agent_name=identity.agent_name,
            user_id=identity.user_id,
            session_id=identity.session_id,
            turn_id=identity.turn_id,
            run_id=identity.run_id,
            call=call,
            runtime_context=step.run.context,
            cancelled=self._cancelled,
            on_report=lambda output: self._emit_output(call, output),
            proposals=self._proposals,
        )

    async def _recalled(self, call: ToolUseBlock, effect: RecordedEffect) -> ToolOutcome:
        run = self._step.run

        async def look_up(_: ToolContext) -> ToolOutcome:
            return await recalled(run, call, effect)

        return await run.runtime.outside.call(call, self._context(call), look_up)

    async def _called(self, call: ToolUseBlock) -> ToolOutcome:
        step = self._step
        runtime = step.run.runtime

        async def run(context: ToolContext) -> ToolOutcome:
            groups = step.state.tool_context.activated_groups
            threads, jitter = runtime.threads, runtime.jitter
            return await run_call(self._toolkit, call, context, active_groups=groups, executor=threads, jitter=jitter)

        outcome = await runtime.outside.call(call, self._context(call), run)
        if outcome.error is not None:
            logger().warning("tool_failed", tool=call.name, error=type(outcome.error).__name__)
        return outcome

    # -- results --------------------------------------------------------------------------------------------

    def _suspended(self, call: ToolUseBlock) -> bool:
        outcome = self._outcomes.get(call.id)
        return outcome is not None and outcome.suspended

    def _record(self) -> AgentState:
        step = self._step
        if not self._begun:
            self._settle()
            return step.run.state
        messages: list[Msg] = []
        groups: tuple[str, ...] | None = None
        for call in self._calls:
            outcome = self._outcomes.get(call.id)
            result = self._missing(call) if outcome is None else outcome.result
            if outcome is None or not outcome.streamed:
                for block in result.output:
                    self._emit_output(call, block)
            step.emit(
                ev.ToolResultEnd(
                    reply_id=self._stage,
                    tool_call_id=call.id,
                    tool_call_name=call.name,
                    state=result.state,
                    metadata=result.metadata or None,
                )
            )
            if outcome is not None and outcome.activated_groups is not None:
                groups = outcome.activated_groups
            if not self._suspended(call):
                messages.append(self._message(result))
        self._settle()
        if self._reused:
            step.run.record(EffectsReused(tuple(self._reused)))
        if not messages and groups is None:
            return step.run.state
        return step.run.record(ResultsRecorded(tuple(messages), groups))

    def _settle(self) -> None:
        """Record what the tools changed of the task, before their results: no receipt tells of a list that is not."""
        for record in self._proposals.close():
            self._step.run.record(record)
        self._step.run.proposals = None

    def _message(self, result: ToolResultBlock) -> Msg:
        runtime = self._step.run.runtime
        message = Msg.tool(result, name=self._step.identity.agent_name)
        return replace(message, id=runtime.ids.new_id("message"), timestamp=timestamp_of(runtime.clock.now()))

    def _missing(self, call: ToolUseBlock) -> ToolResultBlock:
        concluding = self._step.mode is Mode.CONCLUDE
        return ToolResultBlock(
            id=call.id,
            name=call.name,
            output=(TextBlock(text=_NOT_RUN_TEXT if concluding else _INTERRUPTED_TEXT),),
            state=ToolResultState.ERROR if concluding else ToolResultState.INTERRUPTED,
        )

    def _emit_output(self, call: ToolUseBlock, output: str | TextBlock | DataBlock) -> None:
        if isinstance(output, DataBlock):
            self._step.emit(
                ev.ToolResultDataDelta(
                    reply_id=self._stage, tool_call_id=call.id, tool_call_name=call.name, data=output
                )
            )
            return
        self._step.emit(
            ev.ToolResultTextDelta(
                reply_id=self._stage,
                tool_call_id=call.id,
                tool_call_name=call.name,
                delta=output if isinstance(output, str) else output.text,
            )
        )
