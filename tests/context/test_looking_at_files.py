"""What the model sees of the workspace with the tools that a HarnessAgent has by itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agentscope_rx import tool
from agentscope_rx.errors import InvalidOption
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply
from agentscope_rx.workspace import InMemoryWorkspace
from tests.context.support import ALICE, BOB, harness, scripted
from tests.support import watch

LINES = "\n".join(f"line {at}: {'needle' if at == 7_777 else 'hay'}" for at in range(10_000))


@tool
async def collect() -> str:
    """Give many lines."""
    return LINES


def results_in(request: RecordedRequest) -> list[str]:
    """The tool results of a request, oldest first."""
    return [message["content"] for message in request.messages if message["role"] == "tool"]


def called(name: str, **arguments: Any) -> ScriptedReply:
    """A call of a tool."""
    return fake.tool_calls((f"c-{name}", name, json.dumps(arguments)))


def path_in(notice: str) -> str:
    """The file that a notice names."""
    found = re.search(r"path=(\S+),", notice)
    assert found is not None, notice
    return found[1]


async def test_an_offloaded_result_is_paged_and_searched() -> None:
    """The notice names a file; `read_file` gives the lines that are asked for, `grep_files` finds the place."""

    def script(request: RecordedRequest, number: int) -> ScriptedReply:
        match number:
            case 1:
                return called("collect")
            case 2:
                return called("grep_files", pattern="needle", path=path_in(results_in(request)[0]))
            case 3:
                return called("read_file", path=path_in(results_in(request)[0]), offset=7_776, limit=3)
            case _:
                return fake.text("found")

    options: dict[str, Any] = {
        "filesystem_tools": True,
        "tools": [collect],
        "tool_result_eviction": {"preview_chars": 20},
    }
    async with harness(script=script, **options) as (agent, provider):
        seen = await watch(agent, "Find the needle.", ALICE)
    assert seen.error is None
    notice, match, page = results_in(provider.requests[-1])
    assert len(notice) < 500
    assert match.endswith(":7778:line 7777: needle")
    assert page.splitlines()[:3] == ["line 7776: hay", "line 7777: needle", "line 7778: hay"]


async def test_nobody_else_sees_it() -> None:
    """Another user's agent finds no name of it, and is refused the path."""
    files, paths = InMemoryWorkspace({"shared.txt": "for all"}), list[str]()

    def script(request: RecordedRequest, number: int) -> ScriptedReply:
        match number:
            case 1:
                return called("collect")
            case 2:
                paths.append(path_in(results_in(request)[0]))
                return fake.text("kept")
            case 3:
                return called("read_file", path=paths[0])
            case 4:
                return called("list_files", path="large_tool_results")
            case 5:
                return called("grep_files", pattern="needle")
            case _:
                return fake.text("nothing")

    async with harness(script=script, workspace=files, filesystem_tools=True, tools=[collect]) as (agent, provider):
        assert (await agent.call("Collect.", ALICE)).text == "kept"
        assert (await agent.call("Look.", BOB)).text == "nothing"
    refused, listing, search = results_in(provider.requests[-1])
    assert "belongs to somebody else" in refused
    assert paths[0].split("/")[2] not in listing
    assert "needle" not in search
    assert (await files.read(paths[0])).size == len(LINES)


def test_a_tool_of_the_users_own_keeps_its_name() -> None:
    """Where a name is taken the library's tool is not offered; where all are switched off none is."""

    @tool
    async def read_file(path: str) -> str:
        """Mine."""
        return path

    names = scripted(tools=[read_file], filesystem_tools=True).build().options.all_tools.names
    assert sorted(names) == ["edit_file", "glob_files", "grep_files", "list_files", "read_file", "write_file"]
    found = scripted(tools=[read_file], filesystem_tools=True).build().options.all_tools.find("read_file")
    assert found is read_file
    assert scripted().disable_filesystem_tools().build().options.all_tools.names == ()


def test_the_switch_is_true_or_false() -> None:
    """Anything else is refused where it is given."""
    with pytest.raises(InvalidOption, match="filesystem_tools='yes'"):
        scripted().filesystem_tools("yes")  # type: ignore[arg-type]
