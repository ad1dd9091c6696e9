"""The tools with which a model uses its memory: plain text, error states, limits with a note."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.memory.tools import memory_tools
from agentscope_rx.messages import ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule
from agentscope_rx.permissions import judge
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import ToolContext, Toolkit
from agentscope_rx.tools.execution import run_call
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, WorkspaceFS
from tests.memory.support import ALICE, TODAY, Ledger, Writer, finished, prompts, remembering
from tests.virtual import virtual

NEW_YEAR = datetime(2026, 1, 1, 8, 30, tzinfo=UTC)
FILES = {
    "MEMORY.md": "# Memory\n- likes green tea\n- lives in Bonn\n",
    "memory/2026-01-01.md": "- met Bo, who likes Green Tea\n",
    "memory/2025-12-31.md": "- tea is out, and green\n",
    "memory/archive/2025-01-01.md": "- grows green tea\n",
    "memory/notes.txt": "green tea\n",
    "knowledge/tea.md": "green tea\n",
}


async def called(tool: str, files: Mapping[str, str] | WorkspaceFS = FILES, **arguments: Any) -> ToolResultBlock:
    """The result of a call."""
    workspace = Ledger(dict(files)) if isinstance(files, Mapping) else files
    toolkit = Toolkit.of(*memory_tools(lambda _: workspace, lambda: NEW_YEAR))
    call = ToolUseBlock(id="c1", name=tool, input=arguments)
    return (await run_call(toolkit, call, ToolContext(call=call))).result


def test_names_and_parameters() -> None:
    """As the model knows them from other versions."""
    made = memory_tools(lambda _: Ledger(), lambda: NEW_YEAR)
    assert {each.spec.name: list(each.spec.parameters["properties"]) for each in made} == {  # type: ignore[call-overload]
        "memory_search": ["query", "matchMode"],
        "memory_get": ["path", "startLine", "endLine"],
        "memory_save": ["content"],
    }
    assert [(each.read_only, each.concurrency_safe) for each in made] == [(True, True), (True, True), (False, False)]


# -- search -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "mode", "lines"),
    [
        ("GREEN tea", None, ["MEMORY.md#2", "memory/2026-01-01.md#1", "memory/archive/2025-01-01.md#1"]),
        (
            "tea green",
            "all",
            ["MEMORY.md#2", "memory/2025-12-31.md#1", "memory/2026-01-01.md#1", "memory/archive/2025-01-01.md#1"],
        ),
        ("Bonn\u00a0grows", "any", ["MEMORY.md#3", "memory/archive/2025-01-01.md#1"]),
        ("  Memory ", "phrase", ["MEMORY.md#1"]),
    ],
)
async def test_what_is_found(query: str, mode: str | None, lines: list[str]) -> None:
    """By phrase, all or any of the words of a line; first the memory, then the days by path, the archive too."""
    how: dict[str, Any] = {} if mode is None else {"matchMode": mode}
    result = await called("memory_search", query=query, **how)
    head, blank, *found = result.text.split("\n")
    assert (head, blank) == (f"Found {len(lines)} matches:", "")
    assert [line.partition(": ")[2].partition(": ")[0] for line in found] == lines
    assert result.state is ToolResultState.SUCCESS


async def test_a_line_of_the_result() -> None:
    """Where it stands, and what it says."""
    result = await called("memory_search", query="bonn")
    assert result.text == "Found 1 matches:\n\nSource: MEMORY.md#3: - lives in Bonn"


@pytest.mark.parametrize("query", ["[a-z]+", "coffee"])
async def test_nothing_is_found(query: str) -> None:
    """Which is no error; a query is no pattern."""
    result = await called("memory_search", query=query)
    assert (result.text, result.state) == (f"No matching memories for: {query}", ToolResultState.SUCCESS)


async def test_an_empty_memory() -> None:
    """There is no file, and nothing goes wrong."""
    assert (await called("memory_search", {}, query="tea")).state is ToolResultState.SUCCESS


@pytest.mark.parametrize("arguments", [{"query": " "}, {"query": "x", "matchMode": "regex"}])
async def test_what_cannot_be_searched_for(arguments: dict[str, Any]) -> None:
    """An error result that says why."""
    assert (await called("memory_search", **arguments)).state is ToolResultState.ERROR


async def test_what_could_not_be_searched_is_told(tmp_path: Path) -> None:
    """A model that finds nothing must know whether there is nothing: a memory that is no file, ledgers that lead out
    of the workspace, or are none."""
    files = InMemoryWorkspace({"MEMORY.md/x": "tea", "memory/2026-01-01.md": "- tea\n"})
    result = await called("memory_search", files, query="tea")
    assert result.text.splitlines()[-2:] == [
        "Source: memory/2026-01-01.md#1: - tea",
        "[Not searched: MEMORY.md (IsADirectoryError).]",
    ]
    result = await called("memory_search", InMemoryWorkspace({"memory": "tea"}), query="tea")
    assert result.text.splitlines()[-1] == "[Not searched: memory (NotADirectoryError).]"
    (tmp_path / "out").mkdir()
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "memory").symlink_to("../out")
    result = await called("memory_search", LocalWorkspace(tmp_path / "ws"), query="tea")
    assert result.text == "No matching memories for: tea\n[Not searched: memory (PathRefused).]"
    assert result.state is ToolResultState.SUCCESS


class Locked(InMemoryWorkspace):
    """A workspace in which there is a folder that nobody may read."""

    async def list(self, path: Any = ".") -> Any:
        """List, where one may."""
        if str(path) == "memory/archive":
            raise PermissionError("no")
        return await super().list(path)


async def test_folders_that_cannot_be_searched_are_told() -> None:
    """By their number."""
    result = await called("memory_search", Locked(FILES), query="tea")
    assert result.text.endswith("\n[Not searched: folders below memory: 1.]")


async def test_many_hits_and_long_lines() -> None:
    """At most 30, at most 500 characters each, with a note."""
    text = "tea " * 200 + "\n" + "tea\n" * 40
    result = await called("memory_search", {"MEMORY.md": text}, query="tea")
    lines = result.text.split("\n")
    assert lines[0] == "Found 30 matches:"
    assert lines[-1] == "[Only the first 30 matches are shown. Search for something more precise.]"
    assert lines[2].endswith("… (299 characters more)")
    assert sum(line.startswith("Source: ") for line in lines) == 30


# -- get ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (2, 2, "2|- likes green tea"),
        (2, 99, "2|- likes green tea\n3|- lives in Bonn"),
        (-5, 1, "1|# Memory"),
        (3, 2, ""),
    ],
)
async def test_lines_of_a_file(first: int, last: int, text: str) -> None:
    """Counted from 1, both ends included, clamped to the file."""
    result = await called("memory_get", path="MEMORY.md", startLine=first, endLine=last)
    assert result.text in (text, text or "(no output)")
    assert result.state is ToolResultState.SUCCESS


@pytest.mark.parametrize(
    ("path", "first"),
    [
        (" ", 1),
        ("../x", 1),
        ("/etc/passwd", 1),
        (".agentscope-runtime/x", 1),
        ("none.md", 1),
        ("e.md", 1),
        ("memory", 1),
        ("MEMORY.md", 4),
    ],
)
async def test_what_cannot_be_read(path: str, first: int) -> None:
    """Error results: a blank path, one that leads out, none that is there, one without text, a line past the end."""
    result = await called("memory_get", {**FILES, "e.md": " \n"}, path=path, startLine=first, endLine=9)
    assert result.state is ToolResultState.ERROR
    assert result.text


async def test_any_file_of_the_workspace_and_its_limit() -> None:
    """Not only the memory; 2,000 lines at once, and how to go on."""
    result = await called("memory_get", {"a.txt": "x\n" * 3000}, path="a.txt", startLine=1, endLine=3000)
    assert result.text.split("\n")[-2:] == [
        "2000|x",
        "[Only 2000 lines are shown at once. Continue with startLine=2001.]",
    ]


# -- save ---------------------------------------------------------------------------------------------------


async def test_saving() -> None:
    """Into the memory, and into the ledger under a heading."""
    files = Ledger({"MEMORY.md": "- likes tea"})
    result = await called("memory_save", files, content="  - has a cat\n- code is 7 \n")
    assert result.text == f"Saved 2 to MEMORY.md and {TODAY}."
    assert await files.text("MEMORY.md") == "- likes tea\n- has a cat\n- code is 7\n"
    assert await files.text(TODAY) == "\n## Memory Save — 2026-01-01T08:30:00Z\n- has a cat\n- code is 7\n"


async def test_saving_again_changes_nothing() -> None:
    """A model that is not sure whether it has saved something may do it once more."""
    files = Ledger()
    await called("memory_save", files, content="has a cat")
    result = await called("memory_save", files, content="has a cat")
    assert result.text == "That is in MEMORY.md already."
    assert await files.text("MEMORY.md") == "\nhas a cat\n"
    assert (await files.text(TODAY)).count("has a cat") == 1


async def test_what_is_written_down_already_becomes_part_of_the_memory() -> None:
    """A fact that a flush has found is in the ledger, and not yet in what every request shows."""
    files = Ledger({TODAY: "- has a cat\n"})
    assert (await called("memory_save", files, content="- has a cat")).text.startswith("Saved 1 to MEMORY.md")
    assert (await files.text(TODAY)).count("has a cat") == 1


@pytest.mark.parametrize("content", ["", " \n", "\x1b[0m"])
async def test_nothing_cannot_be_saved(content: str) -> None:
    """An error result."""
    assert (await called("memory_save", content=content)).state is ToolResultState.ERROR


async def test_what_is_saved_can_be_stored_anywhere() -> None:
    """Escapes for terminals, NUL and half characters are replaced."""
    files = Ledger()
    await called("memory_save", files, content="- \x1b[31mred\x1b[0m \x00 \ud800")
    assert await files.text("MEMORY.md") == "\n- red \ufffd \ufffd\n"


def ruled(content: str) -> PermissionContextState:
    """Permissions that deny saving to a path."""
    return PermissionContextState().with_rules((PermissionRule.deny("memory_save", content),))


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        (PermissionContextState(), True),
        (PermissionContextState(mode=PermissionMode.EXPLORE), False),
        (ruled("MEMORY.md"), False),
        (ruled("src/**"), True),
    ],
)
async def test_permission_rules_speak_of_the_file(permissions: PermissionContextState, allowed: bool) -> None:
    """Saving changes `MEMORY.md`, and rules and modes hold for that."""
    files = Ledger()
    (save,) = [each for each in memory_tools(lambda _: files, lambda: NEW_YEAR) if each.spec.name == "memory_save"]
    context = ToolContext(call=ToolUseBlock(id="c1", name="memory_save"))
    decision = await judge(save.judged_in(context), {"content": "x"}, permissions)
    assert (decision.behavior != "deny") is allowed


@virtual
async def test_in_an_agent() -> None:
    """What the model saves is in the next call's request, and what it searches is what other calls have left."""
    files = Ledger()
    saves = calls(("c1", "memory_save", '{"content": "- has a cat"}'))
    looks = calls(("c2", "memory_search", '{"query": "cat"}'))
    own = ScriptedModel([saves, "saved", looks, "You have a cat."])
    writer = Writer()
    agent = remembering(writer, files=files).model(own).build()
    await agent.call("I have a cat.", ALICE)
    assert (await agent.call("What pet do I have?", RuntimeContext(user_id="alice", session_id="s9"))).text.endswith(
        "cat."
    )
    await finished(agent)
    shown = "".join(message.text for message in own.requests[2].tail)
    assert "- has a cat" in shown
    assert any("Source: MEMORY.md#2: - has a cat" in str(message) for message in own.requests[3].conversation.messages)
    assert "[tool_call: memory_save(" in prompts(writer)[0]
