"""What goes on when the run has ended: nobody of the run waits for it, and it belongs to somebody."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.background_work import BackgroundWork
from agentscope_rx.events import AgentEnd, AgentResult
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.shutdown import shut_down
from agentscope_rx.testing import a_runtime, calls
from agentscope_rx.testing.fake_provider import FakeProvider, text
from agentscope_rx.tools import tool
from tests.memory.support import ALICE, TODAY, Ledger, Writer, finished, heard, remembering, told
from tests.support import type_of, until
from tests.virtual import virtual

ROOT = Path(__file__).parents[2]
BOB = RuntimeContext(user_id="bob", session_id="s2")


@tool
async def look() -> str:
    """Look around."""
    return "nothing"


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


@virtual
async def test_a_reply_does_not_wait() -> None:
    """Neither the first nor the next, of the same session too; what was said is written down later."""
    files, writer = Ledger(), Writer(["- one", "- two"])
    writer.hold()
    agent = remembering(writer, files=files).build()
    for _ in range(2):
        assert (await agent.call("Hello.", ALICE)).text == "done"
    assert now() == 0
    writer.let_go.set()
    await finished(agent)
    assert "- one" in await files.text(TODAY)


@virtual
async def test_closing_waits() -> None:
    """As long as it takes, where that is less than 5 s."""
    files, writer = Ledger(), Writer(["- met Bo"])
    writer.hold()
    agent = remembering(writer, files=files).build()
    await agent.call("Hello.", ALICE)
    asyncio.get_running_loop().call_later(3, writer.let_go.set)
    await agent.close()
    assert now() == 3
    assert "- met Bo" in await files.text(TODAY)


def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """After 5 s it is cancelled, which is said; no task is left, no file was touched, nothing more
    begins, and the next one reads it."""

    @virtual
    async def closed() -> None:
        files, writer = Ledger({"memory/2025-12-31.md": "- old\n"}, due=True), Writer(["- met Bo"])
        writer.hold()
        builder = remembering(writer, files=files)
        agent = builder.build()
        await agent.call("Hello.", ALICE)
        await agent.close()
        assert now() == 5
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (writer.asked, await files.text(TODAY)) == (1, "")
        writer.let_go.set()
        async with builder.build() as other:
            await other.call("And now?", ALICE)
        assert len(writer.requests) == 2
        assert "Hello." in "".join(message.text for message in writer.requests[1].conversation.messages)

    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        closed()
    reasons = [record.__dict__.get("reason") for record in caplog.records if record.msg == "memory_failed"]
    assert reasons == ["cancelled"]


@virtual
async def test_closing_waits_for_its_own_only() -> None:
    """The work of another agent of the same Runtime goes on."""
    files, writer = Ledger(), Writer(["- met Bo"])
    builder = remembering(writer, files=files)
    writer.hold()
    one, other = builder.build(), builder.build()
    await one.call("Hello.", ALICE)
    await other.close()
    assert now() == 0
    writer.let_go.set()
    await one.close()
    assert "- met Bo" in await files.text(TODAY)


@virtual
async def test_closing_need_not_wait() -> None:
    """With `background=None` the work goes on, and is the Runtime's."""
    files, writer, runtime = Ledger(), Writer(["- met Bo"]), a_runtime()
    writer.hold()
    agent = remembering(writer, files=files, runtime=runtime).build()
    await agent.call("Hello.", ALICE)
    await agent.close(background=None)
    assert now() == 0
    writer.let_go.set()
    await runtime.single(BackgroundWork).finish()
    assert "- met Bo" in await files.text(TODAY)


@virtual
async def test_the_runtime_keeps_what_an_agent_of_one_call_leaves() -> None:
    """The call ends when its answer is there, the collector takes nothing along, and the shutdown waits."""
    files, writer, runtime = Ledger(), Writer(["- met Bo"]), a_runtime()
    writer.hold()
    assert (await remembering(writer, files=files, runtime=runtime).call("Hello.", ALICE)).text == "done"
    assert now() == 0
    gc.collect()
    asyncio.get_running_loop().call_later(3, writer.let_go.set)
    await shut_down(runtime)
    assert now() == 3
    assert "- met Bo" in await files.text(TODAY)


@virtual
async def test_a_shutdown_does_not_wait_for_ever() -> None:
    """After 5 s the work is cancelled."""
    writer, runtime = Writer(), a_runtime()
    writer.hold()
    await remembering(writer, runtime=runtime).call("Hello.", ALICE)
    await shut_down(runtime)
    assert now() == 5
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_provider_that_hangs_holds_up_nothing() -> None:
    """Over HTTP, with the memory's provider silent for an hour: the answer comes, the stream ends, the session goes on,
    and closing cancels the request."""
    async with FakeProvider([text("- met Bo", delay=3600)]) as silent, FakeProvider([text("Hi."), text("Yes.")]) as own:
        writer, model = (HttpxChatModel("m", base_url=each.base_url, api_key="k") for each in (silent, own))
        agent = remembering(writer).model(model).build()
        events = [event async for event in agent.stream_events("Hello.", ALICE)]
        assert [type_of(event) for event in events[-2:]] == ["AGENT_RESULT", "AGENT_END"]
        await silent.wait_for_requests(1)
        assert (await agent.call("Still there?", ALICE)).text == "Yes."
        await agent.close(background=0)
        assert (await silent.client_gone(1)).client_left
    assert asyncio.all_tasks() == {asyncio.current_task()}


class NoKey(Ledger):
    """A workspace that compares by what it holds, as a dataclass does, and so has no hash."""

    __hash__ = None  # type: ignore[assignment]


@virtual
async def test_not_even_what_begins_it_holds_up_a_reply() -> None:
    """A failure before the work has begun is a failure of the work: told, and nobody else's."""
    agent = remembering(Writer(), files=NoKey()).build()
    events = await heard(agent)
    assert [type_of(event) for event in events if isinstance(event, AgentResult | AgentEnd)] == [
        "AGENT_RESULT",
        "AGENT_END",
    ]
    assert told(events, "memory_failed") == [{"work": "flush", "reason": "TypeError", "error_type": "TypeError"}]


class Slow(Ledger):
    """A workspace each of whose verbs takes its time."""

    async def read(self, path: Any, **options: Any) -> Any:
        """Read, a moment later."""
        await asyncio.sleep(0)
        return await super().read(path, **options)

    async def write(self, path: Any, data: bytes, **options: Any) -> str:
        """Write, and have it done a moment before that is known."""
        version = await super().write(path, data, **options)
        await asyncio.sleep(0)
        return version

    async def list(self, path: Any = ".") -> Any:
        """List, a moment later."""
        await asyncio.sleep(0)
        return await super().list(path)


@virtual
async def test_it_can_be_cancelled_at_any_moment() -> None:
    """Before it begins, while it waits, asks or writes: no task is left, and the next one finds each fact once."""
    states = set[tuple[int, int, bool]]()
    for turns in range(60):
        files, writer = Slow(due=True), Writer(["- met Bo", "# All\n- met Bo", "- met Bo", "# All\n- met Bo"])
        builder = remembering(writer, files=files, memory={"consolidation_min_gap": timedelta(0)})
        agent = builder.build()
        await agent.call("Hello.", ALICE)
        for _ in range(turns):
            await asyncio.sleep(0)
        await agent.close(background=0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        state = writer.asked, (await files.text(TODAY)).count("met Bo"), "met Bo" in await files.text("MEMORY.md")
        states.add(state)
        next_writer = Writer(["- met Bo"] * 2)
        async with remembering(
            next_writer, files=files, memory={"consolidation_min_gap": timedelta(0)}
        ).build() as other:
            await other.call("Who?", ALICE)
        assert (await files.text(TODAY)).count("met Bo") == 1
        assert (await files.text("MEMORY.md")).count("met Bo") == 1
    assert states - {(0, 0, False)} == {(1, 0, False), (1, 1, False), (2, 1, False), (2, 1, True)}


class Counting(Ledger):
    """A workspace that counts how often something is read.

    Attributes:
        reads: How often.
    """

    reads = 0

    async def read(self, path: Any, **options: Any) -> Any:
        """Read, and count."""
        self.reads += 1
        return await super().read(path, **options)


@virtual
async def test_a_step_costs_nothing_for_the_memory() -> None:
    """What is read of the workspace depends on the calls, not on the steps."""
    read: list[int] = []
    for steps in (2, 40):
        files = Counting()
        looks = [calls((f"c{number}", "look", "{}")) for number in range(steps - 1)]
        agent = remembering(Writer(), *looks, "done", files=files, tools=[look], max_iters=99).build()
        await agent.call("Hello.", ALICE)
        await finished(agent)
        read.append(files.reads)
    assert read[0] == read[1]


@virtual
async def test_who_listens_may_leave() -> None:
    """The work goes on when the stream that tells of it is left."""
    files, writer = Ledger(), Writer(["- met Bo"])
    writer.hold()
    agent = remembering(writer, files=files).build()
    stream = agent.stream_events("Hello.", ALICE, purposes=("reasoning", "memory"))
    async for event in stream:
        if isinstance(event, AgentResult):
            break
    await until(lambda: writer.asked == 1)
    writer.let_go.set()
    await finished(agent)
    assert "- met Bo" in await files.text(TODAY)


@virtual
async def test_a_session_is_free_while_somebody_listens() -> None:
    """A stream that waits for the memory holds up no other call of its session."""
    writer = Writer()
    writer.hold()
    agent = remembering(writer).build()

    async def listen() -> None:
        async for _ in agent.stream_events("Hello.", ALICE, purposes=("reasoning", "memory")):
            pass

    listening = asyncio.ensure_future(listen())
    await until(lambda: writer.asked == 1)
    assert (await agent.call("And now?", ALICE)).text == "done"
    assert not listening.done()
    writer.let_go.set()
    await listening
    await finished(agent)


SCRIPT = """
import sys
from agentscope_rx import HarnessAgent
from agentscope_rx.testing import ScriptedModel, text

writer = ScriptedModel([text("- met Bo").after(0.2), "- met Bo"])
builder = HarnessAgent.builder(name="a", model=ScriptedModel(["Hi."]), workspace=sys.argv[1]).memory(model=writer)
print(builder.call("Hello.").run().text, writer.asked)
"""


def test_the_interpreter_waits_at_its_exit(tmp_path: Path) -> None:
    """A script that asks once and ends has its facts written down."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert (done.stdout.split()[0], done.stderr) == ("Hi.", "")
    (ledger,) = (tmp_path / "memory").glob("*.md")
    assert "- met Bo" in ledger.read_text()
    assert (tmp_path / "MEMORY.md").read_text() == "- met Bo\n"


def test_work_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And nobody's end is disturbed by it."""

    async def broken() -> None:
        raise ValueError("no")

    @virtual
    async def work() -> None:
        background = Runtime().single(BackgroundWork)
        background.start(broken(), owner=None)
        assert len(background.open()) == 1
        await background.finish()
        assert background.open() == ()

    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        work()
    assert [(record.msg, record.__dict__["error"]) for record in caplog.records] == [
        ("background_work_failed", "ValueError")
    ]
