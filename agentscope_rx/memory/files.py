"""The files of a memory: what is in which, and how several processes write to them at once."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import date, datetime
from typing import Final

from agentscope_rx.errors import PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.wire import clean_text
from agentscope_rx.workspace import FileKind, WorkspaceFS

MEMORY_FILE: Final = "MEMORY.md"
LEDGER_FOLDER: Final = "memory"
ARCHIVE_FOLDER: Final = "memory/archive"
_LEDGER: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.md")
#: Each writer that is too late lets another one through: so many at once are no memory any more.
_MOST_TRIES: Final = 100
_PIECE: Final = 1024 * 1024
_MISSING: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


@frozen(kw_only=False)
class Ledger:
    """The facts of a day.

    Args:
        path: The file.
        day: The day.
        size: Its bytes.
    """

    path: str
    day: date
    size: int


@frozen(kw_only=False)
class Taken:
    """The beginning of a ledger that consolidations have read.

    Args:
        size: Its bytes.
        digest: Their digest: whether a ledger still begins so is not told by its size.
    """

    size: int = 0
    digest: str = ""


@frozen(kw_only=False)
class Whole:
    """A file as it is.

    Args:
        data: What it holds; nothing where there is none.
        version: Its version; None where there is none.
    """

    data: bytes = b""
    version: str | None = None

    @property
    def text(self) -> str:
        """What it holds, as text."""
        return _text(self.data)


class MemoryFiles:
    """The memory in one workspace.

    Args:
        workspace: The workspace.
    """

    def __init__(self, workspace: WorkspaceFS) -> None:
        self._workspace = workspace

    # -- reading --------------------------------------------------------------------------------------------

    async def beginning(self, path: str, most: int) -> str:
        """The first bytes of a file as text; empty where there is none, or it leads out of the workspace."""
        try:
            return _text((await self._workspace.read(path, limit=most)).data)
        except _MISSING:
            return ""
        except PathRefused as error:
            logger().warning("workspace_file_refused", path=path, error=type(error).__name__)
            return ""

    async def whole(self, path: str) -> Whole:
        """A file, to be written anew.

        Raises:
            PathRefused: It leads out of the workspace.
            FileTooLarge: It is larger than what may be read at once.
        """
        try:
            found = await self._workspace.read(path)
        except FileNotFoundError:
            return Whole()
        return Whole(found.data, found.version)

    async def news(self, path: str, known: Taken, *, limit: int, whole_lines: bool) -> tuple[bytes, Taken]:
        """What came to a ledger; its beginning where somebody has changed what was taken in.

        Args:
            path: The ledger.
            known: What was taken in.
            limit: How many bytes at most. Where there are more it ends behind the last whole line.
            whole_lines: Whether a line that is longer than the limit is left for another time, and not cut.

        Returns:
            The bytes, and how far the ledger is read with them.
        """
        digest, read = hashlib.sha256(), 0
        try:
            async for piece in self._beginning(path, known.size):
                digest.update(piece)
                read += len(piece)
            if read != known.size or (read and digest.hexdigest() != known.digest):
                known, digest = Taken(), hashlib.sha256()
            found = await self._workspace.read(path, offset=known.size, limit=limit)
        except _MISSING:
            return b"", Taken()
        data = found.data
        if known.size + len(data) < found.size:
            data = _whole(data, lines_only=whole_lines)
        if not data:
            return b"", known
        digest.update(data)
        return data, Taken(known.size + len(data), digest.hexdigest())

    async def _beginning(self, path: str, size: int) -> AsyncGenerator[bytes]:
        """A file's first bytes in pieces, as far as there are so many."""
        read = 0
        while read < size:
            data = (await self._workspace.read(path, offset=read, limit=min(_PIECE, size - read))).data
            if not data:
                return
            yield data
            read += len(data)

    async def ledgers(self) -> Sequence[Ledger]:
        """The ledgers that are not archived, by day."""
        try:
            entries = await self._workspace.list(LEDGER_FOLDER)
        except _MISSING:
            return ()
        found: list[Ledger] = []
        for entry in entries:
            named = _LEDGER.fullmatch(entry.path.name)
            day = _day(named[1]) if named else None
            if day is not None and entry.kind is FileKind.FILE and not entry.link:
                found.append(Ledger(str(entry.path), day, entry.size))
        return found

    # -- writing --------------------------------------------------------------------------------------------

    async def append(self, path: str, text_of: Callable[[str], str]) -> str:
        """Add to a file; whoever writes to it at the same time loses nothing.

        Args:
            path: The file; made where there is none.
            text_of: Gets what the file holds, gives what is added; empty = nothing. Called again when the file has
                been written to meanwhile.

        Returns:
            What was added.

        Raises:
            PathRefused: It leads out of the workspace.
            FileTooLarge: It is larger than what may be read at once.
            WorkspaceConflict: It is written to all the time.
        """
        added = ""

        def more(before: Whole) -> bytes | None:
            nonlocal added
            added = clean_text(text_of(before.text))
            return before.data + added.encode() if added else None

        await self.rewrite(path, more)
        return added

    async def rewrite(self, path: str, change: Callable[[Whole], bytes | None]) -> bool:
        """Write a file anew, after whoever writes to it at the same time.

        Args:
            path: The file; made where there is none.
            change: Gets the file as it is, gives what it is to hold; None = it stays. Called again when the file has
                been written to meanwhile.

        Returns:
            Whether it was written.

        Raises:
            PathRefused: It leads out of the workspace.
            FileTooLarge: It is larger than what may be read at once.
            WorkspaceConflict: It is written to all the time.
        """
        for _ in range(_MOST_TRIES):
            before = await self.whole(path)
            data = change(before)
            if data is None or await self._replace(path, before, data):
                return data is not None
        raise WorkspaceConflict(f"{path!r} was written to by others {_MOST_TRIES} times while it was to be changed")

    async def _replace(self, path: str, before: Whole, data: bytes) -> bool:
        """Write a file anew, unless it is no longer what it was; whether it was written."""
        try:
            if before.version is None:
                await self._workspace.write(path, data, create_only=True)
            else:
                await self._workspace.write(path, data, if_match=before.version)
        except (WorkspaceConflict, FileExistsError):
            return False
        return True

    async def archive(self, ledger: Ledger) -> bool:
        """Move a ledger out of the way; whether this process did."""
        try:
            await self._workspace.move(ledger.path, f"{ARCHIVE_FOLDER}/{ledger.path.rpartition('/')[2]}")
        except (FileNotFoundError, FileExistsError):
            return False
        except WorkspaceError as error:  # of all: those who share it archive it, and not those who only see it
            logger().info("ledger_not_archived", path=ledger.path, error=type(error).__name__)
            return False
        return True

    async def put(self, path: str, data: bytes) -> None:
        """Write a file, whatever is in it."""
        await self._workspace.write(path, data)


def ledger_path(day: datetime) -> str:
    """The file for the facts of a day."""
    return f"{LEDGER_FOLDER}/{day:%Y-%m-%d}.md"


def instant(moment: datetime) -> str:
    """A moment as headings of ledgers name it."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(data: bytes) -> str:
    return data.decode("utf-8-sig", "replace")


def _whole(data: bytes, *, lines_only: bool) -> bytes:
    """The whole lines of bytes that go on; where there is none, nothing or the whole characters."""
    end = data.rfind(b"\n") + 1
    if end or lines_only:
        return data[:end]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data[: len(data) - len(decoder.getstate()[0])]


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
