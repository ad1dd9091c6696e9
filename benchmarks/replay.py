"""What a replayed step costs, beside one of a scripted run; and a run that is recorded.

A scripted run is the same agent with a model and tools that answer at once, a session log in memory, in virtual time.
Usage: python benchmarks/replay.py [steps]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agentscope_rx import HarnessAgent, InMemoryWorkspace, RuntimeContext, tool
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.replay import Recorder, replay
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing.scripted_model import ScriptedTurn, calls
from agentscope_rx.testing.virtual_loop import run_virtual

ALICE = RuntimeContext(user_id="alice", session_id="bench")
ROUNDS = 3


@tool
async def look(at: int) -> str:
    """Look at a page."""
    return f"page {at}: " + "a line that says little. " * 12


def script(steps: int) -> list[ScriptedTurn | str]:
    turns: list[ScriptedTurn | str] = [
        calls((f"c{at}", "look", f'{{"at": {at}}}'), text="I look at the next page.") for at in range(steps - 1)
    ]
    return [*turns, "Done."]


def scripted(steps: int) -> HarnessBuilder:
    return HarnessAgent.builder(
        name="bench",
        model=ScriptedModel(script(steps)),
        sys_prompt="Look at pages.",
        tools=[look],
        workspace=InMemoryWorkspace(),
        max_iters=steps + 1,
    )


def seconds_of(work: Callable[[], object]) -> float:
    """CPU time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def run(builder: HarnessBuilder) -> None:
    async def watched() -> None:
        async with builder.build() as agent:
            await agent.call("Look at all pages.", ALICE)

    run_virtual(watched)


def main() -> None:
    """Print CPU milliseconds a step."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.jsonl"

        def record() -> None:
            with Recorder(path) as recorder:
                run(recorder.watch(scripted(steps)))

        run(scripted(2))  # encodings are loaded, adapters built
        figures = {
            "scripted": min(seconds_of(lambda: run(scripted(steps))) for _ in range(ROUNDS)),
            "recorded": min(seconds_of(record) for _ in range(ROUNDS)),
            "replayed": min(seconds_of(lambda: replay(path, scripted(steps)).check()) for _ in range(ROUNDS)),
        }
        size = path.stat().st_size
    for name, seconds in figures.items():
        print(f"{name}: {1_000 * seconds / steps:.2f} ms a step, {seconds / figures['scripted']:.2f} x scripted")
    print(f"recording: {size / steps / 1_000:.1f} kB a step")


if __name__ == "__main__":
    main()
