"""The tools with which a model works on files; those that change any are in `file_changes.py`.

What they return is what the model reads, what they raise becomes an error result. Their names, parameters and
docstrings are what the model is shown.
"""

from __future__ import annotations

from dataclasses import field as dataclass_field
from typing import Any

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.permissions import paths
from agentscope_rx.tools.file_changes import FileChanges
from agentscope_rx.tools.file_errors import explained
from agentscope_rx.tools.tool import FunctionTool, tool
from agentscope_rx.workspace.filesystem import FileKind, FileStat, WorkspaceFS
from agentscope_rx.workspace.globbing import GlobLimits, GlobResult, glob_paths
from agentscope_rx.workspace.paths import shown
from agentscope_rx.workspace.search import SearchLimits, SearchResult, search_text
from agentscope_rx.workspace.text import LineWindow, as_text, binary_type, decode_text

EMPTY_FILE = "(The file exists and is empty.)"
EMPTY_DIRECTORY = "(The directory is empty.)"
NO_MATCHES = "No matches found."
NO_FILES = "No files found."

_PIECE_BYTES = 256 * 1024


@frozen
class FileToolLimits:
    """How much one call of a file tool returns; what is cut says so and how to see the rest.

    Args:
        lines: Lines of one `read_file`. Default 2,000.
        read_bytes: Bytes of one `read_file`. Default 256 KiB.
        entries: Entries of one `list_files`. Default 500.
        search: How far one `grep_files` goes. Default `SearchLimits()`.
        glob: How far one `glob_files` goes. Default `GlobLimits()`.

    Raises:
        InvalidOption: If a number is less than 1.
    """

    lines: int = 2000
    read_bytes: int = 256 * 1024
    entries: int = 500
    search: SearchLimits = dataclass_field(default_factory=SearchLimits)
    glob: GlobLimits = dataclass_field(default_factory=GlobLimits)

    def __post_init__(self) -> None:
        for option in ("lines", "read_bytes", "entries"):
            if getattr(self, option) < 1:
                raise InvalidOption(option, getattr(self, option), "give at least 1")


def file_tools(
    workspace: WorkspaceFS, *, limits: FileToolLimits | None = None, read_only: bool = False
) -> list[FunctionTool[Any, Any]]:
    """Make the file tools of a workspace.

    Those that only look say so (`Tool.read_only`) and may run side by side; of the others one at a time does.

    Permission rules may name paths: `PermissionRule.deny("read_file", "secrets/**")`.

    Args:
        workspace: The files that they see.
        limits: How much one call returns. Default `FileToolLimits()`.
        read_only: True to leave out the tools that change files. Default False.

    Examples:
        >>> [tool.spec.name for tool in file_tools(InMemoryWorkspace())]
        ['read_file', 'list_files', 'glob_files', 'grep_files', 'write_file', 'edit_file']
    """
    looking, changing = FileTools(workspace, limits=limits), FileChanges(workspace)
    path, tree = paths(workspace, "path"), paths(workspace, "path", tree=True)
    made: list[FunctionTool[Any, Any]] = [
        tool(looking.read_file, read_only=True, target=path),
        tool(looking.list_files, read_only=True, target=path),
        tool(looking.glob_files, read_only=True, target=tree),
        tool(looking.grep_files, read_only=True, target=tree),
    ]
    if not read_only:
        made += [
            tool(changing.write_file, concurrency_safe=False, target=paths(workspace, "path", edits=True)),
            tool(changing.edit_file, concurrency_safe=False, target=paths(workspace, "path", edits=True)),
        ]
    return made


class FileTools:
    """The read-only file tools of one workspace, as methods.

    Args:
        workspace: The files that they see.
        limits: How much one call returns. Default `FileToolLimits()`.

    Examples:
        >>> await FileTools(InMemoryWorkspace({"a.txt": "hello"})).read_file("a.txt")
        'hello'
    """

    def __init__(self, workspace: WorkspaceFS, *, limits: FileToolLimits | None = None) -> None:
        self._workspace = workspace
        self._limits = limits or FileToolLimits()

    async def read_file(self, path: str, offset: int = 0, limit: int = 0, line_numbers: bool = False) -> str:
        """Read a text file of the workspace, whole or a range of its lines.

        A long file is returned in parts; the note at the end of a part says how to go on. To find a place in
        a long file, search it with grep_files first.

        Args:
            path: The file, relative to the workspace, such as 'src/app.py'.
            offset: How many lines to skip, so 0 starts at line 1 and 100 at line 101.
            limit: How many lines to return at most; 0 for as many as one call can return.
            line_numbers: Whether to put its number, counted from 1, before each line. Leave it off when the
                text is going to be edited or quoted.

        Raises:
            ValueError: If `offset` or `limit` is negative, or `offset` is past the last line.
            FileNotFoundError: If there is no such file.
            IsADirectoryError: If it is a directory.
            PathRefused: If it is not inside the workspace.
        """
        if offset < 0 or limit < 0:
            raise ValueError("offset and limit are numbers of lines: give 0 or more")
        count = min(limit, self._limits.lines) if limit else self._limits.lines
        window = LineWindow(first=offset, count=count, max_bytes=self._limits.read_bytes)
        with explained(path):
            size, binary = await self._fill(path, window)
        if binary is not None:
            return f"({shown(path)} is binary: {binary}, {size} bytes. It cannot be shown {as_text(binary)}.)"
        if size == 0:
            return EMPTY_FILE
        if not window.lines:
            raise ValueError(f"offset {offset} is past the end: {shown(path)} has {window.seen} lines")
        return _rendered(window, size=size, offset=offset, line_numbers=line_numbers)

    async def list_files(self, path: str = ".") -> str:
        """List a directory of the workspace: one entry a line, without what is in its subdirectories.

        Directories are marked [DIR] and files [FILE] with their size. The paths can be given to the other
        file tools as they are.

        Args:
            path: The directory, relative to the workspace; '.' is the workspace itself.

        Raises:
            FileNotFoundError: If there is no such directory.
            NotADirectoryError: If it is a file.
            PathRefused: If it is not inside the workspace.
        """
        with explained(path, directory=True):
            entries = await self._workspace.list(path)
        if not entries:
            return EMPTY_DIRECTORY
        lines = [_entry(entry) for entry in entries[: self._limits.entries]]
        if len(lines) < len(entries):
            lines.append(
                f"[Only the first {len(lines)} of {len(entries)} entries are shown. Find others with glob_files.]"
            )
        return "\n".join(lines)

    async def glob_files(self, pattern: str, path: str | None = None) -> str:
        """Find files and directories of the workspace by their names: one a line, directories with a '/' at the end.

        Files have their size behind them. What is behind symbolic links or in the folders of version control is
        left out.

        Args:
            pattern: Such as '*.py' (at any depth), 'src/**/*.ts' or 'docs/*.{md,txt}'.
            path: The directory to look in, relative to the workspace, to which the pattern is relative too; the
                whole workspace if left out.

        Raises:
            ValueError: If `pattern` is malformed.
            FileNotFoundError: If `path` does not exist.
            NotADirectoryError: If `path` is a file.
            PathRefused: If `path` is not inside the workspace.
        """
        where, limits = path or ".", self._limits.glob
        with explained(where, directory=True):
            result = await glob_paths(self._workspace, pattern, path=where, limits=limits)
        lines = [_found(entry) for entry in result.entries] or [NO_FILES]
        return "\n".join([*lines, *_glob_notes(result, limits)])

    async def grep_files(self, pattern: str, path: str | None = None, glob: str | None = None) -> str:
        """Search the text files of the workspace for a text and return the lines that hold it.

        Each line of the result is 'path:line number:text', with line numbers counted from 1. Files behind
        symbolic links, binary files and the folders of version control are left out.

        Args:
            pattern: The text to search for, taken letter by letter (no regular expression), within one line,
                case-sensitive.
            path: The directory or file to search, relative to the workspace; the whole workspace if left out.
            glob: Search only files that fit this pattern, such as '*.py' (at any depth) or 'tests/**/*.py'
                (relative to path); all files if left out.

        Raises:
            ValueError: If `pattern` is empty or has more than one line, or `glob` is malformed.
            FileNotFoundError: If `path` does not exist.
            FileTooLarge: If `path` is a file that is too large to be searched.
            PathRefused: If `path` is not inside the workspace.
        """
        # Models say "not given" with an empty text too.
        where, limits = path or ".", self._limits.search
        with explained(where):
            result = await search_text(self._workspace, pattern, path=where, glob=glob or None, limits=limits)
        lines = [f"{match.path}:{match.line}:{match.text}" for match in result.matches] or [NO_MATCHES]
        return "\n".join([*lines, *_search_notes(result, limits)])

    async def _fill(self, path: str, window: LineWindow) -> tuple[int, str | None]:
        """Read up to the end of the window; return the file's size, and its type if it is binary."""
        content = await self._workspace.read(path, limit=_PIECE_BYTES)
        if (binary := binary_type(content.data)) is not None:
            return content.size, binary
        position = 0
        while content.data:
            window.feed(content.data)
            position += len(content.data)
            if window.full or position >= content.size:
                break
            content = await self._workspace.read(path, offset=position, limit=_PIECE_BYTES)
        window.close()
        return content.size, None


def _rendered(window: LineWindow, *, size: int, offset: int, line_numbers: bool) -> str:
    decoded = decode_text(b"\n".join(window.lines), cut=window.cut)
    lines = decoded.text.split("\n")
    if line_numbers:
        lines = [f"{number:>6}\t{line}" for number, line in enumerate(lines, offset + 1)]
    return "\n".join([*lines, *_read_notes(window, size=size, offset=offset, lossy=decoded.lossy)])


def _read_notes(window: LineWindow, *, size: int, offset: int, lossy: bool) -> list[str]:
    notes: list[str] = []
    if lossy:
        notes.append("[The file is not valid UTF-8: bytes that could not be decoded are shown as \ufffd.]")
    if window.cut:
        notes.append(
            f"[Line {offset + 1} was cut: it is longer than {len(window.lines[0])} bytes. "
            f"Lines after it, if there are any, start at offset={offset + 1}.]"
        )
    elif window.position < size:
        last = offset + len(window.lines)
        notes.append(
            f"[Lines {offset + 1} to {last} shown, and the file goes on ({size} bytes in all). "
            f"Continue with offset={last}.]"
        )
    return notes


def _entry(entry: FileStat) -> str:
    if entry.kind is FileKind.DIRECTORY:
        return f"[DIR] {entry.path}"
    return f"[FILE] {entry.path} ({entry.size} bytes)"


def _found(entry: FileStat) -> str:
    return f"{entry.path}/" if entry.kind is FileKind.DIRECTORY else f"{entry.path} ({entry.size} bytes)"


def _glob_notes(result: GlobResult, limits: GlobLimits) -> list[str]:
    notes: list[str] = []
    if result.more_matches:
        notes.append(f"[Only the first {limits.matches} are shown. Narrow the search with path or a longer pattern.]")
    if result.more_entries:
        notes.append(f"[Only {limits.entries} entries were looked at. Narrow the search with path.]")
    if result.unreadable or result.too_deep:
        notes.append(f"[Directories not entered: {result.unreadable} unreadable, {result.too_deep} too deep.]")
    return notes


def _search_notes(result: SearchResult, limits: SearchLimits) -> list[str]:
    notes: list[str] = []
    if result.more_matches:
        notes.append(
            f"[Only the first {limits.matches} matching lines are shown. "
            "Narrow the search with path, glob or a longer pattern.]"
        )
    if result.more_files:
        notes.append(f"[Only {limits.files} files were searched. Narrow the search with path or glob.]")
    left_out = [
        f"{count} {what}"
        for count, what in (
            (result.binary, "binary"),
            (result.too_large, f"larger than {limits.file_bytes} bytes"),
            (result.unreadable, "unreadable"),
            (result.too_deep, "too deep"),
        )
        if count
    ]
    return [*notes, f"[Not searched: {', '.join(left_out)}.]"] if left_out else notes
