"""Several processes write to one memory at the same time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.memory.flushing import flush_at_once

CALLS = 15


@pytest.mark.parametrize("users", [(), ("alice",)])
async def test_processes_that_write_at_once_lose_nothing(tmp_path: Path, users: tuple[str, ...]) -> None:
    """Each fact of each is there, what all have found is there once, and no half-written file is left; in the memory
    of all, and in that of a user."""
    (tmp_path / "memory").mkdir()
    mark = f'{{"at": "{datetime.now(UTC).isoformat()}", "ledgers": {{}}}}'
    (tmp_path / "memory" / ".consolidation_state").write_text(mark)
    names = ("one", "two", "three")
    await flush_at_once(f"folder {tmp_path}", names, CALLS, *users)
    (folder,) = {ledger.parent for ledger in tmp_path.rglob("*.md")}
    assert (folder == tmp_path / "memory") is not bool(users)
    ledgers = sorted(folder.glob("*.md"))
    lines = "\n".join(ledger.read_text() for ledger in ledgers).splitlines()
    facts = [line for line in lines if line.startswith("- ")]
    assert sorted(facts) == sorted(
        f"- {name} said {number}" for name in (*names, "everybody") for number in range(CALLS)
    )
    left = {path.name for path in folder.iterdir()} - {ledger.name for ledger in ledgers}
    assert left - {".consolidation_state"} == {".flush_state"}
