"""Case O44: an approval outlives the process, and what it allows runs once; every step is a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.state import AgentState
from agentscope_rx.stores import JsonFileStore, SessionKey
from agentscope_rx.testing.fake_provider import FakeProvider, from_case
from tests.cases import case
from tests.cases.playing import calls_of, check_pairs

ROOT = Path(__file__).resolve().parents[2]
PAUSED = ["REQUIRE_USER_CONFIRM", "REQUEST_STOP", "AGENT_RESULT", "PERMISSION_ASKING: ", "AGENT_END"]


@dataclass
class Buying:
    """The case at play."""

    provider: FakeProvider
    folder: Path

    async def start(self, **action: Any) -> asyncio.subprocess.Process:
        """A process that does one thing."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.cases.buyer", self.provider.base_url, str(self.folder), json.dumps(action),
            cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def do(self, **action: Any) -> list[str]:
        """The same, to its end; gives the lines that it printed."""
        out, _ = await (await self.start(**action)).communicate()
        return out.decode().splitlines()

    async def killed_at(self, line: str, **action: Any) -> None:
        """The same, killed once it has printed a line."""
        process = await self.start(**action, hold=line)
        await printed(process, line)
        process.kill()
        await process.wait()

    @property
    def ran(self) -> list[str]:
        """What the tools of all processes did."""
        file = self.folder / "ran.txt"
        return file.read_text().splitlines() if file.exists() else []

    async def results(self) -> dict[str, tuple[str, str]]:
        """The results that the session holds."""
        stored = await JsonFileStore(self.folder / "sessions").get(
            SessionKey(agent_id="buyer", user_id=None, session_id="s")
        )
        assert stored is not None
        found = (message.tool_result for message in AgentState.from_json(stored.body).context.messages)
        return {result.id: (result.state.value, result.text) for result in found if result is not None}


async def printed(process: asyncio.subprocess.Process, line: str) -> None:
    """Wait until a process has printed a line."""
    assert process.stdout is not None
    while (read := (await process.stdout.readline()).decode().strip()) != line:
        assert read, f"the process ended before {line}"


@asynccontextmanager
async def buying(folder: Path, *more: Any) -> AsyncGenerator[Buying]:
    """The case's provider, with further replies."""
    async with FakeProvider([from_case(reply) for reply in (*case("O44")["model"], *more)]) as provider:
        played = Buying(provider, folder)
        yield played
        for request in provider.requests:
            if not request.refused:
                check_pairs(request.body)
    assert provider.refusals == []


@pytest.mark.slow
async def test_o44_resumed_after_a_kill_and_after_a_failure(tmp_path: Path) -> None:
    """Killed at the question, resumed elsewhere, failed at the model, resumed again: each tool ran once."""
    async with buying(tmp_path) as played:
        await played.killed_at("REQUIRE_USER_CONFIRM", say="buy")
        assert played.ran == []
        failed = await played.do(answer={"b": True})
        assert (failed[1], failed[-1]) == ("USER_CONFIRM_RESULT", "ServerFailed")
        assert played.ran == ["look", "pay 5"]
        assert (await played.do(answer={"b": True}))[-1] == "InteractionMismatch"
        done = await played.do(say=None)
        assert "MODEL_STOP: done" in done
        assert "TOOL_RESULT_START" not in done
    assert played.ran == ["look", "pay 5"]
    assert len(played.provider.requests) == 3


@pytest.mark.slow
async def test_o44_rejected_and_never_revived(tmp_path: Path) -> None:
    """A refused call has a result that says so; neither the failed run nor a later call lets it run."""
    async with buying(tmp_path, {"text": "still fine"}) as played:
        await played.killed_at("REQUIRE_USER_CONFIRM", say="buy")
        assert (await played.do(answer={"b": False}))[-1] == "ServerFailed"
        assert "MODEL_STOP: done" in await played.do(say="and now?")
        assert (await played.do(answer={"b": True}))[-1] == "InteractionMismatch"
        assert "MODEL_STOP: still fine" in await played.do(say="pay!")
        state, text = (await played.results())["b"]
        assert (state, "refused" in text) == ("denied", True)
        assert calls_of(played.provider.requests[-1].body) == [("a", "look", "{}"), ("b", "pay", '{"n":5}')]
    assert played.ran == ["look"]


@pytest.mark.slow
async def test_o44_an_unknown_id_keeps_the_pause(tmp_path: Path) -> None:
    """It is an error, and so is an ordinary message; the right answer is still taken."""
    async with buying(tmp_path) as played:
        assert (await played.do(say="buy"))[-5:] == PAUSED
        assert (await played.do(answer={"zz": True}))[-1] == "InteractionMismatch"
        assert (await played.do(say="hello?"))[-1] == "InteractionPending"
        assert played.ran == []
        await played.do(answer={"b": True})
    assert played.ran == ["look", "pay 5"]


@pytest.mark.slow
async def test_o44_resumed_twice_at_the_same_time(tmp_path: Path) -> None:
    """Two processes have loaded the same pause: one answer is accepted, the other is a conflict."""
    async with buying(tmp_path) as played:
        await played.do(say="buy")
        both = [await played.start(answer={"b": True}, hold="load") for _ in range(2)]
        for process in both:
            await printed(process, "loaded")
        ended = await asyncio.gather(*(process.communicate(b"\n") for process in both))
        last = sorted(out.decode().splitlines()[-1] for out, _ in ended)
        assert last == ["ServerFailed", "StateConflict"]
    assert played.ran == ["look", "pay 5"]
    assert len(played.provider.requests) == 2


@pytest.mark.slow
async def test_o44_killed_while_the_approved_tools_run(tmp_path: Path) -> None:
    """Whether they had an effect is not known, so nothing runs again, whoever answers or asks."""
    async with buying(tmp_path) as played:
        await played.do(say="buy")
        await played.killed_at("USER_CONFIRM_RESULT", answer={"b": True})
        before = played.ran
        assert before in ([], ["look"], ["look", "pay 5"])
        assert (await played.do(answer={"b": True}))[-1] == "InteractionMismatch"
        await played.do(say="and?")
        assert set(await played.results()) == {"a", "b"}
    assert played.ran == before
