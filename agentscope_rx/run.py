"""A run: one call of an agent, from its first event to its last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Final

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

import agentscope_rx.events as ev
from agentscope_rx.attendance import attended
from agentscope_rx.bridge import SourceTask, running_loop
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.emitter import Emitter
from agentscope_rx.errors import AgentScopeError
from agentscope_rx.inbox import SHUTDOWN
from agentscope_rx.live import LiveRuns
from agentscope_rx.logs import logger
from agentscope_rx.messages import GenerateReason, Msg
from agentscope_rx.session import EventJournal, LoggedSession
from agentscope_rx.step_loop import StepLoop
from agentscope_rx.streams import Sink
from agentscope_rx.task_state import TaskContextState
from agentscope_rx.witness import RunWitness, Touch


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
        self._turn_awaited: asyncio.Task[None] | None = None
        self._interrupted = self._has_turn = self._stopping = False
        self._refused: AgentScopeError | None = None
        self._session: OpenSession | None = None
        self._steps: StepLoop | None = None
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
        self._from_outside(self._leave)

    def cancel(self) -> None:
        """End the run at once, as if its subscriber had left."""
        self._from_outside(self._sink.dispose)

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState]) -> TaskContextState | None:
        """Change the task with the tools that are at work; None where none is."""
        proposals = None if self._steps is None else self._steps.handle.proposals
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
        if self._steps is not None:
            self._steps.interrupt()

    def _leave(self) -> None:
        self._touched("leave")
        if self._steps is not None:
            self._steps.leave()

    def _stop(self, error: AgentScopeError) -> None:
        self._touched("stop")
        self._stop_steps()
        if not self._has_turn:
            self._refuse(error)

    def _stop_steps(self) -> None:
        self._stopping = True
        if self._steps is not None:
            self._steps.stop()

    def _refuse(self, error: AgentScopeError) -> None:
        if self._has_turn:
            if self._call.command is not None:  # nobody wants it to end: another process goes on with it
                self._touched("stop")
                self._stop_steps()
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
        outside = self._runtime.outside
        session = self._session = await outside.keep(lambda: self._call.open_session(self._identity))
        if self._witness is not None:
            self._witness.opened(session)
        try:
            async with self._attended(session):
                await self._in_session(session, scheduler)
        finally:
            if self._witness is not None:
                self._witness.closed(session)
            await outside.keep(session.close)
        assert self._said is not None  # it is the last thing that happens in a session
        self._remember(self._said.result)
        self._hand_on(self._said)

    def _remember(self, result: Msg) -> None:
        """Begin what the end of a call makes due for the memory: in the background, so that nobody waits for it."""
        keeper = self._options.memory_keeper
        last = None if self._steps is None else self._steps.last
        if keeper is not None and last is not None and _status(result.reason) == "completed":
            keeper.after_call(last)

    async def _tell_of_memory(self) -> None:
        """Whoever wants to hear of the memory hears all of it; the session is another call's meanwhile."""
        begun = () if self._steps is None else self._steps.handle.background
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
        steps = self._take_steps(session)
        try:
            result = await steps.result(scheduler)
        except BaseException as error:
            steps.give_up()
            failed = isinstance(error, Exception)
            session.end("failed" if failed else "interrupted", self._reason(error))
            self._settle(self._at_end(error), error=error)
            await _save_after(session, error)
            raise
        session.end(_status(result.reason), SHUTDOWN if steps.was_stopped(result) else result.reason.value)
        self._said = self.emit.stamped(ev.AgentResult(result=result))
        self._settle(self._said, self._at_end())
        await self._runtime.outside.keep(session.save)

    def _take_steps(self, session: OpenSession) -> StepLoop:
        """The steps, which know what was asked of the run before they were there."""
        self._steps = steps = StepLoop(self._call, session, self._identity, self.emit)
        if self._stopping:
            steps.stop()
        if self._interrupted:
            steps.interrupt()
        return steps

    # -- what is kept of the events, and what others tell the session meanwhile -----------------------------

    def _keep_and_hand_on(self, event: ev.AgentEvent) -> None:
        assert self._journal is not None
        self._journal.take(event)
        self._hand_on(event)

    def _settle(self, *events: ev.AgentEvent, error: BaseException | None = None) -> None:
        """Keep the events that are told once the session is saved."""
        if self._journal is not None:
            for event in events:
                self._journal.take(event)
        if self._witness is not None:
            told = events if error is None or isinstance(error, Exception) else ()
            self._witness.settled(told, error)

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
