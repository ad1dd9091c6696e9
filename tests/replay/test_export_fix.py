"""The story of the export fix, over HTTP, with a restart between its stages: any recorded run is a test."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.replay import Recorder, replay
from agentscope_rx.testing.fake_provider import FakeProvider

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


async def test_the_export_fix_replays_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overflow, compactions, an approval after a restart, commands and evidence: the requests are the same bytes,
    the events the same, and no command runs again."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    story, agents, fix = (import_module(name) for name in ("export_story", "export_agent", "export_fix"))
    path = tmp_path / "export.jsonl"

    def builder(url: str) -> Any:
        return agents.change_assistant(url, tmp_path).max_iters(500)

    with FakeProvider.in_thread(story.Story(pages=60, overflow=40)) as provider:
        project = story.make_project(tmp_path / "project", pages=60)
        async with Recorder(path, secrets=()) as recorder:
            for stage in (fix.plan, fix.work, fix.verify):
                async with recorder.watch(builder(provider.base_url)).build() as agent:
                    await stage(agent, project)
        bodies = [request.raw for request in provider.requests]
    before = {each: each.read_bytes() for each in project.rglob("*") if each.is_file()}
    replayed = await asyncio.to_thread(replay, path, builder("http://127.0.0.1:9/v1"))
    replayed.check()
    requests = [request for run in replayed.runs for request in run.requests]
    assert [encode(request, model="story", provider=COMPATIBLE) for request in requests] == bodies
    assert {each: each.read_bytes() for each in project.rglob("*") if each.is_file()} == before
