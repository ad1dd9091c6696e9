"""Recorder: writes down what runs get from outside, what they ask, and what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from agentscope_rx.__about__ import __version__
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.call import Call
from agentscope_rx.errors import InvalidOption
from agentscope_rx.events import AgentEvent
from agentscope_rx.messages import DataBlock, ToolUseBlock
from agentscope_rx.replay.calls import call_data
from agentscope_rx.replay.clocks import Chance, RunClock, RunIds, seed_of
from agentscope_rx.replay.codecs import (
    chunks_data,
    error_data,
    outcome_data,
    proposal_data,
    reached_data,
    report_data,
)
from agentscope_rx.replay.events import EventLines
from agentscope_rx.replay.recording import VERSION, RecordingWriter
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.requests import ZONES, Itemizer, RequestItems, common, request_line
from agentscope_rx.replay.tools import SeenProposals
from agentscope_rx.requests import Model, ModelChunk, ModelRequest
from agentscope_rx.run import Run
from agentscope_rx.runtime import Runtime
from agentscope_rx.session import RequestCache
from agentscope_rx.state import AgentState
from agentscope_rx.step import Step
from agentscope_rx.stores import SessionKey
from agentscope_rx.tokens import MeasuredRatio
from agentscope_rx.tools import ToolContext
from agentscope_rx.tools.execution import ToolOutcome
from agentscope_rx.wire import from_json
from agentscope_rx.witness import Touch

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])
C = TypeVar("C")
T = TypeVar("T")
#: What a process remembers beside sessions; a recording begins without it, as a replay does.
AFRESH: Final = (RequestCache, MeasuredRatio)


class Recorder:
    """Records the runs of agents into a file, which `replay` plays again without a model, tools or a network.

    Writing is done by a thread of its own. Secrets are left out. When the recorder is closed the file has its name;
    before, it is `<file>.partial`.

    Args:
        path: The file; an earlier recording of this name is replaced.
        rules: How secrets look, where the built-in rules are not enough: `(*DEFAULT_RULES, SecretRule.of(...))`.
        secrets: Secrets that are known. Default: the values of the environment's variables with secret names.
        note: What else is to be known of the recording, as plain data; `Recording.note` has it. Default: nothing.

    Raises:
        OSError: The file cannot be written.

    Examples:
        >>> from agentscope_rx import ReActAgent
        >>> from agentscope_rx.testing import ScriptedModel
        >>> builder = ReActAgent.builder(name="helper", model=ScriptedModel(["Hello."]))
        >>> with Recorder(folder / "hello.jsonl") as recorder:
        ...     recorder.watch(builder).call("Hi").run().text
        'Hello.'
        >>> replay(folder / "hello.jsonl", builder).runs[0].result.text
        'Hello.'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        rules: Iterable[SecretRule] = DEFAULT_RULES,
        secrets: Iterable[str] | None = None,
        note: Mapping[str, object] | None = None,
    ) -> None:
        self._writer = RecordingWriter(Path(path))
        self._note = dict(note or {})
        self.redaction = Redaction(rules, secrets)
        self.itemizer = Itemizer(self.redaction)
        self._runs = self._watched = 0
        self._origin: tuple[Any, float] | None = None
        self._known_items: set[str] = set()
        self._states: dict[SessionKey, AgentState] = {}
        self._closed = False

    def watch(self, builder: BuilderT) -> BuilderT:
        """A builder whose agents are recorded; it shares sessions and all else with the one that is given.

        Args:
            builder: Any builder.

        Raises:
            InvalidOption: The recorder is closed.
        """
        if self._closed:
            raise InvalidOption("recorder", self, "is closed; make another one")
        runtime = builder.shared_runtime.seen_through(afresh=AFRESH)
        number, self._watched = self._watched, self._watched + 1
        return builder.runtime(runtime).witnessed_by(_Watched(self, number))

    def begin(self, call: Call, watched: int) -> RecordedRun:
        """A run begins.

        Args:
            call: What is called.
            watched: By which of the builders that are watched: each remembers requests for itself.
        """
        runtime = call.options.runtime
        if self._origin is None:
            started, origin = runtime.clock.now(), runtime.clock.monotonic()
            if isinstance(runtime.clock, RunClock):  # a replay is recorded
                started, origin = runtime.clock.started, 0.0
            self._origin = (started, origin)
            self._write_header(started)
        number, self._runs = self._runs, self._runs + 1
        started, origin = self._origin
        return RecordedRun(self, number, call, clock=RunClock(started, 0.0), origin=origin, watched=watched)

    def write(self, type: str, **fields: object) -> None:
        """Put a line into the recording; what comes after the end is left out."""
        if not self._closed:
            self._writer.write(type, **fields)

    def write_items(self, step: Step, items: RequestItems, before: RequestItems | None) -> None:
        """Put the items of a request into the recording that it does not have yet."""
        for zone in ZONES:
            kept = 0 if before is None else common(before.zones[zone], items.zones[zone])
            for id, digest in items.zones[zone][kept:]:
                if digest not in self._known_items:
                    self._known_items.add(digest)
                    self.write("item", zone=zone, digest=digest, value=self.itemizer.value(step.draft, zone, id))

    def state_to_write(self, key: SessionKey, state: AgentState) -> AgentState | None:
        """The state of a session, where the recording does not have it from the run before."""
        known = self._states.get(key) or AgentState(session_id=state.session_id, user_id=state.user_id)
        same = known is state or known.to_json(with_replaced=False) == state.to_json(with_replaced=False)
        return None if same else state

    def keep_state(self, key: SessionKey, state: AgentState) -> None:
        """Note how a run has left a session."""
        self._states[key] = state

    def close(self) -> None:
        """Write what waits; later runs are not recorded.

        Raises:
            OSError: Something could not be written, and there is no recording.
        """
        if not self._closed and self._origin is None:
            self._write_header(None)
        self._closed = True
        self._writer.close()

    def _write_header(self, started: datetime | None) -> None:
        note = self.redaction.data(self._note)
        self._writer.write("header", version=VERSION, started=started, library=__version__, note=note)

    def discard(self) -> None:
        """Leave no recording, and an earlier one as it was."""
        self._closed = True
        self._writer.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class _Watched:
    """Sees the runs of one builder."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder, self._number = recorder, number

    def begins(self, call: Call, run: Run, /) -> RecordedRun:
        """A run begins."""
        return self._recorder.begin(call, self._number)


class RecordedRun:
    """One run that is recorded: its witness, and what stands between it and the world outside."""

    def __init__(
        self, recorder: Recorder, number: int, call: Call, *, clock: RunClock, origin: float, watched: int
    ) -> None:
        base = call.options.runtime
        self.recorder, self.number, self.clock = recorder, number, clock
        self._base, self._base_clock, self._origin = base.outside, base.clock, origin
        seed = base.ids.seed if isinstance(base.ids, RunIds) else seed_of(base.ids.new_id("recording"))
        self.runtime: Runtime = base.seen_through(clock=clock, ids=RunIds(seed), jitter=Chance(seed), outside=self)
        self._key = call.options.key_of(call.context)
        self._lines = EventLines(recorder.redaction)
        self._requests: dict[str, RequestItems] = {}
        self._state: Callable[[], AgentState] | None = None
        self._events, self._delivering, self._over = 0, False, False
        self.tick()
        given = cast("Mapping[str, object]", recorder.redaction.data(call_data(call)))
        self.write(
            "run", seed=seed, builder=watched, session=call.context.session_id, user=call.context.user_id, **given
        )

    def tick(self) -> float:
        """Something arrives now."""
        return self.clock.tick(self._base_clock.monotonic() - self._origin)

    def write(self, type: str, **fields: object) -> None:
        """Put a line of this run into the recording."""
        self.recorder.write(type, run=self.number, at=self.clock.at, **fields)

    # -- as a witness ---------------------------------------------------------------------------------------

    def opened(self, state: AgentState, /) -> None:
        """The run has its session."""
        self.tick()
        unknown = self.recorder.state_to_write(self._key, state)
        data = None if unknown is None else self.recorder.redaction.data(from_json(unknown.to_json()))
        self.write("opened", state=data)

    def event(self, event: AgentEvent, deliver: Callable[[AgentEvent], None], /) -> None:
        """The run tells its subscriber of something."""
        self._events += 1
        data = self._lines.data(event)
        self.write("event", event=data, exact=not self.recorder.redaction.found)
        nested, self._delivering = self._delivering, True
        try:
            deliver(event)
        finally:
            self._delivering = nested

    def touched(self, how: Touch, /) -> None:
        """Somebody wants the run to end."""
        if not self._over:
            self.tick()
            self.write("touch", how=how, events=self._events, inside=self._delivering)

    def closed(self, state: AgentState, /) -> None:
        """The run leaves its session."""
        self.recorder.keep_state(self._key, state)

    def ended(self, error: BaseException | None, /) -> None:
        """The run is over."""
        self._over = True
        self.tick()
        data = None if error is None else self.recorder.redaction.data(error_data(error))
        self.write("end", error=data)

    # -- as the way outside ---------------------------------------------------------------------------------

    def model_for(self, step: Step, /) -> Model:
        """The model, which is listened to."""
        return cast("Model", _HeardModel(self, step, self._base.model_for(step)))

    def asked(self, step: Step, request: ModelRequest) -> None:
        """The request goes out."""
        items = self.recorder.itemizer.of(step, request)
        before = self._requests.get(items.purpose)
        self.recorder.write_items(step, items, before)
        self._requests[items.purpose] = items
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
            self.write("reached", name=name, **cast("dict[str, object]", self.recorder.redaction.data(outcome)))

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
            clean = cast("dict[str, object]", self.recorder.redaction.data(fields))
            self.write("tool", id=call.id, name=call.name, **clean)


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
            end = {"error": run.recorder.redaction.data(error_data(error))}
            raise
        finally:
            run.tick()
            run.write("answer", call=request.call_id, chunks=chunks_data(heard, run.recorder.redaction), **end)


def _closing(chunks: AsyncIterator[ModelChunk]) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
    if isinstance(chunks, AsyncGenerator):
        return aclosing(cast("AsyncGenerator[ModelChunk, None]", chunks))
    return nullcontext(chunks)
