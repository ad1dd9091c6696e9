"""What a store can keep beside sessions: bytes by name, for who builds something of them, such as a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from agentscope_rx.errors import StateConflict
from agentscope_rx.stores.store import Stored


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by space and name, each with a version that grows by one with each change.

    Names are the caller's own, of up to 160 characters of ASCII. `list`, `prune` and `delete` of sessions leave blobs
    alone. Every verb may raise `StoreUnavailable`.
    """

    async def get_blob(self, space: str, name: str, /) -> Stored | None:
        """What is stored under a name; None where nothing is."""
        ...

    async def get_blobs(self, space: str, names: Sequence[str], /) -> Mapping[str, Stored]:
        """What is stored under several names, in one request; names under which nothing is are left out.

        Args:
            space: Whose they are.
            names: The names: as many as may be held in memory at once, with what is under them.
        """
        ...

    async def blob_version(self, space: str, name: str, /) -> int:
        """Its version without its bytes; 0 where there is nothing."""
        ...

    async def put_blob(self, space: str, name: str, body: bytes, /, *, expected_version: int) -> int:
        """Store bytes in the place of the version that the caller knows.

        Args:
            space: Whose it is.
            name: The name.
            body: The bytes.
            expected_version: The version that is there; 0 for nothing.

        Returns:
            The new version.

        Raises:
            StateConflict: Another version is there; nothing was changed.
        """
        ...

    async def delete_blobs(self, space: str, names: Sequence[str], /) -> None:
        """Remove blobs, those too that are not there."""
        ...


def blob_conflict(name: str, expected: int) -> StateConflict:
    """The error of a `put_blob` that came too late."""
    return StateConflict(f"the blob {name!r} was changed by somebody else: it has another version than {expected}")
