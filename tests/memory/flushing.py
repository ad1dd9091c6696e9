"""Processes that write down facts at once: `-m tests.memory.flushing <place> <name> <calls> [<user>]`, each."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from agentscope_rx import HarnessAgent, RuntimeContext
from agentscope_rx.testing import ScriptedModel
from tests.stores.places import Reachable, workspace_at

ROOT = Path(__file__).parents[2]


async def flush_at_once(place: str, names: Sequence[str], calls: int, *users: str) -> None:
    """Have a process of each name begin when all are ready, and wait for them."""
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.memory.flushing",
            place,
            name,
            str(calls),
            *users,
            cwd=ROOT,
            stdin=PIPE,
            stdout=PIPE,
        )
        for name in names
    ]
    for each in started:
        assert each.stdout is not None
        assert await each.stdout.readline() == b"ready\n"
    await asyncio.gather(*(each.communicate(b"go\n") for each in started))
    assert [each.returncode for each in started] == [0] * len(names)


async def work(place: str, name: str, calls: int, user: str | None) -> None:
    """Answer so many questions, each of which has one fact of its own, and one that all processes find."""
    facts = [f"- {name} said {number}\n- everybody said {number}" for number in range(calls)]
    workspace = workspace_at(place)
    builder = HarnessAgent.builder(
        name=name,
        model=ScriptedModel(["done"] * calls),
        workspace=workspace,
        state_store=Reachable(),
    ).memory(model=ScriptedModel(facts), consolidation_min_gap=timedelta(days=1))
    async with builder.build() as agent:
        await workspace.list()  # so that nothing is loaded or connected any more when all begin
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        asked = (
            agent.call(f"Question {number}.", RuntimeContext(user_id=user, session_id=f"s{number}"))
            for number in range(calls)
        )
        await asyncio.gather(*asked)
        await agent.close(background=60)


if __name__ == "__main__":
    _, place, own, times, *users = sys.argv
    asyncio.run(work(place, own, int(times), users[0] if users else None))
