"""Find the files and directories of a workspace whose paths fit a pattern."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import FileStat, WorkspaceFS
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.patterns import PathPattern
from agentscope_rx.workspace.walking import Walk


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
    fits, limits = PathPattern(pattern), limits or GlobLimits()
    found: list[FileStat] = []
    walk, seen = Walk(workspace, path), 0
    async with aclosing(walk.entries(enters=fits.may_match_below)) as entries:
        async for entry, name in entries:
            seen += 1
            if seen % 1000 == 0:  # a workspace in memory never waits, and others want their turn
                await asyncio.sleep(0)
            if seen > limits.entries or len(found) > limits.matches:
                break
            if fits.matches(name):
                found.append(entry)
    return GlobResult(
        entries=tuple(found[: limits.matches]),
        more_matches=len(found) > limits.matches,
        more_entries=seen > limits.entries,
        unreadable=walk.unreadable,
        too_deep=walk.too_deep,
    )
