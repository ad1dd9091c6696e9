"""A request of a session under other settings, out of its log: of what that holds anyway, or holds by option."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.context.sources import ContextRequest, Loader
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import InvalidOption, ReplayMismatch
from agentscope_rx.harness_agent import HarnessAgent, HarnessBuilder
from agentscope_rx.operators import view_operator
from agentscope_rx.replay import SessionRecorder, what_if
from agentscope_rx.session import SessionLog
from agentscope_rx.step import Step
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing.scripted_model import ScriptedModel
from agentscope_rx.workspace import InMemoryWorkspace
from tests.replay.life import ALICE, Watch, life_builder, live

STATUS = "source/change-record/status"
STEPS = [(0, step) for step in range(14)] + [(1, 1), (2, 0), (3, 0), (4, 0), (5, 0), (-1, 0), (6, 1)]
COMPACTED = (0, 10)  # the history was compacted for this request


def as_it_is(builder: HarnessBuilder) -> HarnessBuilder:
    return builder


def watched(builder: HarnessBuilder) -> HarnessBuilder:
    return SessionRecorder().watch(builder)


@pytest.fixture(scope="module", params=[as_it_is, watched], ids=["plain", "watched"])
def log(request: pytest.FixtureRequest) -> SessionLog:
    """A whole life, in a log without the option and with it."""
    store, watch = InMemoryStore(), request.param
    asyncio.run(live(lambda: store, watch))
    return life_builder(store).build().session_log(ALICE)


@view_operator
def without_status(draft: RequestDraft, step: Step) -> RequestDraft:
    """Leave the status out."""
    return draft.without([STATUS], reason="old")


@pytest.mark.parametrize(("run", "step"), [each for each in STEPS if each != COMPACTED])
def test_the_same_settings_change_nothing(log: SessionLog, run: int, step: int) -> None:
    """Each request of the session is made again as it was sent, by its history, its state and its material: after
    compactions, behind an overflow, an approval, restarts and broken answers. The model has no script: nobody asks
    it."""
    outcome = what_if(log, life_builder(), run=run, step=step)
    assert (outcome.error, outcome.notes) == (None, ())
    assert (outcome.tokens, outcome.prefix_tokens) == (0, 0)
    assert (outcome.dropped, outcome.added, outcome.changed) == ((), (), ())
    assert len(outcome.kept) == len(outcome.before.items) > 5


def test_a_compaction_is_planned(log: SessionLog) -> None:
    """The request that was sent behind a summary has its summary; the one that would be has a place for one, and a
    note says so."""
    run, step = COMPACTED
    outcome = what_if(log, life_builder(), run=run, step=step)
    assert [item.zone for item in (*outcome.dropped, *outcome.added)] == ["conversation", "conversation"]
    assert "the summary of a compaction is planned" in str(outcome)
    without = what_if(log, life_builder(), run=run, step=step, change=lambda builder: builder.compaction(None))
    assert len(without.added) == 4
    assert {item.zone for item in without.added} == {"conversation"}


def test_another_pipeline(log: SessionLog) -> None:
    """What it drops is told with its tokens and its reason; a request is named by its id, too."""
    named = what_if(log, life_builder(), step=5).before.call_id
    outcome = what_if(
        log, life_builder(), step=named, pipeline=lambda p: p.insert_after("load_sources", without_status)
    )
    (dropped,) = outcome.dropped
    assert (outcome.step, dropped.id) == (5, STATUS)
    assert -outcome.tokens >= dropped.tokens > 0
    assert "without_status: old" in str(outcome)


def test_another_agent_is_refused(log: SessionLog) -> None:
    """The error names the item, and the operator that put it there, or took it away."""
    with pytest.raises(ReplayMismatch, match="instruction/tone added, by assemble_request") as failed:
        what_if(log, life_builder().instruction("tone", "Be brief."), step=3)
    assert failed.value.step == 3
    with pytest.raises(
        ReplayMismatch, match=r"(?s)conversation: \w+ changed, by loud.*page 1: LINE of page 1"
    ) as failed:
        what_if(log, life_builder().pipeline(lambda p: p.insert_before("validate_request", loud)), step=3)
    assert {each.zone for each in failed.value.differences} >= {"conversation"}


@view_operator
def loud(draft: RequestDraft, step: Step) -> RequestDraft:
    """Say it louder."""
    return draft.map_text(_louder)


def _louder(text: str) -> str:
    return text.replace("line", "LINE")


def test_what_is_not_there_is_named(log: SessionLog) -> None:
    """No such run, step or request: the error says which there are."""
    for wrong, why in (
        ({"step": 99}, "steps 0 to 13"),
        ({"step": 0, "run": 7}, "requests of 7 runs"),
        ({"step": 0, "run": -8}, "requests of 7 runs"),
        ({"step": "nobody"}, "no such request"),
    ):
        with pytest.raises(InvalidOption, match=why):
            what_if(log, life_builder(), **wrong)  # type: ignore[reportArgumentType]


def test_a_log_without_requests_says_so() -> None:
    """The error names the option."""
    store = InMemoryStore()
    builder = life_builder(store, ["Hello."]).log_requests(False)
    builder.call("Hi.", ALICE).run()
    with pytest.raises(InvalidOption, match=r"log_requests\(False\)"):
        what_if(builder.build().session_log(ALICE), life_builder(), step=0)


# -- what only an option logs -------------------------------------------------------------------------------

NOTES = "The export was broken before. " * 60
SMALL, LARGE = ContextPolicy(max_input_tokens=700), ContextPolicy(max_input_tokens=4_000)


async def archive(request: ContextRequest) -> list[ContextBlock]:
    """What nobody reads any more; and quoted as it must be, what looks like our own tags."""
    return [
        ContextBlock.reference("old", "An old page. " * 120),
        ContextBlock.reference("new", 'A <b>"new"</b> page.\n</context_item> & more.', priority=9),
    ]


def small_builder(store: InMemoryStore | None = None, load: Loader = archive) -> HarnessBuilder:
    workspace = InMemoryWorkspace({"MEMORY.md": NOTES, "AGENTS.md": "Never write </PROJECT_RULES> or <b>."})
    builder = HarnessAgent.builder(
        name="a", model=ScriptedModel(["Done."]), workspace=workspace, filesystem_tools=False, context_policy=SMALL
    ).context_source("archive", load)
    return builder if store is None else builder.state_store(store)


def small_log(watch: Watch) -> SessionLog:
    store = InMemoryStore()
    builder = watch(small_builder(store))
    builder.call("Go.", ALICE).run()
    return builder.build().session_log(ALICE)


def test_what_was_left_out_is_known_where_it_is_logged() -> None:
    """With more room the blocks that were evicted are back, word for word, though nobody is asked for them."""

    def refused(_: ContextRequest) -> list[ContextBlock]:
        raise AssertionError("nobody asks")

    builder = small_builder(load=refused)
    outcome = what_if(small_log(watched), builder, step=0, policy=LARGE)
    assert (outcome.error, outcome.notes) == (None, ())
    assert {item.id for item in outcome.added} == {"source/archive/old", "workspace:MEMORY.md"}
    assert [block.text for block in outcome.after.draft.references if block.id == "workspace:MEMORY.md"] == [NOTES]


def test_what_was_left_out_and_not_logged_is_said() -> None:
    """Without the option the log does not hold it: it stays out, and a note names it and the option. What was sent is
    known word for word, however it was quoted."""
    outcome = what_if(small_log(as_it_is), small_builder(), step=0, policy=LARGE)
    assert outcome.error is None
    assert (outcome.dropped, outcome.added, outcome.changed) == ((), (), ())
    assert [note.split()[0] for note in outcome.notes] == ["workspace:MEMORY.md", "source/archive/old"]
    assert all("SessionRecorder().watch(builder)" in note for note in outcome.notes)
    assert "note: workspace:MEMORY.md was left out then" in str(outcome)


@pytest.mark.parametrize("watch", [as_it_is, watched])
def test_a_source_that_is_new_is_asked(watch: Callable[[HarnessBuilder], HarnessBuilder]) -> None:
    """What was not there then can only be asked now, and a note says so."""

    def fresh(_: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.reference("x", "Something new.")]

    outcome = what_if(
        small_log(watch), small_builder(), step=0, change=lambda builder: builder.context_source("fresh", fresh)
    )
    assert [item.id for item in outcome.added] == ["source/fresh/x"]
    assert outcome.notes[-1].startswith("source/fresh was asked now")


def test_a_secret_of_a_source_is_compared_as_it_was_sent() -> None:
    """A log that is watched holds sources without their secrets; what was sent is taken from the request."""

    def source(_: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.runtime("db", "postgres://admin:correct-horse@db/orders")]

    store = InMemoryStore()
    builder = small_builder(store).context_source("db", source)
    watched(builder).call("Go.", ALICE).run()
    outcome = what_if(watched(builder).build().session_log(ALICE), builder, step=0)
    assert (outcome.tokens, outcome.changed, outcome.error) == (0, (), None)


def test_a_source_that_gave_nothing_is_not_asked_now() -> None:
    """What a source would give today was in no request of that time: the request is made again without it, and no
    note says that it was."""
    asked: list[int] = []

    async def manual(request: ContextRequest) -> list[ContextBlock]:
        asked.append(len(asked))
        return [] if len(asked) == 1 else [ContextBlock.reference("export", "Exports have three columns.")]

    store = InMemoryStore()
    plain = HarnessAgent.builder(name="clerk", model=ScriptedModel(["Done."]), workspace=InMemoryWorkspace())
    builder = plain.state_store(store).context_source("manual", manual)
    builder.call("Export it.", ALICE).run()
    outcome = what_if(builder.build().session_log(ALICE), builder, step=0)
    assert (outcome.error, outcome.notes, outcome.tokens, outcome.added) == (None, (), 0, ())
    assert len(asked) == 1
