"""How far a memory has come: what consolidations have taken in, and up to which message sessions were read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.memory.files import MemoryFiles, Taken, Whole
from agentscope_rx.wire import json_object, to_json

_WATERMARK_FILE: Final = "memory/.consolidation_state"
_FLUSHED_FILE: Final = "memory/.flush_state"
_MOST_SESSIONS: Final = 500
_MOST_STATE: Final = 4 * 1024 * 1024


@frozen
class Watermark:
    """What consolidations have taken in.

    Args:
        at: When the last began that had something to take in; None = there was none.
        taken: For each ledger how far it was read.
    """

    at: datetime | None = None
    taken: Mapping[str, Taken]


async def watermark(files: MemoryFiles) -> Watermark:
    """What consolidations have taken in; nothing where that cannot be read."""
    known = await _state(files, _WATERMARK_FILE)
    ledgers, at = known.get("ledgers"), known.get("at")
    noted = cast("Mapping[str, object]", ledgers if isinstance(ledgers, Mapping) else {})
    taken = {path: found for path, each in noted.items() if (found := _taken(each)) is not None}
    return Watermark(at=_moment(at) if isinstance(at, str) else None, taken=taken)


async def set_watermark(files: MemoryFiles, mark: Watermark) -> None:
    """Note what consolidations have taken in."""
    at = None if mark.at is None else mark.at.isoformat()
    ledgers = {path: [each.size, each.digest] for path, each in mark.taken.items()}
    await files.put(_WATERMARK_FILE, to_json({"at": at, "ledgers": ledgers}))


async def flushed(files: MemoryFiles, session: str) -> str:
    """The last message of a session whose facts were written down; empty where none is known."""
    known = (await _state(files, _FLUSHED_FILE)).get(session)
    return known if isinstance(known, str) else ""


async def set_flushed(files: MemoryFiles, session: str, message_id: str) -> None:
    """Note how far the facts of a session are written down; the sessions longest ago are forgotten."""

    def with_session(before: Whole) -> bytes:
        known = dict(json_object(before.text) or {})
        known.pop(session, None)
        known[session] = message_id
        return to_json(dict([*known.items()][-_MOST_SESSIONS:]))

    await files.rewrite(_FLUSHED_FILE, with_session)


async def _state(files: MemoryFiles, path: str) -> Mapping[str, object]:
    return json_object(await files.beginning(path, _MOST_STATE)) or {}


def _taken(noted: object) -> Taken | None:
    match noted:
        case [int(size), str(digest)] if size >= 0:
            return Taken(size, digest)
        case _:
            return None


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
