"""A workspace in a directory of this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from agentscope_rx.errors import PathRefused, WorkspaceError
from agentscope_rx.finishing import to_the_end
from agentscope_rx.workspace.conditions import (
    DEFAULT_MAX_READ_BYTES,
    check_max_read_bytes,
    check_writable,
    check_write,
    gone,
    os_error,
    part_length,
    version_of,
)
from agentscope_rx.workspace.containment import (
    CAN_CONTAIN,
    OPEN_DIRECTORY,
    Missing,
    Place,
    open_file,
    open_place,
)
from agentscope_rx.workspace.filesystem import FileContent, FileKind, FileStat
from agentscope_rx.workspace.folders import Found
from agentscope_rx.workspace.looking import FileGroup, Looks, Needle
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown
from agentscope_rx.workspace.removal import check_movable, delete_entry, move_file
from agentscope_rx.workspace.replacement import digest, replace_file
from agentscope_rx.workspace.ripgrep import find_ripgrep, ripgrep
from agentscope_rx.workspace.scanning import list_folders, look_through, look_through_large

_T = TypeVar("_T")
# Bytes from which on our own scan is faster than ripgrep, which looks for all that tells a binary file, too.
_LARGE = 256 * 1024

# No path can name it, it is no file, it is a link that leads out or nowhere, or it is gone meanwhile.
_LEFT_OUT = (PathRefused, FileNotFoundError, NotADirectoryError, PermissionError)


class LocalWorkspace:
    """The files below one directory, reachable only from the inside of it.

    Symbolic links that stay inside are followed, others refused; see `containment.py` for what that holds
    against and what not. A write goes to a temporary file that takes the place of the old one, so a reader
    sees the old content or the new; mode bits are kept, owner and hard links are not. `if_match` is exact
    among the `LocalWorkspace`s of all processes where the file system has locks on directories, and otherwise
    among those of this process; other programs take part in neither.

    Args:
        root: The directory; it must exist. Looked up once, here, so later changes of the working directory or
            of links above it make no difference.
        read_only: True to refuse every write. Default False.
        max_read_bytes: How many bytes one `read` returns at most. Default 32 MiB.

    Raises:
        FileNotFoundError: If `root` does not exist.
        NotADirectoryError: If `root` is no directory.
        InvalidOption: If `max_read_bytes` is less than 1.
        WorkspaceError: If this system cannot open files relative to a directory (Windows).

    Examples:
        >>> workspace = LocalWorkspace("/srv/ws")
        >>> version = await workspace.write("src/app.py", b"print('hi')")
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        read_only: bool = False,
        max_read_bytes: int = DEFAULT_MAX_READ_BYTES,
    ) -> None:
        if not CAN_CONTAIN:
            raise WorkspaceError("LocalWorkspace needs Linux, macOS or BSD: this system cannot contain links")
        self._root = Path(os.path.realpath(root, strict=True))
        if not self._root.is_dir():
            raise os_error(errno.ENOTDIR, root)
        self._roots = (str(self._root), os.path.abspath(root))
        self._read_only = read_only
        self._max_read_bytes = check_max_read_bytes(max_read_bytes)

    def __repr__(self) -> str:
        return f"LocalWorkspace({str(self._root)!r}, read_only={self._read_only})"

    @property
    def root(self) -> Path:
        """The real path of the directory; an absolute path below it is taken as relative to it."""
        return self._root

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""
        return self._read_only

    def read_blocking(self, path: str | WorkspacePath) -> FileContent:
        """Read a file where no loop runs, such as at start-up; see `WorkspaceFS.read`."""
        return self._read(self._inside(path), 0, None)

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads behind all links; see `WorkspaceFS.resolve`."""
        return await asyncio.to_thread(self._resolve, self._inside(path))

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        return await asyncio.to_thread(self._read, self._inside(path), offset, limit)

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file in one piece; see `WorkspaceFS.write`.

        A cancelled write is waited for: afterwards it has happened or not, and nothing happens later.
        """
        inside = self._inside(path)
        check_write(if_match=if_match, create_only=create_only)
        check_writable(path, "written", read_only=self._read_only)
        return await _in_one_piece(lambda: self._write(inside, data, if_match, create_only))

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        return await asyncio.to_thread(self._list, self._inside(path))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        return await asyncio.to_thread(self._stat, self._inside(path))

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`. A cancelled one is waited for."""
        inside = self._inside(path)
        check_writable(path, "deleted", read_only=self._read_only)
        await _in_one_piece(lambda: self._delete(inside, if_match))

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`. A cancelled one is waited for."""
        inside, new = self._inside(path), self._inside(to)
        check_writable(path, "moved", read_only=self._read_only)
        await _in_one_piece(lambda: self._move(inside, new, if_match))

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories; see `ListsFolders`."""
        inside = [self._inside(path) for path in paths]
        return await _until_cancelled(partial(list_folders, self._root, inside))

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files, at small ones only if ripgrep tells so where it is on `PATH`; see `FindsText`."""
        program = find_ripgrep()
        if program is not None and b"\n" not in needle.text:
            async with asyncio.TaskGroup() as both:
                small = replace(needle, file_bytes=min(needle.file_bytes, _LARGE))
                found = both.create_task(ripgrep(program, self._root, groups, small))
                large_ones = partial(look_through_large, self._root, groups, needle, _LARGE)
                large = both.create_task(_until_cancelled(large_ones))
            if (hints := found.result()) is not None:
                found_in = replace(needle, text=b"")  # what a file is, not once more whether it holds the text
                looks = await _until_cancelled(partial(look_through, self._root, hints, found_in))
                return [{**own, **hinted} for own, hinted in zip(large.result(), looks, strict=True)]
        return await _until_cancelled(partial(look_through, self._root, groups, needle))

    def _inside(self, path: str | WorkspacePath) -> WorkspacePath:
        return resolve_path(path, roots=self._roots)

    # -- in a thread ----------------------------------------------------------------------------------------

    def _resolve(self, path: WorkspacePath) -> WorkspacePath:
        with open_place(self._root, path, missing=Missing.ASSUME) as place:
            return place.path

    def _read(self, path: WorkspacePath, offset: int, limit: int | None) -> FileContent:
        with open_place(self._root, path) as place, open_file(place) as file:
            size = os.fstat(file).st_size
            length = part_length(path, size, offset, limit, self._max_read_bytes)
            if length < size or offset:
                return FileContent(path=path, data=_part(file, offset, length), size=size, version=None)
            data = _part(file, 0, length)
            return FileContent(path=path, data=data, size=len(data), version=version_of(data))

    def _write(self, path: WorkspacePath, data: bytes, if_match: str | None, create_only: bool) -> str:
        missing = Missing.MAKE if if_match is None else Missing.REFUSE
        try:
            with open_place(self._root, path, missing=missing) as place:
                replace_file(place, data, if_match=if_match, create_only=create_only)
        except FileNotFoundError as error:
            if if_match is None:
                raise
            raise gone(path) from error
        return version_of(data)

    def _delete(self, path: WorkspacePath, if_match: str | None) -> None:
        try:
            with open_place(self._root, path) as place:
                delete_entry(place, path=path, if_match=if_match)
        except FileNotFoundError as error:
            if if_match is None:
                raise
            raise gone(path) from error

    def _move(self, path: WorkspacePath, to: WorkspacePath, if_match: str | None) -> None:
        try:
            with open_place(self._root, path) as place:
                # Before directories are made for a file that is not there.
                check_movable(place, path=path, if_match=if_match)
                with open_place(self._root, to, missing=Missing.MAKE) as new:
                    move_file(place, new, path=path, if_match=if_match)
        except WorkspaceError:
            raise
        except OSError as error:
            if if_match is not None and isinstance(error, FileNotFoundError):
                raise gone(path) from error
            if error.errno is None:
                raise
            raise os_error(error.errno, path, to) from error

    def _list(self, path: WorkspacePath) -> tuple[FileStat, ...]:
        found: list[FileStat] = []
        with open_place(self._root, path) as place:
            directory = os.open(place.name, OPEN_DIRECTORY, dir_fd=place.directory)
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        with suppress(*_LEFT_OUT):
                            found.append(self._listed(entry, path.child(entry.name)))
            finally:
                os.close(directory)
        return tuple(sorted(found, key=lambda entry: entry.path.name))

    def _listed(self, entry: os.DirEntry[str], path: WorkspacePath) -> FileStat:
        if not entry.is_symlink():
            return _described(path, entry.stat(follow_symlinks=False), link=False)
        with open_place(self._root, path) as place:
            return _described(path, _looked_at(place), link=True)

    def _stat(self, path: WorkspacePath) -> FileStat:
        with open_place(self._root, path) as place:
            status = _looked_at(place)
            version = None
            if stat.S_ISREG(status.st_mode) and status.st_size <= self._max_read_bytes:
                with open_file(place) as file:
                    version = digest(file)
            return _described(path, status, link=place.link, version=version)


async def _until_cancelled(work: Callable[[threading.Event], _T]) -> _T:
    """Run work in a thread that only looks, and tell it to stop when nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop)
    finally:
        stop.set()


async def _in_one_piece(change: Callable[[], _T]) -> _T:
    """Run a change in a thread, and wait for its end whatever happens."""
    # A future and not a task of to_thread(): that one would be cancelled with all tasks when the loop closes.
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, change))


def _described(path: WorkspacePath, status: os.stat_result, *, link: bool, version: str | None = None) -> FileStat:
    if stat.S_ISDIR(status.st_mode):
        kind, size = FileKind.DIRECTORY, 0
    elif stat.S_ISREG(status.st_mode):
        kind, size = FileKind.FILE, status.st_size
    else:
        raise PathRefused(f"{shown(path)} is neither a file nor a directory")
    return FileStat(path=path, kind=kind, size=size, modified=status.st_mtime, version=version, link=link)


def _looked_at(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)


def _part(file: int, offset: int, length: int) -> bytes:
    if length == 0:
        return b""
    with open(file, "rb", closefd=False) as stream:
        stream.seek(offset)
        return stream.read(length)
