"""What sessions are told while nobody waits for them: runs of background work as recordings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agentscope_rx.background import AgentSession, InProcessRunner
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import CommandGone
from agentscope_rx.inbox import Command, CommandKind
from agentscope_rx.interactions import approve
from agentscope_rx.messages import Msg
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.replay import Recorder, Replayed, SessionRecorder, record_session, replay
from agentscope_rx.runtime import Runtime
from agentscope_rx.shutdown import shut_down
from agentscope_rx.stores import InMemoryStore, SessionStore
from agentscope_rx.testing import calls
from agentscope_rx.testing.scripted_model import Scripted, ScriptedModel
from agentscope_rx.tools import tool
from tests.background.support import ALICE, Gate, builder_on
from tests.replay.life import Stores
from tests.replay.test_stores import stores_of
from tests.stores.conftest import Place

Watch: TypeAlias = Callable[[AgentBuilder[Any]], AgentBuilder[Any]]
WORK = calls(("w1", "work", "{}"))


@tool
def publish() -> str:
    """Publish; a person is asked before."""
    return "published"


def worker(store: SessionStore, gate: Gate | None = None, *script: Scripted) -> AgentBuilder[Any]:
    """The agent, in a process of its own."""
    tools = tool((gate or Gate()).work), publish
    rules = [PermissionRule.allow("work"), PermissionRule.ask("publish")]
    return builder_on(store, ScriptedModel(script), *tools, permission_rules=rules)


async def steered(session: AgentSession, gate: Gate) -> None:
    """A task that is told two things while its tool works."""
    task = await session.submit("go")
    await gate.begun.wait()
    await session.steer("be brief")
    await session.inject([Msg.user("and"), Msg.user("polite")])
    gate.opened.set()
    report = await task
    assert report.reply is not None
    assert report.reply.text == "done, in short"


async def interrupted(session: AgentSession, gate: Gate) -> None:
    """A task that is ended by somebody, and one that is given meanwhile."""
    gate.begun.clear()
    gate.opened.clear()
    first, second = await session.submit("work on"), await session.submit("and then this")
    await gate.begun.wait()
    assert await session.interrupt()
    assert [(await task).status.value for task in (first, second)] == ["interrupted", "completed"]


async def answered(session: AgentSession) -> None:
    """A task that waits for a person."""
    assert (await (await session.submit("publish it"))).status.value == "suspended"
    waiting = await session.pending()
    assert (await (await session.respond({call.id: approve() for call in waiting}))).status.value == "completed"


async def resumed(session: AgentSession) -> None:
    """A task that fails, and is gone on with."""
    assert (await (await session.submit("try it"))).status.value == "failed"
    assert (await (await session.resume())).status.value == "completed"


async def live_in_the_background(stores: Stores, watch: Watch) -> int:
    """A life of ten runs, in three processes.

    Args:
        stores: Opens the store.
        watch: Makes the builder of a process one that is recorded.
    """
    gate = Gate()
    script = (WORK, "done, in short", calls(("w2", "work", "{}")), "and so it was", calls(("p1", "publish", "{}")))
    first = watch(worker(stores(), gate, *script, "It is published.", ValueError("broken"), "It works."))
    async with InProcessRunner(first) as runner:
        session = runner.session(ALICE)
        await steered(session, gate)
        await interrupted(session, gate)
        await answered(session)
        await resumed(session)
        await session.inject("by the way")
    gate = Gate()
    async with InProcessRunner(watch(worker(stores(), gate, calls(("w3", "work", "{}"))))) as runner:
        left = await runner.session(ALICE).submit("once more")
        await gate.begun.wait()
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)  # the process leaves meanwhile
    async with InProcessRunner(watch(worker(stores(), None, "gone on with", "Goodbye."))) as runner:
        session = runner.session(ALICE)
        await session.start()
        assert (await session.wait(left.id)).status.value == "completed"
        await session.inject("last words")
        async with watch(worker(stores(), None, "Goodbye.")).build() as agent:
            await agent.call("Goodbye.", ALICE)
    return 10


def checked(path: Path, runs: int) -> Replayed:
    replayed = replay(path, worker(InMemoryStore()))
    replayed.check()
    assert len(replayed.runs) == runs
    said = [[message.text for message in run.requests[-1].messages] for run in replayed.runs if run.requests]
    assert said[0][-3:] == ["be brief", "and", "polite"]
    assert sum("by the way" in each for each in said) >= 2
    assert said[-1][-2:] == ["Goodbye.", "last words"]
    return replayed


def test_background_work_is_recorded_and_replayed(place: Place, tmp_path: Path) -> None:
    """Commands, what a run is told meanwhile, interrupts, answers, failures, and work that another process goes on
    with: each run replays, whatever store the session lies in."""
    path = tmp_path / "work.jsonl"
    with Recorder(path) as recorder:
        runs = asyncio.run(live_in_the_background(stores_of(place), recorder.watch))
    checked(path, runs)


def test_background_work_is_in_its_log(place: Place, tmp_path: Path) -> None:
    """The recording that is made of the log afterwards replays, too; it needs no agent that keeps logs."""
    stores, path = stores_of(place), tmp_path / "work.jsonl"
    runs = asyncio.run(live_in_the_background(stores, SessionRecorder().watch))

    async def copy() -> str:
        return str(await record_session(worker(stores()).build().session_log(ALICE), path))

    assert asyncio.run(copy()) == f"{path}: {runs} runs"
    checked(path, runs)
    replay(path, worker(InMemoryStore()).state_only()).check()


class _Unwatched:
    """A store that tells nobody when a log has grown: who writes next finds it."""

    def __init__(self) -> None:
        self._store = InMemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name == "watch":
            raise AttributeError(name)
        return getattr(self._store, name)


def both(watch: str, path: Path) -> tuple[Watch, Callable[[SessionStore], None]]:
    """Both ways to record: how a builder is watched, and what is done afterwards."""
    if watch == "file":
        recorder = Recorder(path)
        return recorder.watch, lambda store: recorder.close()

    def copy(store: SessionStore) -> None:
        asyncio.run(record_session(worker(store).build().session_log(ALICE), path))

    return SessionRecorder().watch, copy


@pytest.mark.parametrize("way", ["file", "log"])
def test_an_interrupt_that_a_run_finds_while_it_writes(tmp_path: Path, way: str) -> None:
    """It comes before the next request, and so it does in the replay, where writing takes no time."""
    store: Any = _Unwatched()
    path, gate = tmp_path / "r.jsonl", Gate()
    watch, finish = both(way, path)

    async def story() -> None:
        async with InProcessRunner(watch(worker(store, gate, WORK, "never said"))) as runner:
            session = runner.session(ALICE)
            task = await session.submit("go")
            await gate.begun.wait()
            assert await session.interrupt()
            gate.opened.set()
            assert (await task).status.value == "interrupted"

    asyncio.run(story())
    finish(store)
    replayed = replay(path, worker(InMemoryStore()))
    replayed.check()
    assert len(replayed.runs[0].requests) == 1


@pytest.mark.parametrize("way", ["file", "log"])
def test_work_that_is_torn_down_with_its_process(tmp_path: Path, way: str) -> None:
    """A process that does not wait for its tools leaves a run that says so; another one goes on with it."""
    store, path, gate = InMemoryStore(), tmp_path / "r.jsonl", Gate()
    watch, finish = both(way, path)

    async def story() -> None:
        async with InProcessRunner(watch(worker(store, gate, WORK)), grace=0.01) as runner:
            left = await runner.session(ALICE).submit("go")
            await gate.begun.wait()
        async with InProcessRunner(watch(worker(store, None, "gone on with"))) as runner:
            session = runner.session(ALICE)
            await session.start()
            assert (await session.wait(left.id)).status.value == "completed"

    asyncio.run(story())
    finish(store)
    replayed = replay(path, worker(InMemoryStore()))
    replayed.check()
    assert len(replayed.runs) == 2


@pytest.mark.parametrize("grace", [0.01, 0])
@pytest.mark.parametrize("way", ["file", "log"])
def test_work_whose_program_shuts_down(tmp_path: Path, way: str, grace: float) -> None:
    """A run that does not come to its end in time is ended, and says that it can be gone on with."""
    store, path, gate, runtime = InMemoryStore(), tmp_path / "r.jsonl", Gate(), Runtime()
    watch, finish = both(way, path)

    async def story() -> None:
        async with InProcessRunner(watch(worker(store, gate, WORK).runtime(runtime))) as runner:
            await runner.session(ALICE).submit("go")
            await gate.begun.wait()
            await shut_down(runtime, grace=grace)

    asyncio.run(story())
    finish(store)
    replayed = replay(path, worker(InMemoryStore()))
    replayed.check()
    (run,) = replayed.runs
    assert run.result is not None
    assert "it can be gone on with" in run.result.text


@pytest.mark.parametrize("way", ["file", "log"])
def test_a_command_that_is_gone_is_gone_again(tmp_path: Path, way: str) -> None:
    """A run that was to do what is not to be done fails in the replay as it did."""
    store, path = InMemoryStore(), tmp_path / "r.jsonl"
    watch, finish = both(way, path)

    async def story() -> None:
        async with watch(worker(store, None, "Hello.")).build() as agent:
            await agent.call("Hi.", ALICE)
            gone = Command(id="t1", kind=CommandKind.SUBMIT, turn_id="turn", digest="")
            with pytest.raises(CommandGone):
                await agent.carry_out(ALICE, gone)

    asyncio.run(story())
    finish(store)
    replayed = replay(path, worker(InMemoryStore()))
    replayed.check()
    assert isinstance(replayed.runs[-1].error, CommandGone) or way == "log"


@pytest.mark.parametrize("way", ["file", "log"])
def test_commands_hold_no_secret_and_their_recording_stays_small(tmp_path: Path, way: str) -> None:
    """What is told is redacted as all else is; what a command adds does not grow with the session."""
    store, path, secret = InMemoryStore(), tmp_path / "r.jsonl", "sk-" + "planted0123456789"
    watch, finish = both(way, path)

    async def story() -> None:
        async with InProcessRunner(watch(worker(store, None, *["Answer."] * 30))) as runner:
            session = runner.session(ALICE)
            for _ in range(30):
                await session.inject(f"my other key is {secret}")
                await (await session.submit(f"my key is {secret}; " + "and so on. " * 200))

    asyncio.run(story())
    finish(store)
    assert secret not in path.read_text()
    replay(path, worker(InMemoryStore())).check()
    sizes = dict.fromkeys(range(30), 0)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if line["type"] not in ("header", "item", "request", "closed"):  # the first request of a run names its messages
            sizes[line["run"]] += len(text)
    assert sizes[29] < 1.1 * sizes[2]


def test_an_update_keeps_what_a_run_was_told(tmp_path: Path) -> None:
    """A recording that is written anew by a replay replays."""
    path = tmp_path / "r.jsonl"
    with Recorder(path) as recorder:
        store = InMemoryStore()
        runs = asyncio.run(live_in_the_background(lambda: store, recorder.watch))
    assert replay(path, worker(InMemoryStore()).sys_prompt("Be another one."), update=True).updated
    replay(path, worker(InMemoryStore()).sys_prompt("Be another one.")).check()
    assert len(replay(path, worker(InMemoryStore()).sys_prompt("Be another one.")).runs) == runs
