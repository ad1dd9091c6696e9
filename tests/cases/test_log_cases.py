"""What the log must hold of the cases O03 and O24, and invariant I2: nothing that was ever committed is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import Runtime
from agentscope_rx.events import ToolCallDelta
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import Msg, ToolResultState, ToolUseBlock
from agentscope_rx.records import InputAccepted, ReplyRecorded, ToolsDispatched
from agentscope_rx.requests import CallDelta, ModelChunk, ModelRequest
from agentscope_rx.session import CLOSED_TEXT
from agentscope_rx.stores import SessionKey
from agentscope_rx.tools import tool
from tests.cases import case
from tests.cases.long_sessions import ALICE, Script, long_session, options_of, words_of
from tests.session.support import crashed
from tests.stores.conftest import Place
from tests.stores.places import store_at

KEY = SessionKey(agent_id="tester", user_id="alice", session_id="s1")
EACH = pytest.mark.parametrize("place", ["files", "redis"], indirect=True)


@EACH
async def test_o03_the_repair_is_a_record(place: Place, tmp_path: Path) -> None:
    """The result that closes the dead call is recorded once; the transcript has every word of before."""
    the = case("O03")
    script = Script(the["model"], the["summary"])
    options: dict[str, Any] = {"tools": {"deploy": "deployed"}, **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], state_store=store_at(place()), **options) as session:
        assert (await session.watch(the["input"]["content"])).error is None
        log = session.agent.session_log(ALICE)
        (repair,) = [record.payload async for record in log.scan() if record.type == "calls/closed"]
        ((block,),) = [message["content"] for message in repair["results"]]
        assert (block["id"], block["state"]) == ("dead1", ToolResultState.INTERRUPTED)
        assert "interrupted" in block["output"][0]["text"]
        said = [message["content"] or message["tool_calls"][0]["id"] for message in the["history"]]
        transcript = [words_of(message) for message in await log.transcript()]
        assert sorted(transcript) == sorted([*said, block["output"][0]["text"], the["input"]["content"], "a9"])
        assert len(await log.compactions()) == 1


@EACH
async def test_o24_the_fragment_is_a_record(place: Place, tmp_path: Path) -> None:
    """What had arrived of a broken answer is in the log to the letter, half-written arguments too, and nowhere else."""
    the = case("O24")
    first, then = the["model"]
    first["stream"][2:2] = [{"stall": True}]
    options: dict[str, Any] = {"tools": the["tools"], "state_store": store_at(place())}
    async with long_session(tmp_path, Script([first, then]), **options) as session:
        seen = await session.watch("go", stop_at=lambda event: isinstance(event, ToolCallDelta))
        assert seen.left
        await session.watch(the["then"]["content"])
        log = session.agent.session_log(ALICE)
        (broken,) = [record.payload async for record in log.scan() if record.type == "message/broken"]
        text, call = broken["fragment"]["content"]
        assert text["text"] == "I will "
        assert (call["id"], call["name"], call["input"]) == ("t1", "write_file", {})
        assert call["metadata"] == {"invalid_arguments": '{"path": "a.py", "con'}
        assert [words_of(message) for message in await log.transcript()] == ["go", "I will ", "go on", "next ok"]
    assert session.tools["write_file"].calls == []


# -- nothing is lost ----------------------------------------------------------------------------------------


class Talking:
    """A model that calls a tool, then answers, over and over, and writes a summary where it is asked for one."""

    name, context_window, max_output_tokens = "talking", 100_000, None

    def __init__(self, number: int) -> None:
        self._number = number

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer."""
        if request.purpose == "summary":
            yield ModelChunk(text="## SESSION INTENT\nTalk.\n## SUMMARY\nTalked.\n## NEXT STEPS\nTalk.")
        elif self._number >= 0:
            n, self._number = self._number, -1
            yield ModelChunk(calls=(CallDelta(0, f"c{n}", "read", f'{{"n": {n}}}'),))
        else:
            yield ModelChunk(text="seen")


@tool
async def read(n: int) -> str:
    """Read what is long."""
    return f"result {n} " + "word " * 200


@pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)
async def test_i2_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    """Compactions, offloads, a crash, an undo, a cleared history, each turn by a fresh agent: every message that was
    ever committed is in the transcript, word for word and in order."""
    at = place()
    expected: list[str] = []

    def fresh(number: int = 0) -> HarnessAgent:
        builder = HarnessAgent.builder(
            name="tester",
            model=Talking(number),
            tools=[read],
            workspace=tmp_path,
            state_store=store_at(at),
            compaction={"trigger_messages": 12, "keep_tokens": 0, "keep_messages": 4},
            tool_result_eviction={"max_result_chars": 128, "preview_chars": 16},
        )
        return builder.runtime(Runtime()).build()

    for n in range(12):
        if n == 5:
            await crashed(
                store_at(at),
                InputAccepted((replace(Msg.user("before the crash"), id="x1"),)),
                ReplyRecorded(replace(Msg.assistant(ToolUseBlock(id="dead", name="read")), id="x2")),
                ToolsDispatched(("dead",)),
                key=KEY,
            )
            expected += ["before the crash", "dead", CLOSED_TEXT]
        if n == 8:
            *_, last = await fresh().compactions(ALICE)
            await fresh().undo_compaction(ALICE, last.id)
        if n == 10:
            await fresh().clear_context(ALICE)
        async with fresh(n) as agent:
            assert (await agent.call(f"question {n}", ALICE)).text == "seen"
        expected += [f"question {n}", f"c{n}", f"result {n} " + "word " * 200, "seen"]

    log = fresh().session_log(ALICE)
    types = [record.type async for record in log.scan()]
    assert types.count("compaction/undone") == types.count("context/cleared") == types.count("recovery/applied") == 1
    assert types.count("context/edited") >= 12
    assert len(await log.compactions()) >= 1
    assert [words_of(message) for message in await log.transcript()] == expected
    history = "".join(words_of(message) for message in (await fresh().state(ALICE)).context.messages)
    assert "question 0" not in history
    assert history.count("word") < 200
