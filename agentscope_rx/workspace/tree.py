"""Files and directories as a tree without a disk: the rules of `WorkspaceFS`, whatever a file's content is."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Generic, TypeVar

from agentscope_rx.errors import WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.conditions import check_entry, check_version, gone, os_error
from agentscope_rx.workspace.filesystem import FileKind, FileStat
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path

C = TypeVar("C")


@frozen
class FileNode(Generic[C]):
    """A file of a tree.

    Args:
        content: Its content, or what leads to it.
        size: Its size in bytes.
        version: The digest of its content.
        modified: When it was changed, in seconds since 1970-01-01 UTC.
    """

    content: C
    size: int
    version: str
    modified: float


class FileTree(Generic[C]):
    """A tree of files. Nothing waits, so that whoever changes it changes it in one piece.

    Args:
        now: When it is made, in seconds since 1970-01-01 UTC.
        directories: What directories there are, with the time of their last change. Default: the root.
        files: What files there are; the directories above them must be there. Default: none.
    """

    def __init__(
        self,
        now: float,
        directories: Iterable[tuple[WorkspacePath, float]] = (),
        files: Iterable[tuple[WorkspacePath, FileNode[C]]] = (),
    ) -> None:
        self.directories: dict[WorkspacePath, float] = {resolve_path("."): now, **dict(directories)}
        self.files: dict[WorkspacePath, FileNode[C]] = dict(files)
        self._entries: dict[WorkspacePath, set[WorkspacePath]] = {path: set() for path in self.directories}
        for path in (*self.directories, *self.files):
            if path.parts:
                self._entries[path.parent].add(path)

    # -- looking --------------------------------------------------------------------------------------------

    def file(self, path: WorkspacePath) -> FileNode[C]:
        """The file at a path.

        Raises:
            NotADirectoryError: Something above it is a file.
            IsADirectoryError: It is a directory.
            FileNotFoundError: There is nothing.
        """
        self.check_above(path)
        if path in self.directories:
            raise os_error(errno.EISDIR, path)
        if path not in self.files:
            raise os_error(errno.ENOENT, path)
        return self.files[path]

    def list(self, path: WorkspacePath) -> tuple[FileStat, ...]:
        """What is in a directory, by name; errors as for `file`, and NotADirectoryError for a file."""
        if path not in self.directories:
            self.file(path)
            raise os_error(errno.ENOTDIR, path)
        return tuple(self.described(entry) for entry in sorted(self._entries[path]))

    def described(self, path: WorkspacePath, *, version_up_to: int = -1) -> FileStat:
        """What is known about a file or directory.

        Args:
            path: Which.
            version_up_to: How many bytes a file may have whose version is told. Default: no file's is.

        Raises:
            NotADirectoryError: Something above it is a file.
            FileNotFoundError: There is nothing.
        """
        modified = self.directories.get(path)
        if modified is not None:
            return FileStat(path=path, kind=FileKind.DIRECTORY, size=0, modified=modified)
        node = self.file(path)
        version = node.version if node.size <= version_up_to else None
        return FileStat(path=path, kind=FileKind.FILE, size=node.size, modified=node.modified, version=version)

    def check_above(self, path: WorkspacePath) -> None:
        """Refuse what lies below a file, with NotADirectoryError."""
        above = path
        while above != above.parent:
            above = above.parent
            if above in self.files:
                raise os_error(errno.ENOTDIR, path)

    def check_write(self, path: WorkspacePath, *, if_match: str | None, create_only: bool) -> None:
        """Refuse what a write may not replace; see `WorkspaceFS.write`."""
        if create_only and path in self.files:
            raise os_error(errno.EEXIST, path)
        if if_match is not None:
            self._check_match(path, if_match)
        self.check_above(path)
        if path in self.directories:
            raise os_error(errno.EISDIR, path)

    # -- changing -------------------------------------------------------------------------------------------

    def put(self, path: WorkspacePath, node: FileNode[C]) -> FileNode[C] | None:
        """Put a file at a path, together with the directories above it; gives the one that was there."""
        self.check_write(path, if_match=None, create_only=False)
        old = self.files.get(path)
        if old is None:
            self._make_above(path, node.modified)
        self.files[path] = node
        return old

    def delete(self, path: WorkspacePath, now: float, *, if_match: str | None) -> FileNode[C] | None:
        """Take away a file or an empty directory; gives the file. See `WorkspaceFS.delete`."""
        check_entry(path)
        if if_match is not None:
            self._check_match(path, if_match)
        node: FileNode[C] | None = None
        if path not in self.directories:
            node = self.file(path)
            del self.files[path]
        elif self._entries[path]:
            raise os_error(errno.ENOTEMPTY, path)
        else:
            del self.directories[path], self._entries[path]
        self._drop_entry(path, now)
        return node

    def move(self, path: WorkspacePath, to: WorkspacePath, now: float, *, if_match: str | None) -> None:
        """Give a file another path; see `WorkspaceFS.move`."""
        check_entry(path)
        try:
            if if_match is not None:
                self._check_match(path, if_match)
            node = self.file(path)
            self.check_above(to)
            if to in self.files or to in self.directories:
                raise os_error(errno.EEXIST, to)
        except WorkspaceError:
            raise
        except OSError as error:
            raise os_error(error.errno or 0, path, to) from error
        self._make_above(to, now)
        self.files[to] = node
        del self.files[path]
        self._drop_entry(path, now)

    def _check_match(self, path: WorkspacePath, if_match: str) -> None:
        old = self.files.get(path)
        if old is None:
            self.check_above(path)
            if path in self.directories:
                raise os_error(errno.EISDIR, path)
            raise gone(path)
        check_version(path, if_match, old.version)

    def _drop_entry(self, path: WorkspacePath, now: float) -> None:
        self._entries[path.parent].remove(path)
        self.directories[path.parent] = now

    def _make_above(self, path: WorkspacePath, now: float) -> None:
        """Make the directories that are missing; the one that gets a new entry changes with it."""
        entry, above = path, path.parent
        while above not in self.directories:
            self.directories[above] = now
            self._entries[above] = {entry}
            entry, above = above, above.parent
        self.directories[above] = now
        self._entries[above].add(entry)
