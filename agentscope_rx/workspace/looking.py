"""Which of many files are worth reading when a text is searched, told without returning each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.folders import Folder
from agentscope_rx.workspace.paths import WorkspacePath


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
    return [_by_size(group, needle) for group in groups]


async def looks_by_reading(
    groups: Sequence[FileGroup],
    needle: Needle,
    holding: Callable[[Sequence[WorkspacePath], bytes], Awaitable[Collection[WorkspacePath]]],
) -> Sequence[Looks]:
    """Look at files for a workspace that reads many of them in one request.

    Args:
        groups: The files.
        needle: What they may hold.
        holding: Tells which of those that are not too large may hold a text, or are binary.
    """
    looks = [_by_size(group, needle) for group in groups]
    paths = [
        {group.folder.path.child(name): name for name, look in each.items() if look is Look.MAY_HOLD}
        for group, each in zip(groups, looks, strict=True)
    ]
    found = set(await holding([path for each in paths for path in each], needle.text))
    away = [{name for path, name in each.items() if path not in found} for each in paths]
    return [
        {name: look for name, look in each.items() if name not in gone} for each, gone in zip(looks, away, strict=True)
    ]


def _by_size(group: FileGroup, needle: Needle) -> Looks:
    known = group.folder.known
    return {
        name: Look.TOO_LARGE if name in known and known[name].size > needle.file_bytes else Look.MAY_HOLD
        for name in group.names
    }
