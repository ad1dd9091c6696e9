"""Search the files of a workspace for a text, file by file and without links."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from typing import Protocol, runtime_checkable

from agentscope_rx.errors import FileTooLarge, InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import FileKind, FileStat, WorkspaceFS
from agentscope_rx.workspace.paths import WorkspacePath, shown
from agentscope_rx.workspace.patterns import PathPattern
from agentscope_rx.workspace.text import binary_type, decode_text
from agentscope_rx.workspace.walking import Walk

# Below this a scan takes less than changing threads does.
_SCANNED_AT_ONCE = 64 * 1024
_SHOWN_BEFORE_MATCH = 100
# How many files a workspace is asked about at once; the first few alone, since they may hold matches enough.
_FIRST_ASKED, _ASKED_AT_ONCE = 100, 5000


@frozen
class SearchLimits:
    """How far a search goes.

    Args:
        matches: How many matching lines are returned at most. Default 200.
        files: How many files are read at most. Default 10,000.
        file_bytes: How large a file may be, in bytes. Default 10 MiB.
        line_length: How many characters of a line are shown. Default 500.

    Raises:
        InvalidOption: If a number is less than 1.
    """

    matches: int = 200
    files: int = 10_000
    file_bytes: int = 10 * 1024 * 1024
    line_length: int = 500

    def __post_init__(self) -> None:
        for option in ("matches", "files", "file_bytes", "line_length"):
            if getattr(self, option) < 1:
                raise InvalidOption(option, getattr(self, option), "give at least 1")


@frozen
class SearchMatch:
    """One line that holds the text.

    Args:
        path: The file.
        line: Number of the line, from 1.
        text: The line, or the part around the match with `…` where it was cut.
    """

    path: WorkspacePath
    line: int
    text: str


@frozen
class SearchResult:
    """What a search found, and where it did not look.

    Args:
        matches: In the order of the files.
        more_matches: True if there are more than the limit.
        more_files: True if there are more files than the limit.
        binary: Number of files that were left out because they are binary.
        too_large: Number of files that were left out because of their size.
        unreadable: Number of files and directories that could not be read.
        too_deep: Number of directories that are too deep to be entered.
    """

    matches: tuple[SearchMatch, ...]
    more_matches: bool = False
    more_files: bool = False
    binary: int = 0
    too_large: int = 0
    unreadable: int = 0
    too_deep: int = 0


@runtime_checkable
class FindsText(Protocol):
    """A workspace that has a faster way to look through many files than to return each of them."""

    async def holding(self, paths: Sequence[WorkspacePath], text: bytes) -> Collection[WorkspacePath]:
        """Tell which files may hold a text, or be binary; each of them is then read and looked at by itself.

        Args:
            paths: Files as `list` names them.
            text: What they may hold; no line feed, and at least one byte.
        """
        ...


async def files_holding(
    workspace: WorkspaceFS, paths: Sequence[WorkspacePath], text: bytes
) -> Collection[WorkspacePath]:
    """Ask a workspace which files are worth reading; all of them are where it cannot tell.

    Args:
        workspace: Where the files are.
        paths: The files.
        text: What they may hold.

    Examples:
        >>> await files_holding(InMemoryWorkspace(), [resolve_path("a")], b"needle")
        [WorkspacePath(parts=('a',))]
    """
    return await workspace.holding(paths, text) if isinstance(workspace, FindsText) and paths else paths


async def search_text(
    workspace: WorkspaceFS,
    text: str,
    *,
    path: str | WorkspacePath = ".",
    glob: str | None = None,
    limits: SearchLimits | None = None,
) -> SearchResult:
    """Find the lines that hold a text, letter by letter.

    Linked files and directories below `path` are not entered, so that nothing is found twice. The event loop
    is never blocked, and a cancelled search ends with the file that it is reading.

    Args:
        workspace: Where to search.
        text: What to search for; within one line, and case counts.
        path: A directory, or a single file. Default: everything.
        glob: A `PathPattern` for the files below `path`, relative to it. Default: all files.
        limits: How far to go. Default `SearchLimits()`.

    Raises:
        ValueError: If `text` is empty or more than a line, or `glob` is no pattern.
        PathRefused: If `path` is not inside the workspace.
        FileNotFoundError: If `path` does not exist.
        FileTooLarge: If `path` is a file that is larger than the limit.

    Examples:
        >>> result = await search_text(workspace, "def main", glob="*.py")
        >>> [(str(match.path), match.line) for match in result.matches]
        [('src/app.py', 12)]
    """
    if not text or "\n" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("the text to search for is empty, has more than one line or holds a lone surrogate")
    pattern = PathPattern(glob) if glob is not None else None
    search = _Search(workspace, text, pattern, limits or SearchLimits())
    await search.run(path)
    return search.result()


class _Search:
    """One search under way: the counts of a `SearchResult`, and the matches so far."""

    def __init__(self, workspace: WorkspaceFS, text: str, pattern: PathPattern | None, limits: SearchLimits) -> None:
        self._workspace, self._text, self._pattern, self._limits = workspace, text, pattern, limits
        self._matches: list[SearchMatch] = []
        self._files = self._binary = self._too_large = self._unreadable = self._too_deep = 0
        self._more_files = False
        self._waiting: list[WorkspacePath] = []
        self._asked_at_once = _FIRST_ASKED

    def result(self) -> SearchResult:
        return SearchResult(
            matches=tuple(self._matches[: self._limits.matches]),
            more_matches=len(self._matches) > self._limits.matches,
            more_files=self._more_files,
            binary=self._binary,
            too_large=self._too_large,
            unreadable=self._unreadable,
            too_deep=self._too_deep,
        )

    async def run(self, path: str | WorkspacePath) -> None:
        walk = Walk(self._workspace, path)
        enters = self._pattern.may_match_below if self._pattern is not None else None
        try:
            async with aclosing(walk.entries(enters=enters)) as entries:
                async for entry, name in entries:
                    if entry.kind is FileKind.FILE and (self._pattern is None or self._pattern.matches(name)):
                        self._gather(entry)
                    if len(self._waiting) >= self._asked_at_once:
                        await self._search_waiting()
                    if self._more_files or len(self._matches) > self._limits.matches:
                        break
        except NotADirectoryError:
            if not await self._search_file(path):
                raise FileTooLarge(f"{shown(path)} is too large to be searched") from None
            return
        await self._search_waiting()
        self._unreadable += walk.unreadable
        self._too_deep = walk.too_deep

    def _gather(self, file: FileStat) -> None:
        if file.size > self._limits.file_bytes:
            self._too_large += 1
        elif self._files >= self._limits.files:
            self._more_files = True
        else:
            self._files += 1
            self._waiting.append(file.path)

    async def _search_waiting(self) -> None:
        files, self._waiting = self._waiting, []
        self._asked_at_once = _ASKED_AT_ONCE
        worth = set(await files_holding(self._workspace, files, self._text.encode()))
        for path in files:
            if path in worth and len(self._matches) <= self._limits.matches:
                try:
                    self._too_large += not await self._search_file(path)
                except OSError:
                    self._unreadable += 1

    async def _search_file(self, path: str | WorkspacePath) -> bool:
        """Search one file; False if it is too large."""
        # A workspace in memory never waits, so here is where others get their turn, and a cancellation too.
        await asyncio.sleep(0)
        content = await self._workspace.read(path, limit=self._limits.file_bytes)
        if len(content.data) < content.size:
            return False
        if binary_type(content.data) is not None:
            self._binary += 1
            return True
        most = self._limits.matches + 1 - len(self._matches)
        arguments = (content.data, self._text, most, self._limits.line_length)
        if len(content.data) <= _SCANNED_AT_ONCE:
            found = _scan(*arguments)
        else:
            found = await asyncio.to_thread(_scan, *arguments)
        self._matches.extend(SearchMatch(path=content.path, line=line, text=text) for line, text in found)
        return True


def _scan(data: bytes, text: str, most: int, line_length: int) -> list[tuple[int, str]]:
    needle = text.encode()
    found: list[tuple[int, str]] = []
    line, counted, at = 1, 0, data.find(needle)
    while at >= 0 and len(found) < most:
        line += data.count(b"\n", counted, at)
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        found.append((line, _excerpt(data[start:end], text, line_length)))
        counted = end
        at = data.find(needle, end)
    return found


def _excerpt(line: bytes, text: str, length: int) -> str:
    shown_line = decode_text(line.removesuffix(b"\r")).text
    if len(shown_line) <= length:
        return shown_line
    at = max(shown_line.find(text), 0)
    if at + len(text) <= length:
        return f"{shown_line[:length]}…"
    start = max(at - min(_SHOWN_BEFORE_MATCH, max(length - len(text), 0)), 0)
    tail = "…" if start + length < len(shown_line) else ""
    head = "…" if start else ""
    return f"{head}{shown_line[start : start + length]}{tail}"
