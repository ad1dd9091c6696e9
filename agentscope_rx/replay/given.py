"""What is outside of a run, for a preparation that repeats one of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from agentscope_rx.errors import RunError
from agentscope_rx.inbox import QueuedInput
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.replay.codecs import reached_from
from agentscope_rx.requests import Model
from agentscope_rx.step import Step

C = TypeVar("C")
T = TypeVar("T")
#: How the names of sources begin.
SOURCE: Final = "source/"
_NOTHING: Final[Mapping[str, Any]] = {"blocks": [], "failure": None}


class Given:
    """The world outside of a preparation, which gives what it gave.

    Args:
        reached: What that is, by name.
        ask: Whether it is asked now for what is not known. Default True; else a source gives nothing.

    Attributes:
        unknown: What was not known.
    """

    def __init__(self, reached: Mapping[str, object], *, ask: bool = True) -> None:
        self._reached, self._ask = reached, ask
        self.unknown: list[str] = []

    def model_for(self, step: Step, /) -> Model:
        """The model of the step, which nobody asks."""
        return step.card.model

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What was given."""
        if name in self._reached:
            return cast("T", self._reached[name])
        self.unknown.append(name)
        if not self._ask and name.startswith(SOURCE):
            return cast("T", reached_from(name, _NOTHING))
        return await work()

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """No tool runs in a preparation.

        Raises:
            RunError: Always.
        """
        raise RunError(f"{call.name} was to run in a preparation")

    async def keep(self, work: Callable[[], Awaitable[T]], /) -> T:
        """A preparation has a session of its own."""
        return await work()

    def inputs(self, waiting: Sequence[QueuedInput], /) -> Sequence[QueuedInput]:
        """A preparation takes nothing in."""
        return ()
