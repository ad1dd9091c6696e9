"""Leaving a run, in every way: the server sees it, tools are cancelled, and the next call works."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.errors import AgentClosed
from agentscope_rx.messages import ToolResultState
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.testing.fake_provider import FakeProvider, stream, text, tool_calls
from agentscope_rx.tools import tool
from tests.support import MODELS, Seen, builder_for, until, watch

STALLED = stream([{"d": {"content": "a"}}, {"stall": True}])


@asynccontextmanager
async def nothing_left() -> AsyncGenerator[None]:
    """No task that was started inside the block is left after it."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before
    assert not left, left


async def by_aclose(agent: ReActAgent) -> None:
    async with aclosing(agent.stream_events("go").__aiter__()) as events:
        async for event in events:
            if isinstance(event, ev.TextBlockDelta):
                break


async def by_cancelling_the_waiting_task(agent: ReActAgent) -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        async for event in agent.stream_events("go"):
            if isinstance(event, ev.TextBlockDelta):
                begun.set()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_a_time_out(agent: ReActAgent) -> None:
    async def watch_with_a_time_out() -> None:
        async with asyncio.timeout(None) as time_out:
            async for event in agent.stream_events("go"):
                if isinstance(event, ev.TextBlockDelta):
                    time_out.reschedule(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await watch_with_a_time_out()


async def by_disposing(agent: ReActAgent) -> None:
    begun = asyncio.Event()
    subscription = agent.stream_events("go").subscribe(
        lambda event: begun.set() if isinstance(event, ev.TextBlockDelta) else None
    )
    await begun.wait()
    subscription.dispose()


WAYS = (by_aclose, by_cancelling_the_waiting_task, by_a_time_out, by_disposing)


@pytest.mark.parametrize("leave", WAYS)
@pytest.mark.parametrize("model", MODELS)
async def test_leaving_in_the_middle_of_an_answer(
    leave: Callable[[ReActAgent], Awaitable[None]], model: type[HttpxChatModel] | type[OpenAIChatModel]
) -> None:
    """The server sees the connection end, what was seen of the text stays, and the next call works."""
    async with FakeProvider([STALLED, text("fine")]) as provider:
        agent = builder_for(provider, model).build()
        await leave(agent)
        await provider.client_gone(1)
        assert (await agent.call("again")).text == "fine"
        said = [(m["role"], m["content"]) for m in provider.requests[1].body["messages"]]
        assert said == [("user", "go"), ("assistant", "a"), ("user", "again")]
        await agent.close()


@pytest.mark.parametrize("leave", [by_aclose, by_cancelling_the_waiting_task, by_a_time_out])
async def test_leaving_returns_after_everything_below_has_ended(
    leave: Callable[[ReActAgent], Awaitable[None]],
) -> None:
    """When leaving has returned there is no task of the run, and its connection is closed on our side."""
    with FakeProvider.in_thread([STALLED]) as provider:
        agent = builder_for(provider).build()
        before = asyncio.all_tasks()
        await leave(agent)
        assert asyncio.all_tasks() == before
        assert (await provider.client_gone(1)).client_left


async def test_leaving_between_a_reply_and_its_tools_closes_the_calls() -> None:
    """A call that was recorded and never begun has an `interrupted` result in the stored state, not only in the next
    request."""

    @tool
    async def quick() -> str:
        """Ends at once."""
        return "quick"

    reached = asyncio.Event()
    wait: Callable[[Observable[Any]], Observable[Any]] = ops.flat_map(
        lambda _: (reached.set(), reactivex.never())[1]  # type: ignore[func-returns-value]
    )
    model = ScriptedModel([calls(("c1", "quick", "{}")), "fine"])
    builder = ReActAgent.builder(name="a", model=model, tools=[quick])
    agent = builder.pipeline(lambda default: default.insert_before("run_tools", wait)).build()
    task = asyncio.create_task(agent.acall("go"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (result,) = [m.tool_result for m in (await agent.state()).context.messages if m.tool_result]
    assert (result.id, result.state) == ("c1", ToolResultState.INTERRUPTED)


async def test_leaving_in_the_middle_of_a_tool_cancels_it() -> None:
    """The tool is cancelled, its call gets a recorded `interrupted` result, and the pairs of the next request hold."""
    running, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Never ends by itself."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    @tool
    async def quick() -> str:
        """Ends at once."""
        return "quick"

    async with FakeProvider([tool_calls(("c1", "slow", "{}"), ("c2", "quick", "{}")), text("fine")]) as provider:
        agent = builder_for(provider, tools=[slow, quick]).build()
        task = asyncio.create_task(agent.acall("go"))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        results = {m.tool_result.id: m.tool_result for m in (await agent.state()).context.messages if m.tool_result}
        assert results["c1"].state is ToolResultState.INTERRUPTED
        assert results["c2"].state is ToolResultState.SUCCESS
        assert (await agent.call("again")).text == "fine"
        assert provider.refusals == []


async def test_leaving_the_agents_block_interrupts_its_open_run() -> None:
    """Leaving the block returns after the server saw the connection end; the run's subscriber gets a result."""
    async with FakeProvider([STALLED, text("fine")]) as provider:
        seen = Seen()
        builder = builder_for(provider)

        async def watch_it() -> None:
            async for event in agent.stream_events("go"):
                seen.events.append(event)

        async with builder.build() as agent:
            task = asyncio.create_task(watch_it())
            await until(lambda: "TEXT_BLOCK_DELTA" in seen.types)
        assert (await provider.client_gone(1)).client_left
        await task
        assert seen.types[-2:] == ["AGENT_RESULT", "AGENT_END"]
        assert (await watch(agent, "more")).error.__class__ is AgentClosed
        assert (await builder.build().call("again")).text == "fine"


async def test_closing_refuses_a_call_that_waits() -> None:
    """A call that waits for its session's turn when its agent is closed ends with AgentClosed."""
    async with FakeProvider([STALLED]) as provider:
        agent = builder_for(provider).build()
        first = asyncio.create_task(watch(agent, "one"))
        await provider.wait_for_requests(1)
        second = asyncio.create_task(watch(agent, "two"))
        await asyncio.sleep(0)
        await agent.close()
        assert isinstance((await second).error, AgentClosed)
        assert (await first).result.reason.value == "INTERRUPTED"


@pytest.mark.parametrize("leave", [by_aclose, by_a_time_out, by_disposing])
async def test_fifty_consumers_that_stop_reading(leave: Callable[[ReActAgent], Awaitable[None]]) -> None:
    """O48: after fifty abandoned runs on one session each further call works, and nothing is left behind."""
    replies = [reply for _ in range(50) for reply in (STALLED, text("fine"))]
    with FakeProvider.in_thread(replies) as provider:
        async with nothing_left():
            agent = builder_for(provider).build()
            for _ in range(50):
                await leave(agent)
                assert (await agent.call("again")).text == "fine"
            await agent.close()
        await until(lambda: provider.open_connections <= 1)


async def test_a_dropped_iterator_ends_its_run() -> None:
    """O48: an iterator that is simply dropped and collected lets the session go as well."""
    async with FakeProvider([STALLED, text("fine")]) as provider:
        agent = builder_for(provider).build()
        events = agent.stream_events("go").__aiter__()
        while not isinstance(await anext(events), ev.TextBlockDelta):
            pass
        del events
        gc.collect()
        assert (await agent.call("again")).text == "fine"
        assert (await provider.client_gone(1)).client_left
