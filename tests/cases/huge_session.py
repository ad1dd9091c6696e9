"""Case O33: writes a session of 200 MB, or opens one: `-m tests.cases.huge_session <place> write|call`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.edits import edits_between
from agentscope_rx.records import HistoryEdited
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import LogRecord
from tests.cases import case
from tests.session.support import KEY, agent_on, answered, input_of, opened, said
from tests.stores.places import store_at

ALICE: Final = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
LIMIT_MB: Final = 300
#: Records of the log that a reader may have to look at: those since the last checkpoint, and the one that it names.
MOST_READ: Final = 50


def most_memory() -> int:
    """The most memory that this program had, in MB. `getrusage` would count that of the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():  # only Linux tells
        return 0
    (line,) = [each for each in status.read_text().splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) // 1_024


async def write(place: str) -> None:
    """As many records as the case says, with as many compactions, in runs of which each keeps a checkpoint."""
    the = case("O33")["log"]
    store, number = store_at(place), 0
    per_compaction = the["records"] // the["compactions"]
    for at in range(the["compactions"]):
        session = await opened(store, run_id=f"run{at}")
        for _ in range(per_compaction - 1):
            number += 1
            session.record(input_of(said(f"m{number}", "x" * the["each_bytes"])))
        before = session.state.context
        after = before.replace_first(len(before) - the["live_tail_messages"], answered(f"summary{at}"))
        decision = CompactionDecision(outcome=CompactionOutcome.DONE, trigger="messages", id=f"k{at}")
        session.record(HistoryEdited(edits_between(before, after), decision, "2026-01-02 03:04:05.678"))
        await session.save()
        await session.close()


async def call(place: str) -> None:
    """Open it, call once, list, search the end, append: within the case's memory, and without reading it whole."""
    store, read = store_at(place), 0
    found = store.read_after

    async def counted(*args: object, **options: object) -> object:
        nonlocal read
        page = await found(*args, **options)  # type: ignore[arg-type]
        read += len(page)
        return page

    store.read_after = counted  # type: ignore[method-assign,assignment]
    agent = agent_on(store, ["the answer"], max_iters=3)
    assert (await agent.call("go on", ALICE)).text == "the answer"
    assert read <= MOST_READ, read
    assert [key.session_id for key in await store.list()] == ["s1"]
    assert read <= MOST_READ, read
    used = most_memory()
    assert used < LIMIT_MB, used
    records = [record async for record in agent.session_log(ALICE).scan(after=200_000 - 100)]
    assert isinstance(records[-1], LogRecord)
    assert any("the answer" in str(record.payload) for record in records)
    print(read, used)


if __name__ == "__main__":
    asyncio.run({"write": write, "call": call}[sys.argv[2]](sys.argv[1]))
