"""A recorded run that runs again: everything from outside comes from the recording, at its moment of virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar, cast

from agentscope_rx.call import Call, OpenSession
from agentscope_rx.differences import Difference
from agentscope_rx.errors import AgentShuttingDown, ReplayMismatch
from agentscope_rx.events import AgentEvent, AgentResult
from agentscope_rx.inbox import QueuedInput
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.replay.clocks import Chance, RunClock, RunIds
from agentscope_rx.replay.codecs import (
    chunk_from,
    error_from,
    input_from,
    outcome_from,
    proposal_from,
    reached_from,
    report_from,
)
from agentscope_rx.replay.events import EventLines
from agentscope_rx.replay.reading import Asked, Line, RecordedCall, Recording
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.replay.request_differences import differences_between
from agentscope_rx.replay.requests import Item, Itemizer, RequestItems
from agentscope_rx.requests import Model, ModelChunk, ModelRequest
from agentscope_rx.run import Run
from agentscope_rx.runtime import Runtime
from agentscope_rx.step import Step
from agentscope_rx.task_state import PlanModeContextState
from agentscope_rx.tools import ToolContext
from agentscope_rx.witness import Touch

C = TypeVar("C")
T = TypeVar("T")


class Replaying:
    """A recording at work: hands each run that begins what was recorded of it.

    Args:
        recording: The recording.
        lenient: Whether requests that differ are answered all the same.
        redaction: What the recording leaves out.
    """

    def __init__(self, recording: Recording, *, lenient: bool, redaction: Redaction) -> None:
        self.recording, self.lenient, self.redaction = recording, lenient, redaction
        self.itemizer = Itemizer(redaction)
        self.next: RecordedCall | None = None
        self.runs: dict[int, ServedRun] = {}
        self.mismatch: ReplayMismatch | None = None

    @property
    def over(self) -> bool:
        """Whether no further run is to begin."""
        return self.mismatch is not None

    def begins(self, call: Call, run: Run, /) -> ServedRun:
        """A run begins: the one that was announced."""
        recorded, self.next = self.next, None
        assert recorded is not None  # the driver has announced it
        assert self.recording.started is not None  # there are runs
        served = self.runs[recorded.number] = ServedRun(self, recorded, call, run, self.recording.started)
        return served


class ServedRun:
    """One run: its witness, and the world outside as it was."""

    def __init__(self, replaying: Replaying, recorded: RecordedCall, call: Call, run: Run, started: datetime) -> None:
        self._replaying, self.recorded, self.run = replaying, recorded, run
        seed = str(recorded.line["seed"])
        self.clock = RunClock(started, recorded.line["at"])
        self.runtime: Runtime = call.options.runtime.seen_through(
            clock=self.clock, ids=RunIds(seed), jitter=Chance(seed), outside=self, apart=False
        )
        self.pipeline = call.pipeline.names
        self.requests: list[ModelRequest] = []
        self.manifests: list[ContextManifest] = []
        self.differences: list[tuple[int, tuple[Difference, ...]]] = []
        self.told: list[Mapping[str, object]] = []
        self.result: Msg | None = None
        self.error: BaseException | None = None
        self._lines = EventLines(replaying.redaction, deltas=recorded.line["deltas"])
        self._events = self._looks = self._kept = 0
        self._touches = deque(recorded.touches)
        self._timer: asyncio.TimerHandle | None = None
        self._touch_later()

    # -- as a witness ---------------------------------------------------------------------------------------

    def opened(self, session: OpenSession, /) -> None:
        """The run has its session."""
        self.clock.move(self.recorded.opened_at)

    def event(self, event: AgentEvent, deliver: Callable[[AgentEvent], None], /) -> None:
        """The run tells its subscriber of something."""
        self._events += 1
        if (data := self._lines.data(event)) is not None:
            self.told.append(data)
        if isinstance(event, AgentResult):
            self.result = event.result
        if isinstance(manifest := getattr(event, "value", {}).get("context_manifest"), ContextManifest):
            self.manifests.append(manifest)
        deliver(event)
        touches = self._touches
        while touches and touches[0]["inside"] and touches[0]["events"] == self._events:
            self._touch()

    def touched(self, how: Touch, /) -> None:
        """Somebody wants the run to end: who replays it does."""

    def settled(self, events: Sequence[AgentEvent], error: BaseException | None, /) -> None:
        """The session is about to be saved."""

    def closed(self, session: OpenSession, /) -> None:
        """The run leaves its session."""

    def ended(self, error: BaseException | None, /) -> None:
        """The run is over."""
        self.error = error
        if self._timer is not None:
            self._timer.cancel()

    def _touch_later(self) -> None:
        """Let the run be ended at the moment at which it was, where it was neither telling nor keeping anything."""
        if self._touches and not self._touches[0]["inside"] and self._touches[0]["kept"] is None:
            self._timer = asyncio.get_running_loop().call_at(self._touches[0]["at"], self._touch)

    def _touch(self) -> None:
        touch = self._touches.popleft()
        self.clock.move(touch["at"])
        match touch["how"]:
            case "interrupt":
                self.run.interrupt()
            case "stop":
                self.run.stop(AgentShuttingDown("the program ends, as it did when this run was recorded"))
            case _:
                self.run.cancel()
        self._touch_later()

    # -- as the way outside ---------------------------------------------------------------------------------

    def model_for(self, step: Step, /) -> Model:
        """A model that answers as it did."""
        return cast("Model", _ServedModel(self, step))

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What came of something that was done outside."""
        line = self._taken(self.recorded.reached.get(name), f"{name} is reached for", "request", name)
        await self.until(line)
        if "error" in line:
            raise error_from(line["error"])
        return cast("T", reached_from(name, line["value"]))

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """What came of a tool call."""
        told = cast("ToolContext", context)
        line = self._taken(self.recorded.tools.get(call.id), f"the tool {call.name} is run", "tools", call.id)
        for at, step in line["steps"]:
            await self.arrived(at)
            if "report" in step:
                told.on_report(report_from(step["report"]))
                continue
            new = proposal_from(step)
            if isinstance(new, PlanModeContextState):
                told.proposals.update_plan(lambda _, new=new: new)
            else:
                told.proposals.update_tasks(lambda _, new=new: new)
        await self.until(line)
        return cast("T", outcome_from(line["outcome"]))

    async def keep(self, work: Callable[[], Awaitable[T]], /) -> T:
        """What the run does with its session, and what ended the run meanwhile."""
        self._kept += 1
        kept, touched = self._kept, False
        while self._touches and self._touches[0]["kept"] == kept and not self._touches[0]["inside"]:
            self._touch()
            touched = True
        result = await work()
        if touched:
            await asyncio.sleep(0)  # what is cancelled ends here, as it did, even if nothing was waited for
        return result

    def inputs(self, waiting: Sequence[QueuedInput], /) -> Sequence[QueuedInput]:
        """What was taken in when the run looked so often."""
        self._looks += 1
        line = self.recorded.inputs.get(self._looks)
        if line is None:
            return ()
        self.clock.move(line["at"])
        return tuple(map(input_from, line["inputs"]))

    async def arrived(self, at: float) -> None:
        """Wait for a moment of the recording; from then on it is that moment."""
        wait = at - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        self.clock.move(at)

    async def until(self, line: Line) -> None:
        """Wait for what a line tells of; for ever, where the run did not see its end."""
        if "left" not in line:
            await self.arrived(line["at"])
            return
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.clock.move(line["at"])

    def _taken(self, lines: deque[Line] | None, what: str, zone: str, item: str) -> Line:
        if not lines:
            self.refuse(0, (Difference(zone=zone, item=item, kind="added"),), f"{what}, which it was not then")
        return lines.popleft()

    # -- requests -------------------------------------------------------------------------------------------

    def answer_to(self, step: Step, request: ModelRequest) -> Asked:
        """What was recorded of a request.

        Raises:
            ReplayMismatch: Another one was recorded, or none.
        """
        replaying, number = self._replaying, len(self.requests)
        if replaying.mismatch is not None:
            raise replaying.mismatch
        self.requests.append(request)
        items = replaying.itemizer.of(step, request)
        if number >= len(self.recorded.asked):
            new = Difference(zone="request", item=items.purpose, kind="added", operator=items.asker)
            self.refuse(step.number, (new,), f"request {number} is one that was not made then")
        asked = self.recorded.asked[number]
        if asked.items.compared != items.compared:
            self._differs(step, number, asked.items, items)
        return asked

    def _differs(self, step: Step, number: int, before: RequestItems, after: RequestItems) -> None:
        recording, itemizer = self._replaying.recording, self._replaying.itemizer

        def old(zone: str, item: Item) -> object:
            return recording.items.get((zone, item[1]), "")

        def new(zone: str, item: Item) -> object:
            return itemizer.value(step.draft, zone, item[0])

        found = differences_between(before, after, old=old, new=new)
        self.differences.append((step.number, found))
        if not self._replaying.lenient:
            what = f"request {number} ({after.purpose}, step {step.number}) is not the recorded one"
            self.refuse(step.number, found, what)

    def refuse(self, step: int, found: tuple[Difference, ...], what: str) -> NoReturn:
        """End the replay: from here on nothing that was recorded fits."""
        recorded = tuple(self.recorded.line["pipeline"])
        lines = [f"{self._replaying.recording.path}, run {self.recorded.number}: {what}", *map(str, found)]
        if recorded != self.pipeline:
            lines += [f"pipeline then: {', '.join(recorded)}", f"pipeline now:  {', '.join(self.pipeline)}"]
        mismatch = ReplayMismatch("\n".join(lines), run=self.recorded.number, step=step, differences=found)
        if self._replaying.mismatch is None:
            self._replaying.mismatch = mismatch
        raise mismatch


class _ServedModel:
    """A model that answers as it did when the run was recorded."""

    def __init__(self, run: ServedRun, step: Step) -> None:
        self._run, self._step = run, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step.card.model, name)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelChunk]:
        """Answer."""
        run = self._run
        asked = run.answer_to(self._step, request)
        await run.arrived(asked.at)
        for at, chunk in asked.answer["chunks"]:
            await run.arrived(at)
            yield chunk_from(chunk)
        await run.until(asked.answer)
        if "error" in asked.answer:
            raise error_from(asked.answer["error"])
