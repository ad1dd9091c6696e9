"""The folders in which a store of files keeps its sessions: their names, their locks, and how files in them change."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentscope_rx.errors import StoreUnavailable
from agentscope_rx.logs import logger
from agentscope_rx.stores.keys import NOBODY, SessionKey, folder_name, identifier_of, is_whole, user_folder
from agentscope_rx.stores.store import ANYBODY, Anybody

if TYPE_CHECKING:
    from filelock import BaseFileLock

STATE, LOG, LEASE = "state.json", "log.jsonl", "lease.json"
_LOCK: Final = "lock"
_KEY: Final = "key.json"  # where the names of the folders do not say the ids
_DELETED: Final = ".deleted-"
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})  # the user has others, or it is gone
_POLL: Final = 0.002  # seconds between two looks at a lock that somebody has: about as long as a verb holds it


class Folders:
    """The folders `agents/<agent>/sessions/<user>/<session>` below a root.

    Args:
        root: The root.
        timeout: Seconds after which a folder's lock is not waited for any more.
    """

    def __init__(self, root: Path, timeout: float = 30.0) -> None:
        self._root, self._timeout = root, timeout

    def of(self, key: SessionKey) -> Path:
        """The folder of a session, which need not exist."""
        return self._root / "agents" / key.agent_folder / "sessions" / key.user_folder / key.session_folder

    def each(
        self,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        *,
        after: SessionKey | None = None,
    ) -> Iterator[Path]:
        """The folders of sessions, in the order of their names."""
        behind = () if after is None else _names(self.of(after))
        agents = _entries(self._root / "agents") if agent_id is None else [folder_name(agent_id)]
        for agent in _not_before(agents, (), behind):
            sessions = self._root / "agents" / agent / "sessions"
            users = _entries(sessions) if isinstance(user_id, Anybody) else [user_folder(user_id)]
            for user in _not_before(users, (agent,), behind):
                for session in _not_before(_entries(sessions / user), (agent, user), behind):
                    if (agent, user, session) != behind:
                        yield sessions / user / session

    @contextmanager
    def locked(self, key: SessionKey, *, make: bool = True) -> Generator[Path, None, None]:
        """The folder of a session, while nobody else of this machine works in it.

        Raises:
            FileNotFoundError: It does not exist and is not to be made.
            StoreUnavailable: Another process has it for longer than one waits.
        """
        folder = self.of(key)
        lock = None
        while lock is None:
            if make:
                self._make(key, folder)
            try:
                lock = _lock(folder, self._timeout)
            except FileNotFoundError:  # deleted while we waited
                if not make:
                    raise
        try:
            yield folder
        finally:
            lock.release()

    def clear(self) -> None:
        """Remove what a crash left of sessions that were being deleted."""
        for left in self._root.glob(f"agents/*/sessions/*/{_DELETED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def _make(self, key: SessionKey, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            private = each == self._root or self._root in each.parents
            try:
                each.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
            except FileNotFoundError:
                return self._make(key, folder)  # somebody removed an empty folder above
        if not all(map(is_whole, _names(folder))) and not (folder / _KEY).exists():
            write(folder / _KEY, key.to_json())
        return None


def _lock(folder: Path, timeout: float) -> BaseFileLock | None:
    """The lock of a folder; None where the folder is another by now, and our lock that of the deleted one.

    Raises:
        FileNotFoundError: The folder does not exist, or does not any more.
        StoreUnavailable: Another process has it for longer than that: one that was stopped in the middle of its work.
    """
    from filelock import FileLock, Timeout

    same = os.open(folder, os.O_RDONLY)  # while it is open, no other folder can get its number
    try:
        lock = FileLock(folder / _LOCK, mode=0o600)
        try:
            lock.acquire(timeout=timeout, poll_interval=_POLL)
        except Timeout as error:
            raise StoreUnavailable(
                f"{folder / _LOCK} was locked by another process for {timeout:g} s; is one stopped that works in it?"
            ) from error
        try:
            if os.path.samestat(os.fstat(same), os.stat(folder)):
                return lock
        except FileNotFoundError:
            lock.release()
            raise
        lock.release()
        return None
    finally:
        os.close(same)


def key_of(folder: Path) -> SessionKey:
    """The session whose folder it is."""
    agent, user, session = names = _names(folder)
    if not all(map(is_whole, names)):
        return SessionKey.from_json((folder / _KEY).read_bytes())
    return SessionKey(
        agent_id=identifier_of(agent),
        user_id=None if user == NOBODY else identifier_of(user),
        session_id=identifier_of(session),
    )


def is_there(folder: Path) -> bool:
    """Whether the folder holds a session, and not only its lock and lease."""
    log = folder / LOG
    return (folder / STATE).exists() or (log.exists() and log.stat().st_size > 0)


def touched(folder: Path) -> float:
    """When the session was written to, in seconds of the epoch."""
    files = [folder / name for name in (STATE, LOG, LEASE)]
    return max((file.stat().st_mtime for file in files if file.exists()), default=folder.stat().st_mtime)


def remove(folder: Path) -> bool:
    """Delete a session whose lock is held: all of it at once, and the folder of a user who has no other.

    Returns:
        Whether it was there.
    """
    there = is_there(folder)
    grave = tempfile.mkdtemp(dir=folder.parent, prefix=_DELETED)
    os.replace(folder, grave)
    sync(folder.parent)
    shutil.rmtree(grave)
    try:
        folder.parent.rmdir()
    except OSError as error:
        if error.errno not in _NOT_EMPTY:  # the session is gone all the same, and a name of the user is left
            logger().warning("user_folder_kept", folder=folder.parent.name, error=type(error).__name__)
    return there


def write(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one, whole."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path) -> tuple[str, str, str]:
    return folder.parents[2].name, folder.parent.name, folder.name


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _not_before(names: Iterable[str], above: tuple[str, ...], behind: tuple[str, ...]) -> Iterator[str]:
    depth = len(above) + 1
    return (name for name in names if (*above, name) >= behind[:depth])
