"""What hostile input does to the tools: a clear result each time, nothing outside touched, no hang."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agentscope_rx.messages import ToolResultState
from agentscope_rx.tools import Toolkit
from agentscope_rx.tools.file_tools import file_tools
from agentscope_rx.tools.shell_tool import shell_tool
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, OverlayWorkspace, ScopedWorkspace, WorkspaceFS
from tests.tools.attacks import Asked, answers, ask, outside, use

# -- paths --------------------------------------------------------------------------------------------------

REFUSED = [
    *("../out/secret.txt", "sub/../../out/secret.txt", "./././../out", "..", "../ws2/x", "../ws/../out/secret.txt"),
    *(
        "/etc/passwd",
        "//etc/passwd",
        "/",
        "/proc/self/environ",
        "/dev/zero",
        "/dev/stdin",
        "~",
        "~/.ssh/id_rsa",
        "~root/x",
    ),
    *("link", "link/secret.txt", "file", "absolute", "absolute/secret.txt", "up/out/secret.txt", "chain", "sub/chain"),
    *("loop", "loop/x", "ping", "dangling-out", "zero", "stdin", "environ", "cwd", "cwd/x", "root", "root/etc/passwd"),
    *("beside", "beside/x", "hidden", "hidden/log", ".agentscope-runtime/log", ".AGENTSCOPE-RUNTIME/log"),
    *(".agentscope-\u200druntime/log", ".agent\u017fcope-runtime/log", ".agentscope-tmp-0"),
    *("pipe", "socket", "pipe/x", "in.txt/x"),
    *("..\\out\\secret.txt", "C:/x", "c:x", "a\0b", "a\nb", "a\x1b[2Jb", "a\u2028b", "\ud83d", " ", "\x85"),
    *("n" * 256, "é" * 200, "d/" * 3000 + "x"),
]
CALLS: list[tuple[str, str, dict[str, str]]] = [
    ("read_file", "path", {}),
    ("list_files", "path", {}),
    ("grep_files", "path", {"pattern": "top"}),
    ("glob_files", "path", {"pattern": "**"}),
    ("write_file", "path", {"content": "stolen"}),
    ("edit_file", "path", {"old_string": "top", "new_string": "stolen"}),
    ("execute", "working_directory", {"command": "cat secret.txt log x 2>/dev/null; echo stolen > stolen"}),
]


def workspaces(tree: Path) -> dict[str, WorkspaceFS]:
    local = LocalWorkspace(tree / "ws")
    return {
        "local": local,
        "scoped": ScopedWorkspace(LocalWorkspace(tree), "ws"),
        "upper": OverlayWorkspace(local, InMemoryWorkspace()),
        "lower": OverlayWorkspace(InMemoryWorkspace(), local),
    }


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: ascii(path)[:40])
async def test_no_path_leads_out(tree: Path, path: str) -> None:
    """Whatever the path and the workspace, each tool gives an error that tells no secret, and changes nothing."""
    before = outside(tree)
    for kind, workspace in workspaces(tree).items():
        toolkit = Toolkit.of(*file_tools(workspace), shell_tool(tree / "ws"))
        for name, parameter, others in CALLS:
            result = await use(toolkit, name, **{**others, parameter: path})
            assert result.state is ToolResultState.ERROR, (kind, name, result.text)
            # The cause, one line, no escape and no path of this machine.
            assert ": " in result.text
            assert "\x1b" not in result.text
            assert "top" not in result.text.replace(path, "")
            assert str(tree) not in result.text
    assert outside(tree) == before
    assert not (tree / "ws/stolen").exists()


async def test_no_path_leads_an_agent_out(tree: Path) -> None:
    """The same through a HarnessAgent with the tools that it has by itself, for a user with files of their own, too."""
    before = outside(tree)
    # What a model says has no lone surrogate: it becomes U+FFFD, a plain name.
    asked: list[Asked] = [
        (name, {**others, parameter: path}) for name, parameter, others in CALLS for path in REFUSED if path != "\ud83d"
    ]
    for user in (None, "alice"):
        for result in await answers(tree, asked, user=user):
            assert result.state is ToolResultState.ERROR, (result.name, result.text)
            assert "\x1b" not in result.text
            assert str(tree) not in result.text
    assert outside(tree) == before
    assert not (tree / "ws/stolen").exists()


@pytest.mark.parametrize(
    "path", ["%2e%2e/out/new", "．．/out/new", "file:/etc/new", "...", "$HOME/new", "-rf", "*", "con"]
)
async def test_names_without_a_meaning_are_only_names(tree: Path, path: str) -> None:
    """What another system would decode or expand is the name of a file in the workspace, or of none."""
    before = outside(tree)
    assert (await ask(tree, "read_file", path=path)).state is ToolResultState.ERROR
    assert (await ask(tree, "write_file", path=path, content="mine")).state is ToolResultState.SUCCESS
    assert (await ask(tree, "read_file", path=path)).text == "mine"
    assert (tree / "ws" / path).read_text() == "mine"
    assert outside(tree) == before


async def test_a_listing_shows_no_trap(tree: Path) -> None:
    """Names that would break a line or clear a screen, and what leads out, are in no listing and no search."""
    (tree / "ws/a\n[FILE] fake (1 bytes)").write_text("top")
    (tree / "ws/\x1b[2Jx").write_text("top")
    assert (await ask(tree, "list_files")).text == "[FILE] in.txt (2 bytes)\n[DIR] sub"
    assert (await ask(tree, "glob_files", pattern="**")).text == "in.txt (2 bytes)\nsub/"
    assert (await ask(tree, "grep_files", pattern="top")).text == "No matches found."


# -- contents and patterns ----------------------------------------------------------------------------------


async def test_a_file_of_a_gigabyte(tree: Path) -> None:
    """Each tool says that it is too large or binary, or shows the part that was asked for."""
    with (tree / "ws/huge").open("wb") as file:
        file.truncate(1 << 30)
    assert "is binary" in (await ask(tree, "read_file", path="huge")).text
    for name, others in (("grep_files", {"pattern": "x"}), ("edit_file", {"old_string": "x", "new_string": "y"})):
        result = await ask(tree, name, path="huge", **others)
        assert result.state is ToolResultState.ERROR
        assert "too large" in result.text
    assert "1 larger than" in (await ask(tree, "grep_files", pattern="x")).text


CONTENTS = [
    (b"\x1b[31mred\x1b[0m\x1b]0;title\x07", "red"),
    (b"\x1b[2J\x1b[Hcleared", "cleared"),
    ("\u202eevil".encode(), "\u202eevil"),
    (b"x" * 5_000_000, "x" * 262_144 + "\n[Line 1 was cut"),
    (b"\n" * 5_000_000, "\n" * 1999 + "\n[Lines 1 to 2000"),
    (b"\xff\xfe\x00", "('trap' is binary"),
    (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd\n[The file is not valid UTF-8"),
]
PATTERNS = [
    "**/" * 300 + "x",
    "**/**/**/**/**/**/**/**/*a*a*a*b",
    "*a" * 450 + "b",
    "{a,b}" * 6,
    "{a,b}" * 40,
    "{" * 500 + "}" * 500,
    "{a,{b,{c,{d,e}}}}" * 9,
    "[" * 900,
    "[!]",
    "[a-z]" * 190 + "!",
    "?" * 900,
    "*" * 1000,
    "(a+)+$",
    "a" * 1001,
    "../**",
    "/**",
]


@pytest.mark.parametrize(("content", "text"), CONTENTS)
async def test_contents_that_are_traps(tree: Path, content: bytes, text: str) -> None:
    """No escape reaches a terminal, no endless line a request."""
    (tree / "ws/trap").write_bytes(content)
    result = await ask(tree, "read_file", path="trap")
    assert result.text.startswith(text)
    assert len(result.text) < 300_000


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern[:12])
async def test_patterns_that_are_traps(tree: Path, pattern: str) -> None:
    """No pattern takes long; one that finds nothing says so, one that is none is an error."""
    for name in ("a" * 200, "a" * 200 + "c", "aaaaaa"):
        (tree / "ws" / name).write_text("a" * 10_000)
    async with asyncio.timeout(10):
        found = await ask(tree, "glob_files", pattern=pattern)
        assert "top" not in found.text
        await ask(tree, "grep_files", pattern="a", glob=pattern)
        assert "No matches" in (await ask(tree, "grep_files", pattern=f"{pattern}!")).text


async def test_trees_that_are_traps(tree: Path) -> None:
    """Very deep and very wide trees are left with a note."""
    directory = os.open(tree / "ws", os.O_RDONLY)
    for _ in range(400):
        os.mkdir("deep", dir_fd=directory)
        below = os.open("deep", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    for number in range(2000):
        (tree / f"ws/{number:04}").touch()
    assert "Only the first 1000 are shown" in (await ask(tree, "glob_files", pattern="**")).text
    assert "Only the first 500 of" in (await ask(tree, "list_files")).text
    for name, arguments in (("glob_files", {"pattern": "**/x"}), ("grep_files", {"pattern": "needle"})):
        result = await ask(tree, name, **arguments)
        assert "1 too deep" in result.text
        assert len(result.text) < 1000
