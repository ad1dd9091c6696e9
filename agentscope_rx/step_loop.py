"""The steps of a run, from its input to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import reactivex
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import SingleAssignmentDisposable

import agentscope_rx.events as ev
from agentscope_rx.bridge import Scope, from_coroutine
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.condensing import REASON_KEY
from agentscope_rx.emitter import Emitter, RunIdentity
from agentscope_rx.errors import ProviderError
from agentscope_rx.messages import GenerateReason, Msg, Role, ToolUseBlock, timestamp_of
from agentscope_rx.records import CallsClosed, CallsConfirmed, CallsExecuted, InputsTaken, ReplyRecorded
from agentscope_rx.session import CLOSED_TEXT, NOT_RUN_TEXT, RequestCache, closable_calls, events_of
from agentscope_rx.state import Record
from agentscope_rx.step import Mode, Step
from agentscope_rx.streams import loop

_INTERRUPTED_TEXT: Final = "The work was interrupted before it was finished."
_STOPPED_TEXT: Final = "The work was stopped before it was finished, as the program is ending; it can be gone on with."
_FAILED_CONCLUSION: Final = "The limit of steps was reached, and the closing summary failed"


class StepLoop:
    """The steps of one run, in its open session.

    Args:
        call: What is called.
        session: The session, which is the run's alone.
        identity: Who runs, for whom.
        emit: The run's way out.

    Attributes:
        handle: What the steps hold on to.
        last: The step that the result came from; None until there is one, or where the steps were interrupted.
    """

    def __init__(self, call: Call, session: OpenSession, identity: RunIdentity, emit: Emitter) -> None:
        self._call, self._session, self._identity, self._emit = call, session, identity, emit
        self._outside = call.options.runtime.outside
        self.handle = call.handle(emit, session)
        self.last: Step | None = None
        self._interrupted = self._stopped = self._taken_in = False
        self._ended: asyncio.Future[Step | None] | None = None
        self._subscription = SingleAssignmentDisposable()

    # -- from outside, on the loop of the run ---------------------------------------------------------------

    def interrupt(self) -> None:
        """End at once, with what is there."""
        self._interrupted = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
            self._subscription.dispose()

    def leave(self) -> None:
        """Hear nothing more, before the task of the run is awake to end: it will not be asked for a result."""
        self._subscription.dispose()

    def stop(self) -> None:
        """End before tools begin, or before the next step."""
        self.handle.stopping = True

    # -- the result -----------------------------------------------------------------------------------------

    async def result(self, scheduler: abc.SchedulerBase | None) -> Msg:
        """The input goes in, the steps run, the result comes out."""
        records = self._call.take_in(self._session)
        self._taken_in = True
        first = Step(number=0, identity=self._identity, card=self._call.card, run=self.handle)
        if any(isinstance(record, CallsConfirmed | CallsExecuted) for record in records):
            first = await self._answered(records, first)
        if (answer := self._answered_before()) is not None:
            return answer
        self._take_inputs()
        try:
            last = await self._drive(loop(self._turn, first, self._follow), scheduler)
            while (more := await self._more_to_do(last)) is not None:
                last = await self._drive(loop(self._turn, more, self._follow), scheduler)
        finally:
            self._keep_requests()
        self.last = last
        if last is None or self._stopped:
            return self._cut_short(text=CLOSED_TEXT if last is None else NOT_RUN_TEXT)
        return self._result_of(last)

    def give_up(self) -> None:
        """Close what the steps have left open, as they have failed."""
        if self._taken_in:  # else the calls still wait for whom they waited for
            self._close_calls(closable_calls(self._session.state.context))

    def was_stopped(self, result: Msg) -> bool:
        """Whether this is the result of steps that were stopped."""
        return self.handle.stopping and result.reason is GenerateReason.INTERRUPTED

    def _keep_requests(self) -> None:
        run, options = self.handle, self._call.options
        run.keep_notes()  # of a preparation that failed
        if run.previous_request is not None:
            known = (run.previous_request, run.pressure_level)
            key = options.key_of(self._call.context)
            options.runtime.single(RequestCache).keep(options.store, key, known)

    def _cut_short(self, *, text: str) -> Msg:
        self._close_calls(self._session.state.context.open_calls, text=text)
        said = _STOPPED_TEXT if self.handle.stopping else _INTERRUPTED_TEXT
        return self._announce(said, GenerateReason.INTERRUPTED)

    def _result_of(self, last: Step) -> Msg:
        finish = last.finished
        if finish is None:
            assert last.reply is not None  # a step that is not finished has asked the model
            empty = not last.reply.tool_calls and not last.reply.text.strip()
            return last.reply.with_reason(GenerateReason.EMPTY_REPLY) if empty else last.reply
        self._close_calls(closable_calls(self._session.state.context))
        if finish.message is not None:
            return self._announce(finish.message.text, finish.reason)
        assert last.reply is not None  # Step.finish has seen to it
        if finish.reason is GenerateReason.STRUCTURED_OUTPUT:
            return last.reply  # the answer of the call, and no stop before it
        self._emit(ev.RequestStop(reason=finish.reason.value.lower(), generate_reason=finish.reason))
        return last.reply.with_reason(finish.reason)

    def _announce(self, text: str, reason: GenerateReason) -> Msg:
        """Say something in the agent's own name: as events, and as a message of the session."""
        runtime = self._call.options.runtime
        id = runtime.ids.new_id("message")
        start = self._emit(ev.TextBlockStart(reply_id=id, block_id="text"))
        self._emit(ev.TextBlockDelta(reply_id=id, block_id="text", delta=text))
        self._emit(ev.TextBlockEnd(reply_id=id, block_id="text", metadata={REASON_KEY: reason.value}))
        said = replace(
            Msg.assistant(text, name=self._identity.agent_name),
            id=id,
            timestamp=timestamp_of(start.created_at or runtime.clock.now()),
        ).with_reason(reason)
        self._session.record(ReplyRecorded(said))
        return said

    def _close_calls(self, calls: Sequence[ToolUseBlock], *, text: str = CLOSED_TEXT) -> None:
        """Give open calls a result, so that the next call on the session can go on."""
        if calls:
            intake = self._call.intake()
            self._session.record(CallsClosed(tuple(intake.closing(call, text=text) for call in calls)))

    # -- what was there before, and what comes meanwhile ----------------------------------------------------

    def _answered_before(self) -> Msg | None:
        """The answer of a run whose process died when nothing was left but to say so."""
        last = self._session.state.context.last
        if not self._call.continues or last is None:
            return None
        said = last.messages[-1]
        done = said.role is Role.ASSISTANT and not said.tool_calls and said.text.strip()
        return said if done and said.reason is not GenerateReason.INTERRUPTED else None

    async def _answered(self, records: Sequence[Record], first: Step) -> Step:
        """The first step after answers: it goes on with the batch that waited for them, if that is still the last.

        The answers are stored before anything comes of them: given twice, in two places, they are accepted once.
        """
        await self._outside.keep(self._session.save)
        ids = self._call.options.runtime.ids
        for event in events_of(records, lambda: ids.new_id("acting")):
            self._emit(event)
        state = self._session.state
        last = state.context.last
        if last is None or not last.messages[0].tool_calls:
            return first
        return replace(first, mode=Mode.RESUME, state=state, history=state.context, reply=last.messages[0])

    async def _listened(self) -> None:
        """Take in what came up to now, before the step that is to know of it."""
        await self._outside.keep(self._session.catch_up)
        self._take_inputs()

    def _take_inputs(self) -> bool:
        """Take in what came for the run meanwhile; whether there was any."""
        inputs = self._outside.inputs(self._session.state.inbox.inputs)
        if not inputs:
            return False
        self._session.record(InputsTaken.of(inputs))
        self._emit(ev.Custom(name="inputs_taken", value={"ids": [each.id for each in inputs]}))
        return True

    async def _more_to_do(self, last: Step | None) -> Step | None:
        """The step after the last one, where something came while that was at work."""
        if last is None or self._stopped or last.finished is not None or last.mode is Mode.CONCLUDE:
            return None
        await self._outside.keep(self._session.catch_up)
        return self._next_step(last, Mode.NORMAL) if self._take_inputs() else None

    # -- one step after the other ---------------------------------------------------------------------------

    async def _drive(self, steps: Observable[Step], scheduler: abc.SchedulerBase | None) -> Step | None:
        """The steps; None when they were interrupted. Returns when every task below has ended."""
        ended: asyncio.Future[Step | None] = asyncio.get_running_loop().create_future()
        last: list[Step] = []

        def on_next(step: Step) -> None:
            last[:] = [step]

        def on_error(error: Exception) -> None:
            if not ended.done():
                ended.set_exception(error)

        def on_completed() -> None:
            if not ended.done():
                ended.set_result(last[0])

        self._ended = ended
        self._subscription = subscription = SingleAssignmentDisposable()
        try:
            async with Scope():
                try:
                    if not self._interrupted:
                        subscription.disposable = steps.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
                        return await ended
                    return None
                finally:
                    subscription.dispose()
        finally:
            self._ended = None
            if ended.done() and not ended.cancelled():
                ended.exception()  # it is on its way already

    def _turn(self, step: Step) -> Observable[Step]:
        if step.mode is Mode.RESUME:
            return self._call.pipeline.after("call_model").attempt(step)
        attempt = self._call.pipeline.attempt(step)
        if self._call.command is not None:
            attempt = from_coroutine(self._listened).pipe(ops.flat_map(attempt))
        if step.mode is not Mode.CONCLUDE:
            return attempt

        def concluded(error: Exception, _: Observable[Step]) -> Observable[Step]:
            if not isinstance(error, ProviderError):
                raise error
            said = f"{_FAILED_CONCLUSION}: {error}"
            return reactivex.of(step.finish(said, GenerateReason.MAX_ITERATIONS))

        return attempt.pipe(ops.catch(concluded))

    def _follow(self, step: Step) -> Step | None:
        """What comes after a step; None at the end."""
        reply = step.reply
        if step.finished is not None or reply is None or step.mode is Mode.CONCLUDE:
            return None
        mode = Mode.NORMAL
        if not self._take_inputs() and not reply.tool_calls and not step.correction:
            if reply.text.strip() or step.mode is Mode.ASK_AGAIN:
                return None
            mode = Mode.ASK_AGAIN
        return self._next_step(step, mode)

    def _next_step(self, step: Step, mode: Mode) -> Step | None:
        if self.handle.stopping:
            self._stopped = True
            return None
        number, limit = step.number + 1, self._call.options.max_iters
        if number >= limit:
            self._emit(ev.ExceedMaxIters(reply_id="", max_iters=limit, current_iter=limit))
            mode = Mode.CONCLUDE
        return Step(
            number=number,
            identity=step.identity,
            card=step.card,
            mode=mode,
            correction=step.correction,
            max_output=step.max_output,
            run=step.run,
        )
