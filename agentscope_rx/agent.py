"""What all agents do: answer calls, one at a time for each session."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from reactivex import Observable

from agentscope_rx.agent_sessions import NOBODY, AgentSessions, OptionsT
from agentscope_rx.background_work import PATIENCE, BackgroundWork
from agentscope_rx.call import Call
from agentscope_rx.errors import AgentClosed, InvalidOption
from agentscope_rx.event_stream import EventStream, Reply, reply_of
from agentscope_rx.events import AgentEvent
from agentscope_rx.inbox import Command
from agentscope_rx.interactions import Answer
from agentscope_rx.messages import Msg
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import PURPOSES, Purpose
from agentscope_rx.run import Run, run_of
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import messages_of
from agentscope_rx.shutdown import Shutdown, end_runs
from agentscope_rx.step import ModelCard
from agentscope_rx.streams import Sink, run_with_sink
from agentscope_rx.tools.outputs import OutputSpec, OutputType

_CLOSED: Final = "the agent was closed while this call waited for its session's turn"


class Agent(AgentSessions[OptionsT]):
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
        options.check()
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

    def call(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        output: OutputType | None = None,
    ) -> Reply:
        """Ask, and get the answer.

        Args:
            input: What the user says; None goes on with the session as it is.
            context: For whom.
            output: The form of the answer, as a type or a JSON schema; `reply.output(type)` gives the answer. None =
                a text. A run that comes to no such answer ends with `OutputInvalid`.

        Returns:
            A cold `Reply`: `await` it, or `run()` it where no event loop runs.

        Raises:
            InvalidIdentifier: An id of the context cannot be one.
            InvalidOption: The input holds a SYSTEM message, or the output is neither type nor schema.
        """
        return reply_of(self.stream_events(input, context, output=output))

    async def acall(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        output: OutputType | None = None,
    ) -> Msg:
        """The same as a coroutine, for `asyncio.create_task` and `asyncio.run`."""
        return await self.call(input, context, output=output)

    def stream_events(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        output: OutputType | None = None,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> EventStream:
        """Ask, and get everything that happens; errors as in `call`.

        Args:
            input: What the user says; None goes on with the session as it is.
            context: For whom.
            output: The form of the answer, as in `call`.
            purposes: Which model calls to hear of: `reasoning`, and those beside the conversation, `summary` and
                `memory`, whose events (their `context_build` too) say so in `metadata["purpose"]`. With `memory` the
                stream ends when what the call has begun in the background for it has ended, which is after
                `AGENT_RESULT`.
        """
        return self._events(self.prepared_call(input, context, purposes=purposes, output=output), "stream_events(...)")

    def _events(self, call: Call, label: str) -> EventStream:
        def work(sink: Sink[AgentEvent]) -> Observable[None]:
            if self._closed:
                raise AgentClosed(f"the agent {self.options.name!r} is closed; build another one from its builder")
            return run_of(call, sink, started=self._started)

        return EventStream(run_with_sink(work), label=label)

    def respond(
        self,
        context: RuntimeContext,
        answers: Mapping[str, Answer],
        /,
        *,
        output: OutputType | None = None,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> EventStream:
        """Answer tool calls that wait, and get everything that happens; the run goes on where it had stopped.

        Calls that are left without an answer go on waiting, and none of their batch runs before. What a person allows
        is stored before it runs: if that run fails, `call(None, context)` goes on, and nothing is run twice.

        Args:
            context: The session.
            answers: By the ids of calls: `approve(...)` and `reject(...)`, or True and False, for those that wait for
                a person; the result of those that wait for an execution: a text, blocks, or a `ToolResultBlock`.
            output: The form of the final answer, as in `call`; a call that had one gives it again here.
            purposes: As in `stream_events`.

        Raises:
            InvalidOption: There is no answer, or the output is neither type nor schema.
            InteractionMismatch: In the stream: an answer fits no call that waits; nothing was accepted.
            StateConflict: In the stream: somebody else has answered meanwhile.

        Examples:
            waiting = await agent.pending(ctx)
            reply = await agent.respond(ctx, {call.id: approve() for call in waiting}).reply()
        """
        call = self.prepared_call(None, context, purposes=purposes, output=output)
        call = replace(call, answers=checked_answers(answers))
        return self._events(call, "respond(...)")

    def carry_out(self, context: RuntimeContext, command: Command, /) -> EventStream:
        """Do what a session was told to do, and get everything that happens; for those who write runners.

        The run is at the command from its first record on, so that another process goes on with it when this one
        dies. Its events are written to the log.

        Args:
            context: The session.
            command: What its inbox says is to be done next.

        Raises:
            InvalidOption: The agent keeps only states.
            CommandGone: In the stream: somebody else has done it, or it was given up.
        """
        self.session_log(context)
        return self._events(replace(self.prepared_call(None, context), command=command), "carry_out(...)")

    def interrupt(self, context: RuntimeContext = NOBODY, /) -> bool:
        """End the session's run with what it has; from any thread, by any agent of the Runtime.

        Returns:
            Whether a run was there.
        """
        run = self._live_run(context)
        if run is not None:
            run.interrupt()
        return run is not None

    # -- the end --------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Refuse all later calls; runs that are open go on."""
        self._closed = True

    async def close(self, *, grace: float = 0.0, background: float | None = PATIENCE) -> None:
        """Interrupt open runs, wait up to 5 s for them, then cancel what is left. Later calls are refused.

        Args:
            grace: Seconds that runs have before that, to come to where they can stop: until the model has answered,
                or the tools are done.
            background: Seconds to wait for what goes on in the background, such as a memory that is being written,
                before that is cancelled too. None = not at all: it goes on, and `shut_down(runtime)` waits for it.
        """
        self.refuse()
        await end_runs(self._open_runs, AgentClosed(_CLOSED), grace=grace)
        if background is not None:
            await self.options.runtime.single(BackgroundWork).finish(self, patience=background)

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
        output: OutputType | None = None,
    ) -> Call:
        """A call of this agent, checked: an id or a role that cannot be is refused here and not in the stream."""
        self.options.key_of(context)
        if isinstance(purposes, str) or not set(purposes) <= set(PURPOSES):
            raise InvalidOption("purposes", purposes, f"several of {', '.join(PURPOSES)}")
        return Call(
            options=self.options,
            pipeline=self._pipeline_for(output),
            card=self._card,
            messages=messages_of(input),
            context=context,
            purposes=tuple(purposes),
            output=output,
            owner=self,
        )

    def _pipeline_for(self, output: OutputType | None) -> Pipeline:
        """The agent's pipeline; for a call whose answer has a form, one of its own."""
        if output is None:
            return self.pipeline
        return self._make_pipeline(replace(self.options, output=OutputSpec.of(output)))

    def _started(self, run: Run) -> None:
        with self._lock:
            self._runs.add(run)
        self.options.runtime.single(Shutdown).entered(run)
        run.ended.add_done_callback(lambda _: self._forget(run))

    def _open_runs(self) -> tuple[Run, ...]:
        with self._lock:
            return tuple(self._runs)

    def _forget(self, run: Run) -> None:
        with self._lock:
            self._runs.discard(run)


def checked_answers(answers: Mapping[str, Answer]) -> Mapping[str, Answer]:
    """What `respond` was given, as it is now.

    Raises:
        InvalidOption: There is no answer.
    """
    if not isinstance(answers, Mapping) or not answers:  # type: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("answers", answers, "at least one answer, by the id of its call")
    return dict(answers)
