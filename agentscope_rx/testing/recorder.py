"""What an Observable gave and when, for tests.

recorded = await record(source).ended()
assert recorded.signals == [(0.0, "next", "a"), (1.5, "error", TimeoutError("no answer"))]
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar, cast

from reactivex import Observable
from reactivex.disposable import SingleAssignmentDisposable

from agentscope_rx.bridge import LoopScheduler

T = TypeVar("T")
Kind: TypeAlias = Literal["next", "error", "completed"]
_DIGITS: Final = 9  # below that, times are rounding errors of the loop's clock


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """One thing that an Observable said. It equals another one, or a tuple of the three; errors by type and text.

    Args:
        time: Seconds since it was subscribed, on the loop's clock.
        kind: `next`, `error` or `completed`.
        value: The item or the error; None at completion.
    """

    time: float
    kind: Kind
    value: object = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Signal):
            other = (other.time, other.kind, other.value)
        if not isinstance(other, tuple) or len(cast("tuple[object, ...]", other)) != 3:
            return False
        time, kind, value = cast("tuple[object, object, object]", other)
        return (self.time, self.kind, _comparable(self.value)) == (time, kind, _comparable(value))

    __hash__ = None  # type: ignore[assignment]


def _comparable(value: object) -> object:
    return (type(value), str(value)) if isinstance(value, Exception) else value


class Recorded(Generic[T]):
    """One subscription, and what it has given so far.

    Attributes:
        signals: Everything, in order.
    """

    def __init__(self, source: Observable[T]) -> None:
        self.signals: list[Signal] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._ended = asyncio.Event()
        self._subscription = SingleAssignmentDisposable()
        self._subscription.disposable = source.subscribe(
            lambda value: self._note("next", value),
            lambda error: self._note("error", error),
            lambda: self._note("completed", None),
            scheduler=LoopScheduler(self._loop),
        )

    @property
    def values(self) -> list[T]:
        """The items."""
        return [cast(T, signal.value) for signal in self.signals if signal.kind == "next"]

    @property
    def error(self) -> Exception | None:
        """The error that it ended with; None where there is none."""
        return next((cast(Exception, signal.value) for signal in self.signals if signal.kind == "error"), None)

    @property
    def kinds(self) -> list[Kind]:
        """What sort of signal came, in order."""
        return [signal.kind for signal in self.signals]

    async def ended(self) -> Recorded[T]:
        """Wait for its end, good or bad."""
        await self._ended.wait()
        return self

    def dispose(self) -> None:
        """Leave."""
        self._subscription.dispose()

    def _note(self, kind: Kind, value: object) -> None:
        self.signals.append(Signal(round(self._loop.time() - self._began, _DIGITS), kind, value))
        if kind != "next":
            self._ended.set()


def record(source: Observable[T]) -> Recorded[T]:
    """Subscribe here and now, on the running loop, and take down what comes.

    Args:
        source: Any Observable.

    Examples:
        >>> async def main() -> list[object]:
        ...     return (await record(reactivex.timer(60).pipe(ops.map(str))).ended()).signals
        >>> run_virtual(main)
        [Signal(time=60.0, kind='next', value='0'), Signal(time=60.0, kind='completed', value=None)]
    """
    return Recorded(source)
