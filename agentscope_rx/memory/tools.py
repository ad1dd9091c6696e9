"""The tools with which a model uses its memory; their names, parameters and docstrings are what it is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from agentscope_rx.memory.facts import facts_in, without_known
from agentscope_rx.memory.files import LEDGER_FOLDER, MEMORY_FILE, MemoryFiles
from agentscope_rx.memory.flushing import append_facts
from agentscope_rx.permissions import paths
from agentscope_rx.permissions.decision import FindTarget
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.matching import matcher
from agentscope_rx.tools.session_tool import SessionTool
from agentscope_rx.tools.texts import clean
from agentscope_rx.workspace import WorkspaceFS
from agentscope_rx.workspace.paths import shown
from agentscope_rx.workspace.walking import Walk

_GUIDANCE: Final = (
    "You remember facts over conversations: {shown}what {else_}was written down is found with memory_search and read "
    "with memory_get. Look there before you say that you do not know something about the user or earlier work. Save "
    "with memory_save what the user asks you to remember, and what you will need to know another time; never "
    "passwords, keys or other secrets."
)
_MOST_HITS: Final = 30
_LINE_CHARS: Final = 500
_MOST_LINES: Final = 2_000
_MARKDOWN: Final = ".md"


def guidance(*, memory_shown: bool) -> str:
    """How the model is to use its memory.

    Args:
        memory_shown: Whether requests show `MEMORY.md`.
    """
    shown, rest = ("MEMORY.md is shown to you, and ", "else ") if memory_shown else ("", "")
    return _GUIDANCE.format(shown=shown, else_=rest)


class MemoryTools:
    """The memory tools of one session, as methods.

    Args:
        workspace: The files that the session sees.
        now: The moment.
    """

    def __init__(self, workspace: WorkspaceFS, now: Callable[[], datetime]) -> None:
        self._workspace, self._now = workspace, now

    async def memory_search(self, query: str, matchMode: str = "phrase") -> str:
        """Search what is remembered from earlier conversations: MEMORY.md and the notes of all days.

        Words are taken letter by letter; upper and lower case are the same. All words have to be in one line.

        Args:
            query: What to look for.
            matchMode: `phrase`: the query as it is. `all`: all of its words. `any`: one of them.
        """
        wanted = matcher(query, matchMode)
        found, unread = list[str](), list[str]()
        for path in [MEMORY_FILE, *await self._ledgers(unread)]:
            try:
                data = (await self._workspace.read(path)).data
            except FileNotFoundError:
                continue
            except OSError as error:
                unread.append(_unread(path, error))
                continue
            for number, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
                if wanted(line.lower()):
                    found.append(f"Source: {path}#{number}: {_fitting(line.strip())}")
            if len(found) > _MOST_HITS:
                break
        notes = [f"[Not searched: {', '.join(unread)}.]"] if unread else []
        if not found:
            return "\n".join([f"No matching memories for: {query}", *notes])
        if len(found) > _MOST_HITS:
            notes.append(f"[Only the first {_MOST_HITS} matches are shown. Search for something more precise.]")
        shown_lines = found[:_MOST_HITS]
        return "\n".join([f"Found {len(shown_lines)} matches:", "", *shown_lines, *notes])

    async def memory_get(self, path: str, startLine: int, endLine: int) -> str:
        """Read lines of a file of the workspace, such as one that memory_search has found.

        Each line of the result is 'number|text'.

        Args:
            path: The file, such as 'MEMORY.md' or 'memory/2026-01-31.md'.
            startLine: The first line, counted from 1.
            endLine: The last line.
        """
        if not path.strip():
            raise InvalidArguments("path: must not be blank")
        try:
            text = (await self._workspace.read(path)).data.decode("utf-8-sig", "replace")
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {shown(path)}") from None
        lines = text.splitlines()
        if not text.strip():
            raise ValueError(f"{shown(path)} is empty")
        first = max(1, startLine)
        if first > len(lines):
            raise ValueError(f"startLine {startLine} is past the end: {shown(path)} has {len(lines)} lines")
        last = min(endLine, len(lines), first + _MOST_LINES - 1)
        wanted = [f"{number}|{clean(lines[number - 1])}" for number in range(first, last + 1)]
        if last < min(endLine, len(lines)):
            wanted.append(f"[Only {_MOST_LINES} lines are shown at once. Continue with startLine={last + 1}.]")
        return "\n".join(wanted)

    async def memory_save(self, content: str) -> str:
        """Remember facts for later conversations.

        Args:
            content: The facts, one a line, each beginning with '- ' and understood without this conversation.
        """
        facts = clean(content).strip()
        if not facts:
            raise InvalidArguments("content: must not be blank")
        files = MemoryFiles(self._workspace)
        await files.whole(MEMORY_FILE)  # refused before anything is written, where it leads out of the workspace
        ledger, _ = await append_facts(files, facts, now=self._now(), heading="Memory Save")

        def new(memory: str) -> str:
            added = without_known(facts, memory)
            return f"\n{added}\n" if added else ""

        added = await files.append(MEMORY_FILE, new)
        if not added:
            return f"That is in {MEMORY_FILE} already."
        return f"Saved {facts_in(added)} to {MEMORY_FILE} and {ledger}."

    async def _ledgers(self, unread: list[str]) -> list[str]:
        """The files of all days by path; what of their folder cannot be read is added to what was not."""
        walk, names = Walk(self._workspace, LEDGER_FOLDER), list[str]()
        try:
            async for part in walk.parts():
                names.extend(f"{part.folder.path}/{name}" for name in part.files if name.endswith(_MARKDOWN))
        except FileNotFoundError:
            return []  # nothing was written down yet
        except OSError as error:
            unread.append(_unread(LEDGER_FOLDER, error))
        if walk.unreadable or walk.too_deep:
            unread.append(f"folders below {LEDGER_FOLDER}: {walk.unreadable + walk.too_deep}")
        return sorted(names)


_SEARCH: Final = tool(MemoryTools.memory_search, read_only=True)
_GET: Final = tool(MemoryTools.memory_get, read_only=True)
_SAVE: Final = tool(MemoryTools.memory_save, concurrency_safe=False)


def memory_tools(
    files_of: Callable[[ToolContext], WorkspaceFS], now: Callable[[], datetime]
) -> tuple[SessionTool, ...]:
    """The tools with which a model uses its memory, on the workspace of the session that calls.

    Args:
        files_of: Gives what a session sees of the workspace; permission rules speak in its paths.
        now: Gives the moment.
    """

    def owner(context: ToolContext) -> MemoryTools:
        return MemoryTools(files_of(context), now)

    def read(context: ToolContext) -> FindTarget:
        return paths(files_of(context), "path")

    def saved(context: ToolContext) -> FindTarget:
        edited = paths(files_of(context), "path", edits=True)
        return lambda _: edited({"path": MEMORY_FILE})

    return SessionTool(_SEARCH, owner), SessionTool(_GET, owner, target=read), SessionTool(_SAVE, owner, target=saved)


def _unread(path: str, error: OSError) -> str:
    return f"{path} ({type(error).__name__})"


def _fitting(line: str) -> str:
    line = clean(line)
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… ({len(line) - _LINE_CHARS:,} characters more)"
