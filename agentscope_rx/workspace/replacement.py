"""Put a new content in the place of a file in one piece, if the old one is what the writer believes."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace.conditions import check_version, gone
from agentscope_rx.workspace.containment import NOFOLLOW, Place, flush_directory, open_file
from agentscope_rx.workspace.paths import TEMPORARY_PREFIX, shown

_writing = threading.Lock()

# Answers of file systems that have no hard links; macOS says ENOTSUP, FUSE and FAT on Linux say EPERM.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def replace_file(place: Place, data: bytes, *, if_match: str | None, create_only: bool) -> None:
    """Write a temporary file beside the old one, make sure it is on the disk, and let it take its place.

    Args:
        place: Where the file is or will be.
        data: The new content.
        if_match: The digest that the old content must have; None for any content, or none.
        create_only: True if there must be no old file.

    Raises:
        WorkspaceConflict: If the old content has another digest, or is missing.
        FileExistsError: With `create_only`, if there is a file.
        IsADirectoryError: If there is a directory.
        PermissionError: If the old file may not be written to.
        PathRefused: If there is something that is neither a file nor a directory.

    Examples:
        >>> with open_place(root, path) as place:
        ...     replace_file(place, b"new", if_match=None, create_only=False)
    """
    if place.name == ".":
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    with _temporary(place, data) as (name, file), only_writer(place.directory):
        mode = _check_old(place, if_match, create_only)
        if mode is not None:
            os.fchmod(file, mode)
        if create_only:
            give_name(name, place, directory=place.directory)
        else:
            os.replace(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    flush_directory(place.directory)


def digest(file: int) -> str:
    """Compute the version of an open file from its content, as `version_of` does.

    Args:
        file: Descriptor of the file, at its beginning.

    Examples:
        >>> with open_file(place) as file:
        ...     version = digest(file)
    """
    with open(file, "rb", closefd=False) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def only_writer(*directories: int) -> Generator[None]:
    """Hold off other writers while what is there is compared and changed.

    Args:
        directories: Descriptors of the directories in which names change.

    Examples:
        >>> with open_place(root, path) as place, only_writer(place.directory):
        ...     check_replaceable(place, None)
    """
    import fcntl  # not on Windows, where this module must still be importable

    # Each directory once, and all writers in one order: a second lock on the same one would wait for the first.
    ordered = [file for _, file in sorted({_identity(file): file for file in directories}.items())]
    with _writing:
        # Some network file systems have no locks on directories: then the lock of this process must do.
        for file in ordered:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            for file in ordered:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)


def check_file(place: Place, status: os.stat_result) -> None:
    """Refuse what is no file.

    Args:
        place: Where it is.
        status: What the system says about it, without following links.

    Raises:
        IsADirectoryError: If it is a directory.
        PathRefused: If it is neither file nor directory.

    Examples:
        >>> with open_place(root, path) as place:
        ...     check_file(place, os.stat(place.name, dir_fd=place.directory, follow_symlinks=False))
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{shown(place.path)} is neither a file nor a directory")


def check_replaceable(place: Place, if_match: str | None) -> None:
    """Refuse to change a file that is marked as read-only, or is not the one that the writer believes.

    Args:
        place: Where the file is.
        if_match: The digest that it must have; None for any.

    Raises:
        PermissionError: If it may not be written to.
        WorkspaceConflict: If it has another digest.

    Examples:
        >>> with open_place(root, path) as place:
        ...     check_replaceable(place, None)
    """
    # Changing a name needs only the directory's permission, so a file marked as read-only would not be safe.
    if not os.access(place.name, os.W_OK, dir_fd=place.directory):
        raise PermissionError(errno.EACCES, "Permission denied")
    if if_match is not None:
        with open_file(place) as file:
            check_version(place.path, if_match, digest(file))


def give_name(name: str, place: Place, *, directory: int) -> None:
    """Let a file take a name that nobody has; where there are hard links, in one step.

    Args:
        name: Its name so far. Where the file system has hard links it stays, else it is gone afterwards.
        place: Its new name.
        directory: Descriptor of the directory that holds the name so far.

    Raises:
        FileExistsError: If somebody has the new name.

    Examples:
        >>> with open_place(root, path) as place:
        ...     give_name(temporary, place, directory=place.directory)
    """
    try:
        os.link(name, place.name, src_dir_fd=directory, dst_dir_fd=place.directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Reserve the name instead; a reader may see the file empty for a moment.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
        os.close(os.open(place.name, flags, 0o666, dir_fd=place.directory))
        os.replace(name, place.name, src_dir_fd=directory, dst_dir_fd=place.directory)


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


@contextmanager
def _temporary(place: Place, data: bytes) -> Generator[tuple[str, int]]:
    name = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
    file = os.open(name, flags, 0o666, dir_fd=place.directory)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        os.fsync(file)
        yield name, file
    finally:
        os.close(file)
        # After a replacement the name is gone; after anything else it must not stay.
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place.directory)


def _check_old(place: Place, if_match: str | None, create_only: bool) -> int | None:
    """Return the permission bits of the file that is to be replaced, None if there is none."""
    try:
        status = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        if if_match is None:
            return None
        raise gone(place.path) from None
    check_file(place, status)
    if create_only:
        raise FileExistsError(errno.EEXIST, "File exists")
    check_replaceable(place, if_match)
    # Bits that lend the owner's rights (setuid) are not passed on to a content that a model wrote.
    return stat.S_IMODE(status.st_mode) & 0o777
