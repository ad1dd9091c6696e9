"""A recorded request under other settings: what it would hold, without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded, InvalidOption, ReplayMismatch
from agentscope_rx.operators import view_operator
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.replay import what_if
from agentscope_rx.step import Step
from tests.replay.story import record_story, story_builder

STATUS = "source/change-record/status"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The story, recorded once."""
    path = tmp_path_factory.mktemp("recordings") / "story.jsonl"
    record_story(path, steps=60)
    return path


@view_operator
def without_status(draft: RequestDraft, step: Step) -> RequestDraft:
    """Leave the status out."""
    return draft.without([STATUS], reason="old")


def leave_status_out(pipeline: Pipeline) -> Pipeline:
    return pipeline.insert_after("load_sources", without_status)


@pytest.mark.parametrize("step", [0, 10, 14, 20])
def test_the_same_settings_change_nothing(recording: Path, step: int) -> None:
    """Also where the request was sent after an overflow, and behind a summary."""
    outcome = what_if(recording, story_builder(), step=step)
    assert outcome.error is None
    assert (outcome.tokens, outcome.prefix_tokens) == (0, 0)
    assert (outcome.dropped, outcome.added, outcome.changed) == ((), (), ())
    assert len(outcome.kept) == len(outcome.before.items)


def test_another_pipeline(recording: Path) -> None:
    """What it drops is told with its tokens and its reason, and that the prefix is shorter."""
    outcome = what_if(recording, story_builder(), step=5, pipeline=leave_status_out)
    (dropped,) = outcome.dropped
    assert dropped.id == STATUS
    assert -outcome.tokens >= dropped.tokens > 0
    assert "without_status: old" in str(outcome)
    assert f"- transient: {STATUS}" in str(outcome)


def test_another_policy(recording: Path) -> None:
    """A request that would not fit is one that would be refused, and the account says by which limit."""
    outcome = what_if(recording, story_builder().compaction(None), step=10, policy=ContextPolicy(max_input_tokens=900))
    assert isinstance(outcome.error, ContextBudgetExceeded)
    assert outcome.after.input_limit == 900
    assert "it would be refused" in str(outcome)


def test_another_compaction_is_planned_and_no_model_asked(recording: Path) -> None:
    """What a compaction would replace is missing, and its summary is a place for one."""
    earlier = CompactionConfig(trigger_messages=10, keep_messages=4)
    outcome = what_if(recording, story_builder(), step=24, change=lambda builder: builder.compaction(earlier))
    assert len(outcome.dropped) > 10
    assert [item.zone for item in outcome.added] == ["conversation"]
    assert outcome.tokens < 0


def test_a_step_that_is_not_there(recording: Path) -> None:
    """The error says which there are; an agent that is not the recorded one is found."""
    with pytest.raises(InvalidOption, match="0 to 58"):
        what_if(recording, story_builder(), step=99)
    with pytest.raises(InvalidOption, match="3 runs"):
        what_if(recording, story_builder(), step=0, run=7)
    with pytest.raises(ReplayMismatch):
        what_if(recording, story_builder().instruction("tone", "Be brief."), step=3)
