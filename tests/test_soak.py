"""Long and many: nothing grows that should not, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from reactivex import Observable, abc

from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, ScriptedTurn, calls, text
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply
from agentscope_rx.tools import tool
from tests.support import builder_for, stack_depth, until

TURNS = 10_000


@dataclass(frozen=True)
class Measured:
    """What is alive during a turn."""

    depth: int
    reactive: int
    tasks: int


def measure() -> Measured:
    """Count frames, live Rx objects and tasks, here and now."""
    gc.collect()
    depth = stack_depth()
    reactive = sum(isinstance(each, Observable | abc.DisposableBase | abc.ObserverBase) for each in gc.get_objects())
    return Measured(depth, reactive, len(asyncio.all_tasks()))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ten_thousand_turns() -> None:
    """Stack, live Rx objects and tasks are equal at turn 100 and 10,000; memory grows by at most 3 kB a turn."""
    taken: dict[int, Measured] = {}
    memory: dict[int, int] = {}
    turn = 0

    @tool
    async def tick() -> str:
        """Tick."""
        nonlocal turn
        turn += 1
        if turn in (100, 1_000, TURNS):
            taken[turn] = measure()
            memory[turn] = tracemalloc.get_traced_memory()[0]
        return "t"

    def script() -> Iterator[ScriptedTurn]:
        yield from (calls((f"c{n}", "tick", "{}")) for n in range(TURNS))
        yield text("end")

    model = ScriptedModel(script(), keep_requests=False)
    agent = ReActAgent.builder(name="a", model=model, tools=[tick], max_iters=20_000).build()
    tracemalloc.start()
    try:
        answer = await agent.call("go")
    finally:
        tracemalloc.stop()
    assert answer.text == "end"
    assert taken[100] == taken[TURNS]
    assert (memory[TURNS] - memory[1_000]) / (TURNS - 1_000) <= 3_000


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_five_hundred_turns_over_http() -> None:
    """500 turns with a tool each, over a real connection that is kept."""

    @tool
    async def tick() -> str:
        """Tick."""
        return "t"

    def script(request: RecordedRequest, n: int) -> ScriptedReply:
        return fake.tool_calls((f"c{n}", "tick", "{}")) if n <= 500 else fake.text("end")

    async with FakeProvider(script, strict=False) as provider:
        agent = builder_for(provider, tools=[tick], max_iters=1_000).build()
        assert (await agent.call("go")).text == "end"
        assert len(provider.requests) == 501
        assert provider.open_connections == 1
        assert len(provider.requests[-1].body["messages"]) == 1_001


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_thousand_sessions_left_at_any_moment() -> None:
    """1,000 sessions at once, each left at a moment of its own: no task and no connection is left behind."""
    chance = random.Random(7)

    @tool
    async def wait_a_little() -> str:
        """Give the loop some turns."""
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        return "t"

    def script(request: RecordedRequest, n: int) -> ScriptedReply:
        asked = sum(message["role"] == "tool" for message in request.messages)
        return fake.tool_calls((f"c{n}", "wait_a_little", "{}")) if asked < 1 else fake.text("the end", deltas=3)

    with FakeProvider.in_thread(script) as provider:
        agent = builder_for(provider, tools=[wait_a_little]).build()
        before = asyncio.all_tasks()

        async def one(number: int) -> bool:
            events = agent.stream_events("go", RuntimeContext(session_id=f"s{number}")).__aiter__()
            left_after = chance.randrange(30)
            seen = 0
            try:
                async for _ in events:
                    seen += 1
                    if seen == left_after:
                        break
            finally:
                await events.aclose()
            return seen == left_after

        left_early = await asyncio.gather(*(one(number) for number in range(1_000)))
        assert 0 < sum(left_early) < 1_000
        assert asyncio.all_tasks() == before
        states = [await agent.state(RuntimeContext(session_id=f"s{number}")) for number in range(1_000)]
        assert not any(state.context.open_calls for state in states)
        await agent.close()
        gc.collect()
        busy = [request for request in provider.requests if not request.finished and not request.client_left]
        await until(lambda: all(request.finished or request.client_left for request in busy))
        assert provider.refusals == []
