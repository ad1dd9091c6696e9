"""A run: one call of an agent, from its first event to its last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import reactivex
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable

import agentscope_rx.events as ev
from agentscope_rx.attendance import attended
from agentscope_rx.bridge import Scope, SourceTask, from_coroutine, running_loop
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.condensing import REASON_KEY
from agentscope_rx.errors import AgentScopeError, ProviderError
from agentscope_rx.inbox import SHUTDOWN
from agentscope_rx.live import LiveRuns
from agentscope_rx.logs import logger
from agentscope_rx.messages import GenerateReason, Msg, Role, ToolUseBlock, timestamp_of
from agentscope_rx.records import CallsClosed, CallsConfirmed, CallsExecuted, InputsTaken, ReplyRecorded
from agentscope_rx.session import (
    CLOSED_TEXT,
    NOT_RUN_TEXT,
    EventJournal,
    LoggedSession,
    RequestCache,
    closable_calls,
    events_of,
)
from agentscope_rx.state import Record
from agentscope_rx.step import Emitter, Mode, RunHandle, Step
from agentscope_rx.streams import Sink, loop
from agentscope_rx.task_state import TaskContextState
from agentscope_rx.witness import RunWitness, Touch

_INTERRUPTED_TEXT: Final = "The work was interrupted before it was finished."
_STOPPED_TEXT: Final = "The work was stopped before it was finished, as the program is ending; it can be gone on with."
_FAILED_CONCLUSION: Final = "The limit of steps was reached, and the closing summary failed"


class Run:
    """One run. It holds its session's turn from the first step to the last record.

    Args:
        call: What is called.
        sink: Where its events go.
    """

    def __init__(self, call: Call, sink: Sink[ev.AgentEvent]) -> None:
        witness = call.options.witness
        self._witness: RunWitness | None = None if witness is None else witness.begins(call, self)
        if self._witness is not None:
            call = call.through(self._witness.runtime)
        self._call, self._sink = call, sink
        self._runtime, self._options = call.options.runtime, call.options
        self.key = call.options.key_of(call.context)
        self._identity = call.identity()
        self._journal = EventJournal() if call.keeps_events else None
        self._hand_on = sink.emit if self._witness is None else self._through_witness
        publish = self._hand_on if self._journal is None else self._keep_and_hand_on
        self.emit = Emitter(self._identity, self._runtime, publish, purposes=call.purposes, unseen=sink.emit)
        self._said: ev.AgentResult | None = None
        self._end: ev.AgentEnd | None = None
        self._loop = asyncio.get_running_loop()
        self._steps_ended: asyncio.Future[Step | None] | None = None
        self._turn_awaited: asyncio.Task[None] | None = None
        self._steps = SingleAssignmentDisposable()
        self._interrupted = self._has_turn = self._stopping = self._stopped = self._taken_in = False
        self._refused: AgentScopeError | None = None
        self._handle: RunHandle | None = None
        self._last: Step | None = None
        self._session: OpenSession | None = None
        self.ended: Future[None] = Future()

    # -- from outside, from any thread ----------------------------------------------------------------------

    def interrupt(self) -> None:
        """End the run with what it has; its subscriber gets a result that says so."""
        self._from_outside(self._interrupt)

    def stop(self, error: AgentScopeError) -> None:
        """End before its tools begin, or before its next step; with the error where it waits for its turn."""
        self._from_outside(lambda: self._stop(error))

    def refuse(self, error: AgentScopeError) -> None:
        """End a run that still waits for its session's turn, with the error; interrupt one that has it."""
        self._from_outside(lambda: self._refuse(error))

    def leave(self) -> None:
        """The subscriber has left, or the run has ended."""
        self._touched("leave")

    def cancel(self) -> None:
        """End the run at once, as if its subscriber had left."""
        self._from_outside(self._sink.dispose)

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState]) -> TaskContextState | None:
        """Change the task with the tools that are at work; None where none is."""
        proposals = None if self._handle is None else self._handle.proposals
        return None if proposals is None else proposals.update_tasks(change)

    def _from_outside(self, action: Callable[[], None]) -> None:
        if running_loop() is self._loop:
            action()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    def _touched(self, how: Touch) -> None:
        if self._witness is not None:
            self._witness.touched(how)

    def _through_witness(self, event: ev.AgentEvent) -> None:
        """Hand an event to the subscriber through the witness."""
        assert self._witness is not None
        if running_loop() is self._loop:
            self._witness.event(event, self._sink.emit)
        else:
            self._loop.call_soon_threadsafe(self._witness.event, event, self._sink.emit)

    def _interrupt(self) -> None:
        self._touched("interrupt")
        self._interrupted = True
        if self._steps_ended is not None and not self._steps_ended.done():
            self._steps_ended.set_result(None)
            self._steps.dispose()

    def _stop(self, error: AgentScopeError) -> None:
        self._touched("stop")
        self._stopping = True
        if not self._has_turn:
            self._refuse(error)
        elif self._handle is not None:
            self._handle.stopping = True

    def _refuse(self, error: AgentScopeError) -> None:
        if self._has_turn:
            self._stopping |= self._call.command is not None  # nobody wants it to end: another process goes on with it
            self._interrupt()
            return
        self._refused = error
        if self._turn_awaited is not None:
            self._turn_awaited.cancel()

    # -- the ladder: each rung adds one concern and calls the next ------------------------------------------

    async def conduct(self, scheduler: abc.SchedulerBase | None) -> None:
        """Who sees the run, and its end."""
        if self._witness is None:
            await self._in_events(scheduler)
            return
        try:
            await self._in_events(scheduler)
        except BaseException as error:
            self._witness.ended(error)
            raise
        self._witness.ended(None)

    async def _in_events(self, scheduler: abc.SchedulerBase | None) -> None:
        """First and last event."""
        reply_id = self._identity.reply_id
        self.emit(ev.AgentStart(reply_id=reply_id, session_id=self.key.session_id, name=self._identity.agent_name))
        try:
            await self._take_turn(scheduler)
            await self._tell_of_memory()
        except Exception as error:
            self._hand_on(self._end or self._at_end(error))
            raise
        self._hand_on(self._end or self._at_end())

    async def _take_turn(self, scheduler: abc.SchedulerBase | None) -> None:
        """The session's turn: nobody else is in it meanwhile."""
        if self._refused is not None:
            raise self._refused
        gate = self._runtime.gate((self._options.store, self.key))
        self._turn_awaited = asyncio.current_task()
        try:
            async with gate.enter(wait_timeout=self._options.wait_timeout):
                self._turn_awaited, self._has_turn = None, True
                with self._runtime.single(LiveRuns).open(self._options.store, self.key, self):
                    await self._use_session(scheduler)
        except asyncio.CancelledError:
            if self._refused is None:
                raise
            raise self._refused from None
        finally:
            self._turn_awaited = None

    async def _use_session(self, scheduler: abc.SchedulerBase | None) -> None:
        """The state: loaded before, saved after, whatever happens between."""
        session = self._session = await self._call.open_session(self._identity)
        if self._witness is not None:
            self._witness.opened(session.state)
        try:
            async with self._attended(session):
                await self._in_session(session, scheduler)
        finally:
            if self._witness is not None:
                self._witness.closed(session.state)
            await session.close()
        assert self._said is not None  # it is the last thing that happens in a session
        self._remember(self._said.result)
        self._hand_on(self._said)

    def _remember(self, result: Msg) -> None:
        """Begin what the end of a call makes due for the memory: in the background, so that nobody waits for it."""
        keeper = self._options.memory_keeper
        if keeper is not None and self._last is not None and _status(result.reason) == "completed":
            keeper.after_call(self._last)

    async def _tell_of_memory(self) -> None:
        """Whoever wants to hear of the memory hears all of it; the session is another call's meanwhile."""
        begun = () if self._handle is None else self._handle.background
        if begun and "memory" in self._call.purposes:
            await asyncio.wait(map(asyncio.wrap_future, begun))

    async def _in_session(self, session: OpenSession, scheduler: abc.SchedulerBase | None) -> None:
        """What happens between opening and closing: all of it is recorded, and kept whatever happens."""
        if session.recovery is not None:
            lost = session.recovery
            value = {"run_id": lost.run_id, "uncertain_tool_calls": list(lost.uncertain)}
            self.emit(ev.Custom(name="recovery", value=value))
        self._call = await self._call.claimed(session)
        self._call.begin(session, self._identity.run_id)
        try:
            result = await self._answer(session, scheduler)
        except BaseException as error:
            if self._taken_in:  # else the calls still wait for whom they waited for
                self._close_calls(session, closable_calls(session.state.context))
            failed = isinstance(error, Exception)
            session.end("failed" if failed else "interrupted", self._reason(error))
            self._keep(self._at_end(error))
            await _save_after(session, error)
            raise
        session.end(_status(result.reason), SHUTDOWN if self._was_stopped(result) else result.reason.value)
        self._said = self.emit.stamped(ev.AgentResult(result=result))
        self._keep(self._said, self._at_end())
        await session.save()

    # -- what is kept of the events, and what others tell the session meanwhile -----------------------------

    def _keep_and_hand_on(self, event: ev.AgentEvent) -> None:
        assert self._journal is not None
        self._journal.take(event)
        self._hand_on(event)

    def _keep(self, *events: ev.AgentEvent) -> None:
        """Keep the events that are told once the session is saved."""
        if self._journal is not None:
            for event in events:
                self._journal.take(event)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, AgentScopeError):
            return error.code
        torn_down = isinstance(error, asyncio.CancelledError) and self._call.command is not None
        return SHUTDOWN if torn_down else ""

    def _at_end(self, error: BaseException | None = None) -> ev.AgentEnd:
        told = None
        if error is not None:
            code = error.code if isinstance(error, AgentScopeError) else ""
            told = {"error": {"class": type(error).__name__, "code": code}}
        self._end = self.emit.stamped(ev.AgentEnd(reply_id=self._identity.reply_id, metadata=told))
        return self._end

    @asynccontextmanager
    async def _attended(self, session: OpenSession) -> AsyncGenerator[None]:
        """Inside the block events are written as they come, and what others tell the session reaches the run."""
        if not isinstance(session, LoggedSession) or self._journal is None:
            yield
            return
        told = None if self._call.command is None else self._told
        async with attended(session, self._journal, told=told):
            yield

    def _told(self) -> None:
        if self._session is not None and self._session.state.inbox.interrupted == self._identity.run_id:
            self._interrupt()

    async def _listened(self) -> None:
        """Take in what came up to now, before the step that is to know of it."""
        assert self._session is not None
        await self._session.catch_up()
        self._take_inputs()

    def _take_inputs(self) -> bool:
        """Take in what came for the run meanwhile; whether there was any."""
        assert self._session is not None
        inputs = self._session.state.inbox.inputs
        if not inputs:
            return False
        self._session.record(InputsTaken.of(inputs))
        self.emit(ev.Custom(name="inputs_taken", value={"ids": [each.id for each in inputs]}))
        return True

    async def _more_to_do(self, session: OpenSession, last: Step | None) -> Step | None:
        """The step after the last one, where something came while that was at work."""
        if last is None or self._stopped or last.finished is not None or last.mode is Mode.CONCLUDE:
            return None
        await session.catch_up()
        return self._next_step(last, Mode.NORMAL) if self._take_inputs() else None

    def _answered_before(self, session: OpenSession) -> Msg | None:
        """The answer of a run whose process died when nothing was left but to say so."""
        last = session.state.context.last
        if not self._call.continues or last is None:
            return None
        said = last.messages[-1]
        done = said.role is Role.ASSISTANT and not said.tool_calls and said.text.strip()
        return said if done and said.reason is not GenerateReason.INTERRUPTED else None

    async def _answer(self, session: OpenSession, scheduler: abc.SchedulerBase | None) -> Msg:
        """The input goes in, the steps run, the result comes out."""
        records = self._call.take_in(session)
        self._taken_in = True
        self._handle = run = self._call.handle(self.emit, session)
        run.stopping = self._stopping
        first = Step(number=0, identity=self._identity, card=self._call.card, run=run)
        if any(isinstance(record, CallsConfirmed | CallsExecuted) for record in records):
            first = await self._answered(session, records, first)
        if (answer := self._answered_before(session)) is not None:
            return answer
        self._take_inputs()
        try:
            last = await self._drive(loop(self._turn, first, self._follow), scheduler)
            while (more := await self._more_to_do(session, last)) is not None:
                last = await self._drive(loop(self._turn, more, self._follow), scheduler)
        finally:
            run.keep_notes()  # of a preparation that failed
            if run.previous_request is not None:
                known = (run.previous_request, run.pressure_level)
                self._runtime.single(RequestCache).keep(self._options.store, self.key, known)
        self._last = last
        if last is None or self._stopped:
            text = CLOSED_TEXT if last is None else NOT_RUN_TEXT
            self._close_calls(session, session.state.context.open_calls, text=text)
            said = _STOPPED_TEXT if self._stopping else _INTERRUPTED_TEXT
            return self._announce(session, said, GenerateReason.INTERRUPTED)
        return self._result(session, last)

    def _was_stopped(self, result: Msg) -> bool:
        return self._stopping and result.reason is GenerateReason.INTERRUPTED

    async def _answered(self, session: OpenSession, records: Sequence[Record], first: Step) -> Step:
        """The first step after answers: it goes on with the batch that waited for them, if that is still the last.

        The answers are stored before anything comes of them: given twice, in two places, they are accepted once.
        """
        await session.save()
        for event in events_of(records, lambda: self._runtime.ids.new_id("acting")):
            self.emit(event)
        last = session.state.context.last
        if last is None or not last.messages[0].tool_calls:
            return first
        state = session.state
        return replace(first, mode=Mode.RESUME, state=state, history=state.context, reply=last.messages[0])

    async def _drive(self, steps: Observable[Step], scheduler: abc.SchedulerBase | None) -> Step | None:
        """The steps; None when they were interrupted. Returns when every task below has ended."""
        ended: asyncio.Future[Step | None] = self._loop.create_future()
        last: list[Step] = []

        def on_next(step: Step) -> None:
            last[:] = [step]

        def on_error(error: Exception) -> None:
            if not ended.done():
                ended.set_exception(error)

        def on_completed() -> None:
            if not ended.done():
                ended.set_result(last[0])

        self._steps_ended = ended
        self._steps = subscription = SingleAssignmentDisposable()
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
            self._steps_ended = None
            if ended.done() and not ended.cancelled():
                ended.exception()  # it is on its way already

    # -- one step after the other ---------------------------------------------------------------------------

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
        if self._stopping:
            self._stopped = True
            return None
        number, limit = step.number + 1, self._options.max_iters
        if number >= limit:
            self.emit(ev.ExceedMaxIters(reply_id="", max_iters=limit, current_iter=limit))
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

    # -- results --------------------------------------------------------------------------------------------

    def _result(self, session: OpenSession, last: Step) -> Msg:
        finish = last.finished
        if finish is None:
            assert last.reply is not None  # a step that is not finished has asked the model
            empty = not last.reply.tool_calls and not last.reply.text.strip()
            return last.reply.with_reason(GenerateReason.EMPTY_REPLY) if empty else last.reply
        self._close_calls(session, closable_calls(session.state.context))
        if finish.message is not None:
            return self._announce(session, finish.message.text, finish.reason)
        assert last.reply is not None  # Step.finish has seen to it
        if finish.reason is GenerateReason.STRUCTURED_OUTPUT:
            return last.reply  # the answer of the call, and no stop before it
        self.emit(ev.RequestStop(reason=finish.reason.value.lower(), generate_reason=finish.reason))
        return last.reply.with_reason(finish.reason)

    def _announce(self, session: OpenSession, text: str, reason: GenerateReason) -> Msg:
        """Say something in the agent's own name: as events, and as a message of the session."""
        id = self._runtime.ids.new_id("message")
        start = self.emit(ev.TextBlockStart(reply_id=id, block_id="text"))
        self.emit(ev.TextBlockDelta(reply_id=id, block_id="text", delta=text))
        self.emit(ev.TextBlockEnd(reply_id=id, block_id="text", metadata={REASON_KEY: reason.value}))
        said = replace(
            Msg.assistant(text, name=self._identity.agent_name),
            id=id,
            timestamp=timestamp_of(start.created_at or self._runtime.clock.now()),
        ).with_reason(reason)
        session.record(ReplyRecorded(said))
        return said

    def _close_calls(self, session: OpenSession, calls: Sequence[ToolUseBlock], *, text: str = CLOSED_TEXT) -> None:
        """Give open calls a result, so that the next call on the session can go on."""
        if calls:
            intake = self._call.intake()
            session.record(CallsClosed(tuple(intake.closing(call, text=text) for call in calls)))


_SUSPENDED: Final = frozenset(
    {
        GenerateReason.TOOL_SUSPENDED,
        GenerateReason.PERMISSION_ASKING,
        GenerateReason.REASONING_STOP_REQUESTED,
        GenerateReason.ACTING_STOP_REQUESTED,
    }
)


def _status(reason: GenerateReason) -> str:
    """How a run has ended, by why its answer did."""
    match reason:
        case GenerateReason.INTERRUPTED:
            return "interrupted"
        case GenerateReason.MAX_ITERATIONS | GenerateReason.ALL_TOOLS_DENIED:
            return "failed"
        case _:
            return "suspended" if reason in _SUSPENDED else "completed"


async def _save_after(session: OpenSession, error: BaseException) -> None:
    """Save what was recorded before a failure; a second failure is attached to the first."""
    try:
        await session.save()
    except Exception as failure:
        error.add_note(f"the session could not be saved either: {failure}")
        logger().warning("state_not_saved", error=type(failure).__name__)


def run_of(call: Call, sink: Sink[ev.AgentEvent], *, started: Callable[[Run], None]) -> Observable[None]:
    """A run, as an Observable that ends with it.

    Args:
        call: What is called.
        sink: Where its events go.
        started: Told of the run before it begins.
    """

    def subscribe(observer: abc.ObserverBase[None], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        run = Run(call, sink)
        started(run)

        async def conduct(_: SourceTask[None]) -> None:
            await run.conduct(scheduler)

        task = SourceTask(conduct, observer)
        task.when_done(lambda: run.ended.set_result(None))
        return CompositeDisposable(Disposable(run.leave), task)

    return Observable(subscribe)
