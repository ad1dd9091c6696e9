"""What every workspace asks before it does anything, so that all of them refuse the same in the same words."""

from __future__ import annotations

import hashlib
import os

from agentscope_rx.errors import FileTooLarge, InvalidOption, PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.workspace.paths import WorkspacePath, shown

DEFAULT_MAX_READ_BYTES = 32 * 1024 * 1024
"""How much one `read` returns at most, where nothing else was said."""


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


def check_writable(path: object, what: str, *, read_only: bool) -> None:
    """Refuse to change anything in a workspace that is read-only.

    Args:
        path: The file, for the message.
        what: What did not happen to it, such as "written".
        read_only: Whether the workspace is.

    Raises:
        WorkspaceError: If it is.

    Examples:
        >>> check_writable("a.txt", "written", read_only=False)
    """
    if read_only:
        raise WorkspaceError(f"{shown(path)} was not {what}: the workspace is read-only")


def check_entry(path: WorkspacePath, *, link: bool = False) -> None:
    """Refuse to take away what is no entry of its own: the root, and a link, which stands for something else.

    Args:
        path: The path that was asked for.
        link: Whether its last name is a symbolic link.

    Raises:
        PathRefused: If it is one of them.

    Examples:
        >>> check_entry(resolve_path("a.txt"))
    """
    if link:
        raise PathRefused(f"{shown(path)} is a symbolic link: name the file that it leads to")
    if not path.parts:
        raise PathRefused("the workspace itself can be neither deleted nor moved")


def gone(path: object) -> WorkspaceConflict:
    """Make the error for a file that was there when it was read.

    Args:
        path: The file.

    Examples:
        >>> str(gone("a.txt"))
        "'a.txt' is gone since it was read"
    """
    return WorkspaceConflict(f"{shown(path)} is gone since it was read")


def os_error(number: int, path: object, to: object = None) -> OSError:
    """Make the error of the standard library for a number, of the class that belongs to it.

    Args:
        number: One of `errno`.
        path: The path that it is about, as the caller knows it.
        to: The second path, of a move. Default: there is none.

    Examples:
        >>> os_error(errno.ENOENT, "a.txt")
        FileNotFoundError(2, 'No such file or directory')
    """
    if to is None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(number, os.strerror(number), str(path), None, str(to))
