"""Recorded runs run again: the same requests to the byte, the same events, in no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.replay import replay
from tests.replay.story import record_story, story_builder

STEPS = 40


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """The story, recorded once."""
    path = tmp_path_factory.mktemp("recordings") / "story.jsonl"
    story, bodies = record_story(path, steps=STEPS)
    assert story.refused == 1
    assert story.summaries > 1
    return path, bodies


def test_a_recorded_story_replays_to_the_byte(recorded: tuple[Path, list[bytes]]) -> None:
    """Compactions, a recovered overflow, a retry, an approval and a further call: each request is the same bytes
    as it was on the wire, and each event is the same."""
    path, bodies = recorded
    replayed = replay(path, story_builder())
    replayed.check()
    requests = [request for run in replayed.runs for request in run.requests]
    assert [encode(request, model="fake-model", provider=COMPATIBLE) for request in requests] == bodies
    assert [run.result.text for run in replayed.runs if run.result] == ["", "All is done.", "All is done."]
