"""The file systems of fsspec as `FsspecWorkspace` works on them: one name at a time, and never by a pattern."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import FileKind
from agentscope_rx.workspace.paths import TEMPORARY_PREFIX

T = TypeVar("T")
_KINDS: Final = {"file": FileKind.FILE, "directory": FileKind.DIRECTORY}
#: How the drivers call the time of the last change, the best first.
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
#: How they call what tells the contents of a name apart.
_MARKS: Final = ("ETag", "etag", "generation")
#: An object that keeps a directory there when nothing else lies in it; no path can name it.
KEEPER: Final = f"{TEMPORARY_PREFIX}directory"


class Changed(Exception):
    """What was to be replaced or removed is no longer what it was."""


@frozen
class Entry:
    """What a file system says of a name.

    Args:
        key: Its full name there.
        kind: File or directory; None = neither.
        size: Bytes of a file.
        modified: Time of the last change, in seconds since 1970-01-01 UTC; 0 where it is not told.
        mark: What tells this content of the name from others; None where there is nothing like it.
        link: Whether it is a symbolic link.
    """

    key: str
    kind: FileKind | None
    size: int
    modified: float
    mark: str | None
    link: bool


class Drive(Protocol):
    """What the verbs of a workspace ask of a file system. Errors are those of its driver."""

    links: ClassVar[bool]
    """Whether names can be symbolic links."""

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *changes: str) -> T:
        """Run work, alone in this process on the names that it changes; the other verbs are called in there only."""
        ...

    async def look(self, key: str) -> Entry | None:
        """What is at a name; None for nothing."""
        ...

    async def obstacle(self, keys: Sequence[str]) -> Entry | None:
        """What of several names is there and is no directory, so that nothing can be below it."""
        ...

    async def check_place(self, key: str) -> None:
        """Refuse a name below which nothing can ever be made.

        Raises:
            WorkspaceError: It is in a bucket that is not there.
        """
        ...

    async def entries(self, key: str) -> list[Entry]:
        """What is in a directory, whoever it belongs to; the file itself for a file.

        Raises:
            FileNotFoundError: There is nothing.
        """
        ...

    async def part(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of a file, fewer where it ends before."""
        ...

    async def beginnings(self, keys: Sequence[str], length: int) -> Sequence[bytes | BaseException]:
        """As many bytes of each of a few files, or why there are none."""
        ...

    async def create(self, key: str, data: bytes) -> None:
        """Make a file.

        Raises:
            FileExistsError: There is one.
        """
        ...

    async def replace(self, key: str, data: bytes, mark: str | None) -> None:
        """Write a file.

        Args:
            key: Its name.
            data: Its content.
            mark: The mark of what is replaced; None = whatever there is.

        Raises:
            Changed: The file has another mark, or is gone.
        """
        ...

    async def remove(self, key: str, mark: str | None) -> None:
        """Remove a file; the directory above it stays.

        Raises:
            Changed: It has another mark, or is gone.
        """
        ...

    async def remove_directory(self, key: str) -> None:
        """Remove a directory in which nothing is but what keeps it; the one above it stays."""
        ...


class FolderDrive:
    """A file system with directories, or one of which nothing is known, by its blocking verbs in worker threads.

    Changes of this process happen one after another, which makes them exact among each other; other processes take no
    part in that.

    Args:
        system: The file system.
    """

    links: ClassVar[bool] = True
    _locks: ClassVar[WeakValueDictionary[Any, threading.Lock]] = WeakValueDictionary()
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, system: Any) -> None:
        self._system = system
        with self._making:
            self._lock = self._locks.setdefault(system, threading.Lock())

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *changes: str) -> T:
        """Run work in a thread; it never waits for anything but the file system."""

        def alone() -> T:
            self._system.invalidate_cache()  # what was listed a while ago is not what is there
            with self._lock if changes else nullcontext():
                return _finished(work())

        return await asyncio.get_running_loop().run_in_executor(None, alone)

    async def look(self, key: str) -> Entry | None:
        """What is at a name."""
        try:
            return entry_of(self._system.info(key))
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def obstacle(self, keys: Sequence[str]) -> Entry | None:
        """What of several names is there and is no directory."""
        for key in keys:
            found = await self.look(key)
            if found is not None and (found.link or found.kind is not FileKind.DIRECTORY):
                return found
        return None

    async def check_place(self, key: str) -> None:
        """Nothing is refused: directories are made as they are needed."""

    async def entries(self, key: str) -> list[Entry]:
        """What is in a directory."""
        return [entry_of(info) for info in self._system.ls(key, detail=True)]

    async def part(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of a file."""
        return bytes(self._system.cat_file(key, start=start, end=end))

    async def beginnings(self, keys: Sequence[str], length: int) -> Sequence[bytes | BaseException]:
        """The beginnings of a few files."""
        found: list[bytes | BaseException] = []
        for key in keys:
            try:
                found.append(await self.part(key, 0, length))
            except Exception as error:
                found.append(error)
        return found

    async def create(self, key: str, data: bytes) -> None:
        """Make a file, and the directories above it."""
        if await self.look(key) is not None:
            raise FileExistsError(key)
        await self.replace(key, data, None)

    async def replace(self, key: str, data: bytes, mark: str | None) -> None:
        """Write a file; on a disk of this machine in one piece."""
        folder = above(key)
        if folder:
            self._system.makedirs(folder, exist_ok=True)
        if not getattr(self._system, "local_file", False):
            self._system.pipe_file(key, data)
            return
        own = f"{folder}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            self._system.pipe_file(own, data)
            self._system.mv(own, key)
        except BaseException:
            with suppress(OSError):
                self._system.rm_file(own)
            raise

    async def remove(self, key: str, mark: str | None) -> None:
        """Remove a file."""
        try:
            self._system.rm_file(key)
        except FileNotFoundError:
            raise Changed(key) from None

    async def remove_directory(self, key: str) -> None:
        """Remove a directory."""
        self._system.rmdir(key)


def entry_of(info: Mapping[str, Any]) -> Entry:
    """What a driver says of a name."""
    name = str(info["name"])
    kind = "directory" if name.endswith("/") else str(info["type"])  # a console makes objects of that name
    return Entry(
        key=name.rstrip("/"),
        kind=_KINDS.get(kind),
        size=int(info.get("size") or 0),
        modified=next((_seconds(info[name]) for name in _TIMES if info.get(name)), 0.0),
        mark=next((str(info[name]) for name in _MARKS if info.get(name)), None),
        link=bool(info.get("islink")) or info["type"] == "link",
    )


def _seconds(moment: object) -> float:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return moment.timestamp() if isinstance(moment, datetime) else float(str(moment))


def above(key: str) -> str:
    """The directory of a name."""
    return key.rpartition("/")[0]


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a verb of a file system with blocking verbs has waited")
