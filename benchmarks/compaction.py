"""What a compaction costs: its own CPU at 1,250 to 10,000 messages, and steps without one at 100 and 5,000.

    .bench/agentscope_rx/bin/python benchmarks/compaction.py --reps 5     (`make bench` makes this environment)

A compaction's own cost is the CPU time of the preparation that makes one, less that of the same preparation of the same
call without: planning, the summary request, its account and events, the checks, the manifest's part, the record.
`ScriptedModel` answers, so nothing waits. Figures are the least of interleaved repetitions, since other work on the
machine only adds. The exit code is 1 where a compaction of 5,000 messages takes over 30 ms, where one of 10,000 costs
over 1.5 times as much per message as one of 2,500, or where a step without one costs over 2.5 times as much with 5,000
messages as with 100.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import statistics
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final

from preparation_clock import clocked

from agentscope_rx import HarnessAgent, InMemoryWorkspace, Msg, RuntimeContext, tool
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.testing import ScriptedModel, calls

SIZES: Final = (1_250, 2_500, 5_000, 10_000)
FEW, MANY = 100, 5_000
WINDOW: Final = 2_000_000  # all of a conversation fits into one summary request
STEPS: Final = 12
AT: Final = 8  # the step that compacts; those before it have counted the conversation
MOST_MILLIS: Final = 30.0
MOST_GROWTH: Final = 1.5
MOST_RATIO: Final = 2.5
WORDS: Final = ("the ", "order ", "of ", "seven ", "notes ", "was ", "read ", "twice ", "today ", "and ", "kept ")
SAID: Final = "".join(itertools.islice(itertools.cycle(WORDS), 40))
NOTES: Final = "## SESSION INTENT\nOrders.\n## SUMMARY\nRead.\n## ARTIFACTS\nNone\n## NEXT STEPS\nNone"
NEVER: Final = CompactionConfig(trigger_messages=0)
ALICE: Final = RuntimeContext(user_id="alice", session_id="bench")


@dataclass(slots=True)
class Sample:
    """Milliseconds at one number of messages, by repetition."""

    own: list[float] = field(default_factory=list[float])
    without: list[float] = field(default_factory=list[float])


class Summarising:
    """A scripted model that calls a tool at each step, and writes the same notes whenever it is asked for some."""

    name = "scripted"
    context_window: int | None = WINDOW
    max_output_tokens: int | None = None

    def __init__(self) -> None:
        self._steps = ScriptedModel((calls(("c", "look", "{}")) for _ in itertools.count()), keep_requests=False)
        self._notes = ScriptedModel(itertools.repeat(NOTES), keep_requests=False)

    @property
    def summaries(self) -> int:
        """How many it has written."""
        return self._notes.asked

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer."""
        return (self._notes if request.purpose == "summary" else self._steps).stream(request)


@tool
async def look(key: str = "k") -> str:
    """Look up the value of a key."""
    return f"value of {key} is 42"


def old_messages(count: int) -> list[Msg]:
    """Questions, calls, results and answers, each about 50 tokens of a text of its own."""
    made: list[Msg] = []
    for turn in range(count // 4):
        said = f"{SAID}({turn})"
        made += (
            Msg.user(said),
            Msg.assistant(ToolUseBlock(id="c", name="look", input={"key": said})),
            Msg.tool(ToolResultBlock(id="c", name="look", output=(TextBlock(text=said),))),
            Msg.assistant(said),
        )
    return made + [Msg.user(SAID) for _ in range(count % 4)]


# -- what is measured ---------------------------------------------------------------------------------------


async def preparations(messages: int, config: CompactionConfig) -> list[float]:
    """Milliseconds of each preparation of a call in a session that holds so many messages."""
    seconds, model = list[float](), Summarising()
    builder = (
        HarnessAgent.builder(name="bench", model=model, workspace=InMemoryWorkspace(), tools=[look], max_iters=STEPS)
        .compaction(config)
        .pipeline(lambda default: clocked(default, seconds))
    )
    async with builder.build() as agent:
        await agent.observe(old_messages(messages), ALICE)
        gc.collect()
        await agent.call("Go.", ALICE)
        made = len(await agent.compactions(ALICE))
    wanted = int(config is not NEVER)
    if (made, model.summaries) != (wanted, wanted):
        raise RuntimeError(f"{made} compactions and {model.summaries} summaries where {wanted} was to be measured")
    return [each * 1e3 for each in seconds]


async def one_pair(messages: int, sample: Sample) -> None:
    """The same call without a compaction, and with one at one of its steps."""
    without = await preparations(messages, NEVER)
    sample.without.append(statistics.median(without[2:]))
    if messages in SIZES:
        before = messages + 1 + 2 * AT  # held when that step begins: what was said, then calls and results
        compacting = await preparations(messages, CompactionConfig(trigger_messages=before))
        sample.own.append(compacting[AT] - statistics.median(without[AT - 2 : AT + 3]))


async def measured(reps: int) -> dict[int, Sample]:
    samples = {messages: Sample() for messages in (FEW, *SIZES)}
    for _, (messages, sample) in itertools.product(range(reps), samples.items()):
        await one_pair(messages, sample)
    return samples


# -- the answer ---------------------------------------------------------------------------------------------


def table(samples: dict[int, Sample]) -> Iterator[str]:
    yield f"| {'messages':>8} | {'a compaction, ms':>16} | {'µs a message':>12} | {'a step without, ms':>18} |"
    yield f"|{'-' * 10}|{'-' * 18}|{'-' * 14}|{'-' * 20}|"
    for messages, sample in samples.items():
        own = min(sample.own, default=None)
        shown = ("", "") if own is None else (f"{own:.2f}", f"{own / messages * 1e3:.2f}")
        yield f"| {messages:>8,} | {shown[0]:>16} | {shown[1]:>12} | {min(sample.without):>18.3f} |"


def checks(samples: dict[int, Sample]) -> Iterator[tuple[str, float, float]]:
    """What must hold: what it is, what was measured, and what it may be at most."""
    own = {messages: min(samples[messages].own) for messages in SIZES}
    without = {messages: min(sample.without) for messages, sample in samples.items()}
    yield f"a compaction of {MANY:,} messages, ms", own[MANY], MOST_MILLIS
    yield "a message of 10,000 by one of 2,500", own[10_000] / own[2_500] / 4, MOST_GROWTH
    yield f"a step with {MANY:,} messages by one with {FEW}", without[MANY] / without[FEW], MOST_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    samples = asyncio.run(measured(parser.parse_args().reps))
    print("\n## A compaction's own CPU\n", *table(samples), "", sep="\n")
    held = [(what, found, most, found <= most) for what, found, most in checks(samples)]
    for what, found, most, good in held:
        print(f"{'ok    ' if good else 'MISSED'} {what}: {found:.2f}, at most {most:g}")
    return int(not all(good for *_, good in held))


if __name__ == "__main__":
    sys.exit(main())
