"""A session's lease as a file beside its log."""

from __future__ import annotations

from pathlib import Path

from agentscope_rx.errors import StateUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.stores.folders import LEASE, write
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.refusals import busy, lease_lost
from agentscope_rx.stores.store import Lease
from agentscope_rx.wire import json_object, to_json


@frozen
class _Kept:
    fence: int
    holder: str
    until: float  # seconds of the epoch


def take(folder: Path, key: SessionKey, holder: str, *, now: float, ttl: float) -> Lease:
    """Write a new lease, unless somebody has one."""
    known = _read(folder)
    if known is not None and now < known.until:
        raise busy(key, known.holder)
    # Above each of an earlier session of this name, whose file was deleted with it.
    fence = max(int(now * 1_000_000), 0 if known is None else known.fence + 1)
    _write(folder, _Kept(fence=fence, holder=holder, until=now + ttl))
    return Lease(key, holder, fence)


def keep(folder: Path, lease: Lease, *, until: float) -> None:
    """Let the lease run out later."""
    check_fence(folder, lease.key, lease.fence)
    _write(folder, _Kept(fence=lease.fence, holder=lease.holder, until=until))


def free(folder: Path, lease: Lease) -> None:
    """End the lease, if it is the newest."""
    known = _read(folder)
    if known is not None and known.fence == lease.fence:
        _write(folder, _Kept(fence=lease.fence + 1, holder="", until=0))


def is_live(folder: Path, now: float) -> bool:
    """Whether somebody has the session."""
    known = _read(folder)
    return known is not None and now < known.until


def check_fence(folder: Path, key: SessionKey, fence: int | None) -> None:
    """Refuse who writes under a lease that is not the newest."""
    if fence is None:
        return
    known = _read(folder)
    if known is None or known.fence != fence:
        raise lease_lost(key, fence)


def _read(folder: Path) -> _Kept | None:
    path = folder / LEASE
    try:
        kept = json_object(path.read_bytes())
    except FileNotFoundError:
        return None
    match kept:
        case {"fence": int(fence), "holder": str(holder), "until": int(until) | float(until)}:
            return _Kept(fence=fence, holder=holder, until=until)
        case _:
            raise StateUnreadable(
                f"{path} is no lease; it was left as it is. Delete it when no run of the session lives"
            )


def _write(folder: Path, kept: _Kept) -> None:
    write(folder / LEASE, to_json({"fence": kept.fence, "holder": kept.holder, "until": kept.until}))
