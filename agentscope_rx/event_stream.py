"""What an agent gives back: the stream of a run's events, and its answer."""

from __future__ import annotations

from typing import cast

from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.events import AgentEvent, AgentResult, Event, TextBlockDelta, is_aside
from agentscope_rx.messages import Msg
from agentscope_rx.pulling import Stream
from agentscope_rx.shared_run import SharedRun


class EventStream(Stream[Event]):
    """The events of a run. Cold: nothing runs before it is subscribed, and each subscription is a run of its own.

    It is an `Observable`, an async iterator, an iterator for threads without an event loop, and awaitable (which
    gives the last event). Leaving it cancels the run and leaves a valid session.

    Args:
        source: The events, cold.
        label: What it is called in the warning that comes when it is never used.
    """

    def __init__(self, source: Observable[AgentEvent], *, label: str = "") -> None:
        super().__init__(cast("Observable[Event]", source), label=label)

    def text(self) -> Stream[str]:
        """The text that the agent itself writes, piece by piece.

        Examples:
            async for piece in agent.stream_events("Explain the fix.").text():
                print(piece, end="")
        """

        def written(event: AgentEvent) -> bool:
            return isinstance(event, TextBlockDelta) and event.source is None and not is_aside(event)

        def delta(event: AgentEvent) -> str:
            return cast(TextBlockDelta, event).delta

        return Stream(self.pipe(ops.filter(written), ops.map(delta)))

    def reply(self) -> Reply:
        """The answer that it ends with, in the place of the events."""
        return reply_of(self)

    def share_run(self, *, history: int | None = 0) -> SharedRun:
        """One run for several watchers; they come and go, and the run goes on.

            --a--b--c|
            share_run     history=1, and a watcher who comes at 4 s
            ----ab--c|

        Args:
            history: How many events are kept for those who come late; None = all.
        """
        return SharedRun(self, history=history)


class Reply(Stream[Msg]):
    """The answer of a call. Cold, as `EventStream` is; `await` it, or `run()` it where no event loop runs."""


def reply_of(events: EventStream) -> Reply:
    """The answer that a stream of events ends with."""

    def is_result(event: AgentEvent) -> bool:
        return isinstance(event, AgentResult)

    def result(event: AgentEvent) -> Msg:
        return cast(AgentResult, event).result

    return Reply(events.pipe(ops.filter(is_result), ops.map(result)), label="call(...)")
