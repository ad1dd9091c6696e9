"""The export fix from end to end: planned, approved after a restart, done, verified, and reported, over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import RuntimeContext, VerificationService, answers_from_json, pending_to_json
from agentscope_rx.events import AgentEvent, RequireUserConfirm, ToolResultEnd, UserConfirmResult
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import ToolResultState
from agentscope_rx.tasks import ShellExitCodeVerifier, VerificationOutcome, observation_of
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest
from tests.cases.playing import check_pairs
from tests.context.support import manifests
from tests.export_asking import export_builder
from tests.support import Seen, watch

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
ALICE = RuntimeContext(user_id="alice", session_id="change-42")
WIDE = 128_000


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project and the model of the example."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return import_module("export_story")


async def killed_at_the_question(url: str, folder: Path, window: int) -> list[str]:
    """What the events of a process are called that plans, and is killed when it asks for the approval."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.export_asking", url, str(folder), str(window)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{EXAMPLES}{os.pathsep}{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    types: list[str] = []
    while not types or types[-1] != "REQUIRE_USER_CONFIRM":
        line = (await process.stdout.readline()).decode().strip()
        assert line, types
        types.append(line)
    process.kill()
    await process.wait()
    return types


async def approved(agent: HarnessAgent) -> Seen:
    """What happens once a person has said yes, from elsewhere."""
    answers = answers_from_json('{"answers": {"exit": {"type": "confirmation", "confirmed": true}}}')
    assert b'"id":"exit"' in pending_to_json(await agent.pending(ALICE))
    seen = Seen()
    async for event in agent.respond(ALICE, answers):
        seen.events.append(event)
    return seen


def ends(events: Sequence[AgentEvent]) -> list[tuple[str, str]]:
    return [(event.tool_call_name, event.state.value) for event in events if isinstance(event, ToolResultEnd)]


def shown(request: RecordedRequest, tag: str) -> str:
    """The message of a request that shows the task (`TASK_STATE`) or the mode (`RUNTIME_STATE`)."""
    (found,) = [str(m["content"]) for m in request.messages if str(m["content"]).startswith(f"<{tag}")]
    return found


async def verified(agent: HarnessAgent, version: str) -> tuple[Any, str]:
    """The report about the criterion, and its id."""
    task = await agent.update_tasks(ALICE, lambda task: task.set_subject_version(version, task.revision))
    seen = await watch(agent, "Now verify it.", ALICE)
    (ran,) = [end for end in seen.of(ToolResultEnd) if end.tool_call_name == "execute"]
    observation = observation_of(ran)
    assert observation is not None
    criterion = task.requirements[0].id
    check = (criterion, observation.action_id, ShellExitCodeVerifier("execute"))
    return await VerificationService(agent).verify(ALICE, *check), criterion


async def test_the_fix_is_planned_approved_done_and_proved(story: Any, tmp_path: Path) -> None:
    """Nothing changes before the approval, which another process takes than the one that asked and was killed. What was
    asked for and what was proved is in the requests, and is shown as stale once the sources are others."""
    project = story.make_project(tmp_path / "project")
    before = story.version_of(project)
    confirmed = import_module("export_agent").confirmed
    async with FakeProvider(story.Story()) as provider:
        asked = await killed_at_the_question(provider.base_url, tmp_path, WIDE)
        assert asked.count("MODEL_CALL_START") == 9
        assert story.version_of(project) == before
        planning = provider.requests[-1]
        assert "<MODE_RULES" in planning.messages[0]["content"]
        assert "Mode: PLAN (read-only)" in shown(planning, "RUNTIME_STATE")
        assert "| CANDIDATE | The tests of the export pass." in shown(planning, "TASK_STATE")
        assert "Objective: The report export works again." in shown(planning, "TASK_STATE")

        async with export_builder(provider.base_url, tmp_path, WIDE).build() as agent:
            await agent.update_tasks(ALICE, confirmed)
            seen = await approved(agent)
            assert ends(seen.events) == [
                ("plan_exit", "success"),
                ("execute", "success"),
                ("edit_file", "success"),
                ("todo_write", "success"),
            ]
            assert [answer.confirmed for answer in seen.of(UserConfirmResult)[0].confirm_results] == [True]
            assert seen.of(RequireUserConfirm) == []
            (ran, *_) = [str(m["content"]) for m in provider.requests[-3].messages if "Exit code" in str(m["content"])]
            assert ran.startswith("Exit code: 1")  # reproduced, before the fix
            working = provider.requests[-1]
            assert "Mode: BUILD" in shown(working, "RUNTIME_STATE")
            assert "| CONFIRMED | The tests of the export pass." in shown(working, "TASK_STATE")
            assert story.version_of(project) != before

            report, criterion = await verified(agent, story.version_of(project))
            assert (report.outcome, report.reason) == (VerificationOutcome.PASSED, "exit code 0")
            assert (await agent.call("Report.", ALICE)).text.startswith("Change 42 is done")
            assert f"{criterion} | PASSED | " in shown(provider.requests[-1], "TASK_STATE")

            (project / "export.py").write_text((project / "export.py").read_text() + "# later\n")
            later = story.version_of(project)
            await agent.update_tasks(ALICE, lambda task: task.set_subject_version(later, task.revision))
            prepared = await agent.prepare("And now?", ALICE)
            assert f"{criterion} | STALE | " in str(prepared.request)
        for request in provider.requests:
            check_pairs(request.body)
            assert [m["role"] for m in request.messages].count("system") == 1
        assert provider.refusals == []


@pytest.mark.slow
async def test_two_hundred_steps_with_compactions_an_overflow_and_a_restart(story: Any, tmp_path: Path) -> None:
    """In a small window the same story takes 200 steps: summaries, a request that the provider finds too long, and a
    restart at the question leave task, plan and proof as they are in the short one."""
    window, pages = 12_000, 184
    project = story.make_project(tmp_path / "project", pages=pages)
    confirmed = import_module("export_agent").confirmed
    async with FakeProvider(story.Story(pages=pages, overflow=100)) as provider:
        asked = await killed_at_the_question(provider.base_url, tmp_path, window)
        assert asked.count("overflow_recovery") == 1
        async with export_builder(provider.base_url, tmp_path, window).build() as agent:
            compactions = await agent.compactions(ALICE)
            assert len(compactions) == asked.count("compaction_end") > 5
            await agent.update_tasks(ALICE, confirmed)
            seen = await approved(agent)
            assert [state for _, state in ends(seen.events)] == [ToolResultState.SUCCESS] * 4
            report, criterion = await verified(agent, story.version_of(project))
            assert report.outcome is VerificationOutcome.PASSED
            last = await watch(agent, "Report.", ALICE)
            assert last.result.text.startswith("Change 42 is done")
        assert [manifest.validation for manifest in manifests(last)] == ["passed"]
        assert f"{criterion} | PASSED | " in shown(provider.requests[-1], "TASK_STATE")
        steps = [request for request in provider.requests if request.body.get("tools")]
        assert len(steps) >= 200
        for request in provider.requests:
            check_pairs(request.body)
        assert provider.refusals == []
