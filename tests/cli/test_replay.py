"""`agentscope-rx record`, `replay` and `what-if`."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.cli import main
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.testing.fake_provider import text, tool_calls
from agentscope_rx.testing.scripted_model import ScriptedModel
from agentscope_rx.workspace import InMemoryWorkspace
from tests.cli.command import MODEL
from tests.cli.conftest import Serve

STORY = (tool_calls(("c1", "read_file", '{"path": "notes.txt"}'), text="I look."), text("It is beta."))
Captured = pytest.CaptureFixture[str]


def other_agent() -> HarnessBuilder:
    """An agent that is not the one of the command line."""
    return HarnessAgent.builder(name="other", model=ScriptedModel([]), workspace=InMemoryWorkspace(), sys_prompt="Hm.")


def recorded(serve: Serve, file: Path) -> None:
    serve(STORY)
    assert main(["record", str(file), "Which one is it?", "--model", MODEL, "--quiet"]) == 0


def test_a_task_is_recorded_and_replayed(
    serve: Serve, folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key and without the provider, and by its own options."""
    file = tmp_path / "task.jsonl"
    recorded(serve, file)
    assert capsys.readouterr().out == "It is beta.\n"
    for name in ("OPENAI_API_KEY", "AGENTSCOPE_RX_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["replay", str(file)]) == 0
    assert capsys.readouterr().out.endswith("all as recorded\n")


def test_what_differs_is_shown(serve: Serve, folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """Another agent is found by the first request that differs, and exit code 1; --update accepts it."""
    file = tmp_path / "task.jsonl"
    recorded(serve, file)
    other = ["--builder", "tests.cli.test_replay:other_agent"]
    capsys.readouterr()
    assert main(["replay", str(file), *other]) == 1
    out, err = capsys.readouterr()
    assert "step 0" in out
    assert "pipeline" not in out
    assert "system_prompt changed, by assemble_request" in out
    assert err == "error: the request differs from the recorded one\n"
    assert main(["replay", str(file), *other, "--update"]) == 0
    assert "system_prompt changed" in capsys.readouterr().out
    assert main(["replay", str(file), *other]) == 0


def test_what_if_shows_another_budget(serve: Serve, folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """The limit is another, and what would be refused is said."""
    file = tmp_path / "task.jsonl"
    recorded(serve, file)
    capsys.readouterr()
    assert main(["what-if", str(file), "--step", "1", "--max-input-tokens", "300"]) == 0
    shown = capsys.readouterr().out
    assert "-> 300 tokens" in shown
    assert "it would be refused" in shown
    assert main(["what-if", str(file), "--step", "9"]) == 2
    assert "steps 0 to 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["replay", "none.jsonl"], ["replay", "none.jsonl", "--builder", "nowhere:x"], ["what-if", "none.jsonl"]],
)
def test_usage_is_exit_code_2(arguments: list[str], capsys: Captured, folder: Path) -> None:
    """No such file, no such builder, no step."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
