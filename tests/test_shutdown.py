"""The end of a process: runs stop where nothing is lost, sessions are free, and nothing new begins."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import AgentClosed, AgentShuttingDown, InvalidOption
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.messages import GenerateReason, Msg
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.shutdown import shut_down, shut_down_on_signals
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import Tool, tool
from tests.cli.command import ROOT
from tests.support import until

CTX = RuntimeContext(session_id="s1")
DIG = calls(("c1", "dig", "{}"))


class Work:
    """A tool that begins, and goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        self.times = 0

        @tool
        async def dig() -> str:
            """Dig."""
            self.times += 1
            self.begun.set()
            await self.let_go.wait()
            return "gold"

        self.tool = dig


class Halting(ScriptedModel):
    """A model whose answers begin, and come to their end when it is let go."""

    def __init__(self, script: list[Any]) -> None:
        super().__init__(script)
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        async for chunk in super().stream(request):
            yield chunk
            self.begun.set()
            await self.let_go.wait()


def builder_for(
    folder: Path, model: ScriptedModel, runtime: Runtime, *, tools: Iterable[Tool] = (), wait_timeout: float = 5
) -> HarnessBuilder:
    return HarnessAgent.builder(
        name="a1",
        model=model,
        workspace=folder,
        runtime=runtime,
        tools=tools,
        wait_timeout=wait_timeout,
        filesystem_tools=False,
    )


async def ending(runtime: Runtime, *, grace: float = 60) -> asyncio.Task[None]:
    """A shutdown that has begun."""
    task = asyncio.create_task(shut_down(runtime, grace=grace))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def last_run(folder: Path) -> tuple[list[Msg], str, str]:
    """What another process finds: the messages, and how the run has ended; its turn comes at once."""
    other = builder_for(folder, ScriptedModel(["Going on."]), Runtime(), wait_timeout=0).build()
    (end,) = [each.payload async for each in other.session_log(CTX).scan() if each.type == "run/end"]
    messages = list((await other.state(CTX)).context.messages)
    assert (await other.call(None, CTX)).text == "Going on."
    return messages, end["status"], end["reason"]


async def test_a_run_stops_when_its_tools_are_done(tmp_path: Path) -> None:
    """What a tool has begun is done and recorded; the model is not asked again, and the next process goes on."""
    runtime, work = Runtime(), Work()
    model = ScriptedModel([DIG, "never"])
    agent = builder_for(tmp_path, model, runtime, tools=[work.tool]).build()
    answer = asyncio.create_task(agent.acall("Dig.", CTX))
    await work.begun.wait()
    end = await ending(runtime)
    assert not end.done()
    work.let_go.set()
    await end
    assert (await answer).reason is GenerateReason.INTERRUPTED
    assert len(model.requests) == 1
    messages, status, reason = await last_run(tmp_path)
    (result,) = [each.tool_result for each in messages if each.tool_result is not None]
    assert (result.text, status, reason) == ("gold", "interrupted", "SHUTDOWN")
    assert "stopped before it was finished" in messages[-1].text


async def test_a_run_stops_before_its_tools_begin(tmp_path: Path) -> None:
    """A model that answers in the grace is heard; what it calls is not begun, and its result says so."""
    runtime, work, model = Runtime(), Work(), Halting([DIG, "never"])
    agent = builder_for(tmp_path, model, runtime, tools=[work.tool]).build()
    answer = asyncio.create_task(agent.acall("Dig.", CTX))
    await model.begun.wait()
    end = await ending(runtime)
    model.let_go.set()
    await end
    assert (await answer).reason is GenerateReason.INTERRUPTED
    messages, status, _ = await last_run(tmp_path)
    (result,) = [each.tool_result for each in messages if each.tool_result is not None]
    assert (result.text, work.times) == ("This tool call was interrupted before it was run.", 0)
    assert status == "interrupted"


async def test_an_answer_that_comes_in_time_is_an_answer(tmp_path: Path) -> None:
    """A run whose next step would be none ends as if nothing were the matter."""
    runtime, model = Runtime(), Halting(["Four."])
    answer = asyncio.create_task(builder_for(tmp_path, model, runtime).build().acall("2 + 2?", CTX))
    await model.begun.wait()
    end = await ending(runtime)
    model.let_go.set()
    await end
    assert ((await answer).text, (await answer).reason) == ("Four.", GenerateReason.MODEL_STOP)
    assert (await last_run(tmp_path))[1:] == ("completed", "MODEL_STOP")


@pytest.mark.parametrize("grace", [0, 0.05])
async def test_what_takes_longer_is_interrupted(tmp_path: Path, grace: float) -> None:
    """A tool that does not come to its end within the grace is cancelled, with a result that says so; all is saved."""
    runtime, work = Runtime(), Work()
    agent = builder_for(tmp_path, ScriptedModel([DIG]), runtime, tools=[work.tool]).build()
    answer = asyncio.create_task(agent.acall("Dig.", CTX))
    await work.begun.wait()
    await shut_down(runtime, grace=grace)
    assert (await answer).reason is GenerateReason.INTERRUPTED
    messages, status, _ = await last_run(tmp_path)
    (result,) = [each.tool_result for each in messages if each.tool_result is not None]
    assert (result.state.value, status) == ("interrupted", "interrupted")


async def test_nothing_new_begins(tmp_path: Path) -> None:
    """Calls, waiting ones too, and changes are refused by every agent of the Runtime; those of others are not."""
    runtime, work = Runtime(), Work()
    builder = builder_for(tmp_path, ScriptedModel([DIG, "x"]), runtime, tools=[work.tool])
    agent = builder.build()
    answer = asyncio.create_task(agent.acall("Dig.", CTX))
    await work.begun.wait()
    waiting = asyncio.create_task(agent.acall("And?", CTX))
    observing = asyncio.create_task(agent.observe(Msg.user("seen"), CTX))
    await asyncio.sleep(0)
    end = await ending(runtime)
    with pytest.raises(AgentShuttingDown, match="shutting down"):
        await waiting
    for begin in (agent.call, builder.build().call, builder.call):
        with pytest.raises(AgentShuttingDown):
            await begin("x", RuntimeContext(session_id="s2"))
    for change in (agent.observe(Msg.user("x"), CTX), agent.clear_context(CTX)):
        with pytest.raises(AgentShuttingDown):
            await change
    work.let_go.set()
    await end
    assert observing.done()  # it had begun: it is waited for, and not lost
    await answer
    texts = [message.text for message in (await agent.state(CTX)).context.messages]
    assert texts[-1] == "seen"
    assert "And?" not in texts


async def test_an_agent_can_be_closed_with_grace(tmp_path: Path) -> None:
    """Closing one agent with a grace stops its runs in the same way, and no other's."""
    runtime, work = Runtime(), Work()
    agent = builder_for(tmp_path, ScriptedModel([DIG]), runtime, tools=[work.tool]).build()
    answer = asyncio.create_task(agent.acall("Dig.", CTX))
    await work.begun.wait()
    closing = asyncio.create_task(agent.close(grace=60))
    await asyncio.sleep(0)
    with pytest.raises(AgentClosed):
        await agent.call("x")
    work.let_go.set()
    await closing
    assert (await answer).reason is GenerateReason.INTERRUPTED
    other = builder_for(tmp_path, ScriptedModel(["Yes."]), runtime).build()
    assert (await other.call("Open?", CTX)).text == "Yes."


async def test_a_runtime_in_which_nothing_happens_ends_at_once(tmp_path: Path) -> None:
    """Negative graces are refused before anything is touched; a Runtime in which nothing happens ends at once."""
    runtime = Runtime()
    with pytest.raises(InvalidOption, match="grace=-1"):
        await shut_down(runtime, grace=-1)
    agent = builder_for(tmp_path, ScriptedModel(["Yes."]), runtime).build()
    assert (await agent.call("Open?", CTX)).text == "Yes."
    await shut_down(runtime)
    await shut_down(runtime)


async def test_sigterm_ends_a_process_in_good_order(tmp_path: Path) -> None:
    """A real process is sent SIGTERM while a tool runs: it ends by itself, and another one goes on with all of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stopping", str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"digging\n"
    process.send_signal(signal.SIGTERM)
    assert await process.stdout.read() == b"INTERRUPTED 1\n"
    assert await process.wait() == 0
    messages, status, reason = await last_run(tmp_path)
    assert [each.tool_result.text for each in messages if each.tool_result is not None] == ["gold"]
    assert (status, reason) == ("interrupted", "SHUTDOWN")


async def test_handlers_are_put_back() -> None:
    """Behind the block a signal does what it did before, whoever had set that."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        runtime = Runtime()
        async with shut_down_on_signals(runtime, signals=[signal.SIGUSR1]) as asked:
            signal.raise_signal(signal.SIGUSR1)
            await asked.wait()
        assert heard == []
        signal.raise_signal(signal.SIGUSR1)
        await until(_heard(heard))
    finally:
        signal.signal(signal.SIGUSR1, before)


def _heard(numbers: list[int]) -> Callable[[], bool]:
    return lambda: numbers == [signal.SIGUSR1]
