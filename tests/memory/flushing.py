"""A process that writes down facts beside others: `-m tests.memory.flushing <folder> <name> <calls> [<user>]`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from agentscope_rx import HarnessAgent, InMemoryStore, LocalWorkspace, RuntimeContext
from agentscope_rx.testing import ScriptedModel


async def work(folder: Path, name: str, calls: int, user: str | None) -> None:
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
            await agent.call(f"Question {number}.", RuntimeContext(user_id=user, session_id=f"s{number}"))
        await agent.close(background=60)


if __name__ == "__main__":
    _, place, own, times, *users = sys.argv
    asyncio.run(work(Path(place), own, int(times), users[0] if users else None))
