"""`replay`: recorded runs through the real pipeline, offline and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar

from agentscope_rx.agent import Agent
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.differences import Difference
from agentscope_rx.errors import ReplayMismatch
from agentscope_rx.events import AgentEvent
from agentscope_rx.frozen import frozen
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg
from agentscope_rx.portal import refuse_running_loop
from agentscope_rx.replay.calls import answers_of, messages_from, output_of
from agentscope_rx.replay.events import without_figures
from agentscope_rx.replay.reading import Line, RecordedCall, Recording
from agentscope_rx.replay.recorded_run import RecordedRun
from agentscope_rx.replay.recorder import AFRESH, Recorder
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.serving import Replaying, ServedRun
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Run
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.wire import to_json
from agentscope_rx.witness import Touch, Witness

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])
_MOST_EVENTS: Final = 20
_ABSENT: Final[Line] = {"type": "(none)"}


@frozen
class EventDifference:
    """An event that is another one than the recorded one.

    Args:
        number: Which event of the run, from 0.
        before: The recorded one, as plain data; its type is `(none)` where there was none.
        after: The new one.
    """

    number: int
    before: Line
    after: Line

    def __str__(self) -> str:
        names = [name for name in {**self.before, **self.after} if self.before.get(name) != self.after.get(name)]
        lines = [f"event {self.number}: {self.before['type']}"]
        for name in names:
            old, new = (to_json(each.get(name)).decode() for each in (self.before, self.after))
            lines.append(f"    {name}: {old:.200} -> {new:.200}")
        return "\n".join(lines)


@frozen
class ReplayedRun:
    """One run, as it ran again.

    Args:
        requests: What the models were asked.
        manifests: The accounts of the requests.
        events: What it told, as plain data.
        result: Its answer; None = it failed.
        error: What it failed with.
        request_differences: The reasoning steps whose requests were others, where that was accepted.
        event_differences: The events that were others; at most 20 of them.
    """

    requests: tuple[ModelRequest, ...]
    manifests: tuple[ContextManifest, ...]
    events: tuple[Line, ...]
    result: Msg | None
    error: BaseException | None
    request_differences: tuple[tuple[int, tuple[Difference, ...]], ...] = ()
    event_differences: tuple[EventDifference, ...] = ()


@frozen
class Replayed:
    """What came of a replay.

    Args:
        path: The recording.
        runs: Its runs.
        seconds: How long they took in virtual time; none of it was waited.
        updated: Whether the recording was written anew.
    """

    path: Path
    runs: tuple[ReplayedRun, ...]
    seconds: float
    updated: bool = False

    @property
    def same(self) -> bool:
        """Whether all requests and all events are the recorded ones."""
        return not any(run.request_differences or run.event_differences for run in self.runs)

    def check(self) -> None:
        """Refuse events that differ.

        Raises:
            ReplayMismatch: Some do.
        """
        if not self.same:
            raise ReplayMismatch(str(self))

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.runs)} runs, {sum(len(run.requests) for run in self.runs)} requests"]
        for number, run in enumerate(self.runs):
            for step, found in run.request_differences:
                lines += [f"run {number}, step {step}: another request", *map(str, found)]
            lines += [f"run {number}, {each}" for each in run.event_differences]
        return "\n".join([*lines, "all as recorded"] if self.same else lines)


def replay(
    path: str | Path,
    builder: AgentBuilder[Any, Any],
    *,
    update: bool = False,
    context: Callable[[RuntimeContext], RuntimeContext] | None = None,
    rules: Sequence[SecretRule] = DEFAULT_RULES,
) -> Replayed:
    """Run what was recorded again: the real pipeline of a builder, with models, tools, sources, files, clock and ids
    from the recording.

    Nothing is asked over the network, no tool runs, no file is written, and waits take no time. It stops at the first
    request that is not the recorded one.

    Args:
        path: The recording.
        builder: The agent, as it is now; its model and its store are not used.
        update: Whether requests that differ are accepted: they get the recorded answers, and the recording is written
            anew with them. The outcome tells of each. Default False.
        context: Adds what the application hands along and a recording does not hold. Default: nothing.
        rules: The rules that the recording was made with.

    Raises:
        ReplayMismatch: A request differs; the error says in which step, shows the items, and names the operators.
        RecordingDamaged: The recording cannot be read; the error says where.
        RunningLoopError: This thread runs an event loop; call it by `asyncio.to_thread(replay, ...)`.

    Examples:
        >>> print(replay(folder / "hello.jsonl", builder))
        ...hello.jsonl: 1 runs, 1 requests
        all as recorded
    """
    refuse_running_loop()
    recording = Recording.read(path)
    redaction = Redaction(rules)
    replaying = Replaying(recording, lenient=update, redaction=redaction)
    recorder = Recorder(path, rules=rules, note=recording.note) if update else None
    driver = Driver(replaying, builder, context, recorder)
    try:
        seconds = run_virtual(driver.run)
        if replaying.mismatch is not None:
            raise replaying.mismatch
    except BaseException:
        if recorder is not None:
            recorder.discard()
        raise
    if recorder is not None:
        recorder.close()
    runs = tuple(_replayed(call, replaying.runs[call.number]) for call in recording.calls)
    return Replayed(path=Path(path), runs=runs, seconds=seconds, updated=update)


class Driver:
    """Calls an agent as it was called, at the same moments.

    Args:
        replaying: The recording at work.
        builder: The agent.
        context: Adds what the application hands along.
        recorder: Records the replay.
    """

    def __init__(
        self,
        replaying: Replaying,
        builder: AgentBuilder[Any, Any],
        context: Callable[[RuntimeContext], RuntimeContext] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._replaying, self._context = replaying, context or _as_recorded
        self._runtime, self._store = Runtime(), InMemoryStore()
        self._builder = offline(builder, replaying)
        if recorder is not None:
            self._builder = self._builder.witnessed_by(_Recorded(replaying, recorder))

    async def run(self) -> float:
        """Make all calls; gives the seconds that they took in virtual time."""
        agents: dict[int, Agent[Any]] = {}
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for call in self._replaying.recording.calls:
                await _until(call.line["at"])
                if self._replaying.over:
                    break
                number = call.line["builder"]
                if number not in agents:
                    agents[number] = await stack.enter_async_context(self._afresh().build())
                await self._begin(agents[number], call, group)
        return asyncio.get_running_loop().time()

    def _afresh(self) -> AgentBuilder[Any, Any]:
        """A builder of the same sessions that remembers nothing else."""
        return self._builder.runtime(self._runtime.seen_through(afresh=AFRESH)).state_store(self._store)

    async def _begin(self, agent: Agent[Any], call: RecordedCall, group: asyncio.TaskGroup) -> None:
        line = call.line
        context = self._context(RuntimeContext(user_id=line["user"], session_id=line["session"]))
        if call.state is not None:
            state = AgentState.from_json(to_json(call.state))
            await agent.replace_state(context, state, expected=await agent.state(context))
        answers, output, purposes = answers_of(line), output_of(line), tuple(line["purposes"])
        if answers is not None:
            stream = agent.respond(context, answers, output=output, purposes=purposes)
        else:
            stream = agent.stream_events(messages_from(line), context, output=output, purposes=purposes)
        self._replaying.next = call
        stream.subscribe(_heard, _heard)
        group.create_task(_ended(self._replaying.runs[call.number]))


class _Recorded:
    """A replay that is recorded."""

    def __init__(self, replaying: Replaying, recorder: Recorder) -> None:
        self._replaying, self._recorder = replaying, recorder

    def begins(self, call: Call, run: Run, /) -> _RecordedAgain:
        """A run begins again."""
        served = self._replaying.begins(call, run)
        return _RecordedAgain(
            served, self._recorder.begin(call.through(served.runtime), served.recorded.line["builder"])
        )


class _RecordedAgain:
    """A run that runs again, and is recorded."""

    def __init__(self, served: ServedRun, recorded: RecordedRun) -> None:
        self._served, self._recorded = served, recorded

    @property
    def runtime(self) -> Runtime:
        """What the run gets, written down on its way."""
        return self._recorded.runtime

    def opened(self, session: OpenSession, /) -> None:
        """The run has its session."""
        self._served.opened(session)
        self._recorded.opened(session)

    def event(self, event: AgentEvent, deliver: Callable[[AgentEvent], None], /) -> None:
        """The run tells its subscriber of something."""
        self._recorded.event(event, lambda each: self._served.event(each, deliver))

    def touched(self, how: Touch, /) -> None:
        """Somebody wants the run to end."""
        self._recorded.touched(how)

    def settled(self, events: Sequence[AgentEvent], error: BaseException | None, /) -> None:
        """The session is about to be saved."""
        self._recorded.settled(events, error)

    def closed(self, session: OpenSession, /) -> None:
        """The run leaves its session."""
        self._recorded.closed(session)

    def ended(self, error: BaseException | None, /) -> None:
        """The run is over."""
        self._served.ended(error)
        self._recorded.ended(error)


def offline(builder: BuilderT, replaying: Witness | None) -> BuilderT:
    """A builder whose agents touch nothing outside."""
    runtime = Runtime().seen_through(afresh=AFRESH)
    return builder.runtime(runtime).state_store(InMemoryStore()).witnessed_by(replaying)


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))


async def _ended(served: ServedRun) -> None:
    await asyncio.wrap_future(served.run.ended)


def _heard(_: object) -> None:
    """What a run tells is taken down by its witness."""


def _as_recorded(context: RuntimeContext) -> RuntimeContext:
    return context


def _replayed(call: RecordedCall, served: ServedRun) -> ReplayedRun:
    return ReplayedRun(
        requests=tuple(served.requests),
        manifests=tuple(served.manifests),
        events=tuple(served.told),
        result=served.result,
        error=served.error,
        request_differences=tuple(served.differences),
        event_differences=tuple(islice(_event_differences(call, served.told), _MOST_EVENTS)),
    )


def _event_differences(call: RecordedCall, told: Sequence[Line]) -> Iterator[EventDifference]:
    for number, (before, after) in enumerate(zip_longest(call.events, told, fillvalue=_ABSENT)):
        if before == after or (number >= call.exact_events and without_figures(before) == without_figures(after)):
            continue
        yield EventDifference(number=number, before=before, after=after)
