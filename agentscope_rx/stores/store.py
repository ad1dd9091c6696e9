"""What a store must do: two verbs, and no lost update."""

from __future__ import annotations

from typing import Final, Protocol

from agentscope_rx.frozen import frozen
from agentscope_rx.stores.keys import SessionKey

#: The version of what is not there yet.
ABSENT: Final = 0


@frozen(kw_only=False)
class Stored:
    """What a store holds under a key.

    Args:
        body: The state as JSON.
        version: From 1; one more with each `put`.
    """

    body: bytes
    version: int


class StateStore(Protocol):
    """Keeps one state per session. Nothing in it may belong to an event loop.

    Stores that keep the same states are equal and have the same hash: runs of one session take turns where their
    stores are equal.
    """

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key; None where there is nothing.

        Raises:
            StateUnreadable: There is something, and it cannot be read.
        """
        ...

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        """Store a state in the place of the version that the caller knows.

        Args:
            key: The session.
            body: The state as JSON.
            expected_version: What `get` gave; 0 = there was nothing.

        Returns:
            The new version.

        Raises:
            StateConflict: Somebody else stored another version; nothing was changed.
        """
        ...
