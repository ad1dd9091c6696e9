"""What all stores refuse, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from agentscope_rx.errors import InvalidOption, LeaseLost, SessionBusy, StateConflict
from agentscope_rx.stores.keys import SessionKey, check_identifier


def conflict(key: SessionKey, expected: int, found: int) -> StateConflict:
    """The error of a `put` that came too late."""
    return StateConflict(
        f"session {key.session_id!r} was changed by somebody else: version {found} is stored, {expected} was "
        "expected; nothing was overwritten. Make the call again to go on from the stored state"
    )


def log_conflict(key: SessionKey, expected: int, found: int) -> StateConflict:
    """The error of an `append` that came too late."""
    return StateConflict(
        f"the log of session {key.session_id!r} was continued by somebody else: it ends with record {found}, "
        f"{expected} was expected; nothing was added. Read the records after {min(expected, found)} first"
    )


def lease_lost(key: SessionKey, fence: int) -> LeaseLost:
    """The error of who writes or renews under a lease that is not the newest."""
    return LeaseLost(
        f"the lease {fence} of session {key.session_id!r} was released, or somebody else has had the session since; "
        "nothing was changed. Leave the session to them, or acquire a new lease and read what is stored now"
    )


def busy(key: SessionKey, holder: str) -> SessionBusy:
    """The error of who asks for a lease that somebody has."""
    return SessionBusy(
        f"session {key.session_id!r} is held by {holder!r}; ask again when that has released it, or when its lease "
        "has run out"
    )


def check_records(records: Sequence[bytes]) -> None:
    """Refuse to append nothing."""
    if not records:
        raise InvalidOption("records", records, "at least one record")


def check_read(seq: int, limit: int) -> None:
    """Refuse a part of a log that cannot be one."""
    if seq < 0:
        raise InvalidOption("seq", seq, "the number of a record, or 0 for the beginning")
    check_limit(limit)


def check_limit(limit: int) -> None:
    """Refuse an empty page."""
    if limit < 1:
        raise InvalidOption("limit", limit, "at least 1")


def check_lease(holder: str, ttl: float) -> None:
    """Refuse a lease of nobody's, or of no time."""
    check_identifier("holder", holder)
    check_ttl(ttl)


def check_ttl(ttl: float) -> None:
    """Refuse a lease of no time, or of all time."""
    if not 0 < ttl < inf:
        raise InvalidOption("ttl", ttl, "a positive number of seconds")


def check_age(untouched_for: float) -> None:
    """Refuse an age that is none."""
    if not 0 <= untouched_for < inf:
        raise InvalidOption("untouched_for", untouched_for, "a number of seconds, not negative")
