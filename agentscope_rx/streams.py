"""The way out of a run, and the loop that a run is."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SerialDisposable, SingleAssignmentDisposable
from reactivex.scheduler import CurrentThreadScheduler, NewThreadScheduler

from agentscope_rx.bridge import run_scheduler, running_loop
from agentscope_rx.errors import ConsumerFailed
from agentscope_rx.portal import refuse_running_loop, subscribe_on_loop

T = TypeVar("T")


class Sink(Generic[T]):
    """Where a run puts its events.

    Events leave in the order in which they came, on the run's thread and in the subscriber's context. Nothing
    leaves after the end or after dispose. A subscriber that raises has ended its own run: it gets one
    `ConsumerFailed`, the run is stopped, and no operator below takes the failure for its own.

    Args:
        observer: The subscriber.
        stop: Stops the run.
    """

    __slots__ = ("_context", "_loop", "_observer", "_stop", "_thread", "_waiting", "stopped")

    def __init__(self, observer: abc.ObserverBase[T], stop: Callable[[], None]) -> None:
        self._observer, self._stop = observer, stop
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._context = copy_context()
        self._waiting: deque[T] | None = None
        self.stopped = False

    def emit(self, value: T) -> None:
        """Hand one event to the subscriber; from another thread, on the run's loop as soon as it can."""
        if self.stopped:
            return
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.emit, value)
        elif self._waiting is not None:  # the subscriber itself made the run emit: after what it is busy with
            self._waiting.append(value)
        else:
            self._deliver(value)

    def _deliver(self, value: T) -> None:
        waiting: deque[T] = deque()
        self._waiting = waiting
        try:
            self._context.run(self._observer.on_next, value)
            while waiting and not self.stopped:
                self._context.run(self._observer.on_next, waiting.popleft())
        except Exception as failure:
            error = ConsumerFailed(
                f"a subscriber raised {type(failure).__name__} on {type(value).__name__}; its run was cancelled"
            )
            error.__cause__ = failure
            self.error(error)
        finally:
            self._waiting = None

    def error(self, error: Exception) -> None:
        """End with an error."""
        self._end(lambda: self._observer.on_error(error))

    def complete(self) -> None:
        """End well."""
        self._end(self._observer.on_completed)

    def _end(self, tell: Callable[[], None]) -> None:
        if self.stopped:
            return
        self.stopped = True
        try:
            # Told from inside a delivery the context is in use: a copy, since one cannot be entered twice.
            (self._context if self._waiting is None else self._context.copy()).run(tell)
        except Exception as failure:
            self._loop.call_exception_handler(
                {"message": "a subscriber raised at the end of a run", "exception": failure}
            )
        finally:
            self._stop()

    def dispose(self) -> None:
        """The subscriber left."""
        self.stopped = True
        self._stop()


def run_with_sink(work: Callable[[Sink[T]], Observable[Any]]) -> Observable[T]:
    """A cold Observable whose every subscription is one run.

        --a--b---|      what the work puts into its sink, until it ends
        run_with_sink
        --a--b---|

    Args:
        work: Starts the run; what it puts into its sink is what the subscriber sees, and the end of its Observable
            is the subscriber's end.

    Raises:
        RunningLoopError: A blocking `run()` on a thread whose event loop it would block.
    """

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        if isinstance(scheduler, NewThreadScheduler) and running_loop() is not None:
            refuse_running_loop()  # the stock run() brings this scheduler, and blocks

        def begin() -> abc.DisposableBase:
            running = SingleAssignmentDisposable()
            sink = Sink(observer, running.dispose)

            def start(_: abc.SchedulerBase, __: Any = None) -> None:
                try:
                    steps = work(sink)
                except Exception as error:  # raised here it would end in the loop that begins a run in the background
                    sink.error(error)
                    return
                running.disposable = steps.subscribe(
                    None, sink.error, sink.complete, scheduler=run_scheduler(scheduler)
                )

            CurrentThreadScheduler.singleton().ensure_trampoline(start)
            return Disposable(sink.dispose)

        return subscribe_on_loop(begin)

    return Observable(subscribe)


def loop(turn: Callable[[T], Observable[T]], seed: T, follow: Callable[[T], T | None]) -> Observable[T]:
    """Turn after turn, until `follow` says None.

        --x|            every turn
        loop
        --a--b--c|      until follow(c) says None

    One turn is alive at a time; the stack does not grow, whether turns are synchronous or not; each subscription
    starts from `seed`.

    Args:
        turn: One turn, as an Observable of its outcome.
        seed: What the first turn gets.
        follow: What the next turn gets, from the last item of the one before; None = no more.
    """

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        current = SerialDisposable()
        item, due, draining = seed, True, False

        def one_turn() -> None:
            outcome: list[T] = []

            def on_next(value: T) -> None:
                outcome[:] = [value]
                observer.on_next(value)

            def on_completed() -> None:
                nonlocal item, due
                try:
                    following = follow(outcome[0]) if outcome else None
                except Exception as error:  # raised here it would end in the task that has ended the turn
                    observer.on_error(error)
                    return
                if following is None:
                    observer.on_completed()
                else:
                    item, due = following, True
                    drain()

            turn_running = SingleAssignmentDisposable()
            current.disposable = turn_running
            turn_running.disposable = turn(item).subscribe(
                on_next, observer.on_error, on_completed, scheduler=scheduler
            )

        def drain() -> None:
            nonlocal due, draining
            if draining:
                return  # the turn ended inside its own subscribe: the loop below goes on
            draining = True
            try:
                while due and not current.is_disposed:
                    due = False
                    one_turn()
            except Exception as error:
                observer.on_error(error)
            finally:
                draining = False

        def begin(_: abc.SchedulerBase, __: Any = None) -> None:
            drain()

        # On the trampoline, so that what is returned here can dispose a loop that is synchronous throughout.
        (scheduler or CurrentThreadScheduler.singleton()).schedule(begin)
        return current

    return Observable(subscribe)
