"""How commands end: the code, and one line on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.cli import main
from agentscope_rx.cli.exit_codes import ExitCode, code_of
from agentscope_rx.messages import GenerateReason
from agentscope_rx.testing.fake_provider import failure, text, tool_calls
from tests.cli.command import KEY, MODEL
from tests.cli.conftest import Serve

Captured = pytest.CaptureFixture[str]

USAGE = [
    pytest.param(["run"], "TASK", id="no task"),
    pytest.param(["run", " ", "--model", MODEL], "task is empty", id="blank task"),
    pytest.param(["run", "x", "--model", MODEL, "--no-such"], "--no-such", id="unknown option"),
    pytest.param(["run", "x", "y", "--model", MODEL], "y", id="two tasks"),
    pytest.param(["walk"], "walk", id="unknown command"),
    pytest.param(["run", "x", "--model", MODEL, "--json", "--quiet"], "exclude", id="json and quiet"),
    pytest.param(["run", "x"], "AGENTSCOPE_RX_MODEL", id="no model"),
    pytest.param(["run", "x", "--model", "nobody:m"], "nobody:m", id="unknown provider"),
    pytest.param(["run", "x", "--model", "deepseek:m"], "DEEPSEEK_API_KEY", id="no key"),
    pytest.param(["run", "x", "--model", MODEL, "--workspace", "not/there"], "not/there", id="no folder"),
    pytest.param(["run", "x", "--model", MODEL, "--max-iters", "0"], "max_iters", id="limit of 0"),
    pytest.param(["run", "x", "--model", MODEL, "--max-iters", "many"], "many", id="no number"),
    pytest.param(["run", "x", "--model", MODEL, "--session", ""], "session_id", id="empty session"),
    pytest.param(["run", "x", "--model", MODEL, "--user", "a\x07b"], "user_id", id="bell in the user"),
    pytest.param(["demo", "--model", "nobody:m"], "nobody:m", id="demo of an unknown provider"),
]


@pytest.mark.parametrize(("arguments", "named"), USAGE)
def test_wrong_usage_is_one_line_and_2(
    arguments: list[str], named: str, serve: Serve, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be wrong before anything runs gives 2 and one line that names it; the model is not asked."""
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    provider = serve([])
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert named in err
    assert "\x07" not in err
    assert provider.requests == []


def test_a_failed_run_is_1_and_shows_no_secret(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A provider's refusal is one line; a key in it is not shown."""
    serve([failure(401, {"error": {"message": f"Incorrect API key provided:\n{KEY}", "type": "auth"}})])
    assert main(["run", "x", "--model", MODEL]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Incorrect API key" in captured.err
    assert KEY not in captured.out + captured.err


def test_debug_shows_the_traceback_without_secrets(serve: Serve, folder: Path, capsys: Captured) -> None:
    """`--debug` adds the traceback, and the line stays the last one."""
    serve([failure(401, {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "auth"}})])
    assert main(["run", "x", "--model", MODEL, "--debug"]) == 1
    captured = capsys.readouterr()
    assert "Traceback (most recent call last)" in captured.err
    assert captured.err.splitlines()[-1].startswith("error: ")
    assert KEY not in captured.out + captured.err


def test_json_of_a_failed_run_ends_with_its_events(serve: Serve, folder: Path, capsys: Captured) -> None:
    """The events of a failed run are printed too, and the error is on stderr only."""
    serve([failure(400, {"error": {"message": "no such model", "type": "bad"}})])
    assert main(["run", "x", "--model", MODEL, "--json"]) == 1
    out, err = capsys.readouterr()
    assert '"type":"AGENT_END"' in out.splitlines()[-1]
    assert "no such model" in err


def test_the_limit_of_steps_is_4(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A run that comes to its limit gives its conclusion, and 4."""
    serve([tool_calls(("c1", "list_files", "{}")), text("Not finished.")])
    assert main(["run", "x", "--model", MODEL, "--max-iters", "1", "--quiet"]) == 4
    out, err = capsys.readouterr()
    assert out == "Not finished.\n"
    assert "limit of 1 step" in err


def test_an_empty_answer_is_1(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A model that says nothing, twice, has not done the task."""
    serve([text(""), text("")])
    assert main(["run", "x", "--model", MODEL, "--quiet"]) == 1
    assert "empty answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (GenerateReason.MODEL_STOP, ExitCode.DONE),
        (GenerateReason.ACTING_STOP_REQUESTED, ExitCode.DONE),
        (GenerateReason.TOOL_SUSPENDED, ExitCode.WAITING),
        (GenerateReason.PERMISSION_ASKING, ExitCode.WAITING),
        (GenerateReason.MAX_ITERATIONS, ExitCode.LIMIT),
        (GenerateReason.INTERRUPTED, ExitCode.INTERRUPTED),
        (GenerateReason.EMPTY_REPLY, ExitCode.FAILED),
    ],
)
def test_a_result_says_why_it_ended(reason: GenerateReason, code: ExitCode) -> None:
    """The reason of a result decides the code; waiting for a person is 3."""
    assert code_of(reason) is code


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    serve: Serve, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are kept in the folder, so nothing is asked, and paid, before it is known that they can be."""

    def no(path: Path, mode: int) -> bool:
        return False

    provider = serve([])
    monkeypatch.setattr("os.access", no)  # the tests may run as root, who may do anything
    assert main(["run", "x", "--model", MODEL]) == 2
    assert "write" in capsys.readouterr().err
    assert provider.requests == []


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["demo", "--help"], ["--version"]])
def test_help_is_0(arguments: list[str], capsys: Captured) -> None:
    """Asking for help, or saying nothing, is no error."""
    assert main(arguments) == 0
    assert capsys.readouterr().out
