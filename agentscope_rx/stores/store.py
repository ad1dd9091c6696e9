"""What a store must do: one state and one log per session, one holder at a time, and no lost update."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from agentscope_rx.frozen import frozen
from agentscope_rx.stores.keys import SessionKey

#: The version of what is not there yet, and the number of the last record of an empty log.
ABSENT: Final = 0


class Anybody(Enum):
    """A user id that stands for all; None already means the sessions that are nobody's."""

    ANYBODY = "anybody"


ANYBODY: Final = Anybody.ANYBODY


@frozen(kw_only=False)
class Stored:
    """What a store holds under a key.

    Args:
        body: The state as JSON.
        version: From 1; one more with each `put`.
    """

    body: bytes
    version: int


@frozen(kw_only=False)
class Lease:
    """The right to write to a session, until somebody else gets it.

    Args:
        key: The session.
        holder: Who has it.
        fence: A number that grows with each lease of the session. Writes carry it, and are refused once it is not
            the newest any more.
    """

    key: SessionKey
    holder: str
    fence: int


class StateStore(Protocol):
    """Keeps one state per session. Nothing in it may belong to an event loop.

    Stores that keep the same states are equal and have the same hash: runs of one session take turns where their
    stores are equal. One that only this machine can reach says so with an attribute `local = True`.
    """

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key; None where there is nothing.

        Raises:
            StateUnreadable: There is something, and it cannot be read.
            StoreUnavailable: The store cannot be reached.
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


class SessionStore(StateStore, Protocol):
    """Keeps whole sessions: a state, a log of records, and a lease for the one that may write.

    Each verb that writes does all of it or nothing, also when it is cancelled, and what it wrote is kept when it
    returns. After `StoreUnavailable` it may have been written or not: read before writing again. A session is there
    from its first `put` or `append` on. `agentscope_rx.testing.check_store` checks an implementation.
    """

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        """As `StateStore.put`.

        Args:
            key: The session.
            body: The state, whatever its bytes are.
            expected_version: What `get` gave; 0 = there was nothing.
            fence: That of the caller's lease; None = write without one.

        Raises:
            LeaseLost: The fence is not that of the session's newest lease, or that was released; nothing was changed.
            StateConflict: Somebody else stored another version; nothing was changed.
        """
        ...

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Add records at the end of the session's log. They are numbered from 1, without gaps.

        Args:
            key: The session.
            records: At least one, whatever their bytes are.
            expected_seq: The number of the last record that the caller knows; 0 = the log is empty.
            fence: That of the caller's lease; None = write without one.

        Returns:
            The number of the last record.

        Raises:
            LeaseLost: As for `put`.
            StateConflict: The log ends with another record; nothing was added.
            InvalidOption: There is no record.
        """
        ...

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """The records `seq + 1`, `seq + 2`, ... of the session's log; none where it ends before.

        Args:
            key: The session.
            seq: The number of the last record that the caller knows; 0 = read from the beginning.
            limit: How many at most.

        Raises:
            LogCorrupt: The log is damaged before its end.
            InvalidOption: `seq` is negative, or `limit` less than 1.
        """
        ...

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Become the one that may write to the session.

        Args:
            key: The session.
            holder: Who asks; a name for people to read.
            ttl: Seconds from now after which others may have the lease, unless it is renewed. Writes of the holder
                are good until somebody does have it.

        Raises:
            SessionBusy: Somebody, be it the same holder, has a lease that has not run out.
            InvalidOption: `ttl` is not a positive number.
        """
        ...

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        """Have the lease for `ttl` seconds from now.

        Raises:
            LeaseLost: Somebody else has had it since, or it was released.
        """
        ...

    async def release(self, lease: Lease, /) -> None:
        """Let others have the lease at once; nothing happens where it is lost already."""
        ...

    async def list(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        after: SessionKey | None = None,
        limit: int = 100,
    ) -> Sequence[SessionKey]:
        """Sessions that are there, in an order of the store's own that does not change.

        Args:
            agent_id: Only those of this agent; None = of all.
            user_id: Only those of this user; None = nobody's; `ANYBODY` = of all.
            after: The last one of the page before.
            limit: How many at most.
        """
        ...

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        """Remove state, log and lease of a session. Whoever held the lease has lost it.

        Returns:
            Whether the session was there.

        Raises:
            LeaseLost: As for `put`.
        """
        ...

    async def prune(self, *, untouched_for: float) -> int:
        """Delete sessions that nobody uses: without a live lease, and without a write or a new lease for so long.

        Args:
            untouched_for: Seconds.

        Returns:
            How many were deleted.
        """
        ...


@runtime_checkable
class WatchableStore(SessionStore, Protocol):
    """A store that tells when a log has grown. Logs of other stores are looked at again and again."""

    async def watch(self, key: SessionKey, seq: int, /, *, timeout: float) -> None:
        """Wait until the session's log holds more than `seq` records, whoever writes them; it may end earlier.

        Args:
            key: The session, which need not be there.
            seq: The number of the last record that the caller knows.
            timeout: Seconds after which it ends in any case.

        Raises:
            StoreUnavailable: The store cannot be reached.
        """
        ...


def is_local(store: StateStore) -> bool:
    """Whether a store says that only this machine can reach it."""
    return bool(getattr(store, "local", False))
