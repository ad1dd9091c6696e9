"""The hot form of a run: one run, any number of watchers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from agentscope_rx.bridge import Scope, Valve, leave, running_loop
from agentscope_rx.errors import InvalidOption, SourceCancelled
from agentscope_rx.events import Event
from agentscope_rx.logs import logger
from agentscope_rx.portal import subscribe_on_loop
from agentscope_rx.pulling import Stream


class SharedRun(Stream[Event]):
    """One run, which starts with its first watcher or by `start()`.

    A watcher that raises is dropped and logged; the others, and the run, go on. Leaving does not stop the run:
    `cancel()` does. All watchers belong on the event loop on which the run was started.

    Args:
        source: The run, cold.
        history: How many events are kept for those who come late; None = all.
    """

    def __init__(self, source: Observable[Event], *, history: int | None) -> None:
        if history is not None and history < 0:
            raise InvalidOption("history", history, "a number of events, or None for all")
        super().__init__(source)
        self._kept: deque[Event] = deque(maxlen=history)
        self._watchers: dict[object, abc.ObserverBase[Event]] = {}
        self._end: Callable[[abc.ObserverBase[Event]], None] | None = None
        self._scope = Scope()
        self._subscription: SingleAssignmentDisposable | None = None

    def start(self) -> SharedRun:
        """Start the run, if it has not begun."""
        if self._subscription is None:
            self._subscription = subscription = SingleAssignmentDisposable()
            tokens = (self._scope.enter(), Valve().enter())  # the run belongs to no watcher, and none holds it up
            try:
                subscription.disposable = self._source.subscribe(
                    self._publish,
                    lambda error: self._finish(lambda watcher: watcher.on_error(error)),
                    lambda: self._finish(lambda watcher: watcher.on_completed()),
                )
            finally:
                for token in reversed(tokens):
                    leave(token)
        return self

    def cancel(self) -> None:
        """Stop the run; every watcher gets a `SourceCancelled`."""
        if self._end is None:
            self._subscription = self._subscription or SingleAssignmentDisposable()  # or else it never begins
            self._subscription.dispose()
            error = SourceCancelled("the shared run was cancelled")
            self._finish(lambda watcher: watcher.on_error(error))

    async def wait_closed(self) -> None:
        """Wait until everything that the run started has ended."""
        await self._scope.join()

    def _subscribe_core(
        self, observer: abc.ObserverBase[Event], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        return subscribe_on_loop(lambda: self._watch(observer))

    def _watch(self, observer: abc.ObserverBase[Event]) -> abc.DisposableBase:
        key = object()
        self._watchers[key] = observer

        def leave_run() -> None:
            self._watchers.pop(key, None)

        for event in tuple(self._kept):
            if key in self._watchers:  # it may have raised
                self._tell(key, partial(observer.on_next, event))
        if self._end is None:
            self.start()
        elif key in self._watchers:
            self._tell(key, partial(self._end, observer))
            leave_run()
        return Disposable(leave_run)

    def _publish(self, event: Event) -> None:
        self._kept.append(event)
        for key, watcher in tuple(self._watchers.items()):
            self._tell(key, partial(watcher.on_next, event))

    def _finish(self, end: Callable[[abc.ObserverBase[Event]], None]) -> None:
        if self._end is None:
            self._end = end
            for key, watcher in tuple(self._watchers.items()):
                self._tell(key, partial(end, watcher))
            self._watchers.clear()

    def _tell(self, key: object, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception as error:
            self._watchers.pop(key, None)
            logger().warning("watcher_failed", error=type(error).__name__)
            loop: asyncio.AbstractEventLoop | None = running_loop()
            if loop is not None:
                loop.call_exception_handler({"message": "a watcher of a shared run raised", "exception": error})
