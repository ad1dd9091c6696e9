"""Search the files of a workspace for a text, file by file and without links."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from agentscope_rx.errors import FileTooLarge, InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.looking import FileGroup, Look, Needle, looks_at
from agentscope_rx.workspace.paths import WorkspacePath, shown
from agentscope_rx.workspace.patterns import PathPattern
from agentscope_rx.workspace.text import binary_type, decode_text
from agentscope_rx.workspace.walking import Walk, WalkPart

# Below this a scan takes less than changing threads does.
_SCANNED_AT_ONCE = 64 * 1024
_SHOWN_BEFORE_MATCH = 100
# How many files a workspace is asked about at once: first a few, since they may hold matches enough, then ever more.
_FIRST_ASKED, _TIMES_AS_MANY, _MOST_ASKED = 100, 8, 50_000


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
        self._waiting: list[FileGroup] = []
        self._asked_at_once = self._room = _FIRST_ASKED

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
            async with aclosing(walk.parts(enters=enters)) as parts:
                async for part in parts:
                    await self._take(part)
                    if self._is_full:
                        break
        except NotADirectoryError:
            if not await self._search_file(path):
                raise FileTooLarge(f"{shown(path)} is too large to be searched") from None
            return
        await self._search_waiting()
        self._unreadable += walk.unreadable
        self._too_deep = walk.too_deep

    @property
    def _is_full(self) -> bool:
        return self._more_files or len(self._matches) > self._limits.matches

    async def _take(self, part: WalkPart) -> None:
        """Keep the files that fit, and search when enough of them wait."""
        names = part.files if self._pattern is None else self._pattern.fitting(part.at, part.files)
        while names and not self._is_full:
            room = min(self._limits.files - self._files, self._room)
            if room > 0:
                taken, names = names[:room], names[room:]
                self._waiting.append(FileGroup(folder=part.folder, names=taken))
                self._files += len(taken)
                self._room -= len(taken)
            elif self._waiting:  # of which some may turn out to be too large to count
                await self._search_waiting()
            else:
                self._more_files = True

    async def _search_waiting(self) -> None:
        groups, self._waiting = self._waiting, []
        self._asked_at_once = self._room = min(self._asked_at_once * _TIMES_AS_MANY, _MOST_ASKED)
        needle = Needle(text=self._text.encode(), file_bytes=self._limits.file_bytes)
        for group, looks in zip(groups, await looks_at(self._workspace, groups, needle), strict=True):
            for name in group.names if looks else ():
                if name in looks and not self._is_full:
                    await self._note(looks[name], group.folder.path.child(name))

    async def _note(self, look: Look, path: WorkspacePath) -> None:
        match look:
            case Look.BINARY:
                self._binary += 1
            case Look.TOO_LARGE:
                self._leave_out_large()
            case Look.UNREADABLE:
                self._unreadable += 1
            case Look.MAY_HOLD:
                try:
                    if not await self._search_file(path):
                        self._leave_out_large()
                except OSError:
                    self._unreadable += 1

    def _leave_out_large(self) -> None:
        self._too_large += 1
        self._files -= 1

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
