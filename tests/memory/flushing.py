"""A process that writes down facts beside others: `-m tests.memory.flushing <folder> <name> <calls>`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from agentscope_rx import HarnessAgent, InMemoryStore, LocalWorkspace, RuntimeContext
from agentscope_rx.testing import ScriptedModel


async def work(folder: Path, name: str, calls: int) -> None:
    """Answer so many questions, each of which has one fact of its own, and one that all processes find."""
    facts = [f"- {name} said {number}\n- everybody said {number}" for number in range(calls)]
    builder = HarnessAgent.builder(
        name=name,
        model=ScriptedModel(["done"] * calls),
        workspace=LocalWorkspace(folder),
        state_store=InMemoryStore(),
    ).memory(model=ScriptedModel(facts), consolidation_min_gap=timedelta(days=1))
    async with builder.build() as agent:
        for number in range(calls):
            await agent.call(f"Question {number}.", RuntimeContext(session_id=f"s{number}"))
        await agent.close(background=60)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
