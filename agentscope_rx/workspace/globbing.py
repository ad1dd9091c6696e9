"""Find the files and directories of a workspace whose paths fit a pattern."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import FileStat, WorkspaceFS
from agentscope_rx.workspace.folders import Folder
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.patterns import PathPattern
from agentscope_rx.workspace.walking import Walk, WalkPart


@frozen
class GlobLimits:
    """How far a glob goes.

    Args:
        matches: How many entries are returned at most. Default 1,000.
        entries: How many entries are compared with the pattern at most. Default 100,000.

    Raises:
        InvalidOption: If a number is less than 1.
    """

    matches: int = 1000
    entries: int = 100_000

    def __post_init__(self) -> None:
        for option in ("matches", "entries"):
            if getattr(self, option) < 1:
                raise InvalidOption(option, getattr(self, option), "give at least 1")


@frozen
class GlobResult:
    """What a glob found, and where it did not look.

    Args:
        entries: Files and directories, in the order of a walk.
        more_matches: True if there are more than the limit.
        more_entries: True if there are more entries to look at than the limit.
        unreadable: Number of directories that could not be read.
        too_deep: Number of directories that are too deep to be entered.
    """

    entries: tuple[FileStat, ...]
    more_matches: bool = False
    more_entries: bool = False
    unreadable: int = 0
    too_deep: int = 0


async def glob_paths(
    workspace: WorkspaceFS,
    pattern: str,
    *,
    path: str | WorkspacePath = ".",
    limits: GlobLimits | None = None,
) -> GlobResult:
    """Find the entries below a directory that fit a pattern.

    Links are left out, and directories in which nothing can fit are not entered.

    Args:
        workspace: Where to look.
        pattern: A `PathPattern`, relative to `path`.
        path: The directory. Default: the root.
        limits: How far to go. Default `GlobLimits()`.

    Raises:
        ValueError: If `pattern` is none.
        PathRefused: If `path` is not inside the workspace.
        FileNotFoundError: If `path` does not exist.
        NotADirectoryError: If `path` is a file.

    Examples:
        >>> [str(entry.path) for entry in (await glob_paths(workspace, "src/**/*.py")).entries]
        ['src/app.py', 'src/lib/io.py']
    """
    glob = _Glob(workspace, PathPattern(pattern), limits or GlobLimits())
    return await glob.run(path)


class _Glob:
    """One glob under way."""

    def __init__(self, workspace: WorkspaceFS, fits: PathPattern, limits: GlobLimits) -> None:
        self._workspace, self._fits, self._limits = workspace, fits, limits
        self._found: list[tuple[Folder, str]] = []
        self._seen = 0

    async def run(self, path: str | WorkspacePath) -> GlobResult:
        walk, limits = Walk(self._workspace, path), self._limits
        async with aclosing(walk.parts(enters=self._fits.may_match_below)) as parts:
            async for part in parts:
                self._look_at(part)
                if self._seen > limits.entries or len(self._found) > limits.matches:
                    break
                await asyncio.sleep(0)  # a workspace in memory never waits, and others want their turn
        return GlobResult(
            entries=tuple([entry async for entry in self._described(self._found[: limits.matches])]),
            more_matches=len(self._found) > limits.matches,
            more_entries=self._seen > limits.entries,
            unreadable=walk.unreadable,
            too_deep=walk.too_deep,
        )

    def _look_at(self, part: WalkPart) -> None:
        names = list(part.files)
        if part.directory is not None:
            names.append(part.directory)
        room = self._limits.entries - self._seen
        self._seen += len(names)
        self._found.extend((part.folder, name) for name in self._fits.fitting(part.at, names[:room]))

    async def _described(self, found: Sequence[tuple[Folder, str]]) -> AsyncGenerator[FileStat]:
        """What is known about what was found; each directory is listed once, and what is gone by then left out."""
        listed = dict[WorkspacePath, Mapping[str, FileStat]]()
        for folder, name in found:
            entry = folder.known.get(name)
            if entry is None:
                if folder.path not in listed:
                    listed[folder.path] = await self._listed(folder.path)
                entry = listed[folder.path].get(name)
            if entry is not None:
                yield entry

    async def _listed(self, path: WorkspacePath) -> Mapping[str, FileStat]:
        try:
            return {entry.path.name: entry for entry in await self._workspace.list(path)}
        except OSError:
            return {}
