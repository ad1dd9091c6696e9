"""Being told by PostgreSQL that a log has grown: one connection of an event loop listens for all its sessions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

#: What all stores tell of; the message is the digest of the session.
CHANNEL: Final = "agentscope_rx_log"


async def tell(connection: AsyncConnection, session: str) -> None:
    """Tell of a session, when the transaction is committed."""
    await connection.execute(select(func.pg_notify(CHANNEL, session)))


class Listener:
    """What one event loop hears.

    Args:
        engine: Where its connection comes from; it is kept as long as somebody waits.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._connecting = asyncio.Lock()
        self._driver: Any = None

    async def wait(self, heard: asyncio.Event, timeout: float) -> None:
        """Wait until somebody tells of a session, the connection is lost, or the time is over."""
        try:
            async with asyncio.timeout(timeout):
                await heard.wait()
        except TimeoutError:
            return

    async def begin(self, session: str) -> asyncio.Event:
        """Hear of a session from now on; it is forgotten with `end`."""
        heard = asyncio.Event()
        self._waiting[session].add(heard)
        try:
            await self._listen()
        except BaseException:
            self.end(session, heard)
            raise
        return heard

    def end(self, session: str, heard: asyncio.Event) -> None:
        """Hear no more of a session."""
        self._waiting[session].discard(heard)
        if not self._waiting[session]:
            del self._waiting[session]

    async def close(self) -> None:
        """Give the connection back."""
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    async def _listen(self) -> None:
        async with self._connecting:
            if self._driver is not None and not self._driver.is_closed():
                return
            connection = await self._engine.raw_connection()
            driver: Any = connection.driver_connection
            connection.detach()  # from the pool: it listens, and nobody else may have it
            await driver.add_listener(CHANNEL, self._heard)
            driver.add_termination_listener(self._lost)
            self._driver = driver

    def _heard(self, _connection: Any, _pid: int, _channel: str, session: str) -> None:
        for waiting in self._waiting.get(session, ()):
            waiting.set()

    def _lost(self, _connection: Any) -> None:
        for session in self._waiting.values():
            for waiting in session:
                waiting.set()
