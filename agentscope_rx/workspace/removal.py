"""Take a file out of its directory, for good or to another one, if it is the one that the writer believes."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from agentscope_rx.workspace.conditions import check_entry, gone
from agentscope_rx.workspace.containment import Place, flush_directory
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.replacement import check_file, check_replaceable, give_name, only_writer


def delete_entry(place: Place, *, path: WorkspacePath, if_match: str | None) -> None:
    """Delete a file or an empty directory.

    Args:
        place: Where it is.
        path: The path that was asked for.
        if_match: The digest that the file must have; None for any, or a directory.

    Raises:
        PathRefused: If it is the root, a link, or neither a file nor a directory.
        FileNotFoundError: If there is nothing.
        WorkspaceConflict: If the file has another digest, or is missing.
        IsADirectoryError: With `if_match`, if it is a directory.
        PermissionError: If the file may not be written to.
        OSError: If the directory is not empty.

    Examples:
        >>> with open_place(root, path) as place:
        ...     delete_entry(place, path=path, if_match=None)
    """
    check_entry(path, link=place.link)
    with only_writer(place.directory):
        status = _status(place, if_match)
        if stat.S_ISDIR(status.st_mode) and if_match is None:
            os.rmdir(place.name, dir_fd=place.directory)
        else:
            check_file(place, status)
            check_replaceable(place, if_match)
            # Should a link have taken the name meanwhile, then it is the link that goes, not what it leads to.
            os.unlink(place.name, dir_fd=place.directory)
    flush_directory(place.directory)


def check_movable(place: Place, *, path: WorkspacePath, if_match: str | None) -> None:
    """Refuse to move what is no file of its own, or not the one that the writer believes.

    Args:
        place: Where it is.
        path: The path that was asked for.
        if_match: The digest that it must have; None for any.

    Raises:
        PathRefused: If it is the root, a link, or neither a file nor a directory.
        FileNotFoundError: If there is nothing.
        WorkspaceConflict: If the file has another digest, or is missing.
        IsADirectoryError: If it is a directory.
        PermissionError: If it may not be written to.

    Examples:
        >>> with open_place(root, path) as place:
        ...     check_movable(place, path=path, if_match=None)
    """
    check_entry(path, link=place.link)
    check_file(place, _status(place, if_match))
    check_replaceable(place, if_match)


def move_file(place: Place, to: Place, *, path: WorkspacePath, if_match: str | None) -> None:
    """Move a file to a name that nobody has.

    A crash in between may leave the file with both names, never with none.

    Args:
        place: Where it is.
        to: Where it will be.
        path: The path that was asked for.
        if_match: The digest that it must have; None for any.

    Raises:
        OSError: As `check_movable` says.
        FileExistsError: If there is anything at the new place.

    Examples:
        >>> with open_place(root, path) as place, open_place(root, new) as to:
        ...     move_file(place, to, path=path, if_match=None)
    """
    with only_writer(place.directory, to.directory):
        check_movable(place, path=path, if_match=if_match)
        if to.name == ".":
            raise FileExistsError(errno.EEXIST, "File exists")
        give_name(place.name, to, directory=place.directory)
        flush_directory(to.directory)
        # It has gone already where there are no hard links.
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.directory)
    flush_directory(place.directory)


def _status(place: Place, if_match: str | None) -> os.stat_result:
    try:
        return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        if if_match is None:
            raise
        raise gone(place.path) from None
