"""Processes that die: nothing that was written is lost, and nothing that may have had an effect is done again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentscope_rx.errors import InteractionMismatch, InvalidOption, LogCorrupt, UncertainToolCalls
from agentscope_rx.events import AgentResult, Custom
from agentscope_rx.messages import Msg, TextBlock, ToolCallState, ToolResultBlock, ToolResultState
from agentscope_rx.records import CallsPaused, ReplyRecorded, ToolsDispatched
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import CLOSED_TEXT, NOT_RUN_TEXT, LogRecord, UncertainCalls
from agentscope_rx.stores import InMemoryStore, JsonFileStore
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import tool
from tests.session.support import ASKED, KEY, agent_on, crashed, input_of, opened, said
from tests.stores.conftest import Place
from tests.support import watch

ROOT = Path(__file__).resolve().parents[2]
ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)


# -- kill -9 ------------------------------------------------------------------------------------------------


def kill_workers(place: Place, folder: Path, rounds: int, seed: str) -> dict[str, int]:
    """Have so many workers killed; what was seen."""
    command = [sys.executable, "-m", "tests.session.crashing", place(), str(folder), str(rounds), seed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_workers_that_are_killed(place: Place, tmp_path: Path) -> None:
    """Killed at 20 random moments: each start reports what was lost, no committed record is missing, no tool whose end
    nobody knows runs again, and what was refused is refused until it is reconciled."""
    seen = kill_workers(place, tmp_path, 20, seed="1")
    assert seen["recovery"] >= 1
    assert seen["written"] > 50


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_many_workers_that_are_killed(place: Place, tmp_path: Path) -> None:
    """The same at 200 moments."""
    seen = kill_workers(place, tmp_path, 200, seed="2")
    assert min(seen["recovery"], seen["uncertain"]) >= 10


# -- what is written when -----------------------------------------------------------------------------------


async def test_what_is_written_before_something_happens() -> None:
    """The input is in the log before the model is asked, a call before its tool runs, all of it before the result."""
    store, found = InMemoryStore(), dict[str, list[str]]()

    async def types() -> list[str]:
        return [LogRecord.from_json(body).type for body in await store.read_after(KEY, 0)]

    @tool
    async def work() -> str:
        """Look at the log."""
        found["tool"] = await types()
        return "done"

    class Looking(ScriptedModel):
        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
            found[f"request {self.asked}"] = await types()
            async for chunk in super().stream(request):
                yield chunk

    agent = agent_on(store, Looking([calls(("c1", "work", "{}")), "fine"]), tools=[work])
    async for event in agent.stream_events("go", ALICE):
        if isinstance(event, AgentResult):
            found["result"] = await types()
    assert found["request 0"] == ["run/start", "input/received"]
    assert found["tool"] == [*found["request 0"], "request/prepared", "message/assistant", "tool/dispatch"]
    assert found["request 1"] == [*found["tool"], "tool/results"]
    assert found["result"] == [*found["request 1"], "request/prepared", "message/assistant", "run/end"]


# -- what becomes of the calls ------------------------------------------------------------------------------

DIED_IN_TOOLS = (input_of(said("u1")), ReplyRecorded(ASKED), ToolsDispatched(("c1",)))


async def test_the_next_run_says_what_it_found() -> None:
    """One `recovery` event, with the run that died and the calls of which nobody knows; later runs say nothing."""
    store = InMemoryStore()
    await crashed(store, *DIED_IN_TOOLS)
    agent = agent_on(store, ["one", "two"])
    projection = await agent.session_log(ALICE).project()
    assert (projection.active_run, projection.uncertain_tool_calls) == ("run1", ("c1",))
    seen = await watch(agent, "go on", ALICE)
    assert [event.value for event in seen.of(Custom) if event.name == "recovery"] == [
        {"run_id": "run1", "uncertain_tool_calls": ["c1"]}
    ]
    assert seen.types[:2] == ["AGENT_START", "CUSTOM"]
    again = await watch(agent, "and now", ALICE)
    assert [event.name for event in again.of(Custom) if event.name == "recovery"] == []
    types = [record.type async for record in agent.session_log(ALICE).scan()]
    assert types.count("recovery/applied") == 1
    assert (await agent.session_log(ALICE).project()).active_run == ""


async def test_the_model_is_told_what_is_not_known() -> None:
    """A call that had begun has a result that says that nobody knows; one that had not says that it was not run."""
    store = InMemoryStore()
    await crashed(store, *DIED_IN_TOOLS)
    agent = agent_on(store, ["fine"])
    await agent.call("go on", ALICE)
    results = [m.tool_result for m in (await agent.state(ALICE)).context.messages if m.tool_result]
    assert [(result.id, result.text, result.state) for result in results] == [
        ("c1", CLOSED_TEXT, ToolResultState.INTERRUPTED),
        ("c2", NOT_RUN_TEXT, ToolResultState.INTERRUPTED),
    ]


async def test_no_run_before_somebody_knows() -> None:
    """With `refuse` each run, observed message and cancellation is refused, and changes nothing that was said."""
    store = InMemoryStore()
    await crashed(store, *DIED_IN_TOOLS)
    agent = agent_on(store, ["fine"], uncertain_calls=UncertainCalls.REFUSE)
    before = (await agent.state(ALICE)).context
    for attempt in (agent.acall("go on", ALICE), agent.observe(Msg.user("news"), ALICE), agent.cancel_pending(ALICE)):
        with pytest.raises(UncertainToolCalls, match="c1"):
            await attempt
        assert (await agent.state(ALICE)).context == before
        assert (await agent.session_log(ALICE).project()).uncertain_tool_calls == ("c1",)


async def test_the_outcome_is_said() -> None:
    """`reconcile` takes exactly the uncertain calls and a reason, and the next run has their results before it."""
    store = InMemoryStore()
    await crashed(store, *DIED_IN_TOOLS)
    agent = agent_on(store, ["fine"], uncertain_calls=UncertainCalls.REFUSE)
    for outcomes, reason in (({}, "x"), ({"c2": "no"}, "x"), ({"c1": "a", "c2": "b"}, "x"), ({"c1": "done"}, " ")):
        with pytest.raises(InvalidOption):
            await agent.reconcile(ALICE, outcomes, reason=reason)
    await agent.reconcile(ALICE, {"c1": "it is done"}, reason="looked it up")
    with pytest.raises(InvalidOption, match="none"):
        await agent.reconcile(ALICE, {"c1": "again"}, reason="x")
    assert (await agent.call("go on", ALICE)).text == "fine"
    results = [m.tool_result for m in await agent.session_log(ALICE).transcript() if m.tool_result]
    assert [(result.id, result.text) for result in results] == [("c1", "it is done"), ("c2", NOT_RUN_TEXT)]
    (record,) = [each async for each in agent.session_log(ALICE).scan() if each.type == "recovery/reconciled"]
    assert record.payload["reason"] == "looked it up"


async def test_calls_that_wait_are_cancelled() -> None:
    """Calls that wait for somebody may be closed by anybody who has the session."""
    store = InMemoryStore()
    asking = tuple(replace(call, state=ToolCallState.ASKING) for call in ASKED.tool_calls)
    await crashed(store, input_of(said("u1")), ReplyRecorded(ASKED), CallsPaused(ASKED.id, asking, {}))
    agent = agent_on(store)
    assert [each.id for each in await agent.cancel_pending(ALICE)] == ["c1", "c2"]
    assert await agent.cancel_pending(ALICE) == ()
    results = [m.tool_result for m in (await agent.state(ALICE)).context.messages if m.tool_result]
    assert [result.text for result in results] == [NOT_RUN_TEXT] * 2


async def test_a_wrong_answer_closes_nothing() -> None:
    """An input that is refused leaves calls that wait for somebody as they are, with a log and without."""
    for state_only in (False, True):
        agent = agent_on(
            InMemoryStore(), [calls(("c1", "remote", "{}")), "fine"], tools=[remote], state_only=state_only
        )
        await agent.call("go", ALICE)
        with pytest.raises(InteractionMismatch):
            await agent.call(Msg.tool(ToolResultBlock(id="c9", name="remote")), ALICE)
        assert [call.id for call in (await agent.state(ALICE)).context.open_calls] == ["c1"]
        answer = Msg.tool(ToolResultBlock(id="c1", name="remote", output=(TextBlock(text="it is done"),)))
        assert (await agent.call(answer, ALICE)).text == "fine"


@tool(external=True)
def remote() -> str:
    """Is run by somebody else."""
    raise AssertionError


# -- a torn line --------------------------------------------------------------------------------------------

TEARS: tuple[Callable[[bytes], bytes], ...] = (
    lambda log: log[: -len(log.splitlines(keepends=True)[-1]) // 2],
    lambda log: log[:-1],
    lambda log: log + b'{"seq":99,"end":99,"crc":1,"rec',
    lambda log: log + b"\n",
    lambda log: log + b"\0" * 100,
)


@pytest.mark.parametrize("tear", TEARS)
async def test_o27_a_torn_line_at_the_end(tear: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Whatever a crash leaves behind the last whole batch is cut off, with the batch if that is torn; the
    session goes on, and the next process reads all of it."""
    store = JsonFileStore(tmp_path)
    await crashed(store, input_of(said("u1")))
    session = await opened(store)
    session.record(input_of(said("u2"), said("u3")))
    await session.barrier()
    await session.close()
    (log,) = tmp_path.rglob("log.jsonl")
    whole = log.read_bytes()
    log.write_bytes(tear(whole))
    torn = len(log.read_bytes()) < len(whole) - 1
    agent = agent_on(JsonFileStore(tmp_path), ["fine"])
    assert (await agent.call("go on", ALICE)).text == "fine"
    fresh = agent_on(JsonFileStore(tmp_path))
    texts = [message.text for message in await fresh.session_log(ALICE).transcript()]
    kept = ["words of u1"] if torn else ["words of u1", "words of u2", "words of u3"]
    assert texts == [*kept, "go on", "fine"]
    seqs = [record.seq async for record in fresh.session_log(ALICE).scan()]
    assert seqs == list(range(1, len(seqs) + 1))
    assert all(json.loads(line)["seq"] == seq for seq, line in enumerate(log.read_bytes().splitlines(), 1))


async def test_damage_in_the_middle_is_no_crash(tmp_path: Path) -> None:
    """A line before the end that is damaged is an error, and no shorter session."""
    store = JsonFileStore(tmp_path)
    await crashed(store, input_of(said("u1")), input_of(said("u2")))
    (log,) = tmp_path.rglob("log.jsonl")
    log.write_bytes(log.read_bytes().replace(b"words of u1", b"words of u9"))
    agent = agent_on(JsonFileStore(tmp_path), ["fine"])
    with pytest.raises(LogCorrupt):
        await agent.call("go on", ALICE)
