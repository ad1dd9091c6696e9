"""Waiting for a log to grow."""

from __future__ import annotations

import asyncio
from typing import Final

from agentscope_rx.errors import StoreUnavailable
from agentscope_rx.logs import logger
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import SessionStore, WatchableStore

#: Seconds between two looks at a log whose store tells nobody that it has grown.
LOOK_EVERY: Final = 0.2
#: Seconds after which a store that waits is asked anew.
_ASKED_EVERY: Final = 20.0
_LATER: Final = 1.0


async def grown(store: SessionStore, key: SessionKey, seq: int) -> None:
    """Wait until the log of a session holds more than so many records.

    A store that cannot be reached is asked again.

    Args:
        store: Where it is kept.
        key: The session.
        seq: The number of the last record that is known.
    """
    while True:
        try:
            if await store.read_after(key, seq, limit=1):
                return
            if isinstance(store, WatchableStore):
                await store.watch(key, seq, timeout=_ASKED_EVERY)
            else:
                await asyncio.sleep(LOOK_EVERY)
        except StoreUnavailable as error:
            logger().warning("log_not_watched", session=key.session_id, error=type(error).__name__)
            await asyncio.sleep(_LATER)
