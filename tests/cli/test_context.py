"""`agentscope-rx context`: the next request, shown and not sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.cli import main
from agentscope_rx.cli.run import RunOptions, stored_builder
from agentscope_rx.compactions import Compaction, CompactionDecision, CompactionOutcome
from agentscope_rx.edits import Edit
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.history import Exchange
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.records import HistoryEdited
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing.fake_provider import text
from tests.cli.command import MODEL, SESSION, keep
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


# -- what is shortened --------------------------------------------------------------------------------------

EVIL = "\x1b[2J\x9b2J\u202e[bold]x[/bold]"


def result_of(tool: str, words: str, *, id: str = "c") -> Sequence[Msg]:
    """A call and its result."""
    result = ToolResultBlock(id=id, name=tool, output=(TextBlock(text=words),))
    return Msg.assistant(ToolUseBlock(id=id, name=tool, input={})), Msg.tool(result)


def work(builder: HarnessBuilder, *turns: str) -> tuple[Compaction, ...]:
    """Call an agent of that session; gives its compactions."""

    async def calls() -> tuple[Compaction, ...]:
        async with builder.build() as agent:
            for turn in turns:
                await agent.call(turn, SESSION)
            return await agent.compactions(SESSION)

    return asyncio.run(calls())


def compacted() -> Compaction:
    """A session that has been through a compaction."""
    model = ScriptedModel(["An answer. " * 200, "Another. " * 200, "## SUMMARY\nTwo answers.", "Short."])
    builder = stored_builder(model, RunOptions()).compaction(trigger_messages=5, keep_tokens=0, keep_messages=1)
    (compaction,) = work(builder, "One?", "Two?", "Three?")
    return compaction


def keep_compaction(trigger: str) -> None:
    """A session whose log holds a compaction that something odd has asked for."""

    async def recorded() -> None:
        async with stored_builder(ScriptedModel([]), RunOptions()).build() as agent:
            await agent.observe([Msg.user("One?"), Msg.assistant("An answer.")], SESSION)
            (first, _) = (await agent.state(SESSION)).context
            notes = Exchange(replace(Msg.user("Notes."), id="notes"))
            decision = CompactionDecision(outcome=CompactionOutcome.DONE, trigger=trigger, id="compaction")
            await agent.record(HistoryEdited((Edit((first,), (notes,)),), decision), SESSION)

    asyncio.run(recorded())


def rows(shown: str, title: str) -> list[str]:
    """The rows of the table below a title, up to the next empty line."""
    lines = shown.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(title)) + 1
    end = next((at for at, line in enumerate(lines) if at > start and not line.strip()), len(lines))
    return lines[start:end]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which no cell is folded."""
    monkeypatch.setenv("COLUMNS", "240")


def test_a_compaction_that_nothing_asks_for(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """Without anything to shorten the decision is the only table about it, and says so."""
    serve([])
    assert context() == 0
    shown = capsys.readouterr().out
    assert rows(shown, "compaction")[0].split() == ["outcome", "not", "needed"]
    assert "pays after" not in shown
    assert "would be changed" not in shown
    assert "so far" not in shown


def test_a_compaction_that_would_be_made(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """A conversation that is over its default: `planned`, with what asks for it and the figures before and after."""
    provider = serve([])
    keep(*(Msg.user("word " * 1_000) for _ in range(60)))
    assert context("--session", "s", "--json") == 0
    decision = json.loads(capsys.readouterr().out)["compaction"]
    assert (decision["outcome"], decision["trigger"]) == ("planned", "messages")
    assert context("--session", "s") == 0
    shown = capsys.readouterr().out
    width = len("asked for by")
    figures = {line[:width].strip(): line[width:].strip() for line in rows(shown, "compaction")}
    assert figures["outcome"] == "planned"
    assert figures["asked for by"] == "messages"
    assert figures["messages"] == f"{decision['messagesBefore']:,} -> {decision['messagesAfter']:,}"
    assert figures["tokens"] == f"{decision['tokensBefore']:,} -> {decision['tokensAfter']:,} of {decision['budget']:,}"
    assert figures["replaced"].startswith(f"{decision['replacedTokens']:,} tokens")
    assert figures["pays after"].startswith(f"{decision['breakEvenSteps']:g} steps")
    (dropped,) = rows(shown, "what would be changed")
    assert dropped.startswith("5")
    assert dropped.split()[-5:-3] == ["compact_history", "history_compaction"]
    assert provider.requests == []
    assert context("--session", "s", "--json") == 0  # it was a look: nothing has changed
    assert json.loads(capsys.readouterr().out)["compaction"] == decision


def test_results_that_would_move_or_lose_their_middle(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """Item, operator, reason and tokens before and after of each, the most saved first."""
    serve([])
    keep(
        *(message for n in range(5) for message in result_of("search", f"line {n} " * 5_000, id=f"s{n}")),
        *result_of("dump", "huge " * 30_000, id="d"),
    )
    assert context("--session", "s", "--json") == 0
    changes: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["changes"]
    assert context("--session", "s") == 0
    shown = rows(capsys.readouterr().out, "what would be changed")
    by_saved = sorted(changes, key=lambda change: change["tokensAfter"] - change["tokensBefore"])
    assert [line.split() for line in shown] == [
        [
            change["sourceId"],
            change["operator"],
            change["reason"],
            f"{change['tokensBefore']:,}",
            "->",
            f"{change['tokensAfter']:,}",
        ]
        for change in by_saved
    ]
    assert {change["operator"] for change in changes} == {"offload_tool_results", "prune_tool_results"}
    assert all(change["tokensBefore"] > change["tokensAfter"] > 0 for change in changes)
    assert not (folder / "large_tool_results").exists()


def test_many_changes_are_summed_up(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """After forty the rest is one line, with its tokens."""
    serve([])
    keep(*(message for n in range(45) for message in result_of("dump", "x" * 80_001, id=f"c{n}")))
    assert context("--session", "s", "--json") == 0
    changes: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["changes"]
    assert context("--session", "s") == 0
    *_, last = shown = rows(capsys.readouterr().out, "what would be changed")
    changes.sort(key=lambda change: change["tokensAfter"] - change["tokensBefore"])
    before, after = (sum(change[name] for change in changes[40:]) for name in ("tokensBefore", "tokensAfter"))
    assert len(shown) == 41
    assert last.split() == ["…", str(len(changes) - 40), "more", f"{before:,}", "->", f"{after:,}"]


def test_the_compactions_of_a_session(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """Each with its id, moment, cause, the messages that gave way, and tokens; in JSON below `compactions`."""
    serve([])
    made = compacted()
    assert context("--session", "s") == 0
    (row,) = rows(capsys.readouterr().out, "compactions so far")
    count = len(list(made.replaced.messages))
    tokens = [f"{made.tokens_before:,}", "->", f"{made.tokens_after:,}"]
    assert row.split() == [made.id, *made.created_at.split(), "messages", str(count), *tokens]
    assert count >= 4
    assert context("--session", "s", "--json") == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["compactions"] == [
        {
            "id": made.id,
            "createdAt": made.created_at,
            "trigger": "messages",
            "model": "scripted",
            "messagesReplaced": count,
            "tokensBefore": made.tokens_before,
            "tokensAfter": made.tokens_after,
        }
    ]
    assert "An answer" not in printed
    assert context("--json") == 0
    assert json.loads(capsys.readouterr().out)["compactions"] == []


def test_what_is_shortened_is_harmless(serve: Serve, folder: Path, wide: None, capsys: Captured) -> None:
    """What a stored session says reaches the terminal neither in tables nor in JSON with what it acts on."""
    serve([])
    keep_compaction(EVIL)
    for arguments in ((), ("--json",)):
        assert context("--session", "s", *arguments) == 0
        shown = capsys.readouterr().out
        assert "[bold]x[/bold]" in shown
        assert not any(letter in shown for letter in "\x1b\x9b\u202e")


def test_quiet_shows_totals_alone(serve: Serve, folder: Path, capsys: Captured) -> None:
    """With `--quiet` there is no table about single items or compactions."""
    serve([])
    compacted()
    assert context("--session", "s", "--quiet") == 0
    shown = capsys.readouterr().out
    assert "conversation" in shown
    assert "compaction" not in shown
