"""What holds whatever happens, in whatever order: no fact that was written down is lost, and none comes twice."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, Final, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.memory import MemoryConfig
from agentscope_rx.memory.consolidation import Consolidation
from agentscope_rx.memory.facts import without_known
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, ledger_path
from agentscope_rx.memory.flushing import append_facts
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.workspace import InMemoryWorkspace
from tests.memory.support import WATERMARK, text_of, write

Action: TypeAlias = tuple[str, int]
_WORDS: Final = "of which more is said so that one request has no room for all of them at once"


class Crash(BaseException):
    """The process ends here."""


class Fragile(InMemoryWorkspace):
    """A workspace whose process may end before it has noted what it has taken in."""

    crashes = False

    async def write(self, path: Any, data: bytes, **options: Any) -> str:
        """Write, or end."""
        if self.crashes and str(path) == WATERMARK:
            raise Crash
        return await super().write(path, data, **options)


class Memory:
    """A memory to which things happen, and what should be in it."""

    def __init__(self) -> None:
        self.workspace = Fragile()
        self.files = MemoryFiles(self.workspace)
        self.now = datetime(2026, 1, 10, 12, tzinfo=UTC)
        self.kept: set[str] = set()
        self.meanwhile: Action | None = None

    async def happens(self, action: Action) -> None:
        """Let something happen."""
        what, number = action
        await getattr(self, what)(number)

    async def flush(self, number: int) -> None:
        """A fact is found."""
        await append_facts(self.files, fact(number), now=self.now, heading="Memory Flush")
        self.kept.add(fact(number))

    async def save(self, number: int) -> None:
        """A fact is added to the memory itself, as a tool does."""
        await self.files.append(
            MEMORY_FILE, lambda text: f"\n{new}\n" if (new := without_known(fact(number), text)) else ""
        )
        self.kept.add(fact(number))

    async def note(self, number: int) -> None:
        """Somebody adds a line to the memory that is shown to the model in other words."""
        line = f"- secret {number}"
        await self.files.append(MEMORY_FILE, lambda text: f"\n{line}\n" if line not in text else "")
        self.kept.add(line)

    async def insert(self, number: int) -> None:
        """Somebody writes a line into a ledger, above all others."""
        path = ledger_path(self.now)
        line = f"- inserted {number}\n"
        await self.workspace.write(path, (line + await text_of(self.workspace, path)).encode())
        self.kept.add(line.strip())

    async def take_out(self, number: int) -> None:
        """Somebody takes a line out of a ledger; it may be in the memory, and need not."""
        path = ledger_path(self.now)
        lines = (await text_of(self.workspace, path)).splitlines(keepends=True)
        if lines:
            gone = lines.pop(number % len(lines))
            await self.workspace.write(path, "".join(lines).encode())
            self.kept.discard(gone.strip())

    async def blank(self, number: int) -> None:
        """Somebody adds nothing but blank lines."""
        await write(self.workspace, ledger_path(self.now), "\n" * (1 + number * 200))

    async def day(self, number: int) -> None:
        """Time goes by, or a clock is put back."""
        self.now += timedelta(days=number - 2)

    async def consolidate(self, number: int) -> None:
        """The memory is written anew."""
        await self._work(400 + number).run(self.files)

    async def crash(self, number: int) -> None:
        """The memory is written anew, and what was taken in is not noted."""
        self.workspace.crashes = True
        try:
            await self.consolidate(number)
        except Crash:
            pass
        finally:
            self.workspace.crashes = False

    async def archive(self, number: int) -> None:
        """Old days are moved away."""
        await self._work(400).archive(self.files)

    def _work(self, room: int) -> Consolidation:
        config = MemoryConfig(daily_file_retention_days=1)
        return Consolidation(
            config=config,
            ask=self._answer,
            now=self.now,
            room=room,
            tokens_of=lambda text: len(text) // 4,
            worded=lambda text: re.sub(r"secret \d+", "[hidden]", text),
        )

    async def _answer(self, rules: str, prompt: str) -> str:
        """What a model answers that leaves out nothing and adds nothing, in its own order."""
        if self.meanwhile is not None:
            action, self.meanwhile = self.meanwhile, None
            await self.happens(action)
        return "\n".join(sorted(facts(unescape(prompt)))) or "# Nothing"


def fact(number: int) -> str:
    """A fact with a number."""
    return f"- fact {number} {_WORDS}"


def facts(text: str) -> set[str]:
    """The facts of a text."""
    return {line for line in text.splitlines() if line.startswith("- ")}


NUMBERS = st.integers(0, 5)
HAPPENINGS = st.sampled_from(("flush", "flush", "save", "note", "insert", "take_out", "blank", "day"))
WORK = st.sampled_from(("consolidate", "consolidate", "crash", "archive"))
ACTIONS = st.lists(
    st.tuples(st.one_of(HAPPENINGS, WORK), NUMBERS, st.none() | st.tuples(st.one_of(HAPPENINGS, WORK), NUMBERS)),
    max_size=14,
)


@settings(deadline=None, max_examples=300)
@given(ACTIONS)
def test_no_fact_is_lost(actions: list[tuple[str, int, Action | None]]) -> None:
    """Whoever edits ledgers or adds to the memory, also while a model thinks; whenever a process dies, whatever the
    clock says: all that was written down and not taken out becomes part of the memory, by a model that leaves out
    nothing."""

    async def work() -> None:
        memory = Memory()
        for what, number, memory.meanwhile in actions:
            await memory.happens((what, number))
        memory.meanwhile = None
        for _ in range(3):
            await memory.consolidate(2_000)
            await memory.archive(0)
        text = await text_of(memory.workspace, MEMORY_FILE)
        assert memory.kept <= facts(text)
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        assert len(lines) == len(set(lines))

    run_virtual(work)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("flush", "consolidate", "crash", "archive")), NUMBERS), max_size=20))
def test_a_fact_that_is_found_again_is_written_once(actions: list[Action]) -> None:
    """Into one ledger, one time, whatever is done with the ledgers between."""

    async def work() -> None:
        memory = Memory()
        for action in actions:
            await memory.happens(action)
        ledgers = "".join([await text_of(memory.workspace, each.path) for each in await memory.files.ledgers()])
        found = re.findall(r"^- fact \d", ledgers, re.MULTILINE)
        assert len(found) == len(set(found)) == len(memory.kept)

    run_virtual(work)
