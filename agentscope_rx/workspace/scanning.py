"""Look through many directories and files of a disk in one go and in one thread, without following a link."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace.containment import OPEN_DIRECTORY, OPEN_FILE, open_place
from agentscope_rx.workspace.folders import Folder, Found
from agentscope_rx.workspace.looking import FileGroup, Look, Looks, Needle
from agentscope_rx.workspace.paths import WorkspacePath, child_names
from agentscope_rx.workspace.text import binary_type

# Larger ones cost a file of a few lines more than reading it does; the later ones of a large file may be larger.
_FIRST_BYTES, _PIECE_BYTES = 64 * 1024, 256 * 1024


def list_folders(root: Path, paths: Sequence[WorkspacePath], stop: threading.Event) -> list[Found]:
    """Tell the names in directories; see `ListsFolders`.

    Args:
        root: The real path of the root.
        paths: The directories.
        stop: Set when nobody waits for the answer any more.

    Examples:
        >>> list_folders(root, [resolve_path("src")], threading.Event())
        [Folder(path=WorkspacePath(parts=('src',)), directories=[], files=['app.py'], links=[], known={})]
    """
    with _Way(root) as way:
        return [_found(root, way, path, stop) for path in paths]


def look_through(root: Path, groups: Sequence[FileGroup], needle: Needle, stop: threading.Event) -> list[Looks]:
    """Look at files; see `FindsText`.

    Args:
        root: The real path of the root.
        groups: The files.
        needle: What they may hold.
        stop: Set when nobody waits for the answer any more.

    Examples:
        >>> look_through(root, groups, Needle(text=b"needle", file_bytes=1000), threading.Event())
        [{'app.py': <Look.MAY_HOLD: 1>}]
    """
    with _Way(root) as way:
        return [_looks(root, way, group, needle, stop) for group in groups]


def look_through_large(
    root: Path, groups: Sequence[FileGroup], needle: Needle, above: int, stop: threading.Event
) -> list[Looks]:
    """Look at the large ones among files, and open no other.

    Args:
        root: The real path of the root.
        groups: The files.
        needle: What they may hold.
        above: How large a file is that is not, in bytes.
        stop: Set when nobody waits for the answer any more.

    Examples:
        >>> look_through_large(root, groups, Needle(text=b"needle", file_bytes=1_000_000), 1000, threading.Event())
        [{'core': <Look.TOO_LARGE: 3>}]
    """
    with _Way(root) as way:
        return [_large_ones(root, way, group, needle, above, stop) for group in groups]


class _Way:
    """A way through the directories below a root, none of them a link: what two paths share is opened once.

    So a tree of any depth costs an `open` a directory. What is open was inside when it was opened, as everywhere; see
    `containment.py` for a directory that is moved away meanwhile.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = list[str]()
        self._open = list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._back_to(-1)

    def to(self, path: WorkspacePath) -> int:
        """The descriptor of a directory, open until the next is asked for."""
        try:
            return self._onward(path.parts)
        except OSError as error:
            if error.errno is None:
                raise
            # The system names only the part that it was given, or the whole path outside the workspace.
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error

    def _onward(self, parts: Sequence[str]) -> int:
        if not self._open:
            self._open.append(os.open(self._root, OPEN_DIRECTORY))
        shared = 0
        for name, own in zip(parts, self._names, strict=False):
            if name != own:
                break
            shared += 1
        self._back_to(shared)
        for name in parts[shared:]:
            self._open.append(os.open(name, OPEN_DIRECTORY, dir_fd=self._open[-1]))
            self._names.append(name)
        return self._open[-1]

    def _back_to(self, depth: int) -> None:
        while len(self._open) > depth + 1:
            os.close(self._open.pop())
        del self._names[max(depth, 0) :]


@contextmanager
def _open_directory(root: Path, way: _Way, path: WorkspacePath) -> Generator[int]:
    """Open a directory, which may be behind links that stay inside."""
    try:
        directory = way.to(path)
    except NotADirectoryError:
        with open_place(root, path) as place:
            directory = os.open(place.name, OPEN_DIRECTORY, dir_fd=place.directory)
            try:
                yield directory
            finally:
                os.close(directory)
    else:
        yield directory


def _found(root: Path, way: _Way, path: WorkspacePath, stop: threading.Event) -> Found:
    try:
        return _folder(root, path, way.to(path), stop)
    except NotADirectoryError as error:
        return _why_no_directory(root, path) or error
    except OSError as error:
        return error


def _why_no_directory(root: Path, path: WorkspacePath) -> OSError | None:
    """What is wrong with a path on which there is a link, if following it does not lead to anything."""
    try:
        with open_place(root, path) as place:
            os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except OSError as error:
        return error
    return None


def _folder(root: Path, path: WorkspacePath, directory: int, stop: threading.Event) -> Folder:
    directories, files, links = list[str](), list[str](), list[str]()
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            if stop.is_set():
                break
    return Folder(
        path=path,
        directories=sorted(child_names(path, directories)),
        files=sorted(child_names(path, files)),
        links=sorted(name for name in child_names(path, links) if _leads_somewhere(root, path.child(name))),
    )


def _leads_somewhere(root: Path, link: WorkspacePath) -> bool:
    """Whether a link leads to a file or directory inside the root."""
    try:
        with open_place(root, link) as place:
            mode = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode
    except (PathRefused, FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _looks(root: Path, way: _Way, group: FileGroup, needle: Needle, stop: threading.Event) -> Looks:
    found = dict[str, Look]()
    try:
        with _open_directory(root, way, group.folder.path) as directory:
            for name in group.names:
                if stop.is_set():
                    break
                look = _look(name, directory, needle)
                if look is not None:
                    found[name] = look
    except FileNotFoundError:
        return {}
    except OSError:
        return dict.fromkeys(group.names, Look.UNREADABLE)
    return found


def _look(name: str, directory: int, needle: Needle) -> Look | None:
    try:
        file = os.open(name, OPEN_FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        return Look.UNREADABLE
    try:
        piece = os.read(file, _FIRST_BYTES)
        size = len(piece) if len(piece) < _FIRST_BYTES else os.fstat(file).st_size
        if size > needle.file_bytes:
            return Look.TOO_LARGE
        if binary_type(piece) is not None:
            return Look.BINARY
        if needle.text in piece or (size > len(piece) and _goes_on(file, piece, needle)):
            return Look.MAY_HOLD
    except OSError:
        return Look.UNREADABLE
    finally:
        os.close(file)
    return None


def _goes_on(file: int, piece: bytes, needle: Needle) -> bool:
    """Whether the text is further down in a file; no more of it is read than a file may have."""
    text, overlap = needle.text, len(needle.text) - 1
    kept, read = b"", len(piece)
    while piece and read <= needle.file_bytes:
        kept = (kept + piece[-overlap:])[-overlap:] if overlap else b""
        piece = os.read(file, _PIECE_BYTES)
        read += len(piece)
        if text in kept + piece[:overlap] or text in piece:
            return True
    return False


def _large_ones(root: Path, way: _Way, group: FileGroup, needle: Needle, above: int, stop: threading.Event) -> Looks:
    found = dict[str, Look]()
    try:
        with _open_directory(root, way, group.folder.path) as directory:
            for name in group.names:
                if stop.is_set():
                    break
                look = _look_if_large(name, directory, needle, above)
                if look is not None:
                    found[name] = look
    except FileNotFoundError:
        return {}
    except OSError:
        return dict.fromkeys(group.names, Look.UNREADABLE)
    return found


def _look_if_large(name: str, directory: int, needle: Needle, above: int) -> Look | None:
    try:
        size = os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None
    if size > needle.file_bytes:
        return Look.TOO_LARGE
    return _look(name, directory, needle) if size > above else None
