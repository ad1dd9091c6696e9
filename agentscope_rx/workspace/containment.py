"""Find a path below a root on a disk without ever stepping outside, whatever links there are.

A check of the text of a path, or of `realpath`, is over before the file is opened, and a link may be put in
between. So the walk opens one directory after the other (`openat`), each relative to the one before and never
through a link (`O_NOFOLLOW`). A link is read, and its target walked by the same rules: it may wander as it
likes as long as it comes back into the root by the root's own name.

What this cannot see: hard links and mounts, which look like any other file or directory, and a directory that
another process moves out of the root between two steps. Against a hostile process with the same rights only a
sandbox helps. It needs a system with `openat` (Linux, macOS, BSD).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

from agentscope_rx.errors import PathRefused, WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.paths import WorkspacePath, is_reserved, resolve_path, shown

# Windows lacks these three; there LocalWorkspace refuses to start, but its module must still be importable.
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
OPEN_DIRECTORY: int = os.O_RDONLY | NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
# O_NONBLOCK: opening a pipe must not wait for somebody at its other end.
OPEN_FILE: int = os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0)

CAN_CONTAIN = NOFOLLOW != 0 and os.supports_dir_fd >= {
    *(os.open, os.readlink, os.stat, os.access),
    *(os.mkdir, os.rename, os.link, os.unlink, os.rmdir),
}
"""Whether this system has what the walk, and a write at its end, needs."""

_MAX_LINKS = 40


class Missing(Enum):
    """What to do when a directory on the way does not exist."""

    REFUSE = auto()
    MAKE = auto()
    ASSUME = auto()


@frozen
class Place:
    """Where a path leads: an entry of an open directory that was no symbolic link when it was looked at.

    Args:
        directory: Descriptor of the open directory; it belongs to whoever opened the place.
        name: Name of the entry, which need not exist; `.` for the root. Open it with `O_NOFOLLOW`.
        path: The path without links.
        link: Whether the last name of the path that was asked for is a symbolic link.
    """

    directory: int
    name: str
    path: WorkspacePath
    link: bool


@contextmanager
def open_place(root: Path, path: WorkspacePath, *, missing: Missing = Missing.REFUSE) -> Generator[Place]:
    """Walk from `root` along `path`, and keep the last directory open meanwhile.

    Args:
        root: The real path of the root, an existing directory.
        path: Where to go.
        missing: Whether a missing directory on the way is an error (the default), is made, or ends the walk.

    Raises:
        PathRefused: If the path leads out of the root, into the runtime folder or in a circle.
        FileNotFoundError: If a directory on the way is missing.
        NotADirectoryError: If something on the way is a file.

    Examples:
        >>> with open_place(Path("/srv/ws"), resolve_path("a.txt")) as place:
        ...     os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_size
        5
    """
    walk = _Walk(root, path, missing)
    try:
        yield walk.run()
    except WorkspaceError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise walk.refusal("became a symbolic link while it was opened") from error
        if error.errno is None:
            raise
        # The system names only the part that it was given, or the whole path outside the workspace.
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    finally:
        walk.close()


@contextmanager
def open_file(place: Place) -> Generator[int]:
    """Open the file at a place for reading.

    Args:
        place: What `open_place` found.

    Raises:
        FileNotFoundError: If there is nothing.
        IsADirectoryError: If there is a directory.
        PathRefused: If there is something else, such as a pipe or a device.

    Examples:
        >>> with open_file(place) as file:
        ...     os.read(file, 5)
        b'hello'
    """
    file = os.open(place.name, OPEN_FILE, dir_fd=place.directory)
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        if not stat.S_ISREG(mode):
            raise PathRefused(f"{shown(place.path)} is neither a file nor a directory")
        yield file
    finally:
        os.close(file)


def flush_directory(directory: int) -> None:
    """Have the names in an open directory written to the disk, where its file system can do that.

    Args:
        directory: Descriptor of the directory.

    Examples:
        >>> with open_place(root, path) as place:
        ...     flush_directory(place.directory)
    """
    try:
        os.fsync(directory)
    except OSError as error:
        # Some network file systems flush no directories; there the name is as safe as they make it.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise


class _Walk:
    """One walk. `_real` names the directory that is open; above the root, none is, and only names count."""

    __slots__ = ("_above", "_directory", "_link", "_links", "_missing", "_path", "_pending", "_real", "_root")

    def __init__(self, root: Path, path: WorkspacePath, missing: Missing) -> None:
        self._root = root
        self._path = path
        self._missing = missing
        self._pending = list(reversed(path.parts))
        self._real: list[str] = []
        self._above = 0
        self._links = 0
        self._link = False
        self._directory = -1

    def run(self) -> Place:
        self._restart()
        while self._pending:
            name = self._pending.pop()
            if name == "..":
                self._up()
            elif self._above:
                self._back_down(name)
            elif is_reserved(name):
                raise self.refusal("leads into the runtime folder")
            elif (target := _link_target(name, self._directory)) is not None:
                self._follow(name, target)
            elif not self._pending or not self._enter(name):
                return self._place(name)
        if self._above:
            raise self.refusal("leads out of the workspace through a symbolic link")
        return self._place(".")

    def close(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def refusal(self, why: str) -> PathRefused:
        return PathRefused(f"{shown(self._path)} {why}")

    def _restart(self) -> None:
        self.close()
        self._real = []
        self._directory = os.open(self._root, OPEN_DIRECTORY)

    def _up(self) -> None:
        if self._real:
            # Not by opening "..": whoever moves the open directory meanwhile decides what that is.
            self._pending.extend(reversed(self._real[:-1]))
            self._restart()
        else:
            self._above = min(self._above + 1, len(self._root.parts) - 1)

    def _back_down(self, name: str) -> None:
        if name != self._root.parts[-self._above]:
            raise self.refusal("leads out of the workspace through a symbolic link")
        self._above -= 1

    def _follow(self, name: str, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise self.refusal(f"leads through too many symbolic links, {shown(name)} among them: a circle?")
        self._link = self._link or not self._pending
        if target.startswith("/"):
            self._restart()
            self._above = len(self._root.parts) - 1
        self._pending.extend(part for part in reversed(target.split("/")) if part not in {"", "."})

    def _enter(self, name: str) -> bool:
        try:
            below = os.open(name, OPEN_DIRECTORY, dir_fd=self._directory)
        except FileNotFoundError:
            if self._missing is Missing.REFUSE or ".." in self._pending:
                raise
            if self._missing is Missing.ASSUME:
                return False
            _make_directory(name, self._directory)
            below = os.open(name, OPEN_DIRECTORY, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = below
        self._real.append(name)
        return True

    def _place(self, name: str) -> Place:
        rest = [] if name == "." else [name, *reversed(self._pending)]
        # A link's target may hold names that no path can; then nothing could name what was found either.
        path = resolve_path("/".join([*self._real, *rest]) or ".")
        return Place(directory=self._directory, name=name, path=path, link=self._link)


def _link_target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:  # it exists and is no link
            return None
        raise


def _make_directory(name: str, directory: int) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return  # somebody else made it just now; opening it tells whether it is a directory
    flush_directory(directory)
