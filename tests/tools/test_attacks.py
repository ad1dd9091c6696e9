"""What hostile input does to the tools: a clear result each time, nothing outside touched, nothing left, no hang."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentscope_rx import HarnessAgent, InMemoryStore, RuntimeContext
from agentscope_rx.messages import ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import Toolkit
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.execution import run_call
from agentscope_rx.tools.file_tools import file_tools
from agentscope_rx.tools.shell_tool import ShellSettings, shell_tool
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, OverlayWorkspace, ScopedWorkspace, WorkspaceFS

LINKS = {
    "link": "../out",
    "file": "../out/secret.txt",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
    "up": "..",
    "dangling-out": "../out/new.txt",
    "hidden": ".agentscope-runtime",
    "chain": "sub/chain",
    "sub/chain": "../link/secret.txt",
    "zero": "/dev/zero",
    "stdin": "/dev/stdin",
    "environ": "/proc/self/environ",
    "cwd": "/proc/self/cwd",
    "root": "/",
    "beside": "../ws2",
}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A workspace `ws` full of traps beside `out`, which nobody may see; its absolute links lead out as well."""
    for folder in ("ws/sub", "ws/.agentscope-runtime", "out", "ws2"):
        (tmp_path / folder).mkdir(parents=True)
    files = {"ws/in.txt": "in", "ws/.agentscope-runtime/log": "top", "out/secret.txt": "top", "ws2/x": "top"}
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    for link, target in LINKS.items():
        (tmp_path / "ws" / link).symlink_to(target)
    (tmp_path / "ws/absolute").symlink_to(tmp_path / "out")
    os.mkfifo(tmp_path / "ws/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "ws/socket"))
        yield tmp_path


def outside(tree: Path) -> dict[str, str]:
    """All that is there but the workspace, and its private part."""
    found = [*(tree / "out").rglob("*"), *(tree / "ws2").rglob("*"), *(tree / "ws/.agentscope-runtime").rglob("*")]
    return {str(path): path.read_text() for path in found} | {str(path): "" for path in tree.iterdir()}


async def use(toolkit: Toolkit, name: str, **arguments: object) -> ToolResultBlock:
    call = ToolUseBlock(id="c", name=name, input=arguments)
    async with asyncio.timeout(30):
        return (await run_call(toolkit, call, ToolContext(call=call))).result


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
    paths = [
        path for path in REFUSED if path != "\ud83d"
    ]  # what a model says has none: it becomes U+FFFD, a plain name
    for user in (None, "alice"):
        script = [
            calls(*((f"c{number}", name, json.dumps({**others, parameter: path})) for number, path in enumerate(paths)))
            for name, parameter, others in CALLS
        ]
        model = ScriptedModel([*script, "done"])
        builder = HarnessAgent.builder(name="a", model=model, workspace=tree / "ws", compaction=None)
        agent = builder.state_store(InMemoryStore()).build()
        state = RuntimeContext(user_id=user, session_id="s")
        assert (await agent.call("Attack.", state)).text == "done"
        found = [m.tool_result for m in (await agent.state(state)).context.messages if m.tool_result is not None]
        assert len(found) == len(paths) * len(CALLS)
        for result in found:
            assert result.state is ToolResultState.ERROR, (result.name, result.text)
            assert "\x1b" not in result.text
            assert str(tree) not in result.text
    assert outside(tree) == before
    assert not (tree / "ws/stolen").exists()


def test_there_are_many_attacks() -> None:
    """Nobody takes any away unseen."""
    assert len(REFUSED) + len(ENDS) + len(STOPPED) >= 60


@pytest.mark.parametrize(
    "path", ["%2e%2e/out/new", "．．/out/new", "file:/etc/new", "...", "$HOME/new", "-rf", "*", "con"]
)
async def test_names_without_a_meaning_are_only_names(tree: Path, path: str) -> None:
    """What another system would decode or expand is the name of a file in the workspace, or of none."""
    before, toolkit = outside(tree), Toolkit.of(*file_tools(LocalWorkspace(tree / "ws")))
    assert (await use(toolkit, "read_file", path=path)).state is ToolResultState.ERROR
    assert (await use(toolkit, "write_file", path=path, content="mine")).state is ToolResultState.SUCCESS
    assert (await use(toolkit, "read_file", path=path)).text == "mine"
    assert (tree / "ws" / path).read_text() == "mine"
    assert outside(tree) == before


async def test_a_listing_shows_no_trap(tree: Path) -> None:
    """Names that would break a line or clear a screen, and what leads out, are in no listing and no search."""
    (tree / "ws/a\n[FILE] fake (1 bytes)").write_text("top")
    (tree / "ws/\x1b[2Jx").write_text("top")
    toolkit = Toolkit.of(*file_tools(LocalWorkspace(tree / "ws")))
    assert (await use(toolkit, "list_files")).text == "[FILE] in.txt (2 bytes)\n[DIR] sub"
    assert (await use(toolkit, "glob_files", pattern="**")).text == "in.txt (2 bytes)\nsub/"
    assert (await use(toolkit, "grep_files", pattern="top")).text == "No matches found."


# -- contents and patterns ----------------------------------------------------------------------------------


async def test_a_file_of_a_gigabyte(tree: Path) -> None:
    """Each tool says that it is too large or binary, or shows the part that was asked for."""
    with (tree / "ws/huge").open("wb") as file:
        file.truncate(1 << 30)
    toolkit = Toolkit.of(*file_tools(LocalWorkspace(tree / "ws")))
    assert "is binary" in (await use(toolkit, "read_file", path="huge")).text
    for name, others in (("grep_files", {"pattern": "x"}), ("edit_file", {"old_string": "x", "new_string": "y"})):
        result = await use(toolkit, name, path="huge", **others)
        assert result.state is ToolResultState.ERROR
        assert "too large" in result.text
    assert "1 larger than" in (await use(toolkit, "grep_files", pattern="x")).text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x1b[31mred\x1b[0m\x1b]0;title\x07", "red"),
        (b"\x1b[2J\x1b[Hcleared", "cleared"),
        ("\u202eevil".encode(), "\u202eevil"),
        (b"x" * 5_000_000, "x" * 262_144 + "\n[Line 1 was cut"),
        (b"\n" * 5_000_000, "\n" * 1999 + "\n[Lines 1 to 2000"),
        (b"\xff\xfe\x00", "('trap' is binary"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd\n[The file is not valid UTF-8"),
    ],
)
async def test_contents_that_are_traps(tree: Path, content: bytes, text: str) -> None:
    """No escape reaches a terminal, no endless line a request."""
    (tree / "ws/trap").write_bytes(content)
    result = await use(Toolkit.of(*file_tools(LocalWorkspace(tree / "ws"))), "read_file", path="trap")
    assert result.text.startswith(text)
    assert len(result.text) < 300_000


@pytest.mark.parametrize(
    "pattern",
    [
        "**/" * 300 + "x",
        "*a" * 450 + "b",
        "{a,b}" * 6,
        "[" * 900,
        "[!]",
        "?" * 900,
        "*" * 1000,
        "(a+)+$",
        "a" * 1001,
        "../**",
    ],
    ids=lambda pattern: pattern[:12],
)
async def test_patterns_that_are_traps(tree: Path, pattern: str) -> None:
    """No pattern takes long; one that finds nothing says so, one that is none is an error."""
    for name in ("a" * 200, "a" * 200 + "c", "aaaaaa"):
        (tree / "ws" / name).write_text("a" * 10_000)
    toolkit = Toolkit.of(*file_tools(LocalWorkspace(tree / "ws")))
    async with asyncio.timeout(10):
        found = await use(toolkit, "glob_files", pattern=pattern)
        assert "top" not in found.text
        await use(toolkit, "grep_files", pattern="a", glob=pattern)
        assert "No matches" in (await use(toolkit, "grep_files", pattern=f"{pattern}!")).text


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
    toolkit = Toolkit.of(*file_tools(LocalWorkspace(tree / "ws")))
    assert "Only the first 1000 are shown" in (await use(toolkit, "glob_files", pattern="**")).text
    assert "Only the first 500 of" in (await use(toolkit, "list_files")).text
    for name, arguments in (("glob_files", {"pattern": "**/x"}), ("grep_files", {"pattern": "needle"})):
        result = await use(toolkit, name, **arguments)
        assert "1 too deep" in result.text
        assert len(result.text) < 1000


# -- commands -----------------------------------------------------------------------------------------------

PYTHON = f"{sys.executable} -IS -c"
DAEMON = "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork(): time.sleep(300)"
SILENT = f"{DAEMON.replace('time.sleep', 'os.closerange(0, 99); time.sleep')}"

BOMB = "[ $1 -gt 0 ] && { setsid sh b $(($1-1)) & setsid sh b $(($1-1)) & }; sleep 300"

ENDS = {
    "a background job": "sleep 300 &",
    "many of them": "for i in $(seq 40); do sleep 300 & done",
    "nohup": "nohup sleep 300 >/dev/null 2>&1 &",
    "its own session": "setsid sleep 300 &",
    "a session without output": "setsid sleep 300 >/dev/null 2>&1 </dev/null &",
    "a daemon": f"{PYTHON} '{DAEMON}'",
    "a daemon that closed all": f"{PYTHON} '{SILENT}'",
    "a tree of sessions": "setsid sh -c 'setsid sh -c \"setsid sleep 300 & sleep 300\" & sleep 300' &",
    "deaf to signals": "(trap '' TERM INT HUP QUIT; sleep 300; sleep 300) &",
    "stopped": "sh -c 'kill -STOP $$' & setsid sh -c 'kill -STOP $$' &",
    "without environment": "env -i sleep 300 &",
    "a fork bomb of 127": "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 300; }; f 6 &",
    "one in sessions": f"printf '{BOMB}' >b; sh b 4 &",
    "a respawner": "setsid sh -c 'for i in $(seq 100); do setsid sleep 300 & sleep 0.01; done' &",
    "nothing to read": "cat; read line",
    "closed streams": "exec >&- 2>&- <&-; sleep 0",
    "killing itself": "kill -KILL $$",
    "killing its group": "kill -KILL 0",
    "a dump": "ulimit -c 0; kill -ABRT $$",
    "names with line breaks": "touch \"$(printf 'a\\nb')\" && ls",
    "escapes": "printf '\\033[2J\\033]0;title\\007\\233 31m done'",
    "binary": "head -c 100000 /dev/urandom",
    "a line without end": "head -c 3000000 /dev/zero | tr '\\0' x",
    "many lines": "seq 300000",
    "a missing program": "/no/such/program",
    "wrong syntax": "if then (",
}
STOPPED = {
    "endless output": "yes",
    "endless errors": "yes >&2",
    "endless zeros": "cat /dev/zero",
    "endless output from the background": "setsid yes & sleep 300",
    "waiting": "sleep 300",
    "busy": "while :; do :; done",
    "deaf and waiting": "trap '' TERM INT HUP QUIT; sleep 300; sleep 300; sleep 300",
    "stopping itself": "kill -STOP $$",
    "waiting for a pipe": "mkfifo p; cat p",
    "a fork bomb in front": "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 300; }; f 5",
    "a slow leak": "while :; do setsid sleep 300 & sleep 0.1; done",
}


def left_of(folder: Path) -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                here = os.readlink(entry / "cwd") == str(folder)
                if here or f"ATTACK={folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return found


async def attack(tree: Path, command: str, timeout: float) -> ToolResultBlock:
    settings = ShellSettings(timeout=timeout, max_output_bytes=5_000_000, env={"ATTACK": str(tree / "ws")})
    return await use(Toolkit.of(shell_tool(tree / "ws", settings=settings)), "execute", command=command)


@pytest.mark.parametrize("command", ENDS.values(), ids=ENDS)
async def test_commands_that_end(tree: Path, command: str) -> None:
    """A command that ends is told about at once, whatever it left in the background, and all of that is gone."""
    before = outside(tree)
    result = await attack(tree, command, timeout=25)
    assert result.state is ToolResultState.SUCCESS
    assert result.text.startswith("Exit code: ")
    assert "\x1b" not in result.text
    assert len(result.text) < 110_000
    assert left_of(tree / "ws") == []
    assert outside(tree) == before


@pytest.mark.parametrize("command", STOPPED.values(), ids=STOPPED)
async def test_commands_that_would_not_end(tree: Path, command: str) -> None:
    """A command that would go on for ever is an error that says why, and nothing of it goes on."""
    result = await attack(tree, command, timeout=0.5)
    assert result.state is ToolResultState.ERROR
    assert result.text.startswith("CommandStopped: the command was stopped: it ")
    assert len(result.text) < 110_000
    assert left_of(tree / "ws") == []
