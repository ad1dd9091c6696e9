"""Work that must not be left half done: what is cancelled meanwhile ends when the work has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """Await what has to end before its caller does; a cancellation meanwhile is raised afterwards.

    Args:
        work: A coroutine, which becomes a task, or a future: of a thread, say, which goes on in any case.
    """
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # nobody is left to be told
    raise cancelled
