"""`agentscope-rx context`: the next request, shown and not sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentscope_rx.cli import main
from agentscope_rx.testing.fake_provider import text
from tests.cli.command import MODEL
from tests.cli.conftest import Serve

Captured = pytest.CaptureFixture[str]


def context(*arguments: str) -> int:
    return main(["context", "Which one is it?", "--model", MODEL, *arguments])


def test_it_shows_what_the_request_would_hold(serve: Serve, folder: Path, capsys: Captured) -> None:
    """Tokens by category with a bar, then the items with who added them; nothing is sent and nothing is kept."""
    provider = serve([])
    (folder / "AGENTS.md").write_text("Always answer in rhyme.")
    assert context() == 0
    shown = capsys.readouterr().out
    assert "tokens" in shown.splitlines()[0]
    for words in ("system", "conversation", "█", "read_file", "workspace:AGENTS.md", "load_materials", "the session"):
        assert words in shown
    assert "rhyme" not in shown
    assert provider.requests == []
    assert not list((folder / ".agentscope-runtime").rglob("state.json"))


def test_json_is_the_whole_manifest(serve: Serve, folder: Path, capsys: Captured) -> None:
    """`--json` prints the manifest alone; its items add up to its estimate."""
    serve([])
    assert context("--json") == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["validation"] == "passed"
    assert sum(item["tokens"] for item in manifest["items"]) == manifest["estimatedInputTokens"]


def test_a_session_counts(serve: Serve, folder: Path, capsys: Captured) -> None:
    """With `--session` the conversation so far is part of it, and stays as it was."""
    serve([text("It is beta.")])
    assert main(["run", "Which one is it?", "--model", MODEL, "--session", "s", "--quiet"]) == 0
    capsys.readouterr()
    sizes: list[int] = []
    for _ in range(2):
        assert context("--json", "--session", "s") == 0
        sizes.append(len(json.loads(capsys.readouterr().out)["items"]))
    assert context("--json") == 0
    assert sizes == [len(json.loads(capsys.readouterr().out)["items"]) + 2] * 2


def test_a_request_that_would_be_refused_says_so(serve: Serve, folder: Path, capsys: Captured) -> None:
    """A request that is too large is shown all the same, with the reason on stderr and exit code 1."""
    serve([])
    (folder / "AGENTS.md").write_text("rule " * 80_000)
    assert context() == 1
    shown = capsys.readouterr()
    assert "workspace:AGENTS.md" in shown.out
    assert shown.err.startswith("error: the request has about")
