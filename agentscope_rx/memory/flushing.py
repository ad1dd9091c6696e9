"""Facts of conversations go into the ledger of the day."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from weakref import WeakValueDictionary

from agentscope_rx.history import Exchange
from agentscope_rx.memory.facts import without_known
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, instant, ledger_path
from agentscope_rx.memory.prompts import NO_REPLY

#: As much of the memory is read to find out what is known already.
_MOST_KNOWN: Final = 4 * 1024 * 1024
_OTHER_LEDGERS: Final = 2  # around midnight, and where a clock was put back, the day is not everybody's
_CROWDED: Final = 1_024


async def append_facts(files: MemoryFiles, answer: str, *, now: datetime, heading: str) -> tuple[str, str]:
    """Write down what an answer has that is not written down yet.

    What is in `MEMORY.md`, in today's ledger or in the two newest others, is not written again.

    Args:
        files: The memory.
        answer: What a model has found, or wants to save.
        now: The moment.
        heading: What it is, for the heading above it.

    Returns:
        The ledger and what was added to it; empty where there was nothing new.
    """
    path = ledger_path(now)
    if not without_known(answer, NO_REPLY):
        return path, ""
    others = [each.path for each in await files.ledgers() if each.path != path][-_OTHER_LEDGERS:]
    known = [await files.beginning(each, _MOST_KNOWN) for each in (MEMORY_FILE, *others)]
    added = ""

    def entry(ledger: str) -> str:
        nonlocal added
        added = without_known(answer, NO_REPLY, *known, ledger)
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
        return [each for each in fresh if each.id in self._wanted]


class MemoryGates:
    """What waits to be flushed, and what is not due again yet; one per Runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Whoever has asked holds it; what nobody holds any more is not flushed.
        self._waiting: WeakValueDictionary[Hashable, Waiting] = WeakValueDictionary()
        self._shut: dict[Hashable, tuple[float, float]] = {}
        self._crowded = _CROWDED

    def ask(self, session: Hashable, history: Iterable[Exchange], wanted: Iterable[Exchange]) -> Waiting:
        """Ask for a flush; those of a session that wait become one, which whoever has asked must hold."""
        with self._lock:
            waiting = self._waiting.setdefault(session, Waiting())
            waiting.add(history, wanted)
            return waiting

    def take(self, session: Hashable, waiting: Waiting) -> bool:
        """Take what waits, so that it grows no more; False where another flush has taken it along."""
        with self._lock:
            if self._waiting.get(session) is not waiting:
                return False
            del self._waiting[session]
            return True

    def passes(self, what: Hashable, now: float, gap: timedelta) -> bool:
        """Whether enough time has gone by since the last time, which is now from now on."""
        with self._lock:
            since, until = self._shut.get(what, (now, now))
            if since <= now < until:
                return False
            self._shut_until(what, now, gap)
            return True

    def put_off(self, what: Hashable, now: float, gap: timedelta) -> None:
        """Let it pass again after some time, and not before."""
        with self._lock:
            self._shut_until(what, now, gap)

    def _shut_until(self, what: Hashable, now: float, gap: timedelta) -> None:
        if not gap:
            self._shut.pop(what, None)
            return
        if len(self._shut) >= self._crowded:  # of most nobody will ask again, and what is over needs no keeping
            self._shut = {each: span for each, span in self._shut.items() if span[0] <= now < span[1]}
            self._crowded = max(_CROWDED, 2 * len(self._shut))
        self._shut[what] = now, now + gap.total_seconds()
