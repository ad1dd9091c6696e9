"""One client per event loop: made on first use, closed with its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

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
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None]]]
        self._kept = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def get(self) -> C:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            kept = self._kept.get(loop)
            if kept is not None:
                return kept[0]
            for old in [old for old in self._kept if old.is_closed()]:
                del self._kept[old]  # that loop ended without closing anything, and holds itself alive from here
            made = self._make()
            keeper = _closing(made, self._close, self._forget(loop))
            self._kept[loop] = made, keeper
        # The first step of a generator makes it known to the loop, which closes it at its own end. It does not
        # wait for anything, so that no other task comes in between.
        await anext(keeper)
        return made

    def _forget(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """What takes the entry of a loop out; it does not keep this object alive, which would never be closed."""
        kept, lock = ref(self._kept), self._lock

        def forget() -> None:
            entries = kept()
            if entries is not None:
                with lock:
                    entries.pop(loop, None)

        return forget


async def _closing(
    made: C, close: Callable[[C], Awaitable[object]], forget: Callable[[], None]
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        forget()
        await close(made)
