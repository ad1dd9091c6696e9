"""Between asyncio and Rx: coroutines and async iterators as cold Observables, and the scheduler of every run.

One subscription is one task, which pulls, delivers and closes, all in one context. Disposing a subscription asks
for the end of its task; a `Scope` waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from contextvars import ContextVar, Token, copy_context
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

from reactivex import Observable, abc, typing
from reactivex.scheduler import CurrentThreadScheduler, VirtualTimeScheduler
from reactivex.scheduler.eventloop import AsyncIOScheduler

from agentscope_rx.errors import SourceCancelled

S = TypeVar("S")
T = TypeVar("T")
L = TypeVar("L", bound="Scope | Valve")


# -- tasks that belong to somebody --------------------------------------------------------------------------


class Scope:
    """The tasks that were started on behalf of one consumer or run; leaving the block waits for them.

    Examples:
        >>> async def main() -> int:
        ...     async with Scope() as scope:
        ...         scope.start(asyncio.sleep(0))
        ...     return len(scope.tasks)
        >>> asyncio.run(main())
        0
    """

    __slots__ = ("_token", "loop", "tasks")

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task of this scope."""
        return self.add(asyncio.get_running_loop().create_task(work))

    def add(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Make a task belong to this scope."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def join(self) -> None:
        """Wait until no task is left, whatever became of them."""
        me = asyncio.current_task()
        while others := self.tasks - {me}:
            await asyncio.wait(others)

    def enter(self) -> Token[Scope | None]:
        """Let sources that are subscribed from now on, in this context and loop, belong to this scope."""
        self.loop = running_loop()
        return _scope.set(self)

    async def __aenter__(self) -> Self:
        self._token = self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._token)
        await self.join()


class Valve:
    """Lets a slow consumer hold up the sources it pulls from.

    A source looks up the valve when it is subscribed, and waits at it after each item while it is closed.
    """

    __slots__ = ("_waiting", "closed", "loop")

    def __init__(self) -> None:
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def enter(self) -> Token[Valve | None]:
        """Let sources that are subscribed from now on, in this context and loop, wait at this valve."""
        self.loop = running_loop()
        return _valve.set(self)

    def open(self) -> None:
        """Let the sources go on."""
        self.closed = False
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def passed(self) -> None:
        """Wait until the valve is open."""
        while self.closed:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting


_scope: ContextVar[Scope | None] = ContextVar("agentscope_rx_scope", default=None)
_valve: ContextVar[Valve | None] = ContextVar("agentscope_rx_valve", default=None)
_ORPHANS: Final = Scope()  # the loop holds tasks weakly; those of a bare subscribe() are held here


def leave(token: Token[Any]) -> None:
    """Undo an `enter()`."""
    token.var.reset(token)


def current_scope() -> Scope:
    """The scope of this context."""
    return _of_this_loop(_scope.get()) or _ORPHANS


def _of_this_loop(found: L | None) -> L | None:
    """Threads inherit a context, and with it what belongs to another loop: that cannot wait for tasks of this one."""
    return found if found is not None and found.loop in (None, running_loop()) else None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- sources ------------------------------------------------------------------------------------------------


class SourceTask(abc.DisposableBase, Generic[T]):
    """One subscription of a bridged source."""

    __slots__ = ("_closing", "_delivering", "_loop", "_observer", "_task", "closed", "valve")

    def __init__(self, body: Callable[[SourceTask[T]], Awaitable[None]], observer: abc.ObserverBase[T]) -> None:
        self.closed = self._delivering = self._closing = False
        self.valve = _of_this_loop(_valve.get())
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._task = current_scope().start(self._run(body))

    def emit(self, value: T) -> None:
        """Hand one item on."""
        self._delivering = True
        try:
            self._observer.on_next(value)
        finally:
            self._delivering = False

    def when_done(self, tell: Callable[[], object]) -> None:
        """Tell somebody when the task has ended, however it did."""
        self._task.add_done_callback(lambda _: tell())

    async def close(self, source: AsyncGenerator[T, None]) -> None:
        """Close the generator behind this source; a dispose that comes meanwhile does not disturb it."""
        self._closing = True
        await source.aclose()

    async def _run(self, body: Callable[[SourceTask[T]], Awaitable[None]]) -> None:
        error: Exception | None = None
        cancelled = False
        try:
            await body(self)
        except asyncio.CancelledError:
            if self.closed:
                return
            error, cancelled = SourceCancelled("the task behind this stream was cancelled"), True
        except Exception as failure:
            error = failure
        self._end(error)
        if cancelled:
            raise asyncio.CancelledError

    def _end(self, error: Exception | None) -> None:
        self._delivering = True
        try:
            if self.closed:
                if error is not None:
                    raise error  # it failed while being closed: nobody listens any more
            elif error is not None:
                self._observer.on_error(error)
            else:
                self._observer.on_completed()
        except Exception as failure:
            self._loop.call_exception_handler(
                {
                    "message": "unhandled error at the end of a stream",
                    "exception": failure,
                    "source": self._task,  # as "task" the handler would run in its context, which is entered already
                }
            )

    def dispose(self) -> None:
        """Ask for the end: from outside the task is cancelled, from inside its own `on_next` it ends by itself."""
        if self.closed:
            return
        self.closed = True
        here = running_loop()
        if here is not self._loop:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._cancel)
        elif not (self._delivering and asyncio.current_task() is self._task):
            self._cancel()

    def _cancel(self) -> None:
        if not self._closing:
            self._task.cancel()


def from_aiter(factory: Callable[[], AsyncIterable[T]]) -> Observable[T]:
    """An Observable of what an async iterator gives.

        --a--b-#
        from_aiter
        --a--b-#

    Args:
        factory: Called once per subscription. An async generator is closed when the subscription ends, in the
            task in which it ran.
    """

    async def body(subscription: SourceTask[T]) -> None:
        source = aiter(factory())
        try:
            async for value in source:
                if subscription.closed:
                    return
                subscription.emit(value)
                if subscription.closed:
                    return
                if (valve := subscription.valve) is not None and valve.closed:
                    await valve.passed()
        finally:
            if isinstance(source, AsyncGenerator):
                await subscription.close(cast("AsyncGenerator[T, None]", source))

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        return SourceTask(body, observer)

    return Observable(subscribe)


def from_coroutine(factory: Callable[[], Awaitable[T]]) -> Observable[T]:
    """An Observable of the one value of a coroutine.

        ---(a|)
        from_coroutine
        ---(a|)

    Args:
        factory: Called once per subscription, when its task begins.
    """

    async def body(subscription: SourceTask[T]) -> None:
        value = await factory()
        if not subscription.closed:
            subscription.emit(value)

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        return SourceTask(body, observer)

    return Observable(subscribe)


def from_awaitable(awaitable: Awaitable[S], then: Callable[[S], T]) -> Observable[T]:
    """An Observable of one value, made of that of an awaitable which exists already; to be subscribed once.

        ---(a|)
        from_awaitable
        ---(b|)         b is then(a)

    Args:
        awaitable: A coroutine is closed when the subscription ends before it has begun.
        then: Makes the value.
    """

    async def body(subscription: SourceTask[T]) -> None:
        value = then(await awaitable)
        if not subscription.closed:
            subscription.emit(value)

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        task = SourceTask(body, observer)
        if isinstance(awaitable, Coroutine):
            task.when_done(awaitable.close)
        return task

    return Observable(subscribe)


# -- time ---------------------------------------------------------------------------------------------------


class LoopScheduler(AsyncIOScheduler):
    """Immediate work stays on this thread's trampoline, in the caller's context; time is the loop's clock."""

    @property
    def now(self) -> datetime:
        """The loop's time."""
        return self.to_datetime(self._loop.time())

    def schedule(self, action: typing.ScheduledAction[Any], state: Any = None) -> abc.DisposableBase:
        """Run `action` on the trampoline."""
        context = copy_context()

        def in_context(scheduler: abc.SchedulerBase, state: Any = None) -> abc.DisposableBase | None:
            return context.run(action, scheduler, state)

        return CurrentThreadScheduler.singleton().schedule(in_context, state)

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: typing.ScheduledAction[Any], state: Any = None
    ) -> abc.DisposableBase:
        """Run `action` later; a time that is over goes through the loop once, so that timers cannot recurse."""
        if self.to_seconds(duetime) <= 0:
            return super().schedule(action, state)
        return super().schedule_relative(duetime, action, state)


def run_scheduler(given: abc.SchedulerBase | None) -> abc.SchedulerBase:
    """The scheduler of a run: the given one if it follows the loop's time or a test's, else one that does."""
    if isinstance(given, LoopScheduler | VirtualTimeScheduler):
        return cast(abc.SchedulerBase, given)
    return LoopScheduler(asyncio.get_running_loop())
