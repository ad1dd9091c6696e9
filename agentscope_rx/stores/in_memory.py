"""A store that lives and dies with the process."""

from __future__ import annotations

import threading

from agentscope_rx.errors import StateConflict
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import ABSENT, Stored


class InMemoryStore:
    """Keeps states in a dict; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[SessionKey, Stored] = {}

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key."""
        return self._states.get(key)

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        """Store a state in the place of the version that the caller knows."""
        with self._lock:
            known = self._states.get(key)
            version = ABSENT if known is None else known.version
            if version != expected_version:
                raise conflict(key, expected_version, version)
            self._states[key] = Stored(body, version + 1)
            return version + 1


def conflict(key: SessionKey, expected: int, found: int) -> StateConflict:
    """The error of a `put` that came too late."""
    return StateConflict(
        f"session {key.session_id!r} was changed by somebody else: version {found} is stored, {expected} was "
        "expected; nothing was overwritten. Make the call again to go on from the stored state"
    )
