"""Recorded runs run again: the same requests to the byte, the same events, in no time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.context.policy import SourceFailurePolicy
from agentscope_rx.context.sources import ContextRequest
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ProviderError, RunningLoopError, ServerFailed
from agentscope_rx.events import Custom, TextBlockDelta
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.operators import effect_operator, text_operator, view_operator
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.replay import Recorder, Replayed, ReplayMismatch, replay
from agentscope_rx.requests import ExecutionConfig, ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import Step
from agentscope_rx.stores import JsonFileStore
from agentscope_rx.testing.scripted_model import ScriptedModel, calls
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace
from tests.replay.story import record_story, story_builder

STEPS = 60
CTX = RuntimeContext(user_id="alice", session_id="s")
Recorded = tuple[Path, list[bytes]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The story, recorded once."""
    path = tmp_path_factory.mktemp("recordings") / "story.jsonl"
    story, bodies = record_story(path, steps=STEPS)
    assert story.refused == 1
    assert story.summaries > 1
    return path, bodies


class SlowModel(ScriptedModel):
    """Waits before each piece of its answer."""

    def __init__(self, pieces: Sequence[str], *, seconds: float = 1.0) -> None:
        super().__init__([])
        self._pieces, self._seconds = pieces, seconds

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelChunk]:
        for piece in self._pieces:
            await asyncio.sleep(self._seconds)
            yield ModelChunk(text=piece)
        yield ModelChunk(finish_reason="stop")


def bodies_of(replayed: Replayed) -> list[bytes]:
    requests = [request for run in replayed.runs for request in run.requests]
    return [encode(request, model="fake-model", provider=COMPATIBLE) for request in requests]


# -- the same again -----------------------------------------------------------------------------------------


def test_a_recorded_story_replays_to_the_byte(recorded: Recorded) -> None:
    """Compactions, a recovered overflow, a retry, an approval and a further call: each request is the same bytes
    as it was on the wire, and each event is the same."""
    path, bodies = recorded
    replayed = replay(path, story_builder())
    replayed.check()
    assert bodies_of(replayed) == bodies
    assert [run.result.text for run in replayed.runs if run.result] == ["", "All is done.", "All is done."]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_steps_replay_a_hundred_times(tmp_path: Path) -> None:
    """The hundredth replay is the first one."""
    path = tmp_path / "story.jsonl"
    _, bodies = record_story(path, steps=200)
    for _ in range(100):
        replayed = replay(path, story_builder())
        replayed.check()
        assert bodies_of(replayed) == bodies


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_another_process_replays_the_same(recorded: Recorded, seed: str) -> None:
    """Nothing depends on the process: neither on its hashes nor on where it runs."""
    code = (
        "import sys; from agentscope_rx.replay import replay; from tests.replay.story import story_builder\n"
        "replayed = replay(sys.argv[1], story_builder()); replayed.check(); print(replayed)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(recorded[0])], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all as recorded\n")


def test_waits_take_no_time(tmp_path: Path) -> None:
    """A run with more than ten minutes of waits, in a tool, a source, between pieces and before a retry, is played
    in virtual time: its clock shows them, and nobody waits."""

    @tool(timeout=600)
    async def wait() -> str:
        """Wait long."""
        await asyncio.sleep(500)
        return "waited"

    async def slow(_: ContextRequest) -> list[ContextBlock]:
        await asyncio.sleep(60)
        return []

    builder = HarnessAgent.builder(
        name="slow",
        model=ScriptedModel([calls(("c1", "wait", "{}")), ServerFailed("busy", retry_after=100), "Done."]),
        tools=[wait],
        workspace=InMemoryWorkspace(),
    ).context_source("slow", slow, timeout=120)
    path = tmp_path / "slow.jsonl"

    async def record() -> None:
        async with Recorder(path) as recorder:
            await recorder.watch(builder).call("Go.", CTX)

    run_virtual(record)
    began = time.monotonic()
    replayed = replay(path, builder)
    assert time.monotonic() - began < 30
    assert replayed.seconds >= 500 + 2 * 60 + 100
    replayed.check()


# -- whatever happened --------------------------------------------------------------------------------------


def recorded_by(path: Path, builder: AgentBuilder[Any, Any], *inputs: str) -> list[Exception | None]:
    """Record calls, and give the errors with which they ended."""
    errors: list[Exception | None] = []
    with Recorder(path) as recorder:
        watched = recorder.watch(builder)
        for each in inputs:
            try:
                watched.call(each, CTX).run()
                errors.append(None)
            except Exception as error:
                errors.append(error)
    return errors


def test_a_failed_run_fails_again(tmp_path: Path) -> None:
    """A provider's error is the same error, with its class and its facts."""
    model = ScriptedModel([ServerFailed("broken", status=503), "Later."])
    builder = ReActAgent.builder(name="a", model=model, execution=ExecutionConfig(max_attempts=1))
    (error, nothing) = recorded_by(tmp_path / "r.jsonl", builder, "Go.", "Again.")
    assert nothing is None
    replayed = replay(tmp_path / "r.jsonl", builder)
    replayed.check()
    again = replayed.runs[0].error
    assert isinstance(again, ProviderError)
    assert (type(again), again.status, str(again)) == (type(error), 503, "broken")


def test_a_timeout_of_a_model_comes_again(tmp_path: Path) -> None:
    """A model that was silent is silent again, for as long."""

    model = SlowModel(["late"], seconds=1_000)
    builder = ReActAgent.builder(name="a", model=model, execution=ExecutionConfig(max_attempts=2))
    path = tmp_path / "r.jsonl"

    async def record() -> None:
        async with Recorder(path) as recorder:
            with pytest.raises(ProviderError):
                await recorder.watch(builder).call("Go.", CTX)

    run_virtual(record)
    replayed = replay(path, builder)
    replayed.check()
    assert replayed.seconds >= 240
    assert isinstance(replayed.runs[0].error, ProviderError)


@pytest.mark.parametrize("how", ["interrupt", "leave"])
def test_a_run_that_was_ended_from_outside_ends_at_the_same_event(tmp_path: Path, how: str) -> None:
    """An interruption, and a subscriber who left, come after the same event as they did."""
    path = tmp_path / "r.jsonl"
    builder = ReActAgent.builder(name="a", model=SlowModel(["one ", "two ", "three ", "four ", "five "]))

    async def record() -> None:
        async with Recorder(path) as recorder, recorder.watch(builder).build() as agent:
            seen = 0
            async for event in agent.stream_events("Go.", CTX):
                if isinstance(event, TextBlockDelta):
                    seen += 1
                    if seen == 2 and how == "interrupt":
                        agent.interrupt(CTX)
                    if seen == 2 and how == "leave":
                        break
            await agent.call("And now?", CTX)

    run_virtual(record)
    replayed = replay(path, builder)
    replayed.check()
    assert sum(event["type"] == "TEXT_BLOCK_DELTA" for event in replayed.runs[0].events) < 5
    assert len(replayed.runs) == 2


def test_tools_are_not_run_and_files_not_written(tmp_path: Path) -> None:
    """A replay has no effect: a tool is not called, a large result is not written, and what the tool changed of the
    session, reported and gave is all there."""
    ran: list[str] = []

    @tool
    async def work(context: ToolContext) -> str:
        """Work, with reports and a change of the task."""
        ran.append("work")
        context.report("half")
        return "x" * 100_000

    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "notes.txt").write_text("a note")
    todo = '{"todos": [{"content": "a", "status": "pending"}]}'
    model = ScriptedModel([calls(("c1", "work", "{}"), ("c2", "todo_write", todo)), "Done.", "More."])
    builder = HarnessAgent.builder(
        name="a", model=model, tools=[work], workspace=LocalWorkspace(folder), enable_task_list=True
    )
    path = tmp_path / "r.jsonl"
    assert recorded_by(path, builder, "Look at @notes.txt", "Go on.") == [None, None]
    for each in sorted(folder.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    ran.clear()
    replayed = replay(path, builder)
    replayed.check()
    assert ran == []
    assert not [each for each in folder.rglob("*") if each.is_file()]
    assert "pending" in str(replayed.runs[1].requests[0].messages)
    assert "a note" in str(replayed.runs[1].requests[0].messages)


def test_a_session_that_had_a_past_replays_with_it(tmp_path: Path) -> None:
    """A recording that begins in the middle of a session of a file store holds what was before, and what others have
    changed between two calls."""
    store = JsonFileStore(tmp_path / "states")
    builder = HarnessAgent.builder(
        name="a", model=ScriptedModel(["One.", "Two.", "Three."]), workspace=InMemoryWorkspace(), state_store=store
    )
    builder.call("Before.", CTX).run()
    path = tmp_path / "r.jsonl"

    async def record() -> None:
        async with Recorder(path) as recorder, recorder.watch(builder).build() as agent:
            await agent.call("First.", CTX)
            await agent.clear_context(CTX)
            await agent.call("Second.", CTX)

    asyncio.run(record())
    replayed = replay(path, builder)
    replayed.check()
    assert [len([*run.requests[0].conversation.messages]) for run in replayed.runs] == [3, 1]


def test_a_session_that_goes_on_in_another_process_replays(tmp_path: Path) -> None:
    """A builder of its own, as after a restart, knows nothing of the requests before, and so says its replay."""
    store = JsonFileStore(tmp_path / "states")
    path = tmp_path / "r.jsonl"

    def builder() -> Any:
        model = ScriptedModel(["One.", "Two."])
        return HarnessAgent.builder(name="a", model=model, workspace=InMemoryWorkspace(), state_store=store)

    with Recorder(path) as recorder:
        for _ in range(2):
            watched = recorder.watch(builder())
            watched.call("Go.", CTX).run()
            watched.call("Go on.", CTX).run()
    replayed = replay(path, builder())
    replayed.check()
    shared = [run.manifests[0].prefix.tokens for run in replayed.runs]
    assert [tokens > 0 for tokens in shared] == [False, True, False, True]


def test_a_source_that_failed_fails_again(tmp_path: Path) -> None:
    """Sources are not asked; what they gave, or that they failed, is there, and the manifest says so."""
    asked: list[int] = []

    def load(_: ContextRequest) -> list[ContextBlock]:
        asked.append(1)
        raise ValueError("no")

    builder = HarnessAgent.builder(name="a", model=ScriptedModel(["One."]), workspace=InMemoryWorkspace())
    builder = builder.context_source("broken", load, on_failure=SourceFailurePolicy.OMIT)
    recorded_by(tmp_path / "r.jsonl", builder, "Go.")
    replay(tmp_path / "r.jsonl", builder).check()
    assert asked == [1]


class Invoice(BaseModel):
    """A form of answer."""

    total: int


def test_a_call_with_a_form_of_answer_replays(tmp_path: Path) -> None:
    """The form is found again by its name."""
    model = ScriptedModel([calls(("c1", "generate_response", '{"response": {"total": 3}}')), "Done."])
    builder = ReActAgent.builder(name="a", model=model)
    path = tmp_path / "r.jsonl"
    with Recorder(path) as recorder:
        reply = recorder.watch(builder).call("Read.", CTX, output=Invoice).run()
    replayed = replay(path, builder)
    replayed.check()
    result = replayed.runs[0].result
    assert result is not None
    assert result.output(Invoice) == reply.output(Invoice)


async def test_a_replay_on_a_loop_is_refused(recorded: Recorded) -> None:
    """It would block the loop."""
    with pytest.raises(RunningLoopError):
        replay(recorded[0], story_builder())
    assert (await asyncio.to_thread(replay, recorded[0], story_builder())).same


# -- what differs -------------------------------------------------------------------------------------------


@text_operator
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@view_operator
def without_status(draft: RequestDraft, step: Step) -> RequestDraft:
    """Leave the status out, once there is something to look back at."""
    return draft.without(["source/change-record/status"], reason="old") if step.number >= 4 else draft


def with_without_status(pipeline: Pipeline) -> Pipeline:
    return pipeline.insert_after("load_sources", without_status)


CHANGES: list[tuple[str, Callable[[Any], Any], int, str, str, str]] = [
    ("instruction", lambda builder: builder.instruction("tone", "Be brief."), 0, "instruction/tone", "added",
     "assemble_request"),
    ("prompt", lambda builder: builder.sys_prompt("Look at all pages."), 0, "system_prompt", "changed",
     "assemble_request"),
    ("operator", lambda builder: builder.pipeline(with_without_status), 4,
     "source/change-record/status", "removed", "without_status"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "step", "item", "kind", "operator"), CHANGES, ids=[c[0] for c in CHANGES])
def test_a_change_is_found_at_its_step(
    recorded: Recorded, name: str, change: Callable[[Any], Any], step: int, item: str, kind: str, operator: str
) -> None:
    """The error says in which step, shows the item, and names the operator."""
    with pytest.raises(ReplayMismatch) as failed:
        replay(recorded[0], change(story_builder()))
    error = failed.value
    assert (error.run, error.step) == (0, step)
    found = {each.item: each for each in error.differences}
    assert (found[item].kind, found[item].operator) == (kind, operator)
    assert item in str(error)
    assert operator in str(error)


def test_a_changed_default_is_found_where_it_first_matters(recorded: Recorded) -> None:
    """A request for a summary that is made now and was not made then, or the other way round, is what differs first."""
    builder = story_builder().compaction(CompactionConfig(trigger_messages=24, keep_messages=8))
    with pytest.raises(ReplayMismatch) as failed:
        replay(recorded[0], builder)
    assert (failed.value.step, failed.value.differences[0].operator) == (41, "compact_history")
    with pytest.raises(ReplayMismatch) as failed:
        replay(recorded[0], story_builder().compaction(None))
    assert (failed.value.step, failed.value.differences[0].operator) == (19, "compact_history")


def test_a_reordered_operator_is_found(tmp_path: Path) -> None:
    """Two operators in another order: the diff shows the item in both forms, names the operator that was last, and
    the error shows both pipelines."""

    @text_operator
    def quiet(text: str) -> str:
        return text.lower()

    def ordered(*names: Any) -> Any:
        builder = HarnessAgent.builder(name="a", model=ScriptedModel(["One."]), workspace=InMemoryWorkspace())
        for each in names:
            builder = builder.pipeline(lambda p, each=each: p.insert_before("validate_request", each))
        return builder

    path = tmp_path / "r.jsonl"
    recorded_by(path, ordered(shout, quiet), "Go There.")
    replay(path, ordered(shout, quiet)).check()
    with pytest.raises(ReplayMismatch) as failed:
        replay(path, ordered(quiet, shout))
    (difference,) = [each for each in failed.value.differences if each.zone == "conversation"]
    assert difference.operator == "shout"
    assert ("go there." in difference.before, "GO THERE." in difference.after) == (True, True)
    assert "pipeline then:" in str(failed.value)


def test_an_update_accepts_what_differs(recorded: Recorded, tmp_path: Path) -> None:
    """With `update` the differences are told and the recording is written anew; then nothing differs, and without
    it the file is left alone."""
    path = tmp_path / "story.jsonl"
    path.write_bytes(recorded[0].read_bytes())
    builder = story_builder().instruction("tone", "Be brief.")
    with pytest.raises(ReplayMismatch):
        replay(path, builder)
    assert path.read_bytes() == recorded[0].read_bytes()
    replayed = replay(path, builder, update=True)
    assert replayed.updated
    assert "instruction/tone added, by assemble_request" in str(replayed)
    replay(path, builder).check()
    with pytest.raises(ReplayMismatch):
        replay(path, story_builder())


def test_an_update_of_what_is_the_same_changes_nothing(recorded: Recorded, tmp_path: Path) -> None:
    """A recording of a replay is the recording."""
    path = tmp_path / "story.jsonl"
    path.write_bytes(recorded[0].read_bytes())
    replay(path, story_builder(), update=True).check()
    assert lines_of(path) == lines_of(recorded[0])


def lines_of(path: Path) -> list[Any]:
    """The lines of a recording, without the moments of requests: what comes next tells the time."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [{name: each for name, each in line.items() if name not in ("sum", "at")} for line in lines]


def test_events_that_differ_are_reported(tmp_path: Path) -> None:
    """Equal requests are not enough: an event more, or another one, is shown with what was there before."""
    path, builder = tmp_path / "r.jsonl", ReActAgent.builder(name="a", model=ScriptedModel(["Done."]))

    def telling(what: str) -> AgentBuilder[Any]:
        @effect_operator
        def tell(step: Step) -> Step:
            step.emit(Custom(name="told", value={"what": what}))
            return step

        return builder.pipeline(lambda default: default.insert_before("call_model", tell, name="tell"))

    with Recorder(path) as recorder:
        recorder.watch(telling("this")).call("Go.").run()
    replay(path, telling("this")).check()
    for other, shown in ((telling("that"), "that"), (builder, "event ")):
        replayed = replay(path, other)
        assert not replayed.same
        with pytest.raises(ReplayMismatch, match=shown):
            replayed.check()


def test_what_is_missing_is_a_line(tmp_path: Path) -> None:
    """Of a run that ends early: the event that came instead, each that did not come, and what it failed with."""
    path, builder = tmp_path / "r.jsonl", ReActAgent.builder(name="a", model=ScriptedModel(["Done."]))
    with Recorder(path) as recorder:
        recorder.watch(builder).call("Go.").run()

    @view_operator
    def refuse(draft: RequestDraft, step: Step) -> RequestDraft:
        raise RuntimeError("not today")

    replayed = replay(path, builder.pipeline(lambda default: default.insert_before("validate_request", refuse)))
    shown = str(replayed).splitlines()
    assert "run 0, event 2: AGENT_END stands in the place of MODEL_CALL_START" in shown
    *_, last, why = shown
    assert (last.endswith(": AGENT_END is missing"), why) == (True, "run 0 has failed: RuntimeError: not today")
