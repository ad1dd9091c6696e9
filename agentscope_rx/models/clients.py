"""HTTP clients, a few for each event loop."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Generic, TypeVar

C = TypeVar("C")
_REQUESTS_PER_CLIENT: Final = 16


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
