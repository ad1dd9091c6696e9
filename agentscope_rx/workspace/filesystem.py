"""What a workspace can do, as a protocol, and the values that its verbs return."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, runtime_checkable

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.paths import WorkspacePath


class FileKind(StrEnum):
    """What an entry of a directory is."""

    FILE = "file"
    DIRECTORY = "directory"


@frozen
class FileContent:
    """What `read` found.

    Args:
        path: Where it is, as it was asked for.
        data: The bytes that were asked for.
        size: Size of the whole file in bytes.
        version: Digest of the whole content, for `write(..., if_match=...)`; None if only a part was read, so
            that nobody replaces a file of which they saw a part.
    """

    path: WorkspacePath
    data: bytes
    size: int
    version: str | None


@frozen
class FileStat:
    """What is known about a file or directory without its content.

    Args:
        path: Where it is, as it was asked for.
        kind: File or directory; behind a symbolic link, the kind of what it leads to.
        size: Bytes of a file; 0 for a directory.
        modified: Time of the last change, in seconds since 1970-01-01 UTC.
        version: Digest of the content as `read` gives it; None for a directory, in a listing (which reads no
            file) and for a file that is too large to be read at once.
        link: True if the entry itself is a symbolic link. Who walks a tree stays out of linked directories:
            they may lead back up.
    """

    path: WorkspacePath
    kind: FileKind
    size: int
    modified: float
    version: str | None = None
    link: bool = False


@runtime_checkable
class WorkspaceFS(Protocol):
    """The files of one workspace; every verb keeps to the inside of its root.

    A path is text or a `WorkspacePath`; text goes through `resolve_path` first. Every verb may raise
    `PathRefused` for a path that is malformed, leads out of the workspace (also through a symbolic link) or
    into the runtime folder, and otherwise the `OSError` of the standard library that says what happened.
    Permissions are not asked here: they sit above, and decide about what `resolve` returns.

    One whose files other machines work on too says so with an attribute `shared = True`: sessions are then not to be
    kept where only this machine finds them. One that refuses every change says `read_only = True`. One in which no
    symbolic link can be says `links = False`: who stands on it then knows where a path leads without asking.
    """

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads in the end, behind all symbolic links; nothing needs to exist there.

        Args:
            path: What a caller asked for.

        Raises:
            PathRefused: If it leads out of the workspace, or in a circle.

        Examples:
            >>> str(await workspace.resolve("ok/y.txt"))  # ok -> ./sub
            'sub/y.txt'
        """
        ...

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file, or a part of it.

        Args:
            path: The file.
            offset: Where to begin, in bytes. Beyond the end there is nothing, which is no error. Default 0.
            limit: How many bytes at most; a workspace may return fewer than that and than there are, so go on
                at `offset + len(data)` until it is `size`. Default None: all, to the end.

        Raises:
            FileTooLarge: If, without a `limit`, there are more bytes than the workspace returns at once.
            FileNotFoundError: If there is no such file.
            IsADirectoryError: If it is a directory.
            InvalidOption: If `offset` or `limit` is negative.

        Examples:
            >>> (await workspace.read("notes.txt", limit=5)).data
            b'hello'
        """
        ...

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace a file in one piece, or create it together with the directories above it.

        Args:
            path: The file.
            data: Its whole new content.
            if_match: The version that is to be replaced. Default None: whatever there is.
            create_only: True to refuse a file that exists. Default False.

        Returns:
            The version of the new content.

        Raises:
            WorkspaceConflict: If the file has another version than `if_match`, or is gone.
            FileExistsError: With `create_only`, if the file exists.
            IsADirectoryError: If the path is a directory.
            NotADirectoryError: If something above it is a file.
            InvalidOption: If both `if_match` and `create_only` are given.
            WorkspaceError: If the workspace is read-only.

        Examples:
            >>> found = await workspace.read("notes.txt")
            >>> version = await workspace.write("notes.txt", b"bye", if_match=found.version)
        """
        ...

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory, sorted by name.

        Entries that no verb could use are left out: the runtime folder, half-written files, links that lead
        out of the workspace or nowhere, sockets and devices, and names that no path can hold.

        Args:
            path: The directory. Default: the root.

        Raises:
            FileNotFoundError: If there is no such directory.
            NotADirectoryError: If it is a file.

        Examples:
            >>> [str(entry.path) for entry in await workspace.list("src")]
            ['src/app.py', 'src/lib']
        """
        ...

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory.

        Args:
            path: The file or directory.

        Raises:
            FileNotFoundError: If there is nothing.

        Examples:
            >>> (await workspace.stat("notes.txt")).size
            5
        """
        ...

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file, or a directory that is empty.

        Unlike the other verbs this one, and `move`, follows no link at the end of the path: deleting what a link
        leads to would leave the link behind, and deleting the link would be another thing than what `resolve`
        told a permission rule. So a link is refused.

        Args:
            path: The file or directory.
            if_match: The version of the file that is to be deleted. Default None: whatever there is.

        Raises:
            FileNotFoundError: If there is nothing.
            WorkspaceConflict: If the file has another version than `if_match`, or is gone.
            IsADirectoryError: With `if_match`, if it is a directory, which has no version.
            OSError: With `errno.ENOTEMPTY`, if the directory holds anything, seen in a listing or not.
            PathRefused: If it is a symbolic link, or the root.
            WorkspaceError: If the workspace is read-only.

        Examples:
            >>> await workspace.delete("notes.txt")
        """
        ...

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path, and make the directories above that; nothing is overwritten.

        Directories are not moved: one may hold a part of the runtime, or more files than can be moved at once.

        Args:
            path: The file.
            to: Its new path, at which there must be nothing.
            if_match: The version that is to be moved. Default None: whatever there is.

        Raises:
            FileNotFoundError: If there is no such file.
            FileExistsError: If there is anything at `to`, the file itself included.
            WorkspaceConflict: If the file has another version than `if_match`, or is gone.
            IsADirectoryError: If `path` is a directory.
            NotADirectoryError: If something above `path` or `to` is a file.
            PathRefused: If `path` is a symbolic link.
            WorkspaceError: If the workspace is read-only.

        Examples:
            >>> await workspace.move("notes.txt", "old/notes.txt")
        """
        ...


def is_shared(workspace: WorkspaceFS) -> bool:
    """Whether a workspace says that other machines work on its files too."""
    return bool(getattr(workspace, "shared", False))


def has_links(workspace: WorkspaceFS) -> bool:
    """Whether a path may lead elsewhere than it says: unless the workspace denies it."""
    return bool(getattr(workspace, "links", True))


def is_read_only(workspace: WorkspaceFS) -> bool:
    """Whether a workspace says that it refuses every change."""
    return bool(getattr(workspace, "read_only", False))
