"""From any Observable to `async for`, `await`, a plain `for` and a blocking call."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable
from reactivex.internal.exceptions import SequenceContainsNoElementsError
from reactivex.scheduler import CurrentThreadScheduler

from agentscope_rx.bridge import Scope, Valve, leave, run_scheduler, running_loop
from agentscope_rx.errors import BufferOverflow
from agentscope_rx.logs import logger
from agentscope_rx.portal import PORTAL, refuse_running_loop

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Overflow: TypeAlias = Literal["pause", "error", "drop_oldest", "drop_newest"]


class _Pull(Generic[T]):
    """One subscription that is pulled from: a bounded buffer between a source and its consumer."""

    def __init__(self, source: Observable[T], maxsize: int, overflow: Overflow) -> None:
        self._loop = asyncio.get_running_loop()
        self._maxsize, self._overflow = maxsize, overflow
        self._valve = Valve()
        self._scope = Scope()
        self._subscription = SingleAssignmentDisposable()
        self._waiter: asyncio.Future[None] | None = None
        self.buffer: deque[T] = deque()
        self.done = False
        self.error: Exception | None = None
        self._subscribe(source)

    def _subscribe(self, source: Observable[T]) -> None:
        def start(_: abc.SchedulerBase, __: Any = None) -> None:
            self._subscription.disposable = source.subscribe(
                self._on_next, self._finish, self._finish, scheduler=run_scheduler(None)
            )

        tokens = (self._scope.enter(), self._valve.enter())
        try:
            # Inside a trampoline subscribe() returns before a synchronous source emits, so that an overflow can
            # dispose it.
            CurrentThreadScheduler.singleton().ensure_trampoline(start)
        finally:
            for token in reversed(tokens):
                leave(token)

    def _on_next(self, value: T) -> None:
        if self.done:
            return
        if len(self.buffer) >= self._maxsize:
            if self._overflow == "error":
                self._finish(BufferOverflow(f"the consumer fell {self._maxsize} items behind; take a larger maxsize"))
                self._subscription.dispose()
                return
            if self._overflow == "drop_newest":
                return
            if self._overflow == "drop_oldest":
                self.buffer.popleft()
        self.buffer.append(value)
        if self._overflow == "pause" and len(self.buffer) >= self._maxsize:
            self._valve.closed = True
        self._wake()

    def _finish(self, error: Exception | None = None) -> None:
        if not self.done:  # the first end counts: an overflow, then the completion that follows it
            self.done, self.error = True, error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> T:
        value = self.buffer.popleft()
        if self._valve.closed and len(self.buffer) <= self._maxsize // 2:
            self._valve.open()
        return value

    async def more(self) -> bool:
        """Wait until something can be taken; False at the end."""
        while not self.buffer:
            if self.done:
                if self.error is not None:
                    raise self.error
                return False
            self._waiter = self._loop.create_future()
            await self._waiter
        return True

    async def close(self) -> None:
        """Leave, and wait until everything that was started below has ended."""
        self._subscription.dispose()
        self._valve.open()
        await self._scope.join()


async def iterate(
    source: Observable[T], *, maxsize: int = 256, overflow: Overflow = "pause"
) -> AsyncGenerator[T, None]:
    """Pull from an Observable.

        --a--b--#
        iterate
        --a--b--#

        -(abc)-----|
        iterate     overflow="drop_oldest", maxsize=2, the consumer takes 2 s for each
        -b-c-------|

    Args:
        source: Any Observable; subscribed when the first item is asked for.
        maxsize: How many items may wait.
        overflow: What happens when more come: `pause` holds up the source, down to the connection it reads from;
            `error` raises; `drop_oldest` and `drop_newest` lose items.

    Raises:
        BufferOverflow: The consumer fell behind, with `overflow="error"`.

    Leaving the loop disposes the subscription; `aclose()` returns when all that was started below has ended. Use
    `contextlib.aclosing` where that moment matters.
    """
    pull = _Pull(source, maxsize, overflow)
    try:
        while await pull.more():
            yield pull.take()
    finally:
        await pull.close()


async def last(source: Observable[T]) -> T:
    """Wait for the last item of an Observable.

        --a--b----|
        last
        ----------(b|)

        --a--b----#
        last     it fails
        ----------#

    When the waiting task is cancelled the subscription is disposed at once, and the cancellation goes on when all
    that was started below has ended.

    Raises:
        SequenceContainsNoElementsError: It ended without an item.
    """
    value: list[T] = []
    pull = _Pull(source, 1, "drop_oldest")
    try:
        while await pull.more():
            value[:] = [pull.take()]
    finally:
        await pull.close()
    if not value:
        raise SequenceContainsNoElementsError
    return value[0]


def block(source: Observable[T]) -> T:
    """Wait for the last item of an Observable on a thread without an event loop.

    Raises:
        RunningLoopError: This thread runs an event loop.
    """
    return PORTAL.call(lambda: last(source))


def pull_blocking(source: Observable[T], *, maxsize: int = 256) -> Iterator[T]:
    """Pull from an Observable on a thread without an event loop; a slow consumer holds up the source.

    Raises:
        RunningLoopError: This thread runs an event loop.
    """
    refuse_running_loop()

    async def start() -> _Pull[T]:
        return _Pull(source, maxsize, "pause")

    pull = PORTAL.call(start)

    async def batch() -> list[T]:
        return [pull.take() for _ in range(len(pull.buffer))] if await pull.more() else []

    close = PORTAL.open(pull.close)
    try:
        while items := PORTAL.call(batch):
            yield from items
    finally:
        close()


def report_unhandled(error: Exception) -> None:
    """Log an error that no subscriber handles, and hand it to the loop's exception handler."""
    logger().error("unhandled_stream_error", error=type(error).__name__, exc_info=error)
    loop = running_loop()
    if loop is not None:
        loop.call_exception_handler(
            {"message": "a stream failed and its subscriber has no on_error", "exception": error}
        )


class Stream(Observable[T_co]):
    """An Observable that can also be iterated, awaited and, outside an event loop, run.

    Args:
        source: What it is a stream of; cold: each subscription starts it anew.
        label: What it is called in the warning that comes when it is never used.
    """

    def __init__(self, source: Observable[T_co], *, label: str = "") -> None:
        super().__init__()
        self._source = source
        self._label = label

    def _subscribe_core(
        self, observer: abc.ObserverBase[T_co], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        self._label = ""
        return self._source.subscribe(observer, scheduler=scheduler)

    def subscribe(
        self,
        on_next: abc.ObserverBase[T_co] | abc.OnNext[T_co] | None = None,
        on_error: abc.OnError | None = None,
        on_completed: abc.OnCompleted | None = None,
        *,
        scheduler: abc.SchedulerBase | None = None,
    ) -> abc.DisposableBase:
        """Subscribe as with any Observable; an error that nobody handles is logged and goes to the loop's handler."""
        if on_error is None and not hasattr(on_next, "on_error"):
            on_error = report_unhandled
        return super().subscribe(on_next, on_error, on_completed, scheduler=scheduler)

    def __aiter__(self) -> AsyncGenerator[T_co, None]:
        self._label = ""
        return iterate(self)

    def __await__(self) -> Generator[Any, None, T_co]:
        self._label = ""
        return last(self).__await__()

    def __iter__(self) -> Iterator[T_co]:
        self._label = ""
        return pull_blocking(self)

    def run(self, scheduler: abc.SchedulerBase | None = None) -> T_co:
        """Wait for the last item on a thread without an event loop.

        Args:
            scheduler: Accepted for the sake of the stock signature; a run keeps to its loop.

        Raises:
            RunningLoopError: This thread runs an event loop.
        """
        self._label = ""
        return block(self)

    def __del__(self) -> None:
        if getattr(self, "_label", ""):
            warnings.warn(
                f"{self._label} was made but never subscribed, awaited or iterated: nothing has run",
                RuntimeWarning,
                stacklevel=2,
            )

    if not TYPE_CHECKING:  # an override of all the stock overloads is refused by type checkers

        def pipe(self, *operators: Callable[[Any], Any]) -> Any:
            """Compose operators; a plain Observable that comes out can be iterated and awaited as well."""
            self._label = ""
            piped = super().pipe(*operators)
            return Stream(piped) if type(piped) is Observable else piped
