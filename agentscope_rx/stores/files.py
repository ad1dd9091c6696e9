"""A store of files, safe against crashes and against other processes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from agentscope_rx.errors import InvalidOption, StateUnreadable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.runtime import Clock, SystemClock
from agentscope_rx.stores import file_lease, file_log, folders
from agentscope_rx.stores.folders import LOG, STATE, Folders
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.refusals import (
    check_age,
    check_lease,
    check_limit,
    check_read,
    check_records,
    check_ttl,
    conflict,
    log_conflict,
)
from agentscope_rx.stores.store import ABSENT, ANYBODY, Anybody, Lease, Stored

T = TypeVar("T")
_LOOK_EVERY: Final = 0.1
_HEAD: Final = re.compile(rb'\{"version":(\d{1,18}),"state":')
_TAIL: Final = b"}\n"  # a file that was cut does not end in a newline: states are written without any


class JsonFileStore:
    """One folder per session: `agents/<agent>/sessions/<user>/<session>` below a private folder.

    It holds `state.json`, `log.jsonl` with a line for each record, and `lease.json`. A state replaces the older one
    as a whole, and what a verb has written is on the disk when it returns. The disk must be one of this machine.

    Args:
        root: The folder; made on first use, with mode 0700.
        clock: What leases run out by, and what `prune` goes by; all processes must have the same time.
        timeout: Seconds after which the lock of a session's folder is not waited for any more.
    """

    local = True

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock | None = None, timeout: float = 30.0) -> None:
        if not timeout > 0:
            raise InvalidOption("timeout", timeout, "a positive number of seconds")
        self._root = Path(root).absolute()
        self._folders = Folders(self._root, timeout)
        self._clock = clock or SystemClock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonFileStore) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key.

        Raises:
            StateUnreadable: The file is not one that this store writes.
        """
        return await asyncio.to_thread(_read, self._folders.of(key) / STATE)

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        """Store a state in the place of the version that the caller knows."""

        def replace() -> int:
            with self._folders.locked(key) as folder:
                file_lease.check_fence(folder, key, fence)
                known = _read(folder / STATE)
                version = ABSENT if known is None else known.version
                if version != expected_version:
                    raise conflict(key, expected_version, version)
                folders.write(folder / STATE, b'{"version":%d,"state":%b%b' % (version + 1, body, _TAIL))
                return version + 1

        return await _in_a_thread(replace)

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Add records at the end of the session's log.

        Raises:
            LogCorrupt: The log is damaged.
        """
        check_records(records)

        def extend() -> int:
            with self._folders.locked(key) as folder:
                file_lease.check_fence(folder, key, fence)
                added, last = file_log.append(folder / LOG, records, expected_seq)
            if not added:
                raise log_conflict(key, expected_seq, last)
            return last

        return await _in_a_thread(extend)

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """The records after a number; what a crash left behind the last one is cut off, with a warning."""
        check_read(seq, limit)

        def read() -> tuple[bytes, ...]:
            try:
                with self._folders.locked(key, make=False) as folder:
                    return file_log.read_after(folder / LOG, seq, limit)
            except FileNotFoundError:
                return ()

        return await _in_a_thread(read)

    async def watch(self, key: SessionKey, seq: int, /, *, timeout: float) -> None:
        """Wait until the session's log has grown: its file is looked at ten times a second."""
        log = self._folders.of(key) / LOG
        before = _size(log)
        if await self.read_after(key, seq, limit=1):
            return
        try:
            async with asyncio.timeout(timeout):
                while _size(log) == before:  # noqa: ASYNC110 - other processes write it, who can set no event
                    await asyncio.sleep(_LOOK_EVERY)
        except TimeoutError:
            return

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Become the one that may write to the session."""
        check_lease(holder, ttl)

        def take() -> Lease:
            with self._folders.locked(key) as folder:
                return file_lease.take(folder, key, holder, now=self._now(), ttl=ttl)

        return await _in_a_thread(take)

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        """Have the lease for longer."""
        check_ttl(ttl)

        def keep() -> None:
            with self._folders.locked(lease.key) as folder:
                file_lease.keep(folder, lease, until=self._now() + ttl)

        await _in_a_thread(keep)

    async def release(self, lease: Lease, /) -> None:
        """Let others have the lease."""

        def free() -> None:
            try:
                with self._folders.locked(lease.key, make=False) as folder:
                    file_lease.free(folder, lease)
            except FileNotFoundError:
                return

        await _in_a_thread(free)

    async def list(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        after: SessionKey | None = None,
        limit: int = 100,
    ) -> Sequence[SessionKey]:
        """Sessions that are there, in the order of the names of their folders."""
        check_limit(limit)

        def look() -> tuple[SessionKey, ...]:
            found: list[SessionKey] = []
            for folder in self._folders.each(agent_id, user_id, after=after):
                if folders.is_there(folder):
                    found.append(folders.key_of(folder))
                    if len(found) == limit:
                        break
            return tuple(found)

        return await asyncio.to_thread(look)

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        """Remove a session, its folder included."""

        def remove() -> bool:
            try:
                with self._folders.locked(key, make=fence is not None) as folder:
                    file_lease.check_fence(folder, key, fence)
                    return folders.remove(folder)
            except FileNotFoundError:
                return False

        return await _in_a_thread(remove)

    async def prune(self, *, untouched_for: float) -> int:
        """Delete sessions that nobody uses."""
        check_age(untouched_for)

        def remove_all() -> int:
            self._folders.clear()
            return sum(self._remove_old(folders.key_of(folder), untouched_for) for folder in self._folders.each())

        return await _in_a_thread(remove_all)

    def _remove_old(self, key: SessionKey, untouched_for: float) -> bool:
        try:
            with self._folders.locked(key, make=False) as folder:
                now = self._now()
                if file_lease.is_live(folder, now) or folders.touched(folder) + untouched_for > now:
                    return False
                return folders.remove(folder)
        except FileNotFoundError:  # somebody else deleted it
            return False

    def _now(self) -> float:
        return self._clock.now().timestamp()


async def _in_a_thread(work: Callable[[], T]) -> T:
    """Do what must not be left half done: who is cancelled meanwhile waits for its end."""
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, work))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read(path: Path) -> Stored | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    head = _HEAD.match(data)
    if head is None or not data.endswith(_TAIL):
        raise StateUnreadable(f"{path} is no state file, or was cut; it was left as it is")
    return Stored(data[head.end() : -len(_TAIL)], int(head[1]))
