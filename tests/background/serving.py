"""A process that does the work of sessions: `-m tests.background.serving <runner> <place> <engine> <folder> <name>`.

It prints `ready`, and works until it is killed or its input ends. Its tool notes each beginning and each end in the
folder, with the name of the process, and takes a moment.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from agentscope_rx.background import DbosOptions, DbosRunner, InProcessRunner
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.tools import ToolContext, tool
from tests.background.support import ByTurn, builder_on
from tests.stores.places import store_at

LEASE: Final = 1.0
MOMENT: Final = 0.05


def builder_at(place: str, folder: Path, name: str) -> AgentBuilder[ReActAgent]:
    """The builder of all processes."""

    def note(file: str, line: str) -> None:
        with (folder / file).open("ab", buffering=0) as out:
            out.write(f"{line} {name}\n".encode())

    @tool
    async def work(context: ToolContext) -> str:
        """Note that it has begun, and take a moment."""
        note("begun", context.call.id.replace(" ", "_"))
        await asyncio.sleep(MOMENT)
        note("ended", context.call.id.replace(" ", "_"))
        return "worked"

    return builder_on(store_at(place), ByTurn(), work, lease_seconds=LEASE, max_iters=50)


def runner_at(
    kind: str, place: str, engine: str, folder: Path, name: str, *, work: bool = True
) -> InProcessRunner | DbosRunner:
    """The runner of a process."""
    builder = builder_at(place, folder, name)
    if kind == "in-process":
        return InProcessRunner(builder, take_up_every=0.3, work=work)
    return DbosRunner(builder, engine, options=DbosOptions(dead_after=1.5, poll=0.05, work=work))


async def main(kind: str, place: str, engine: str, folder: str, name: str) -> None:
    """Work until the input ends."""
    async with runner_at(kind, place, engine, Path(folder), name):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
