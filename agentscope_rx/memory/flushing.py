"""Facts of conversations go into the ledger of the day."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from agentscope_rx.compactions import is_summary
from agentscope_rx.history import Exchange
from agentscope_rx.memory.facts import without_known
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, instant, ledger_path
from agentscope_rx.memory.prompts import NO_REPLY

#: As much of the memory is read to find out what is known already.
_MOST_KNOWN: Final = 4 * 1024 * 1024


async def append_facts(files: MemoryFiles, answer: str, *, now: datetime, heading: str) -> tuple[str, str]:
    """Write down what an answer has that is not written down yet.

    What is in `MEMORY.md`, in today's ledger or in the one before, is not written again.

    Args:
        files: The memory.
        answer: What a model has found, or wants to save.
        now: The moment.
        heading: What it is, for the heading above it.

    Returns:
        The ledger and what was added to it; empty where there was nothing new.
    """
    path = ledger_path(now)
    if answer.strip() in ("", NO_REPLY):
        return path, ""
    known = await files.beginning(MEMORY_FILE, _MOST_KNOWN)
    earlier = [each.path for each in await files.ledgers() if each.path < path]
    before = await files.beginning(earlier[-1], _MOST_KNOWN) if earlier else ""
    added = ""

    def entry(ledger: str) -> str:
        nonlocal added
        added = without_known(answer, known, before, ledger)
        return f"\n## {heading} — {instant(now)}\n{added}\n" if added else ""

    await files.append(path, entry)
    return path, added


class Waiting:
    """What of a session's history is to be flushed, of all that asked for it while another flush was at work."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._wanted: set[str] = set()

    def add(self, history: Iterable[Exchange], wanted: Iterable[Exchange]) -> None:
        """More of it.

        Args:
            history: The history, in order.
            wanted: The part whose facts are to be written down.
        """
        for exchange in history:
            self._exchanges.setdefault(exchange.id, exchange)
        self._wanted.update(exchange.id for exchange in wanted)

    def behind(self, message_id: str) -> Sequence[Exchange]:
        """What is wanted and comes behind a message; everything where that is not known."""
        fresh = [*self._exchanges.values()]
        for at, exchange in enumerate(fresh):
            if any(message.id == message_id for message in exchange.messages):
                fresh = fresh[at + 1 :]
                break
        return [each for each in fresh if each.id in self._wanted and not is_summary(each.messages[0])]


class MemoryGates:
    """What waits to be flushed, and when what was done last; one per Runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Waiting] = {}
        self._last: dict[Hashable, float] = {}

    def ask(self, session: Hashable, history: Iterable[Exchange], wanted: Iterable[Exchange]) -> None:
        """Ask for a flush; those of a session that wait become one."""
        with self._lock:
            self._waiting.setdefault(session, Waiting()).add(history, wanted)

    def take(self, session: Hashable) -> Waiting | None:
        """What waits; None where another flush has taken it along."""
        with self._lock:
            return self._waiting.pop(session, None)

    def passes(self, what: Hashable, now: float, gap: timedelta) -> bool:
        """Whether enough time has gone by since the last time, which is now from now on."""
        with self._lock:
            last = self._last.get(what)
            if last is not None and 0 <= now - last < gap.total_seconds():
                return False
            self._last[what] = now
            return True
