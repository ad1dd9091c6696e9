"""`agentscope-rx run`: what it shows, prints and keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.cli import main
from agentscope_rx.messages import Msg
from agentscope_rx.testing.fake_provider import text, tool_calls
from tests.cli.command import KEY, MODEL, conversation, keep
from tests.cli.conftest import Serve

STORY = (
    tool_calls(
        ("c1", "read_file", '{"path": "notes.txt"}'), ("c2", "grep_files", '{"pattern": "beta"}'), text="I look."
    ),
    text("It is beta.", deltas=["It is", " beta."], reasoning="Two files say so."),
)
#: What the story gives, apart from CUSTOM events, of which there may be more or fewer.
TYPES = [
    "AGENT_START",
    "MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END",
    "TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END",
    "TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END", "MODEL_CALL_END",
    "TOOL_RESULT_START", "TOOL_RESULT_START",
    "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END",
    "MODEL_CALL_START", "THINKING_BLOCK_START", "THINKING_BLOCK_DELTA", "THINKING_BLOCK_END",
    "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "MODEL_CALL_END",
    "AGENT_RESULT", "AGENT_END",
]  # fmt: skip

Captured = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return main(["run", "Which one is it?", "--model", MODEL, *arguments])


def test_the_live_view_shows_all_that_happens(serve: Serve, folder: Path, capsys: Captured) -> None:
    """Thinking, text, calls with their arguments and results are shown, in the order in which they happen."""
    serve(STORY)
    assert run() == 0
    shown = capsys.readouterr().out
    parts = [
        MODEL,
        "(new)",
        " 1  I look.",
        '→ read_file(path="notes.txt")',
        '→ grep_files(pattern="beta")',
        "✓ read_file: 3 lines",
        "│ alpha",
        "✓ grep_files: 2 lines",
        "│ notes.txt:2:beta",
        " 2  Two files say so.",
        "It is beta.",
        "2 steps · 2 tool calls",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


def test_the_live_view_tells_of_compactions(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A history that gives way to a summary is one line, with its figures; the summary itself is not shown."""
    provider = serve([text("## SUMMARY\nMany words."), text("It is beta.")])
    keep(*(Msg.user("word " * 700) for _ in range(60)))
    assert run("--session", "s") == 0
    shown = capsys.readouterr().out
    (line,) = [line.strip() for line in shown.splitlines() if "compact" in line]
    assert re.fullmatch(r"compacted 61 messages: 4\d,\d{3} -> \d,\d{3} tokens", line)
    assert shown.index(line) < shown.index("It is beta.")
    assert "Many words" not in shown
    assert len(provider.requests) == 2


def test_the_live_view_tells_of_compactions_that_fail(serve: Serve, folder: Path, capsys: Captured) -> None:
    """Where no summary comes the line says why, and the run goes on with what it has."""
    serve([text("too long " * 20, finish="length"), text("It is beta.")])
    keep(*(Msg.user("word " * 700) for _ in range(60)))
    assert run("--session", "s") == 0
    shown = capsys.readouterr().out
    assert [line.strip() for line in shown.splitlines() if "compact" in line] == ["not compacted: unfinished"]
    assert "It is beta." in shown


def test_json_prints_every_event_and_nothing_else(serve: Serve, folder: Path, capsys: Captured) -> None:
    """With `--json` each line of stdout is an event, in the order of the run."""
    serve(STORY)
    assert run("--json") == 0
    captured = capsys.readouterr()
    events: list[dict[str, Any]] = [json.loads(line) for line in captured.out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "CUSTOM"] == TYPES
    assert len({event["id"] for event in events}) == len(events)
    assert captured.err == ""


def test_quiet_prints_the_answer_alone(serve: Serve, folder: Path, capsys: Captured) -> None:
    """With `--quiet` stdout is the answer."""
    serve(STORY)
    assert run("--quiet") == 0
    assert capsys.readouterr() == ("It is beta.\n", "")


def test_a_session_is_continued(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A second run with the same session sends the conversation so far; another user's session is another."""
    provider = serve([text("First answer."), text("Second answer."), text("Somebody else's.")])
    assert run("--session", "s 1") == 0
    assert main(["run", "Are you sure?", "--model", MODEL, "--session", "s 1"]) == 0
    assert "session s 1 (2 messages)" in capsys.readouterr().out
    assert [message["content"] for message in conversation(provider.requests[1])] == [
        "Which one is it?",
        "First answer.",
        "Are you sure?",
    ]
    assert run("--session", "s 1", "--user", "bob", "--quiet") == 0
    assert len(conversation(provider.requests[2])) == 1


def test_a_run_without_a_session_starts_one_and_names_it(serve: Serve, folder: Path, capsys: Captured) -> None:
    """Every run without `--session` is a new session; the last line is the command that goes on with it."""
    provider = serve([text("One."), text("Two."), text("Three.")])
    assert run() == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert run("--quiet") == 0
    assert len(conversation(provider.requests[1])) == 1
    command = last.removeprefix("go on: agentscope-rx ").split()
    assert main([word.strip('"') for word in command]) == 0
    assert len(conversation(provider.requests[2])) == 3


def test_sessions_lie_in_the_workspace(serve: Serve, folder: Path) -> None:
    """State is kept below `.agentscope-runtime` of the workspace, where the tools cannot see it."""
    provider = serve([tool_calls(("c1", "list_files", "{}")), text("Two files."), text("Still two.")])
    assert run("--session", "kept") == 0
    assert list((folder / ".agentscope-runtime").rglob("state.json"))
    listed = conversation(provider.requests[1])[-1]["content"]
    assert "notes.txt" in listed
    assert "runtime" not in listed


def test_the_tools_only_look(serve: Serve, folder: Path) -> None:
    """The model is offered the four tools that change nothing."""
    provider = serve([text("Fine.")])
    assert run() == 0
    offered = [tool["function"]["name"] for tool in provider.requests[0].body["tools"]]
    assert offered == ["read_file", "list_files", "glob_files", "grep_files"]


def test_the_environment_can_choose_the_model(
    serve: Serve, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AGENTSCOPE_RX_MODEL` is the model where none is given."""
    provider = serve([text("Fine.")])
    monkeypatch.setenv("AGENTSCOPE_RX_MODEL", "openai:from-the-environment")
    assert main(["run", "Hello?", "--quiet"]) == 0
    assert provider.requests[0].body["model"] == "from-the-environment"
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_another_folder_can_be_looked_at(
    serve: Serve, folder: Path, capsys: Captured, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`--workspace` is the folder of the tools and of the sessions."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.txt").write_text("far away")
    serve([tool_calls(("c1", "read_file", '{"path": "far.txt"}')), text("Far.")])
    assert run("--workspace", str(elsewhere)) == 0
    shown = capsys.readouterr().out
    assert "│ far away" in shown
    assert f"--workspace {elsewhere}" in shown
    assert (elsewhere / ".agentscope-runtime").is_dir()
    assert not (folder / ".agentscope-runtime").exists()
