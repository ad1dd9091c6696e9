"""What a workspace can do, as a protocol, and the values that its verbs return."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Protocol, runtime_checkable

from agentscope_rx.errors import FileTooLarge, InvalidOption, WorkspaceConflict
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.paths import WorkspacePath, shown

DEFAULT_MAX_READ_BYTES = 32 * 1024 * 1024
"""How much one `read` returns at most, where nothing else was said."""


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


def version_of(data: bytes) -> str:
    """Compute the version of a content: the SHA-256 digest, so that equal contents have equal versions.

    Args:
        data: The whole content of a file.

    Examples:
        >>> version_of(b"")[:8]
        'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def part_length(path: object, size: int, offset: int, limit: int | None, most: int) -> int:
    """Compute how many bytes a read returns.

    Args:
        path: The file, for messages.
        size: Its size in bytes.
        offset: Where the read begins, in bytes.
        limit: How many bytes were asked for at most; None for the rest.
        most: How many bytes one read may return.

    Raises:
        InvalidOption: If `offset` or `limit` is negative.
        FileTooLarge: If all of the rest was asked for, and it is more than `most`.

    Examples:
        >>> part_length("a", 10, 8, 5, 100)
        2
    """
    for option, value in (("offset", offset), ("limit", limit or 0)):
        if value < 0:
            raise InvalidOption(option, value, "give 0 or more bytes")
    rest = max(size - offset, 0)
    if limit is not None:
        return min(limit, rest, most)
    if rest > most:
        raise FileTooLarge(f"{shown(path)}: {rest} bytes are more than the {most} that may be read at once")
    return rest


def check_write(*, if_match: str | None, create_only: bool) -> None:
    """Refuse conditions of a write that contradict each other.

    Raises:
        InvalidOption: If both are given.

    Examples:
        >>> check_write(if_match=None, create_only=True)
    """
    if create_only and if_match is not None:
        raise InvalidOption("if_match", if_match, "a file that must not exist yet has no version to match")


def check_version(path: object, expected: str, found: str) -> None:
    """Compare the version that a writer expects with the one that is there.

    Args:
        path: The file, for the message.
        expected: What the writer read.
        found: What is there now.

    Raises:
        WorkspaceConflict: If they differ.

    Examples:
        >>> check_version("a.txt", "1", "1")
    """
    if expected != found:
        raise WorkspaceConflict(
            f"{shown(path)} was changed since it was read (expected version {shown(expected)}, "
            f"found {found!r}): read it again and repeat the change"
        )


def check_max_read_bytes(value: int) -> int:
    """Return `value` if it can be the most that one read returns.

    Raises:
        InvalidOption: If it is less than 1.

    Examples:
        >>> check_max_read_bytes(10)
        10
    """
    if value < 1:
        raise InvalidOption("max_read_bytes", value, "give at least 1 byte")
    return value
