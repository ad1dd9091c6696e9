"""The files of a memory: what is in which, and how several processes write to them at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Final, cast

from agentscope_rx.errors import FileTooLarge, PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.wire import clean_text, json_object, to_json
from agentscope_rx.workspace import FileKind, WorkspaceFS

MEMORY_FILE: Final = "MEMORY.md"
LEDGER_FOLDER: Final = "memory"
ARCHIVE_FOLDER: Final = "memory/archive"
_WATERMARK_FILE: Final = "memory/.consolidation_state"
_FLUSHED_FILE: Final = "memory/.flush_state"
_LEDGER: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.md")
_MOST_SESSIONS: Final = 500
#: Each writer that is too late lets another one through: so many at once are no memory any more.
_MOST_TRIES: Final = 100
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


@frozen
class Watermark:
    """What a consolidation has taken in.

    Args:
        at: When it began; None = there was none.
        taken: For each ledger how many of its bytes.
    """

    at: datetime | None = None
    taken: Mapping[str, int]


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

    async def piece(self, path: str, *, offset: int, limit: int) -> bytes:
        """Some bytes of a file, cut behind the last whole line where there is more; nothing where it is gone."""
        try:
            found = await self._workspace.read(path, offset=offset, limit=limit)
        except _MISSING:
            return b""
        data = found.data
        if offset + len(data) < found.size and (at := data.rfind(b"\n")) >= 0:
            return data[: at + 1]
        return data

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
        for _ in range(_MOST_TRIES):
            before = await self.whole(path)
            added = clean_text(text_of(before.text))
            if not added or await self.replace(path, before, before.data + added.encode()):
                return added
        raise WorkspaceConflict(f"{path!r} was written to by others {_MOST_TRIES} times while a fact was to be added")

    async def replace(self, path: str, before: Whole, data: bytes) -> bool:
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

    # -- how far we are -------------------------------------------------------------------------------------

    async def watermark(self) -> Watermark:
        """What the last consolidation has taken in; nothing where that cannot be read."""
        known = await self._state(_WATERMARK_FILE)
        taken, at = known.get("ledgers"), known.get("at")
        sizes = cast("Mapping[str, object]", taken if isinstance(taken, Mapping) else {})
        return Watermark(
            at=_moment(at) if isinstance(at, str) else None,
            taken={path: size for path, size in sizes.items() if isinstance(size, int)},
        )

    async def set_watermark(self, watermark: Watermark) -> None:
        """Note what a consolidation has taken in."""
        at = None if watermark.at is None else watermark.at.isoformat()
        await self._workspace.write(_WATERMARK_FILE, to_json({"at": at, "ledgers": dict(watermark.taken)}))

    async def flushed(self, session: str) -> str:
        """The last message of a session whose facts were written down; empty where none is known."""
        known = (await self._state(_FLUSHED_FILE)).get(session)
        return known if isinstance(known, str) else ""

    async def set_flushed(self, session: str, message_id: str) -> None:
        """Note how far the facts of a session are written down; the sessions longest ago are forgotten."""
        for _ in range(_MOST_TRIES):
            before = await self.whole(_FLUSHED_FILE)
            known = dict(json_object(before.text) or {})
            known.pop(session, None)
            known[session] = message_id
            newest = dict([*known.items()][-_MOST_SESSIONS:])
            if await self.replace(_FLUSHED_FILE, before, to_json(newest)):
                return

    async def _state(self, path: str) -> Mapping[str, object]:
        try:
            return json_object((await self._workspace.read(path)).data) or {}
        except (*_MISSING, FileTooLarge):
            return {}


def ledger_path(day: datetime) -> str:
    """The file for the facts of a day."""
    return f"{LEDGER_FOLDER}/{day:%Y-%m-%d}.md"


def instant(moment: datetime) -> str:
    """A moment as headings of ledgers name it."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _text(data: bytes) -> str:
    return data.decode("utf-8-sig", "replace")


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
