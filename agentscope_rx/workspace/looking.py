"""Which of many files are worth reading when a text is searched, told without returning each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.folders import Folder
from agentscope_rx.workspace.text import binary_type


class Look(Enum):
    """What a look at a file told; a file that does not hold the text has none."""

    MAY_HOLD = auto()
    BINARY = auto()
    TOO_LARGE = auto()
    UNREADABLE = auto()


Looks = Mapping[str, Look]
"""What was told about files, by their names."""


@frozen
class FileGroup:
    """Some files of one directory.

    Args:
        folder: The directory, and what else is in it.
        names: Those of its files that are meant.
    """

    folder: Folder
    names: Sequence[str]


@frozen
class Needle:
    """What is searched for.

    Args:
        text: The text; no line feed, and at least one byte.
        file_bytes: How large a file may be, in bytes.
    """

    text: bytes
    file_bytes: int


@runtime_checkable
class FindsText(Protocol):
    """A workspace that has a faster way to look through many files than to return each of them."""

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files; who shows what one holds reads it, which tells whether it may be.

        Args:
            groups: The files.
            needle: What they may hold.

        Returns:
            What was told about the files of each group, in their order.
        """
        ...


async def looks_at(workspace: WorkspaceFS, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
    """Ask a workspace which files are worth reading; all that are not too large, where it cannot tell.

    Args:
        workspace: Where the files are.
        groups: The files.
        needle: What they may hold.

    Examples:
        >>> [looks] = await looks_at(InMemoryWorkspace({"a": "x"}), [group], Needle(text=b"needle", file_bytes=100))
        >>> looks
        {'a': <Look.MAY_HOLD: 1>}
    """
    if not groups:
        return ()
    if isinstance(workspace, FindsText):
        return await workspace.looks(groups, needle)
    return by_size(groups, needle)


def look_at(data: bytes, needle: Needle) -> Look | None:
    """Tell what a look at a whole file told; None where the file does not hold the text.

    Args:
        data: Its content.
        needle: What it may hold.

    Examples:
        >>> look_at(b"a needle", Needle(text=b"needle", file_bytes=100))
        <Look.MAY_HOLD: 1>
    """
    if len(data) > needle.file_bytes:
        return Look.TOO_LARGE
    if binary_type(data) is not None:
        return Look.BINARY
    return Look.MAY_HOLD if needle.text in data else None


def by_size(groups: Sequence[FileGroup], needle: Needle) -> list[Looks]:
    """Tell what is known of files before any is looked at: which are too large; all others are worth it.

    Args:
        groups: The files.
        needle: What they may hold.

    Examples:
        >>> by_size([group], Needle(text=b"needle", file_bytes=0))
        [{'a': <Look.TOO_LARGE: 3>}]
    """
    return [
        {
            name: Look.TOO_LARGE if name in known and known[name].size > needle.file_bytes else Look.MAY_HOLD
            for name in group.names
        }
        for group in groups
        for known in (group.folder.known,)
    ]
