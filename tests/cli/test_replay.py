"""`agentscope-rx record`, `replay` and `what-if`."""

from __future__ import annotations

import json
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
    printed = capsys.readouterr()
    assert printed.out == "It is beta.\n"
    assert printed.err.endswith(f"recorded: {file}\n")
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


def test_a_session_becomes_a_recording(serve: Serve, folder: Path, tmp_path: Path, capsys: Captured) -> None:
    """Runs that were replayable are one later, in whatever process; others are not, and it is said how."""
    provider = serve([*STORY, text("Once more: beta."), text("And again.")])
    run = ["run", "--model", MODEL, "--quiet", "--session"]
    assert main([*run, "s", "Which one is it?", "--replayable"]) == 0
    assert main([*run, "s", "Say it again.", "--replayable"]) == 0
    assert main([*run, "other", "And now?"]) == 0
    capsys.readouterr()
    file = tmp_path / "session.jsonl"
    assert main(["record", str(file), "--session", "s"]) == 0
    assert capsys.readouterr().out == f"{file}: 2 runs\n"
    assert main(["replay", str(file), "--update"]) == 0
    assert "2 runs, 3 requests\nall as recorded\n" in capsys.readouterr().out
    assert main(["replay", str(file)]) == 0  # it is known still whose it is
    assert capsys.readouterr().out.endswith("2 runs, 3 requests\nall as recorded\n")
    assert main(["record", str(file), "--session", "other"]) == 2
    assert "--replayable" in capsys.readouterr().err
    assert main(["record", str(file), "--session", "nobody"]) == 2
    assert main(["record", str(file)]) == 2
    assert len(provider.requests) == 4


def test_what_if_looks_into_any_session(serve: Serve, folder: Path, capsys: Captured) -> None:
    """Without an option of the run, and without a key; by another agent it is refused."""
    serve(STORY)
    assert main(["run", "Which one is it?", "--model", MODEL, "--quiet", "--session", "s"]) == 0
    capsys.readouterr()
    what_if = ["what-if", "--session", "s", "--step", "1"]
    assert main(what_if) == 0
    assert "dropped 0, added 0, changed 0" in capsys.readouterr().out
    assert main([*what_if, "--run", "-1", "--max-input-tokens", "300"]) == 0
    assert "it would be refused" in capsys.readouterr().out
    assert main([*what_if, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["before"]["items"] == shown["after"]["items"]
    assert (shown["step"], shown["error"], shown["notes"]) == (1, None, [])
    assert main([*what_if, "--builder", "tests.cli.test_replay:other_agent"]) == 1
    out, err = capsys.readouterr()
    assert "system_prompt" in out
    assert "--builder" in err
    assert main(["what-if", "--session", "nobody", "--step", "0"]) == 2
    assert main(["what-if", "--step", "0"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [["replay", "none.jsonl"], ["replay", "none.jsonl", "--builder", "nowhere:x"], ["what-if", "none.jsonl"]],
)
def test_usage_is_exit_code_2(arguments: list[str], capsys: Captured, folder: Path) -> None:
    """No such file, no such builder, no step."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
