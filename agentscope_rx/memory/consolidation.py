"""The facts of days become part of `MEMORY.md`, which a model writes anew, and old days move to the archive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from agentscope_rx.frozen import frozen
from agentscope_rx.memory.config import MemoryConfig
from agentscope_rx.memory.facts import without_known
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, Watermark, Whole
from agentscope_rx.memory.prompts import consolidation_request, consolidation_rules, too_long
from agentscope_rx.wire import clean_text

#: What a model is told and what it gets to read; gives its answer, empty where it has none.
Ask: TypeAlias = Callable[[str, str], Awaitable[str]]

_ROUNDS: Final = 8  # of ledgers that are too long for one request
_TRIES: Final = 2
_TOLERANCE: Final = 1.25  # models cannot count their own tokens


class ConsolidationRefused(Exception):
    """An answer came and cannot become the memory; the message is a short code."""


@frozen
class Consolidation:
    """One consolidation.

    Args:
        config: What the user has chosen.
        ask: Asks the model.
        now: When it begins.
        room: How many bytes of facts fit into one request, and how many of the file.
        tokens_of: What a text costs.
    """

    config: MemoryConfig
    ask: Ask
    now: datetime
    room: int
    tokens_of: Callable[[str], int]

    async def run(self, files: MemoryFiles) -> int:
        """Take in what is new in the ledgers.

        Returns:
            How many ledgers had something new.

        Raises:
            ConsolidationRefused: The file does not fit into a request, the answer was too long, or somebody else
                rewrote the file meanwhile.
        """
        touched = set[str]()
        for _ in range(_ROUNDS):
            mark = await files.watermark()
            facts, taken = await self._fresh(files, mark)
            if not facts or not await self._rewrite(files, facts):
                break
            touched |= {path for path in taken if taken[path] != mark.taken.get(path)}
            await files.set_watermark(Watermark(at=self.now, taken=taken))
        return len(touched)

    async def archive(self, files: MemoryFiles) -> int:
        """Move the ledgers of old days, once they are taken in; how many were moved."""
        oldest = self.now.date() - timedelta(days=self.config.daily_file_retention_days)
        mark = await files.watermark()
        old = [each for each in await files.ledgers() if each.day < oldest and mark.taken.get(each.path) == each.size]
        moved = [each.path for each in old if await files.archive(each)]
        if moved:
            left = {path: size for path, size in mark.taken.items() if path not in moved}
            await files.set_watermark(Watermark(at=mark.at, taken=left))
        return len(moved)

    async def _fresh(self, files: MemoryFiles, mark: Watermark) -> tuple[str, Mapping[str, int]]:
        """What no consolidation has read, as far as there is room, and what is read with it."""
        room, parts, taken = self.room, list[str](), dict[str, int]()
        for ledger in await files.ledgers():
            before = mark.taken.get(ledger.path, 0)
            before = taken[ledger.path] = before if before <= ledger.size else 0  # it was rewritten
            if before == ledger.size or room <= 0:
                continue
            piece = await files.piece(ledger.path, offset=before, limit=room)
            taken[ledger.path] = before + len(piece)
            room -= len(piece)
            text = piece.decode("utf-8", "replace").strip()
            if text:
                parts.append(f"### {ledger.path.rpartition('/')[2]}\n{text}")
        return "\n\n".join(parts), taken

    async def _rewrite(self, files: MemoryFiles, facts: str) -> bool:
        """Have the file written anew; whether it was."""
        for _ in range(_TRIES):
            before = await files.whole(MEMORY_FILE)
            if len(before.data) > self.room:
                raise ConsolidationRefused("memory_too_large")
            text = await self._answer(before.text, facts)
            if not text:
                return False
            if await _replaced(files, before, text):
                return True
        raise ConsolidationRefused("rewritten_meanwhile")

    async def _answer(self, memory: str, facts: str) -> str:
        most, note = self.config.consolidation_max_tokens, list[str]()
        for _ in range(_TRIES):
            rules = consolidation_rules(self.config.consolidation_prompt, most)
            text = (await self.ask(rules, "\n\n".join((consolidation_request(memory, facts), *note)))).strip()
            tokens = self.tokens_of(text) if text else 0
            if tokens <= most * _TOLERANCE:
                return text
            note = [too_long(tokens, most)]
        raise ConsolidationRefused("over_cap")


async def _replaced(files: MemoryFiles, before: Whole, text: str) -> bool:
    """Write the file; what was added behind what the model has read is kept behind what it wrote."""
    text, latest = clean_text(text), before
    data = f"{text}\n".encode()
    while not await files.replace(MEMORY_FILE, latest, data):
        latest = await files.whole(MEMORY_FILE)
        if not latest.data.startswith(before.data):
            return False
        added = without_known(_text(latest.data[len(before.data) :]), text)
        data = f"{text}\n{added}\n".encode() if added else f"{text}\n".encode()
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def is_due(mark: Watermark, now: datetime, gap: timedelta) -> bool:
    """Whether the last consolidation of any process is long enough ago."""
    return mark.at is None or not timedelta(0) <= now - mark.at < gap
