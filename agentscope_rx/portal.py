"""One event loop in the background, for threads that have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from importlib import import_module
from typing import Any, Final, TypeVar

from reactivex import abc
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from agentscope_rx.bridge import running_loop
from agentscope_rx.errors import RunningLoopError

T = TypeVar("T")
_NAME: Final = "agentscope-rx-portal"
_GRACE: Final = 5.0  # seconds that an interrupted call gets to clean up


class Portal:
    """A loop in a daemon thread, started on first use and kept for the life of the process.

    Blocking calls go through it, never through `asyncio.run`: connections that one call opened would be bound to a
    loop that the next call no longer has.
    """

    def __init__(self) -> None:
        self._begin()
        _before_threads_end(self._at_exit)
        if hasattr(os, "register_at_fork"):  # a forked process inherits the loop without its thread
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[object, Callable[[], Coroutine[Any, Any, None]]] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The background loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name=_NAME, daemon=True).start()
            return self._loop

    @property
    def started(self) -> asyncio.AbstractEventLoop | None:
        """The background loop; None where nobody has used it yet."""
        return self._loop

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the background loop and wait for it here.

        Args:
            work: Makes the coroutine. It is cancelled, and waited for, when the waiting is interrupted.

        Raises:
            RunningLoopError: This thread runs an event loop, which waiting would block.
        """
        refuse_running_loop()
        ended = threading.Event()

        async def supervised() -> T:
            try:
                return await work()
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(supervised(), self.loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                ended.wait(_GRACE)
            raise

    def open(self, close: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Keep something open that a last coroutine closes.

        Args:
            close: Makes the coroutine.

        Returns:
            Closes it, once, and waits for that unless this thread runs a loop, as it may where the collector calls.
            What is still open when the interpreter exits is closed then, while the background loop lives.
        """
        key = object()
        self._open[key] = close

        def closed() -> None:
            if self._open.pop(key, None) is None:
                return
            if running_loop() is None:
                self.call(close)
            else:
                asyncio.run_coroutine_threadsafe(close(), self.loop)

        return closed

    def _at_exit(self) -> None:
        if self._loop is None:
            return
        closing, self._open = self._open, {}
        ends = [asyncio.run_coroutine_threadsafe(close(), self._loop) for close in closing.values()]
        wait(ends, timeout=_GRACE)
        # As `asyncio.run` does at its end: what belongs to the loop, such as connections, is closed with it.
        wait([asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop)], timeout=_GRACE)


def _before_threads_end(callback: Callable[[], None]) -> None:
    """Call back at the exit of the interpreter, while thread pools still take work; `atexit` would be too late."""
    import_module("concurrent.futures.thread")  # what was registered before it has its turn after the pools have ended
    getattr(threading, "_register_atexit", atexit.register)(callback)


PORTAL: Final = Portal()


def refuse_running_loop() -> None:
    """Raise `RunningLoopError` on a thread that runs an event loop."""
    if running_loop() is not None:
        raise RunningLoopError(
            "this thread runs an event loop, which a blocking call would stop; write `await ...` or `async for ...`"
        )


def subscribe_on_loop(subscribe: Callable[[], abc.DisposableBase]) -> abc.DisposableBase:
    """Subscribe here if a loop runs here, else on the background loop; dispose works from anywhere."""
    if running_loop() is not None:
        return subscribe()
    loop = PORTAL.loop
    inner = SingleAssignmentDisposable()
    left = False

    def start() -> None:
        if not left:
            inner.disposable = subscribe()

    def stop() -> None:
        nonlocal left
        left = True
        loop.call_soon_threadsafe(inner.dispose)

    loop.call_soon_threadsafe(start)
    return Disposable(stop)
