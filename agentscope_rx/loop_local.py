"""What belongs to one event loop, such as a pool of connections: made on first use, closed with its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")


class LoopLocal(Generic[C]):
    """Something that belongs to an event loop, such as a pool of connections; one for each loop that asks.

    It is closed when its loop shuts down its asynchronous generators, as `asyncio.run` and `asyncio.Runner` do
    at their end, or when this object is no longer used while the loop still runs. It may be used from several
    threads, each with its loop.

    Args:
        make: Makes one; called on the loop that it is for.
        close: Closes one.
    """

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[object]]) -> None:
        self._make = make
        self._close = close
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept[C]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def get(self) -> C:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            kept = self._kept.get(loop)
            if kept is not None and not kept.closing:
                return kept.made
            for old in [old for old in self._kept if old.is_closed()]:
                _OPEN.discard(self._kept.pop(old))  # the loop ended without closing anything
            kept = self._kept[loop] = _Kept(self._make(), self._close)
            _OPEN.add(kept)
        await kept.close_at_the_end()
        return kept.made

    def __del__(self) -> None:
        for loop, kept in list(self._kept.items()):
            kept.release(loop)


class _Kept(Generic[C]):
    """What one loop has."""

    def __init__(self, made: C, close: Callable[[C], Awaitable[object]]) -> None:
        self.made = made
        self._close = close
        self._closed: asyncio.Event | None = None
        self._keeper: AsyncGenerator[None] | None = None

    @property
    def closing(self) -> bool:
        return self._closed is not None

    async def close_at_the_end(self) -> None:
        """Have it closed with the running loop.

        The first step of an asynchronous generator makes it known to its loop, which closes it at its own end.
        The step waits for nothing, so that no other task comes in between.
        """
        self._keeper = _until_the_end(self)
        await anext(self._keeper)

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close it on its loop now, if that still runs; from any thread."""
        if not loop.is_closed() and not self.closing:
            try:
                loop.call_soon_threadsafe(lambda: _Unstoppable(self._close_early(), loop=loop))
            except RuntimeError:
                return  # the loop was closed in this moment

    async def close(self) -> None:
        """Close it once; who comes second waits for the first."""
        if self._closed is not None:
            await self._closed.wait()
            return
        self._closed = asyncio.Event()
        try:
            await self._close(self.made)
        finally:
            self._closed.set()
            _OPEN.discard(self)

    async def _close_early(self) -> None:
        await self.close()
        self._keeper = None


#: What is not closed yet. Connections that are collected together with their owner are dropped and not closed.
_OPEN: Final[set[_Kept[Any]]] = set()


async def _until_the_end(kept: _Kept[Any]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await kept.close()


class _Unstoppable(asyncio.Task[None]):
    """A task that a loop at its end waits for instead of cancelling it: half-closed is not closed."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False
