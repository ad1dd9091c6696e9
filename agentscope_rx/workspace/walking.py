"""Go through the files and directories below a place, in the order of their names and without links."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from agentscope_rx.workspace.filesystem import FileKind, FileStat, WorkspaceFS
from agentscope_rx.workspace.paths import WorkspacePath

VERSION_CONTROL_FOLDERS = frozenset({".git", ".hg", ".svn"})
"""Left out of a walk that starts above them: copies of every file, and nothing to edit."""

MAX_DEPTH = 64
"""How many directories deep a walk goes: no project is deeper, and a tree made to be endless may be."""


class Walk:
    """One walk, and what it left out.

    Linked files and directories are not entered, so that nothing is met twice.

    Args:
        workspace: Where to walk.
        path: The directory to begin in.

    Attributes:
        unreadable: Number of directories that could not be read.
        too_deep: Number of directories that were not entered because of `MAX_DEPTH`.

    Examples:
        >>> [name async for _, name in Walk(workspace, ".").entries()]
        ['a.txt', 'src', 'src/app.py']
    """

    def __init__(self, workspace: WorkspaceFS, path: str | WorkspacePath) -> None:
        self._workspace = workspace
        self._path = path
        self.unreadable = 0
        self.too_deep = 0

    async def entries(self, *, enters: Callable[[str], bool] | None = None) -> AsyncGenerator[tuple[FileStat, str]]:
        """Give each entry with its path relative to the beginning; a directory comes before what is in it.

        Args:
            enters: Whether a directory, by its relative path, is entered. Default: all are.

        Raises:
            FileNotFoundError: If the beginning does not exist.
            NotADirectoryError: If it is a file.
            PathRefused: If it is not inside the workspace.
        """
        first = await self._workspace.list(self._path)
        above = len(first[0].path.parts) - 1 if first else 0
        waiting = list(reversed(first))
        while waiting:
            entry = waiting.pop()
            if entry.link:
                continue
            name = "/".join(entry.path.parts[above:])
            yield entry, name
            if entry.kind is FileKind.DIRECTORY and (enters is None or enters(name)):
                waiting.extend(reversed(await self._below(entry, depth=len(entry.path.parts) - above)))

    async def _below(self, directory: FileStat, *, depth: int) -> tuple[FileStat, ...]:
        if directory.path.name in VERSION_CONTROL_FOLDERS:
            return ()
        if depth >= MAX_DEPTH:
            self.too_deep += 1
            return ()
        try:
            return await self._workspace.list(directory.path)
        except OSError:
            self.unreadable += 1
            return ()
