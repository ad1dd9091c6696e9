"""Calls agents as they were called when their runs were recorded, at the same moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from agentscope_rx.agent import Agent
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.event_stream import EventStream
from agentscope_rx.events import AgentEvent
from agentscope_rx.replay.calls import answers_of, command_of, messages_from, output_of
from agentscope_rx.replay.reading import RecordedCall
from agentscope_rx.replay.recorded_run import RecordedRun
from agentscope_rx.replay.recorder import AFRESH, Recorder
from agentscope_rx.replay.serving import Replaying, ServedRun
from agentscope_rx.run import Run
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.wire import to_json
from agentscope_rx.witness import Touch, Witness

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])


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
                    builder = self._afresh(logged=call.line["logged"])
                    agents[number] = await stack.enter_async_context(builder.build())
                await self._begin(agents[number], call, group)
        return asyncio.get_running_loop().time()

    def _afresh(self, *, logged: bool) -> AgentBuilder[Any, Any]:
        """A builder of the same sessions that remembers nothing else; where they had logs, they have them."""
        builder = self._builder.runtime(self._runtime.seen_through(afresh=AFRESH)).state_store(self._store)
        return builder.state_only(False) if logged else builder

    async def _begin(self, agent: Agent[Any], call: RecordedCall, group: asyncio.TaskGroup) -> None:
        line = call.line
        context = self._context(RuntimeContext(user_id=line["user"], session_id=line["session"]))
        if call.state is not None:
            state = AgentState.from_json(to_json(call.state))
            await agent.replace_state(context, state, expected=await agent.state(context))
        stream = _called(agent, call, context)
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


def _called(agent: Agent[Any], call: RecordedCall, context: RuntimeContext) -> EventStream:
    """The call once more."""
    line, command = call.line, command_of(call.line)
    if command is not None:
        return agent.carry_out(context, command)
    answers, output, purposes = answers_of(line), output_of(line), tuple(line["purposes"])
    if answers is not None:
        return agent.respond(context, answers, output=output, purposes=purposes)
    return agent.stream_events(messages_from(line), context, output=output, purposes=purposes)


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))


async def _ended(served: ServedRun) -> None:
    await asyncio.wrap_future(served.run.ended)


def _heard(_: object) -> None:
    """What a run tells is taken down by its witness."""


def _as_recorded(context: RuntimeContext) -> RuntimeContext:
    return context
