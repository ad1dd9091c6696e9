"""What preparing a request costs: with 100 prior messages and with 5,000, in the steady state of a long call.

    .bench/agentscope_rx/bin/python benchmarks/context.py --reps 5     (`make bench` makes this environment)

Figures are CPU time, medians of interleaved repetitions. On a busy machine trust the ratios: a preparation with 5,000
prior messages may cost 2.5 times one with 100, else the exit code is 1. `ScriptedModel` answers, so nothing waits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from preparation_clock import clocked

from agentscope_rx import (
    ContextBlock,
    ContextRequest,
    HarnessAgent,
    InMemoryWorkspace,
    Msg,
    RuntimeContext,
    tool,
)
from agentscope_rx.events import Custom
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.operators import text_operator
from agentscope_rx.options import Arrangement
from agentscope_rx.testing import ScriptedModel, calls

PRIOR: Final = (100, 5_000)
WINDOW: Final = 1_000_000
STEPS: Final = 60
WARM: Final = 5  # steps at the beginning of a call that are not counted
BUILDS: Final = 300
MOST: Final = 2.5
WORDS: Final = ("the ", "order ", "of ", "seven ", "notes ", "was ", "read ", "twice ", "today ", "and ", "kept ")
SAID: Final = "".join(itertools.islice(itertools.cycle(WORDS), 40))
ALICE: Final = RuntimeContext(user_id="alice", session_id="bench")

Measure = Callable[[int], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """A question, the answers at each number of prior messages, and how much they may differ."""

    what: str
    measure: Measure
    most: float | None = None
    micros: dict[int, list[float]] = field(default_factory=lambda: {prior: [] for prior in PRIOR})

    @property
    def medians(self) -> list[float]:
        return [statistics.median(self.micros[prior]) for prior in PRIOR]

    @property
    def ratio(self) -> float:
        few, many = self.medians
        return many / few


@tool
async def look(key: str = "k") -> str:
    """Look up the value of a key."""
    return f"value of {key} is 42"


async def change_record(request: ContextRequest) -> list[ContextBlock]:
    return [
        ContextBlock.runtime("status", f"change of {request.user_id} is under investigation"),
        ContextBlock.reference("format", "columns: date, account, amount", priority=20),
    ]


def old_messages(count: int) -> list[Msg]:
    """Questions, calls, results and answers, about 50 tokens each."""
    turn = (
        Msg.user(SAID),
        Msg.assistant(ToolUseBlock(id="c", name="look", input={"key": SAID})),
        Msg.tool(ToolResultBlock(id="c", name="look", output=(TextBlock(text=SAID),))),
        Msg.assistant(SAID),
    )
    return [message for _ in range(count // 4) for message in turn]


def configured() -> HarnessBuilder:
    """An agent with something in every zone, whose model calls a tool at each step."""
    files = {"AGENTS.md": "Keep it short.\n" * 40, "MEMORY.md": "Alice likes tables.\n" * 100}
    script = (calls(("c", "look", "{}")) for _ in itertools.count())
    return HarnessAgent.builder(
        name="bench",
        model=ScriptedModel(script, keep_requests=False, context_window=WINDOW),
        workspace=InMemoryWorkspace(files),
        tools=[look],
        max_iters=STEPS,
        sys_prompt="You help with orders. " * 20,
        instructions={"policy": "Preserve public behaviour."},
        context_sources={"change": change_record},
    )


# -- what is measured ---------------------------------------------------------------------------------------


@text_operator
def redact(text: str) -> str:
    return text.replace("twice", "[word]")


async def one_preparation(prior: int, *, change: Arrangement = lambda default: default) -> float:
    """Microseconds of one preparation and its report, the median of the steps of a call."""
    seconds: list[float] = []
    builder = configured().pipeline(change).pipeline(lambda default: clocked(default, seconds))
    async with builder.build() as agent:
        await agent.observe(old_messages(prior), ALICE)
        gc.collect()
        await agent.call("Go.", ALICE)
    return statistics.median(seconds[WARM:]) * 1e6


async def one_redacted(prior: int) -> float:
    """The same, with an operator that rewrites every message of every request."""
    return await one_preparation(prior, change=lambda default: default.insert_before("validate_request", redact))


async def one_manifest(prior: int) -> float:
    """Microseconds to write what is new in a manifest, the median of the steps of a call."""
    seconds: list[float] = []
    async with configured().build() as agent:
        await agent.observe(old_messages(prior), ALICE)
        gc.collect()
        async for event in agent.stream_events("Go.", ALICE):
            manifest = event.value.get("context_manifest") if isinstance(event, Custom) else None
            if isinstance(manifest, ContextManifest):
                began = time.process_time()
                manifest.to_json()
                seconds.append(time.process_time() - began)
    return statistics.median(seconds[WARM:]) * 1e6


async def one_step(prior: int, *, keep: bool) -> float:
    """Microseconds of a whole step, its records written to a log in memory: the mean of the steps of a second call."""
    async with configured().log_requests(keep).build() as agent:
        await agent.observe(old_messages(prior), ALICE)
        await agent.call("Warm up.", ALICE)
        gc.collect()
        began = time.process_time()
        await agent.call("Go.", ALICE)
        return (time.process_time() - began) / (STEPS + 1) * 1e6


async def one_build(_: int) -> float:
    """Microseconds of `build()`, which knows no history."""
    builder = configured()
    gc.collect()
    began = time.process_time()
    for _ in range(BUILDS):
        builder.build()
    return (time.process_time() - began) / BUILDS * 1e6


async def measured(reps: int) -> list[Row]:
    rows = [
        Row("one preparation", one_preparation, MOST),
        Row("with every text redacted", one_redacted, MOST),
        Row("writing its manifest", one_manifest),
        Row("a step, no requests kept", partial(one_step, keep=False)),
        Row("a step, requests kept", partial(one_step, keep=True)),
        Row("build()", one_build),
    ]
    for _, row, prior in itertools.product(range(reps), rows, PRIOR):
        row.micros[prior].append(await row.measure(prior))
    return rows


# -- the answer ---------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> Iterator[str]:
    few, many = (f"{prior:,} prior" for prior in PRIOR)
    yield f"| {'CPU, microseconds':<24} | {few:>11} | {many:>11} | {'ratio':>5} | {'at most':>7} |"
    yield f"|{'-' * 26}|{'-' * 13}|{'-' * 13}|{'-' * 7}|{'-' * 9}|"
    for row in rows:
        at_few, at_many = row.medians
        most = "" if row.most is None else f"{row.most:g}"
        yield f"| {row.what:<24} | {at_few:>11,.0f} | {at_many:>11,.0f} | {row.ratio:>5.2f} | {most:>7} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    rows = asyncio.run(measured(parser.parse_args().reps))
    print("\n## Preparing a request\n", *table(rows), sep="\n")
    return int(any(row.most is not None and row.ratio > row.most for row in rows))


if __name__ == "__main__":
    sys.exit(main())
