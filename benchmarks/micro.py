"""What our own parts cost, without a network: beside a bare loop over the same scripted model, in one run.

    .bench/agentscope_rx/bin/python benchmarks/micro.py --reps 5       (`make bench` makes this environment)

Figures are CPU time, medians of interleaved repetitions; an import is the shortest of its processes. On a busy machine
trust the ratios. Beside other libraries, and over HTTP: `benchmarks/rig/README.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import pydantic_core
from reactivex import Observable, Observer

from agentscope_rx import Msg, ReActAgent, Runtime, RuntimeContext
from agentscope_rx.emitter import Emitter, RunIdentity
from agentscope_rx.events import AgentEvent, TextBlockDelta
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.stores import SessionKey
from agentscope_rx.stores.store import Stored
from agentscope_rx.streams import Sink
from agentscope_rx.testing import ScriptedModel, calls, text

DELTAS: Final = 2_000
ROUNDS: Final = 20
HISTORIES: Final = (0, 1_000, 5_000)
EVENTS: Final = 50_000
BUILDS: Final = 500
TURNS: Final = 10_000
WORDS: Final = ("the ", "order ", "of ", "seven ", "notes ", "was ", "read ", "twice ", "today ", "and ", "kept ")
OLD_TEXT: Final = "".join(itertools.islice(itertools.cycle(WORDS), 80))  # about 100 tokens
#: A bare `import pydantic` loads nothing yet.
BARE_IMPORT: Final = "from reactivex import Observable, operators; from pydantic import BaseModel, TypeAdapter"
REQUEST: Final = ModelRequest(call_id="bare")

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A question: what it is about, in which unit, and how it is measured."""

    what: str
    unit: str
    ours: Measure
    bare: Measure | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An answer; `bare` is empty where there is nothing to compare with."""

    what: str
    unit: str
    ours: list[float]
    bare: list[float]


class WritingModel(ScriptedModel):
    """A scripted model that writes each request as the bytes that a provider would get."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        encode(request, model=self.name, provider=COMPATIBLE)
        async for chunk in super().stream(request):
            yield chunk


class ForgetfulStore:
    """Keeps nothing, so that what a turn leaves behind is ours."""

    async def get(self, key: SessionKey, /) -> Stored | None:
        return None

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        return expected_version + 1


async def lookup(key: str) -> str:
    """Look up the value of a key."""
    return f"value of {key} is 42"


# -- what is measured ---------------------------------------------------------------------------------------


async def timed(work: Callable[[], Awaitable[None]], units: int) -> float:
    """Microseconds of CPU a unit."""
    gc.collect()
    began = time.process_time()
    await work()
    return (time.process_time() - began) / units * 1e6


def words() -> tuple[str, ...]:
    return tuple(itertools.islice(itertools.cycle(WORDS), DELTAS))


def rounds(model: type[ScriptedModel] = ScriptedModel) -> ScriptedModel:
    """A model that calls a tool `ROUNDS` times and answers then, again and again."""
    called = [calls((f"c{number}", "lookup", '{"key": "k"}')) for number in range(ROUNDS)]
    return model(itertools.cycle([*called, text("Done.")]), keep_requests=False)


async def subscribed(agent: ReActAgent, context: RuntimeContext, see: Callable[[AgentEvent], None]) -> None:
    """One turn, to its end."""
    ended = asyncio.get_running_loop().create_future()
    events = agent.stream_events("Go on.", context)
    events.subscribe(see, ended.set_exception, lambda: ended.set_result(None))
    await ended


def see_nothing(_: object) -> None:
    """The cheapest subscriber there is."""


def streaming() -> Iterator[Figure]:
    builder = ReActAgent.builder(name="bench")
    turn, contexts = text(*words()), (RuntimeContext(session_id=f"s{number}") for number in itertools.count())

    def agent() -> ReActAgent:
        return builder.model(ScriptedModel([turn])).build()

    async def by_subscription() -> float:
        return await timed(lambda: subscribed(agent(), next(contexts), see_nothing), DELTAS)

    async def by_iteration() -> float:
        async def work() -> None:
            async for event in agent().stream_events("Go on.", next(contexts)):
                see_nothing(event)

        return await timed(work, DELTAS)

    async def bare() -> float:
        async def work() -> None:
            pieces: list[str] = []
            async for chunk in ScriptedModel([turn]).stream(REQUEST):
                pieces.append(chunk.text)
                see_nothing(chunk)
            assert len("".join(pieces)) == len("".join(words()))

        return await timed(work, DELTAS)

    yield Figure("a text delta, subscribed", "µs", by_subscription, bare)
    yield Figure("a text delta, async for", "µs", by_iteration, bare)


async def seeded(agent: ReActAgent, messages: int) -> RuntimeContext:
    context = RuntimeContext(session_id=f"of-{messages}")
    await agent.observe([(Msg.user, Msg.assistant)[number % 2](OLD_TEXT) for number in range(messages)], context)
    await subscribed(agent, context, see_nothing)  # what is remembered of old messages is made once, not at each step
    return context


async def stepping() -> list[Figure]:
    async def bare() -> float:
        model = rounds()

        async def work() -> None:
            for _ in range(ROUNDS + 1):
                async for chunk in model.stream(REQUEST):
                    for call in chunk.calls:
                        await lookup(**pydantic_core.from_json(call.arguments))

        return await timed(work, ROUNDS + 1)

    def bare_bytes(messages: int) -> Measure:
        async def measure() -> float:
            history = [{"role": ("user", "assistant")[number % 2], "content": OLD_TEXT} for number in range(messages)]

            async def work() -> None:
                for _ in range(ROUNDS + 1):
                    pydantic_core.to_json({"messages": history, "stream": True})

            return await bare() + await timed(work, ROUNDS + 1)

        return measure

    def ours(agent: ReActAgent, context: RuntimeContext) -> Measure:
        return lambda: timed(lambda: subscribed(agent, context, see_nothing), ROUNDS + 1)

    figures: list[Figure] = []
    for model, what in ((ScriptedModel, "a step"), (WritingModel, "a step and its request's bytes")):
        builder = ReActAgent.builder(name="bench", tools=[lookup], max_iters=ROUNDS + 1)
        for messages in HISTORIES:
            agent = builder.model(rounds(model)).build()
            context = await seeded(agent, messages)
            figures.append(
                Figure(
                    f"{what}, {messages:,} old messages",
                    "µs",
                    ours(agent, context),
                    bare if model is ScriptedModel else bare_bytes(messages),
                )
            )
    return figures


def eventing() -> Iterator[Figure]:
    identity = RunIdentity(
        agent_id="a", agent_name="a", user_id=None, session_id="s", turn_id="t", run_id="r", reply_id="c"
    )

    def delta() -> TextBlockDelta:
        return TextBlockDelta(reply_id="r", block_id="text", delta="the ")

    async def through_sink() -> float:
        emit, event = Sink(Observer[AgentEvent](see_nothing), lambda: None).emit, delta()

        async def work() -> None:
            for _ in range(EVENTS):
                emit(event)

        return await timed(work, EVENTS)

    async def called() -> float:
        event = delta()

        async def work() -> None:
            for _ in range(EVENTS):
                see_nothing(event)

        return await timed(work, EVENTS)

    async def emitted() -> float:
        emit = Emitter(identity, Runtime(), Sink(Observer[AgentEvent](see_nothing), lambda: None).emit)

        async def work() -> None:
            for _ in range(EVENTS):
                emit(delta())

        return await timed(work, EVENTS)

    async def made() -> float:
        async def work() -> None:
            for _ in range(EVENTS):
                see_nothing(delta())

        return await timed(work, EVENTS)

    yield Figure("an event through the sink", "µs", through_sink, called)
    yield Figure("an event made, stamped and through the sink", "µs", emitted, made)


def building() -> Figure:
    builder = ReActAgent.builder(name="bench", model=ScriptedModel([]), tools=[lookup], sys_prompt="Be brief.")

    async def ours() -> float:
        async def work() -> None:
            for _ in range(BUILDS):
                builder.build()

        return await timed(work, BUILDS)

    return Figure("builder.build()", "µs", ours)


# -- what is counted ----------------------------------------------------------------------------------------


async def subscriptions_a_step() -> float:
    """How often any Observable is subscribed in a step that runs a tool."""
    counted = 0
    stock = Observable[Any].subscribe

    def subscribe(source: Observable[Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal counted
        counted += 1
        return stock(source, *args, **kwargs)

    async def of_a_turn(script: list[Any]) -> int:
        before = counted
        agent = ReActAgent.builder(
            name="bench", model=ScriptedModel(script), tools=[lookup], max_iters=len(script)
        ).build()
        await subscribed(agent, RuntimeContext(), see_nothing)
        return counted - before

    with mock.patch.object(Observable, "subscribe", subscribe):
        one_call = calls(("c", "lookup", '{"key": "k"}'))
        short, long = await of_a_turn([text("Done.")]), await of_a_turn([*[one_call] * ROUNDS, text("Done.")])
    return (long - short) / ROUNDS


async def left_behind() -> list[Row]:
    """What so many turns leave behind in memory when nobody keeps their sessions."""
    model = ScriptedModel(itertools.repeat(text("Done.")), keep_requests=False)
    agent = ReActAgent.builder(name="bench", model=model, state_store=ForgetfulStore()).build()

    async def turns(first: int, count: int) -> None:
        for number in range(first, first + count):
            await subscribed(agent, RuntimeContext(session_id=f"s{number}"), see_nothing)

    def held() -> tuple[int, int]:
        gc.collect()
        return sys.getallocatedblocks(), resident_bytes()

    await turns(0, 1_000)  # caches of a fixed size are full then
    before = held()
    await turns(1_000, TURNS)
    blocks, resident = ((now - then) / TURNS for now, then in zip(held(), before, strict=True))
    return [
        Row(f"memory that a turn leaves behind, of {TURNS:,}", "bytes", [resident], []),
        Row(f"objects that a turn leaves behind, of {TURNS:,}", "", [blocks], []),
    ]


def resident_bytes() -> int:
    """The resident memory of this process; Linux only, as the rig."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def import_ms(statement: str) -> float:
    def of_children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    began = of_children()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return (of_children() - began) * 1e3


# -- the table ----------------------------------------------------------------------------------------------


async def measured(reps: int) -> list[Row]:
    figures = [*streaming(), *await stepping(), *eventing(), building()]
    rows = [Row(each.what, each.unit, [], []) for each in figures]
    for rep in range(reps + 1):
        for figure, row in zip(figures, rows, strict=True):
            ours = await figure.ours()
            bare = await figure.bare() if figure.bare else None
            if rep:  # the first one warms up
                row.ours.append(ours)
                row.bare.extend([] if bare is None else [bare])
    return [
        *rows,
        *(growth(rows, what) for what in ("a step", "a step and its request's bytes")),
        Row("subscriptions in a step with a tool call", "", [await subscriptions_a_step()], []),
        *await left_behind(),
    ]


def growth(rows: list[Row], what: str) -> Row:
    """How much longer a step takes for each old message."""
    first, last = (next(row for row in rows if row.what == f"{what}, {h:,} old messages") for h in (0, HISTORIES[-1]))

    def slope(a: list[float], b: list[float]) -> list[float]:
        return [(y - x) / HISTORIES[-1] for x, y in zip(a, b, strict=True)]

    bare = slope(first.bare, last.bare) if what != "a step" else []
    return Row(f"{what}, growth per old message", "µs", slope(first.ours, last.ours), bare)


def imported(reps: int) -> Row:
    pairs = [(import_ms("import agentscope_rx"), import_ms(BARE_IMPORT)) for _ in range(reps + 1)]
    ours, bare = zip(*pairs, strict=True)
    return Row("import agentscope_rx / reactivex and pydantic alone", "ms", [min(ours)], [min(bare)])


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def table(rows: list[Row]) -> Iterator[str]:
    yield f"| {'what':<54} | {'unit':<5} | {'ours':>8} | {'min-max':>15} | {'bare':>8} | {'ratio':>6} |"
    yield f"|{'-' * 56}|{'-' * 7}|{'-' * 10}|{'-' * 17}|{'-' * 10}|{'-' * 8}|"
    for row in rows:
        ours, spread = statistics.median(row.ours), f"{shown(min(row.ours))}-{shown(max(row.ours))}"
        bare = statistics.median(row.bare) if row.bare else None
        columns = ("", "") if bare is None else (shown(bare), f"{ours / bare:.1f}")
        yield (
            f"| {row.what:<54} | {row.unit:<5} | {shown(ours):>8} | {spread if len(row.ours) > 1 else '':>15} "
            f"| {columns[0]:>8} | {columns[1]:>6} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    reps: int = parser.parse_args().reps
    rows = [*asyncio.run(measured(reps)), imported(reps)]
    print("\n## Our own parts, without a network\n", *table(rows), sep="\n")


if __name__ == "__main__":
    main()
