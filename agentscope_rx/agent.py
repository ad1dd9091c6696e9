"""What all agents do: answer calls, one at a time for each session."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from reactivex import Observable

from agentscope_rx.errors import AgentClosed, InvalidOption
from agentscope_rx.event_stream import EventStream, Reply, reply_of
from agentscope_rx.events import AgentEvent
from agentscope_rx.interactions import Answer, PendingCall, pending_calls
from agentscope_rx.live import LiveRuns
from agentscope_rx.messages import Msg
from agentscope_rx.options import AgentOptions, mode_of
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import PURPOSES, Purpose
from agentscope_rx.run import Call, Run, run_of
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import StoredSession, messages_of
from agentscope_rx.state import AgentState, CallsClosed, PermissionModeChanged, PermissionsReplaced, Record
from agentscope_rx.step import ModelCard
from agentscope_rx.streams import Sink, run_with_sink

OptionsT = TypeVar("OptionsT", bound=AgentOptions)
NOBODY: Final = RuntimeContext()
_CLOSE_TIMEOUT: Final = 5.0


class Agent(ABC, Generic[OptionsT]):
    """An agent: it asks its model, runs the tools that the model calls, and asks again until there is an answer.

    Made by a builder. It holds no event loop and no connection: one may serve calls from several loops. Leaving the
    block closes it.

    Args:
        options: What it is made of.

    Attributes:
        pipeline: What happens in one reasoning step; print it.

    Raises:
        InvalidOption: Name or model is missing.
        PipelineError: The pipeline lacks an operator that no step can do without.
    """

    def __init__(self, options: OptionsT) -> None:
        if options.model is None:
            raise InvalidOption("model", None, "give a Model or a string such as 'openai:gpt-5-mini'")
        if not options.name.strip():
            raise InvalidOption("name", options.name, "an agent needs a name")
        self.options = options
        self.pipeline = self._make_pipeline(options)
        self._card = ModelCard.of(options.model, options.counter)
        self._lock = threading.Lock()
        self._runs: set[Run] = set()
        self._closed = False

    @abstractmethod
    def _make_pipeline(self, options: OptionsT) -> Pipeline:
        """What happens in one reasoning step, as the user wants it."""

    # -- calling --------------------------------------------------------------------------------------------

    def call(self, input: str | Msg | Sequence[Msg] | None = None, context: RuntimeContext = NOBODY, /) -> Reply:
        """Ask, and get the answer.

        Args:
            input: What the user says; None goes on with the session as it is.
            context: For whom.

        Returns:
            A cold `Reply`: `await` it, or `run()` it where no event loop runs.

        Raises:
            InvalidIdentifier: An id of the context cannot be one.
            InvalidOption: The input holds a SYSTEM message.
        """
        return reply_of(self.stream_events(input, context))

    async def acall(self, input: str | Msg | Sequence[Msg] | None = None, context: RuntimeContext = NOBODY, /) -> Msg:
        """The same as a coroutine, for `asyncio.create_task` and `asyncio.run`."""
        return await self.call(input, context)

    def stream_events(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> EventStream:
        """Ask, and get everything that happens; errors as in `call`.

        Args:
            input: What the user says; None goes on with the session as it is.
            context: For whom.
            purposes: Which model calls to hear of: `reasoning`, and those beside the conversation, `summary` and
                `memory`, whose events (their `context_build` too) say so in `metadata["purpose"]`.
        """
        return self._events(self.prepared_call(input, context, purposes=purposes), "stream_events(...)")

    def _events(self, call: Call, label: str) -> EventStream:
        def work(sink: Sink[AgentEvent]) -> Observable[None]:
            if self._closed:
                raise AgentClosed(f"the agent {self.options.name!r} is closed; build another one from its builder")
            return run_of(call, sink, started=self._started)

        return EventStream(run_with_sink(work), label=label)

    def respond(self, context: RuntimeContext, answers: Mapping[str, Answer], /) -> EventStream:
        """Answer tool calls that wait, and get everything that happens; the run goes on where it had stopped.

        Calls that are left without an answer go on waiting, and none of their batch runs before. What a person allows
        is stored before it runs: if that run fails, `call(None, context)` goes on, and nothing is run twice.

        Args:
            context: The session.
            answers: By the ids of calls: `approve(...)` and `reject(...)`, or True and False, for those that wait for
                a person; the result of those that wait for an execution: a text, blocks, or a `ToolResultBlock`.

        Raises:
            InvalidOption: There is no answer.
            InteractionMismatch: In the stream: an answer fits no call that waits; nothing was accepted.
            StateConflict: In the stream: somebody else has answered meanwhile.

        Examples:
            waiting = await agent.pending(ctx)
            reply = await agent.respond(ctx, {call.id: approve() for call in waiting}).reply()
        """
        if not isinstance(answers, Mapping) or not answers:  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("answers", answers, "at least one answer, by the id of its call")
        return self._events(replace(self.prepared_call(None, context), answers=dict(answers)), "respond(...)")

    async def pending(self, context: RuntimeContext = NOBODY, /) -> tuple[PendingCall, ...]:
        """The tool calls of a session that wait: for a person, or for a result from outside."""
        return pending_calls((await self.state(context)).context)

    async def cancel_pending(self, context: RuntimeContext = NOBODY, /) -> tuple[PendingCall, ...]:
        """Give up the calls that wait; the model will be told that they were interrupted.

        Returns:
            What had waited.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        call = self.prepared_call(None, context)
        async with self._opened(call) as session:
            history, intake = session.state.context, call.intake()
            if waiting := pending_calls(history):
                session.record(CallsClosed(tuple(intake.closing(each) for each in history.open_calls)))
                await session.save()
            return waiting

    # -- permissions ----------------------------------------------------------------------------------------

    async def set_permission_mode(self, context: RuntimeContext, mode: PermissionMode | str | None, /) -> None:
        """Put a session into another mode, from its next call on; its rules stay.

        Args:
            context: The session.
            mode: The mode, or its name; None = the one of the agent's policy.

        Raises:
            InvalidOption: There is no such mode.
            SessionBusy: The session's turn did not come in time.
        """
        await self.record(PermissionModeChanged(None if mode is None else mode_of("mode", mode)), context)

    async def replace_permissions(self, context: RuntimeContext, permissions: PermissionContextState, /) -> None:
        """Say anew what a session may do beside what the agent's policy says, from its next call on.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        await self.record(PermissionsReplaced(permissions), context)

    async def observe(self, messages: Msg | Sequence[Msg], context: RuntimeContext = NOBODY, /) -> None:
        """Add messages to a session without an answer.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        call = self.prepared_call(messages, context)
        async with self._opened(call) as session:
            call.take_in(session)
            await session.save()

    async def record(self, record: Record, context: RuntimeContext = NOBODY, /) -> AgentState:
        """Change a session between two calls, in its turn.

        Args:
            record: What has happened to it.
            context: The session.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        async with self._opened(self.prepared_call(None, context)) as session:
            session.record(record)
            await session.save()
            return session.state

    @asynccontextmanager
    async def _opened(self, call: Call) -> AsyncGenerator[StoredSession]:
        options = self.options
        gate = options.runtime.gate((options.store, options.key_of(call.context)))
        async with gate.enter(wait_timeout=options.wait_timeout):
            yield await call.open_session()

    # -- sessions -------------------------------------------------------------------------------------------

    async def state(self, context: RuntimeContext = NOBODY, /) -> AgentState:
        """The stored state of a session, as the last finished run left it."""
        return (await self.prepared_call(None, context).open_session()).state

    def interrupt(self, context: RuntimeContext = NOBODY, /) -> bool:
        """End the session's run with what it has; from any thread, by any agent of the Runtime.

        Returns:
            Whether a run was there.
        """
        options = self.options
        run = options.runtime.single(LiveRuns).find(options.store, options.key_of(context))
        if run is not None:
            run.interrupt()
        return run is not None

    # -- the end --------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Refuse all later calls; runs that are open go on."""
        self._closed = True

    async def close(self) -> None:
        """Interrupt open runs, wait up to 5 s for them, then cancel what is left. Later calls are refused."""
        self.refuse()
        for end in (Run.refuse, Run.cancel):
            with self._lock:
                open_runs = tuple(self._runs)
            for run in open_runs:
                end(run)
            waiting = [asyncio.wrap_future(run.ended) for run in open_runs]
            if waiting:
                await asyncio.wait(waiting, timeout=_CLOSE_TIMEOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def prepared_call(
        self,
        input: str | Msg | Sequence[Msg] | None,
        context: RuntimeContext,
        *,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> Call:
        """A call of this agent, checked: an id or a role that cannot be is refused here and not in the stream."""
        self.options.key_of(context)
        if isinstance(purposes, str) or not set(purposes) <= set(PURPOSES):
            raise InvalidOption("purposes", purposes, f"several of {', '.join(PURPOSES)}")
        return Call(
            options=self.options,
            pipeline=self.pipeline,
            card=self._card,
            messages=messages_of(input),
            context=context,
            purposes=tuple(purposes),
        )

    def _started(self, run: Run) -> None:
        with self._lock:
            self._runs.add(run)
        run.ended.add_done_callback(lambda _: self._forget(run))

    def _forget(self, run: Run) -> None:
        with self._lock:
            self._runs.discard(run)
