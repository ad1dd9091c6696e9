"""Ctrl-C, and readers that leave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentscope_rx.cli.conduct import conduct
from agentscope_rx.events import AgentEvent
from agentscope_rx.options import AgentOptions
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing.fake_provider import FakeProvider, ScriptedReply, stream, text, tool_calls
from tests.cli.command import MODEL, Ended, conversation, ended, environment, start

NOBODY = RuntimeContext()
HALF_AN_ANSWER: ScriptedReply = stream([{"d": {"role": "assistant", "content": "So far"}, "f": None}, {"stall": True}])
RUN = ("run", "Count.", "--model", MODEL, "--session", "s")


async def interrupted(folder: Path, provider: FakeProvider, *options: str, after: int, line: str) -> Ended:
    """Start the command, and press Ctrl-C once this many requests have come and this has been printed."""
    process = await start(*RUN, *options, cwd=folder, env=environment(provider))
    assert process.stdout is not None
    await provider.wait_for_requests(after)
    seen = b""
    while line.encode() not in seen:
        piece = await process.stdout.read(4096)
        assert piece, seen
        seen += piece
    process.send_signal(signal.SIGINT)
    rest = await ended(process)
    return Ended(rest.code, seen.decode() + rest.out, rest.err)


async def test_ctrl_c_interrupts_and_the_session_goes_on(folder: Path) -> None:
    """The run ends with what it has and 130; the next run sends the conversation, the fragment included."""
    look = tool_calls(("c1", "read_file", '{"path": "notes.txt"}'))
    async with FakeProvider([look, HALF_AN_ANSWER, text("Three.")]) as provider:
        done = await interrupted(folder, provider, after=2, line="✓ read_file")
        assert done.code == 130
        assert "interrupted before it was finished" in done.out
        assert "--session s" in done.out
        assert "Traceback" not in done.err
        assert (await provider.client_gone(2)).client_left
        again = await ended(await start(*RUN, "--quiet", cwd=folder, env=environment(provider)))
        assert again == Ended(0, "Three.\n", "")
        sent = [(message["role"], message["content"]) for message in conversation(provider.requests[2])]
        assert [role for role, _ in sent][:3] == ["user", "assistant", "tool"]
        assert sent[0][1] == sent[-1][1] == "Count."
        assert "alpha" in sent[2][1]


async def test_an_interrupted_run_ends_its_json_in_order(folder: Path) -> None:
    """With `--json` the last events are the result, which says why, and the end."""
    async with FakeProvider([HALF_AN_ANSWER]) as provider:
        done = await interrupted(folder, provider, "--json", after=1, line="So far")
        events = [json.loads(each) for each in done.out.splitlines()]
        assert done.code == 130
        assert [event["type"] for event in events[-2:]] == ["AGENT_RESULT", "AGENT_END"]
        assert events[-2]["result"]["metadata"]["agentscope_generate_reason"] == "INTERRUPTED"
        assert "--session s" in done.err


def test_a_reader_that_leaves_ends_the_run(folder: Path) -> None:
    """`... | head` ends the run without a word, and the connection to the provider is closed."""
    endless = stream([{"d": {"content": "word "}, "f": None}] * 100_000, pace=0.001)
    with FakeProvider.in_thread([endless]) as provider:
        command = [sys.executable, "-m", "agentscope_rx", *RUN, "--json"]
        piped = subprocess.PIPE
        with subprocess.Popen(command, env=environment(provider), stdout=piped, stderr=piped) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert any(b"TEXT_BLOCK_DELTA" in line for line in process.stdout)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 1
        assert asyncio.run(provider.client_gone(1)).client_left


class DeafAgent(ReActAgent):
    """An agent that hears an interruption and does not heed it."""

    heard = 0

    def interrupt(self, context: RuntimeContext = NOBODY, /) -> bool:
        self.heard += 1
        return True


class SilentModel:
    """A model that sends SIGINT to this process as soon as it is asked, and never answers."""

    name = "silent"
    context_window = max_output_tokens = None
    left = False

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(3):
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()
            yield ModelChunk()
        finally:
            self.left = True


class Nobody:
    """An output that shows nothing."""

    closed = False

    def show(self, event: AgentEvent) -> None:
        pass

    def close(self) -> None:
        self.closed = True


async def test_the_second_ctrl_c_cancels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first asks the agent, and says so if that takes time; the second cancels, and leaves nothing open."""
    monkeypatch.setattr("agentscope_rx.cli.conduct._PATIENCE", 0)
    model, output = SilentModel(), Nobody()
    agent = DeafAgent(AgentOptions(name="deaf", model=model))
    work = asyncio.create_task(conduct(agent, "x", NOBODY, output=output))
    with pytest.raises(asyncio.CancelledError):
        await work
    assert agent.heard == 1
    assert model.left
    assert output.closed
    assert "Ctrl-C again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def test_sigterm_stops_where_nothing_is_lost(folder: Path) -> None:
    """SIGTERM lets the model answer, begins nothing more, and exits with 130; the next run goes on with the session."""
    look = tool_calls(("c1", "read_file", '{"path": "notes.txt"}'), delay=0.5)
    async with FakeProvider([look, text("Three.")]) as provider:
        process = await start(*RUN, "--json", cwd=folder, env=environment(provider))
        await provider.wait_for_requests(1)
        process.send_signal(signal.SIGTERM)
        done = await ended(process)
        types = [json.loads(each)["type"] for each in done.out.splitlines()]
        assert (done.code, len(provider.requests)) == (130, 1)
        assert types[-2:] == ["AGENT_RESULT", "AGENT_END"]
        assert "TOOL_CALL_END" in types
        assert "TOOL_RESULT_START" not in types
        again = await ended(await start(*RUN, "--quiet", cwd=folder, env=environment(provider)))
        assert again == Ended(0, "Three.\n", "")
        assert "before it was run" in str(conversation(provider.requests[1]))
