"""How a run reaches what is outside of it: models, tools, sources, materials.

Every effect of a run passes here, once a call and never once a token. A recording puts itself between, and a replay
in the place of what is outside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from agentscope_rx.inbox import QueuedInput
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.requests import Model

if TYPE_CHECKING:
    from agentscope_rx.step import Step

C = TypeVar("C")
T = TypeVar("T")


class Outside(Protocol):
    """The way to what is outside of a run."""

    def model_for(self, step: Step, /) -> Model:
        """The model that answers the request of a step.

        Args:
            step: The step, its request prepared.
        """
        ...

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What comes of anything else that is done outside.

        Args:
            name: What it is: `source/<name>`, `materials`, `attachment/<name>`, `file/<path>` for one that is
                written, `old files`, `command` for what the session was told to do.
            work: Does it.
        """
        ...

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """What becomes of a tool call.

        Args:
            call: The call.
            context: What the tool is told.
            run: Runs it.
        """
        ...

    async def keep(self, work: Callable[[], Awaitable[T]], /) -> T:
        """What a run does with its own session: a replay does it, too, and what came meanwhile comes meanwhile.

        Args:
            work: Opens, reads or writes the session.
        """
        ...

    def inputs(self, waiting: Sequence[QueuedInput], /) -> Sequence[QueuedInput]:
        """The messages that a step takes in, of those that others have sent to the session meanwhile.

        Args:
            waiting: Those that wait.
        """
        ...


class Direct:
    """Nothing stands between."""

    def model_for(self, step: Step, /) -> Model:
        """The step's own model."""
        return step.card.model

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """Do it."""
        return await work()

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """Run it."""
        return await run(context)

    async def keep(self, work: Callable[[], Awaitable[T]], /) -> T:
        """Do it."""
        return await work()

    def inputs(self, waiting: Sequence[QueuedInput], /) -> Sequence[QueuedInput]:
        """All of them."""
        return waiting
