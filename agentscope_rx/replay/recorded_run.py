"""One run that is recorded: what it gets from outside, what it asks, and what it tells."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

from agentscope_rx.call import Call, OpenSession
from agentscope_rx.events import AgentEvent
from agentscope_rx.inbox import QueuedInput
from agentscope_rx.messages import DataBlock, ToolUseBlock
from agentscope_rx.replay.calls import call_data
from agentscope_rx.replay.clocks import Chance, RunClock, RunIds, seed_of
from agentscope_rx.replay.codecs import (
    chunks_data,
    error_data,
    input_data,
    outcome_data,
    proposal_data,
    reached_data,
    report_data,
)
from agentscope_rx.replay.events import EventLines
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.replay.requests import RequestItems, request_line
from agentscope_rx.replay.tools import SeenProposals
from agentscope_rx.requests import Model, ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.step import Step
from agentscope_rx.tools import ToolContext
from agentscope_rx.tools.execution import ToolOutcome
from agentscope_rx.witness import Touch

C = TypeVar("C")
T = TypeVar("T")


class RunBook(Protocol):
    """Where one run is written down: in a file, or in the log of its session."""

    @property
    def redaction(self) -> Redaction:
        """What is left out."""
        ...

    @property
    def deltas(self) -> bool:
        """Whether each piece of a text has a line, beside the text itself."""
        ...

    @property
    def lies_in_session(self) -> bool:
        """Whether it is part of the session: then the end of the run is written before the session is saved."""
        ...

    def write(self, type: str, /, **fields: object) -> None:
        """Write a line."""
        ...

    def opens(self, session: OpenSession, /) -> object:
        """The run has its session; gives its state as plain data, None where that is known otherwise."""
        ...

    def items_of(self, step: Step, request: ModelRequest, before: RequestItems | None, /) -> RequestItems:
        """A request, after lines for the items that are not written yet.

        Args:
            step: The step whose request it is.
            request: The request.
            before: The one before it in the run, for the same purpose.
        """
        ...

    def closes(self, session: OpenSession, /) -> None:
        """The run leaves its session."""
        ...


class RecordedRun:
    """One run that is recorded: its witness, and what stands between it and the world outside.

    Args:
        book: Where it is written down.
        call: What is called.
        clock: Its time.
        origin: The moment of the Runtime's clock at which that time is 0.
        facts: What else its first line says.
    """

    def __init__(
        self, book: RunBook, call: Call, *, clock: RunClock, origin: float, facts: Mapping[str, object]
    ) -> None:
        base = call.options.runtime
        self.clock, self._book, self._redaction = clock, book, book.redaction
        self._base, self._base_clock, self._origin = base.outside, base.clock, origin
        seed = base.ids.seed if isinstance(base.ids, RunIds) else seed_of(base.ids.new_id("recording"))
        self.runtime: Runtime = base.seen_through(clock=clock, ids=RunIds(seed), jitter=Chance(seed), outside=self)
        self._lines = EventLines(book.redaction, deltas=book.deltas)
        self._requests: dict[str, RequestItems] = {}
        self._events, self._looks, self._delivering, self._over = 0, 0, False, False
        self._kept, self._keeping = 0, list[int]()
        self.tick()
        given = cast("Mapping[str, object]", self._redaction.data(call_data(call)))
        who = {"session": call.context.session_id, "user": call.context.user_id}
        self.write("run", seed=seed, deltas=book.deltas, **facts, **who, **given)

    @property
    def redaction(self) -> Redaction:
        """What is left out."""
        return self._redaction

    def tick(self) -> float:
        """Something arrives now."""
        return self.clock.tick(self._base_clock.monotonic() - self._origin)

    def write(self, type: str, **fields: object) -> None:
        """Put a line of this run into the recording."""
        self._book.write(type, at=self.clock.at, **fields)

    # -- as a witness ---------------------------------------------------------------------------------------

    def opened(self, session: OpenSession, /) -> None:
        """The run has its session."""
        self.tick()
        self.write("opened", state=self._book.opens(session))

    def event(self, event: AgentEvent, deliver: Callable[[AgentEvent], None], /) -> None:
        """The run tells its subscriber of something."""
        self._tell(event)
        nested, self._delivering = self._delivering, True
        try:
            deliver(event)
        finally:
            self._delivering = nested

    def _tell(self, event: AgentEvent) -> None:
        self._events += 1
        if not self._over and (data := self._lines.data(event)) is not None:
            self.write("event", event=data, exact=not self._redaction.found)

    def touched(self, how: Touch, /) -> None:
        """Somebody wants the run to end."""
        if not self._over:
            self.tick()
            kept = self._keeping[-1] if self._keeping else None
            self.write("touch", how=how, events=self._events, inside=self._delivering, kept=kept)

    def settled(self, events: Sequence[AgentEvent], error: BaseException | None, /) -> None:
        """The session is about to be saved: a book that lies in it is to be whole by then."""
        if self._book.lies_in_session:
            for event in events:
                self._tell(event)
            self.ended(error)

    def closed(self, session: OpenSession, /) -> None:
        """The run leaves its session."""
        self._book.closes(session)

    def ended(self, error: BaseException | None, /) -> None:
        """The run is over."""
        if self._over:
            return
        self._over = True
        self.tick()
        data = None if error is None else self._redaction.data(error_data(error))
        self.write("end", error=data)

    # -- as the way outside ---------------------------------------------------------------------------------

    def model_for(self, step: Step, /) -> Model:
        """The model, which is listened to."""
        return cast("Model", _HeardModel(self, step, self._base.model_for(step)))

    def asked(self, step: Step, request: ModelRequest) -> None:
        """The request goes out."""
        before = self._requests.get(request.purpose)
        items = self._requests[request.purpose] = self._book.items_of(step, request, before)
        self.tick()
        self.write("request", call=request.call_id, **request_line(items, before))

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What comes of something that is done outside."""
        outcome: Mapping[str, object] = {"left": True}
        try:
            reached = await self._base.reach(name, work)
            outcome = {"value": reached_data(reached)}
            return reached
        except Exception as error:
            outcome = {"error": error_data(error)}
            raise
        finally:
            self.tick()
            self.write("reached", name=name, **cast("dict[str, object]", self._redaction.data(outcome)))

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """What becomes of a tool call."""
        told = cast("ToolContext", context)
        steps: list[tuple[float, Mapping[str, object]]] = []

        def on_report(shown: str | DataBlock, /) -> None:
            steps.append((self.tick(), {"report": report_data(shown)}))
            told.on_report(shown)

        proposals = SeenProposals(told.proposals, lambda new: steps.append((self.tick(), proposal_data(new))))
        outcome: Mapping[str, object] = {"left": True}
        try:
            heard = cast("C", replace(told, on_report=on_report, proposals=proposals))
            given = await self._base.call(call, heard, run)
            outcome = {"outcome": outcome_data(cast("ToolOutcome", given))}
            return given
        finally:
            self.tick()
            fields = {"steps": steps, **outcome}
            clean = cast("dict[str, object]", self._redaction.data(fields))
            self.write("tool", id=call.id, name=call.name, **clean)

    async def keep(self, work: Callable[[], Awaitable[T]], /) -> T:
        """What the run does with its session: counted, as it may be ended meanwhile."""
        self._kept = kept = self._kept + 1
        self._keeping.append(kept)
        try:
            return await self._base.keep(work)
        finally:
            self._keeping.remove(kept)

    def inputs(self, waiting: Sequence[QueuedInput], /) -> Sequence[QueuedInput]:
        """What a step takes in: written down by how often the run has looked, which it does at fixed places."""
        self._looks += 1
        taken = self._base.inputs(waiting)
        if taken:
            self.tick()
            self.write("inputs", look=self._looks, inputs=self._redaction.data(list(map(input_data, taken))))
        return taken


class _HeardModel:
    """A model whose answers are written down."""

    def __init__(self, run: RecordedRun, step: Step, model: Model) -> None:
        self._run, self._step, self._model = run, step, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelChunk]:
        """Ask the model."""
        run, heard = self._run, list[tuple[float, ModelChunk]]()
        run.asked(self._step, request)
        end: Mapping[str, object] = {"left": True}
        try:
            async with _closing(self._model.stream(request)) as chunks:
                async for chunk in chunks:
                    heard.append((run.tick(), chunk))
                    yield chunk
            end = {}
        except Exception as error:
            end = {"error": run.redaction.data(error_data(error))}
            raise
        finally:
            run.tick()
            run.write("answer", call=request.call_id, chunks=chunks_data(heard, run.redaction), **end)


def _closing(chunks: AsyncIterator[ModelChunk]) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
    if isinstance(chunks, AsyncGenerator):
        return aclosing(cast("AsyncGenerator[ModelChunk, None]", chunks))
    return nullcontext(chunks)
