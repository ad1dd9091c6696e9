"""Who sees runs from outside: what goes in, what comes out, and when somebody ends them.

An agent that has no witness pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from agentscope_rx.events import AgentEvent
from agentscope_rx.runtime import Runtime

if TYPE_CHECKING:
    from agentscope_rx.call import Call, OpenSession
    from agentscope_rx.run import Run

#: How somebody outside ends a run: `interrupt` with what it has, `stop` where it can, `leave` at once.
Touch: TypeAlias = Literal["interrupt", "stop", "leave"]


class RunWitness(Protocol):
    """Sees one run, on its loop."""

    @property
    def runtime(self) -> Runtime:
        """Where the run gets time, identity, chance and all that is outside of it from."""
        ...

    def opened(self, session: OpenSession, /) -> None:
        """The run has its session."""
        ...

    def event(self, event: AgentEvent, deliver: Callable[[AgentEvent], None], /) -> None:
        """The run tells its subscriber of something.

        Args:
            event: The event.
            deliver: Hands it to the subscriber; to be called once.
        """
        ...

    def touched(self, how: Touch, /) -> None:
        """Somebody outside wants the run to end."""
        ...

    def settled(self, events: Sequence[AgentEvent], error: BaseException | None, /) -> None:
        """The session is about to be saved for the last time.

        Args:
            events: What the run will tell once it is.
            error: What it fails with; None = it has its answer.
        """
        ...

    def closed(self, session: OpenSession, /) -> None:
        """The run leaves its session."""
        ...

    def ended(self, error: BaseException | None, /) -> None:
        """The run is over; None = it has its answer."""
        ...


class Witness(Protocol):
    """Sees all runs of an agent."""

    def begins(self, call: Call, run: Run, /) -> RunWitness:
        """A run begins; before it has a session, and before its first event."""
        ...
