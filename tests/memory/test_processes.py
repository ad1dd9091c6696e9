"""Several processes write to one memory at the same time."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
CALLS = 15


async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each fact of each is there, what all have found is there once, and no half-written file is left."""
    (tmp_path / "memory").mkdir()
    mark = f'{{"at": "{datetime.now(UTC).isoformat()}", "ledgers": {{}}}}'
    (tmp_path / "memory" / ".consolidation_state").write_text(mark)
    names = ("one", "two", "three")
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.memory.flushing", str(tmp_path), name, str(CALLS), cwd=ROOT
        )
        for name in names
    ]
    assert [await each.wait() for each in started] == [0, 0, 0]
    ledgers = sorted((tmp_path / "memory").glob("*.md"))
    lines = "\n".join(ledger.read_text() for ledger in ledgers).splitlines()
    facts = [line for line in lines if line.startswith("- ")]
    assert sorted(facts) == sorted(
        f"- {name} said {number}" for name in (*names, "everybody") for number in range(CALLS)
    )
    left = {path.name for path in (tmp_path / "memory").iterdir()} - {ledger.name for ledger in ledgers}
    assert left == {".consolidation_state", ".flush_state"}
