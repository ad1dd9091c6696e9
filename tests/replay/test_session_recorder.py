"""Recordings out of logs: what they hold, what is left out of them, and that a log stays small and without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.sources import ContextRequest
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_agent import HarnessAgent, HarnessBuilder
from agentscope_rx.replay import Recorder, Recording, SessionRecorder, SessionRecording, record_session, replay
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session.codecs import TRACED
from agentscope_rx.session.transfer import exported, imported
from agentscope_rx.stores import InMemoryStore, SessionKey, SessionStore
from agentscope_rx.testing.scripted_model import Scripted, ScriptedModel, calls
from agentscope_rx.tools import tool
from agentscope_rx.wire import to_json
from agentscope_rx.workspace import InMemoryWorkspace

CTX = RuntimeContext(user_id="alice", session_id="s")
KEY = SessionKey(agent_id="a", user_id="alice", session_id="s")
SECRET = "sk-" + "planted0123456789"
PASSWORD = "correct-horse-battery"
LOOK = calls(("c1", "look", "{}"))


@tool
def look() -> str:
    """Look."""
    return "a page"


def agent_of(store: SessionStore | None = None, script: Sequence[Scripted] = ()) -> HarnessBuilder:
    builder = HarnessAgent.builder(
        name="a", model=ScriptedModel(script), tools=[look], workspace=InMemoryWorkspace(), filesystem_tools=False
    )
    return builder if store is None else builder.state_store(store)


def recorded(store: SessionStore, path: Path, ctx: RuntimeContext = CTX) -> SessionRecording:
    return asyncio.run(record_session(agent_of(store).build().session_log(ctx), path))


def test_runs_that_nobody_watched_are_left_out(tmp_path: Path) -> None:
    """The outcome names them and says why; the run behind them begins with the state that they left."""
    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    builder = agent_of(store, ["One.", "Two.", "Three.", "Four."])
    watched = SessionRecorder(note={"why": "a test"}).watch(builder)
    watched.call("First.", CTX).run()
    builder.call("Second.", CTX).run()
    watched.call("Third.", CTX).run()
    watched.call("Fourth.", CTX).run()
    outcome = recorded(store, path)
    assert (outcome.runs, len(outcome.left_out)) == (3, 1)
    assert "was not watched by a SessionRecorder" in str(outcome)
    replayed = replay(path, agent_of())
    replayed.check()
    assert [len([*run.requests[0].conversation.messages]) for run in replayed.runs] == [1, 5, 7]
    assert Recording.read(path).note == {"why": "a test"}


def test_a_log_without_a_watched_run_is_refused(tmp_path: Path) -> None:
    """The error names what would log it, and an earlier recording stays."""
    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    path.write_text("an earlier one")
    agent_of(store, ["One."]).call("First.", CTX).run()
    with pytest.raises(InvalidOption, match=r"SessionRecorder\(\).watch\(builder\)"):
        recorded(store, path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.jsonl", "an earlier one")]


@pytest.mark.parametrize("at", ["tool/dispatch", "tool/results", "message/assistant"])
def test_a_run_whose_process_died_is_left_out(tmp_path: Path, at: str) -> None:
    """What its log holds of it is not all that a replay needs; the run that found it replays, from either recording."""
    store, other, path = InMemoryStore(), InMemoryStore(), tmp_path / "r.jsonl"
    watched = SessionRecorder().watch(agent_of(store, ["One.", LOOK, "Two."]))
    watched.call("First.", CTX).run()
    watched.call("Second.", CTX).run()

    async def died() -> None:
        lines = [line async for line in exported(store, KEY)]
        last = max(number for number, line in enumerate(lines) if f'"type":"{at}"'.encode() in line)
        await imported(other, KEY, lines[: last + 1])

    asyncio.run(died())
    with Recorder(tmp_path / "file.jsonl") as recorder:
        recorder.watch(agent_of(copied(other), ["Three."])).call("Third.", CTX).run()
    replay(tmp_path / "file.jsonl", agent_of()).check()
    SessionRecorder().watch(agent_of(other, ["Three."])).call("Third.", CTX).run()
    outcome = recorded(other, path)
    assert outcome.runs == 2
    (why,) = outcome.left_out
    assert "its process died before it ended" in why
    replay(path, agent_of()).check()


def test_a_fork_is_recorded_by_its_own_log(tmp_path: Path) -> None:
    """Its past is the state with which its first run begins."""
    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    fork = RuntimeContext(user_id="alice", session_id="fork")
    watched = SessionRecorder().watch(agent_of(store, ["One.", "Two."]))

    async def story() -> None:
        async with watched.build() as agent:
            await agent.call("First.", CTX)
            await agent.fork(CTX, to=fork)
            await agent.call("Second.", fork)

    asyncio.run(story())
    assert recorded(store, path, fork).runs == 1
    replayed = replay(path, agent_of())
    replayed.check()
    assert len([*replayed.runs[0].requests[0].conversation.messages]) == 3


def test_a_failed_run_fails_again(tmp_path: Path) -> None:
    """Its error is in the log's part that is watched, with its class; and the next run replays."""
    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    watched = SessionRecorder().watch(agent_of(store, [ValueError("broken"), "Two."]))
    with pytest.raises(ValueError, match="broken"):
        watched.call("First.", CTX).run()
    watched.call("Second.", CTX).run()
    assert recorded(store, path).runs == 2
    replayed = replay(path, agent_of())
    replayed.check()
    assert isinstance(replayed.runs[0].error, ValueError)


def copied(store: SessionStore) -> SessionStore:
    """The same session in a store of its own."""
    other = InMemoryStore()

    async def copy() -> None:
        await imported(other, KEY, [line async for line in exported(store, KEY)])

    asyncio.run(copy())
    return other


async def traced(store: SessionStore, after: int = 0) -> list[bytes]:
    """What a log holds by the option, record by record."""
    log = agent_of(store).build().session_log(CTX)
    return [to_json(record.payload) async for record in log.scan(after) if record.type == TRACED]


def test_no_planted_secret_is_in_what_the_option_adds(tmp_path: Path) -> None:
    """The log holds what was said, as ever; neither what the option adds nor the recording hold a secret, be it of a
    source, a header, a result, an error or in pieces of an answer."""

    @tool
    def read(password: str) -> str:
        """Read."""
        return f"authorization: Bearer {SECRET}"

    def source(_: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.runtime("db", f"postgres://admin:{PASSWORD}@db/orders")]

    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    script = [calls(("c1", "read", f'{{"password": "{PASSWORD}"}}')), ValueError(f"no {SECRET}"), f"It is {SECRET}."]
    builder = agent_of(store, script).tools([read]).context_source("db", source)
    builder = builder.generate_options(GenerateOptions(additional_headers={"x-api-key": PASSWORD}))
    watched = SessionRecorder().watch(builder)
    with pytest.raises(ValueError, match="no "):
        watched.call(f"My key is {SECRET}.", CTX).run()
    watched.call("Go on.", CTX).run()
    assert recorded(store, path).runs == 2
    for text in (path.read_bytes(), *asyncio.run(traced(store))):
        assert SECRET.encode() not in text
        assert PASSWORD.encode() not in text
    replay(path, builder).check()


def test_what_the_option_adds_does_not_grow_with_the_history() -> None:
    """A run adds what is new in it, however long the session is."""
    store = InMemoryStore()
    watched = SessionRecorder(secrets=()).watch(agent_of(store, ["Answer."] * 60)).compaction(None)
    sizes: list[int] = []
    for _ in range(60):
        watched.call("Say something that is rather long. " * 20, CTX).run()
        sizes.append(sum(map(len, asyncio.run(traced(store)))) - sum(sizes))
    assert max(sizes[10:]) < 1.1 * sizes[1]
    assert b"TEXT_BLOCK_DELTA" not in b"".join(asyncio.run(traced(store)))
