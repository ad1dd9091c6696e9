"""Clients of event loops: made on first use, closed with their loop."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")
_REQUESTS_PER_CLIENT: Final = 16


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


class Pools(Generic[C]):
    """Several clients of one loop, each for a few requests at a time.

    A client looks at all its idle connections whenever a request begins or ends, so one client for a thousand
    sessions would look a million times. Requests that follow one another share the first client and its connection.

    Args:
        make: Makes a client.
        close: Closes one.
    """

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[object]]) -> None:
        self._make, self._close = make, close
        self._pools: list[_Pool[C]] = []

    @contextmanager
    def client(self) -> Generator[C, None, None]:
        """A client for one request."""
        pool = next((each for each in self._pools if each.busy < _REQUESTS_PER_CLIENT), None)
        if pool is None:
            pool = _Pool(self._make())
            self._pools.append(pool)
        pool.busy += 1
        try:
            yield pool.client
        finally:
            pool.busy -= 1

    async def close(self) -> None:
        """Close all clients."""
        for pool in self._pools:
            await self._close(pool.client)


@dataclass(slots=True)
class _Pool(Generic[C]):
    """A client, and how many requests it has."""

    client: C
    busy: int = 0


def http_module() -> Any:
    """The HTTP library that is installed: httpx2, else httpx."""
    return import_module("httpx2" if find_spec("httpx2") else "httpx")


@cache
def tls_context() -> ssl.SSLContext:
    """What connections are checked with; it belongs to no loop, and making one takes as long as a request."""
    return http_module().create_ssl_context()


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
