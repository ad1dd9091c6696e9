"""The facts of days become part of `MEMORY.md`, which a model writes anew, and old days move to the archive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from agentscope_rx.compaction.prompt import quoted
from agentscope_rx.frozen import frozen
from agentscope_rx.memory.config import MemoryConfig
from agentscope_rx.memory.facts import in_own_words, without_known
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, Taken, Whole
from agentscope_rx.memory.progress import Watermark, set_watermark, watermark
from agentscope_rx.memory.prompts import consolidation_request, consolidation_rules, too_long

#: What a model is told and what it gets to read; gives its answer, empty where it has none.
Ask: TypeAlias = Callable[[str, str], Awaitable[str]]

_NO_TIME: Final = timedelta(0)
_ROUNDS: Final = 8  # of ledgers that are too long for one request
_TRIES: Final = 2
_TOLERANCE: Final = 1.25  # models cannot count their own tokens
#: Bytes of text a token that few texts are below: in English it is four, in Chinese three.
BYTES_PER_TOKEN: Final = 2
_MOST_BYTES_PER_TOKEN: Final = 16
_LEAST_BYTES: Final = 256


class ConsolidationRefused(Exception):
    """An answer came and cannot become the memory; the message is a short code."""


@frozen
class Consolidation:
    """One consolidation.

    Args:
        config: What the user has chosen.
        ask: Asks the model.
        now: When it begins.
        room: How many tokens of facts fit into one request, and how many of the file.
        tokens_of: What a text costs.
        worded: How a text is worded for the model: what is redacted for it stays in the file as it is.
    """

    config: MemoryConfig
    ask: Ask
    now: datetime
    room: int
    tokens_of: Callable[[str], int]
    worded: Callable[[str], str]

    async def run(self, files: MemoryFiles) -> int:
        """Take in what is new in the ledgers.

        Returns:
            How many ledgers had something new.

        Raises:
            ConsolidationRefused: The file does not fit into a request, the answer was empty or too long, or somebody
                else rewrote the file meanwhile.
        """
        touched = set[str]()
        for _ in range(_ROUNDS):
            mark = await watermark(files)
            facts, taken = await self._fitting(files, mark)
            if taken == mark.taken:
                break
            if facts:
                await self._rewrite(files, facts)
                touched |= {path for path in taken if taken[path] != mark.taken.get(path)}
            await set_watermark(files, Watermark(at=self.now if facts else mark.at, taken=taken))
        return len(touched)

    async def archive(self, files: MemoryFiles) -> int:
        """Move the ledgers of old days, once they are taken in; how many were moved."""
        oldest = self.now.date() - timedelta(days=self.config.daily_file_retention_days)
        mark = await watermark(files)
        ledgers = [each for each in await files.ledgers() if each.day < oldest]
        old = [each for each in ledgers if mark.taken.get(each.path, Taken()).size == each.size]
        moved = [each.path for each in old if await files.archive(each)]
        if moved:
            left = {path: size for path, size in mark.taken.items() if path not in moved}
            await set_watermark(files, Watermark(at=mark.at, taken=left))
        return len(moved)

    async def _fitting(self, files: MemoryFiles, mark: Watermark) -> tuple[str, Mapping[str, Taken]]:
        """What no consolidation has read, as far as it fits into a request, and how far all is read with it."""
        most = self.room * BYTES_PER_TOKEN
        while True:
            facts, taken = await self._fresh(files, mark, most)
            tokens = self.tokens_of(quoted(facts)) if facts else 0
            if tokens <= self.room or most <= _LEAST_BYTES:
                return facts, taken
            most = max(_LEAST_BYTES, most * self.room // tokens)

    async def _fresh(self, files: MemoryFiles, mark: Watermark, most: int) -> tuple[str, Mapping[str, Taken]]:
        room, parts, taken = most, list[str](), dict[str, Taken]()
        for ledger in await files.ledgers():
            known = taken[ledger.path] = mark.taken.get(ledger.path, Taken())
            if room <= 0:
                continue
            news, read = await files.news(ledger.path, known, limit=room, whole_lines=room < most)
            taken[ledger.path] = read
            room = room - len(news) if read.size >= ledger.size else 0
            text = news.decode("utf-8", "replace").strip()
            if text:
                parts.append(f"### {ledger.path.rpartition('/')[2]}\n{text}")
        return "\n\n".join(parts), taken

    async def _rewrite(self, files: MemoryFiles, facts: str) -> None:
        """Have the file written anew."""
        for _ in range(_TRIES):
            before = await files.whole(MEMORY_FILE)
            if self._is_too_large(before):
                raise ConsolidationRefused("memory_too_large")
            text = in_own_words(await self._answer(before.text, facts), before.text, self.worded)
            if await _replaced(files, before, text):
                return
        raise ConsolidationRefused("rewritten_meanwhile")

    def _is_too_large(self, memory: Whole) -> bool:
        if len(memory.data) > self.room * _MOST_BYTES_PER_TOKEN:
            return True  # of which nobody needs to count the tokens
        return bool(memory.data) and self.tokens_of(quoted(memory.text)) > self.room

    async def _answer(self, memory: str, facts: str) -> str:
        most, note = min(self.config.consolidation_max_tokens, int(self.room / _TOLERANCE)), list[str]()
        for _ in range(_TRIES):
            rules = consolidation_rules(self.config.consolidation_prompt, most)
            text = await self.ask(rules, self.worded("\n\n".join((consolidation_request(memory, facts), *note))))
            if not text:
                raise ConsolidationRefused("empty")
            tokens = self.tokens_of(text)
            if tokens <= most * _TOLERANCE:
                return text
            note = [too_long(tokens, most)]
        raise ConsolidationRefused("over_cap")


async def _replaced(files: MemoryFiles, before: Whole, text: str) -> bool:
    """Write the file, where it is as the model has read it; lines that came behind that stay behind its text."""

    def anew(latest: Whole) -> bytes | None:
        came = latest.data[len(before.data) :]
        if not latest.data.startswith(before.data) or not _begins_a_line(before.data, came):
            return None
        added = without_known(came.decode("utf-8", "replace"), text) if came else ""
        return (f"{text}\n{added}\n" if added else f"{text}\n").encode()

    return await files.rewrite(MEMORY_FILE, anew)


def _begins_a_line(before: bytes, came: bytes) -> bool:
    """Whether what came makes no line longer that was there."""
    return not came or not before or before.endswith(b"\n") or came.startswith((b"\n", b"\r\n"))


def time_left(mark: Watermark, now: datetime, gap: timedelta) -> timedelta:
    """How long it is until the gap since the last consolidation, of any process, is over; 0 = it is."""
    gone = gap if mark.at is None else now - mark.at
    return gap - gone if _NO_TIME <= gone < gap else _NO_TIME
