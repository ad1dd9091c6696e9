"""A command runs as asked, its output is told as it was, and nothing of it is left."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import CommandStopped, InvalidOption, PathRefused
from agentscope_rx.messages import ToolResultState, ToolUseBlock
from agentscope_rx.tools import Toolkit
from agentscope_rx.tools.commands import Command, run_command
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.execution import run_call
from agentscope_rx.tools.leftovers import MARK
from agentscope_rx.tools.shell_tool import NO_OUTPUT, SAFE_VARIABLES, ShellSettings, ShellTool, shell_tool


def left_of(folder: Path) -> list[int]:
    """The processes that commands of this test have started; other tests run at the same time."""
    found = list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if f"WHERE={folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def shell(folder: Path, env: Mapping[str, str] | None = None, **options: Any) -> ShellTool:
    return ShellTool(folder, settings=ShellSettings(env={"WHERE": str(folder), **(env or {})}, **options))


# -- what the model is shown --------------------------------------------------------------------------------


def test_the_tool_has_the_known_name_and_parameters(tmp_path: Path) -> None:
    """Names, parameters and defaults are what models and rules know; it is neither harmless nor run beside others."""
    made = shell_tool(tmp_path)
    assert made.spec.name == "execute"
    assert str(inspect.signature(made.function)) == (
        "(command: 'str', working_directory: 'str | None' = None, timeout: 'float | None' = None) -> 'ToolResultBlock'"
    )
    assert (made.read_only, made.concurrency_safe) == (False, False)
    assert (made.settings.timeout or 0) > 600


@pytest.mark.parametrize(
    ("command", "outcome", "code", "cut"),
    [
        ("echo hi", "SUCCEEDED", 0, False),
        ("exit 3", "FAILED", 3, False),
        ("kill -KILL $$", "FAILED", -9, False),
        ("seq 100000", "SUCCEEDED", 0, True),
        ("seq 100000 >&2", "SUCCEEDED", 0, True),
    ],
)
async def test_a_result_says_how_the_command_has_ended(
    tmp_path: Path, command: str, outcome: str, code: int, cut: bool
) -> None:
    """As plain data in its metadata, for those who take it as evidence: a verifier need not read the text."""
    toolkit = Toolkit.of(shell_tool(tmp_path, settings=ShellSettings(output_chars=1000)))
    call = ToolUseBlock(id="c1", name="execute", input={"command": command})
    result = (await run_call(toolkit, call, ToolContext(call=call))).result
    told = {"kind": "shell", "outcome": outcome, "exit_code": code, "output_truncated": cut}
    assert (result.id, result.name, result.metadata) == ("c1", "execute", {"execution_details": told})


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi", "Exit code: 0\n\nhi"),
        ("true", f"Exit code: 0\n\n{NO_OUTPUT}"),
        ("echo out; echo one >&2; echo two >&2; exit 3", "Exit code: 3\n\nout\n[stderr] one\n[stderr] two"),
        ("no-such-program-here 2>/dev/null", f"Exit code: 127\n\n{NO_OUTPUT}"),
        ("kill -KILL $$", f"Exit code: -9 (ended by SIGKILL)\n\n{NO_OUTPUT}"),
        ("printf 'a\\033[31mred\\033[0m\\r\\nb'", "Exit code: 0\n\nared\nb"),
        ("printf 'caf\\351 x'", "Exit code: 0\n\ncaf\ufffd x\n[Bytes that are no UTF-8 are shown as \ufffd.]"),
        ("printf 'a\\000b'", "Exit code: 0\n\na\ufffdb"),
        ("cat", f"Exit code: 0\n\n{NO_OUTPUT}"),
        ("test -t 0 || echo no terminal", "Exit code: 0\n\nno terminal"),
        ("printf '  indented\\n\\n'", "Exit code: 0\n\n  indented"),
    ],
)
async def test_what_a_command_gives(tmp_path: Path, command: str, text: str) -> None:
    """Exit code first, then what was written, then the errors, each marked; nothing to read and no terminal."""
    assert (await shell(tmp_path).execute(command)).text == text


async def test_a_command_runs_in_the_folder(tmp_path: Path) -> None:
    """Paths are relative to the project, or to a directory in it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    made = shell(tmp_path)
    assert (await made.execute("pwd -P; echo x > made")).text == f"Exit code: 0\n\n{tmp_path.resolve()}"
    assert (tmp_path / "made").read_text() == "x\n"
    for path in ("sub", "./sub/", "link"):
        assert (await made.execute("pwd -P", path)).text == f"Exit code: 0\n\n{tmp_path.resolve()}/sub"
    assert (await made.execute("pwd -P", "")).text == (await made.execute("pwd -P")).text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"command": ""}, ValueError, "empty"),
        ({"command": " \n"}, ValueError, "empty"),
        ({"command": "a\0b"}, ValueError, "NUL"),
        ({"command": "echo \ud83d"}, ValueError, "lone surrogate"),
        ({"command": ":" + " " * 200_000}, ValueError, "write it to a file"),
        ({"command": "true", "working_directory": ".."}, PathRefused, "above"),
        ({"command": "true", "working_directory": "/"}, PathRefused, "absolute"),
        ({"command": "true", "working_directory": "~"}, PathRefused, "'~'"),
        ({"command": "true", "working_directory": "out"}, PathRefused, "symbolic link"),
        ({"command": "true", "working_directory": ".agentscope-runtime"}, PathRefused, "runtime"),
        ({"command": "true", "working_directory": "nothing"}, FileNotFoundError, "no directory 'nothing'"),
        ({"command": "true", "working_directory": "file"}, NotADirectoryError, "'file' is a file"),
        ({"command": "true", "timeout": -1}, ValueError, "more than 0 and at most 600 seconds"),
        ({"command": "true", "timeout": 601}, ValueError, "at most 600"),
        ({"command": "true", "timeout": float("nan")}, ValueError, "nan"),
    ],
)
async def test_what_cannot_be_run(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A wrong call starts nothing and says what to do."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/file").touch()
    (tmp_path / "ws/out").symlink_to("..")
    with pytest.raises(error, match=message):
        await shell(tmp_path / "ws").execute(**arguments)
    assert left_of(tmp_path / "ws") == []


async def test_a_command_that_cannot_be_started_says_where(tmp_path: Path) -> None:
    """Not in the system's own words, which may tell the whole path of the directory; nothing is left open."""
    made, before = shell(tmp_path, env={"LARGE": "x" * 1_000_000}), sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="^no command can be started in '.' \\(Argument list too long\\): try another"):
        await made.execute("true")
    assert len(os.listdir("/proc/self/fd")) == len(before)


# -- environment --------------------------------------------------------------------------------------------


async def test_secrets_of_the_process_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what programs need is passed on, and what the application adds."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123")
    monkeypatch.setenv("EXTRA", "wanted")
    monkeypatch.setenv("HOME", "/home/of-the-user")
    text = (await shell(tmp_path, env={"MINE": "given", "LANG": "C"}).execute("env")).text
    names = {line.split("=")[0] for line in text.split("\n")[2:]}
    # What the shell itself adds, and what the application gave.
    added = {"PWD", "OLDPWD", "SHLVL", "_", "MINE", "WHERE", MARK}
    assert names <= {*SAFE_VARIABLES, *added}
    assert {"MINE=given", "LANG=C", "HOME=/home/of-the-user"} <= set(text.split("\n"))
    assert "sk-0123" not in text
    assert "wanted" in (await shell(tmp_path, inherit=("EXTRA",)).execute("echo $EXTRA")).text
    assert (
        await shell(tmp_path, inherit=()).execute("echo ${HOME-none}; ls >/dev/null")
    ).text == "Exit code: 0\n\nnone"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": 700},
        {"max_timeout": -1, "timeout": -2},
        {"output_chars": 5},
        {"max_output_bytes": 0},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0"}},
        {"env": {"": "x"}},
    ],
)
def test_settings_are_checked(options: dict[str, Any]) -> None:
    """A wrong option is told where it is given."""
    with pytest.raises(InvalidOption):
        ShellSettings(**options)


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    """A wrong folder is told where the tool is made."""
    with pytest.raises(FileNotFoundError):
        shell_tool(tmp_path / "nothing")


# -- limits -------------------------------------------------------------------------------------------------


async def test_head_and_tail_of_a_long_output_are_kept(tmp_path: Path) -> None:
    """What matters is at either end, and a note tells how much is missing."""
    text = (await shell(tmp_path, output_chars=1000).execute("seq 100000; echo failed >&2")).text
    assert text.startswith("Exit code: 0\n\n1\n2\n3\n")
    assert "\n99999\n100000\n[stderr] failed" in text
    assert "characters cut" in text
    assert len(text) < 1200
    text = (await shell(tmp_path, output_chars=100).execute("yes ü | head -n 500 | tr -d '\\n'")).text
    assert "\ufffd" not in text
    assert text.count("ü") > 50


@pytest.mark.parametrize("letter", ["ü", "€", "🍸"])
@pytest.mark.parametrize("before", range(4))
async def test_an_output_is_cut_between_characters(tmp_path: Path, letter: str, before: int) -> None:
    """Wherever the bytes are cut, a text that is UTF-8 is shown as such, and not called anything else."""
    (tmp_path / "out").write_text("x" * before + letter * 999 + "y" * before)
    text = (await shell(tmp_path, output_chars=100).execute("cat out; cat out >&2")).text
    assert "characters cut" in text
    assert "\ufffd" not in text
    assert text.count(letter) > 50


async def test_no_more_of_an_output_is_kept_than_is_shown(tmp_path: Path) -> None:
    """Half of it is the beginning, half the end, however much comes between them."""
    command = Command(
        text="seq 300000", folder=str(tmp_path), environment={}, timeout=30, kept_bytes=1000, most_bytes=10**8
    )
    whole = "".join(f"{number}\n" for number in range(1, 300_001)).encode()
    kept = (await run_command(command)).stdout
    assert (kept.head, kept.tail, kept.missing) == (whole[:500], whole[-500:], len(whole) - 1000)


async def test_a_command_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """The error tells the time, what would help, and the output so far."""
    made = shell(tmp_path, timeout=0.3, max_timeout=9)
    with pytest.raises(CommandStopped) as caught:
        await made.execute("echo begun; sleep 300 & sleep 300")
    message = str(caught.value)
    assert message.startswith("the command was stopped: it took longer than 0.3 seconds (a longer timeout, of up to 9")
    assert message.endswith("\n\nbegun")
    with pytest.raises(CommandStopped, match=r"longer than 0\.2 seconds"):
        await made.execute("sleep 300", timeout=0.2)
    assert "done" in (await made.execute("echo done", timeout=0)).text
    assert left_of(tmp_path) == []


async def test_a_command_that_writes_without_end_is_stopped(tmp_path: Path) -> None:
    """Endless output fills neither memory nor the request, and others have their turn meanwhile."""
    made = shell(tmp_path, max_output_bytes=2_000_000, output_chars=500)
    for command in ("yes", "yes >&2"):
        with pytest.raises(CommandStopped, match="wrote more than 2000000 bytes") as caught:
            await made.execute(command)
        assert len(str(caught.value)) < 3000
    assert left_of(tmp_path) == []


async def test_a_stopped_command_is_an_error_result(tmp_path: Path) -> None:
    """The run goes on, and the model reads why, with what was written until then."""
    toolkit = Toolkit.of(shell_tool(tmp_path, settings=ShellSettings(timeout=0.2)))
    call = ToolUseBlock(id="c", name="execute", input={"command": "echo begun; sleep 300"})
    result = (await run_call(toolkit, call, ToolContext(call=call))).result
    assert result.state is ToolResultState.ERROR
    assert result.text.startswith("CommandStopped: the command was stopped")
    assert result.text.endswith("begun")
    call = ToolUseBlock(id="c", name="execute", input={"command": "exit 4"})
    result = (await run_call(toolkit, call, ToolContext(call=call))).result
    assert (result.state, result.text) == (ToolResultState.SUCCESS, f"Exit code: 4\n\n{NO_OUTPUT}")


# -- what is left -------------------------------------------------------------------------------------------

DAEMON = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(300)
"""

STAYING = {
    "background": "sleep 300 & echo ready",
    "ignoring signals": "trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep 300) & echo ready",
    "own session": "setsid sleep 300 & echo ready",
    "daemon": f"{sys.executable} -IS -c '{DAEMON}'; echo ready",
    "nohup": "nohup sleep 300 > nohup.out 2>&1 & echo ready",
    "holding the output": "(setsid sh -c 'sleep 300; echo late' &) ; echo ready",
    "tree": "sh -c 'sh -c \"sleep 300 & sleep 300\" & sleep 300' & echo ready",
}


@pytest.mark.parametrize("command", STAYING.values(), ids=STAYING)
async def test_no_process_is_left_when_a_command_ends(tmp_path: Path, command: str) -> None:
    """What went into the background ends with the command, and the result does not wait for it."""
    async with asyncio.timeout(20):
        assert (await shell(tmp_path).execute(command)).text == "Exit code: 0\n\nready"
    assert left_of(tmp_path) == []


@pytest.mark.parametrize("command", STAYING.values(), ids=STAYING)
async def test_no_process_is_left_by_a_cancelled_command(tmp_path: Path, command: str) -> None:
    """Who cancels goes on when all are gone."""
    os.mkfifo(tmp_path / "begun")
    task = asyncio.ensure_future(shell(tmp_path).execute(f"{command}; echo x > begun; sleep 300"))
    await asyncio.to_thread((tmp_path / "begun").read_text)
    assert left_of(tmp_path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_of(tmp_path) == []


async def test_who_cancels_again_and_again_waits_all_the_same(tmp_path: Path) -> None:
    """No impatience makes the end of a command come before the end of its processes."""
    os.mkfifo(tmp_path / "begun")
    task = asyncio.ensure_future(
        shell(tmp_path).execute("for i in 1 2 3 4 5; do setsid sleep 300 & done; echo x > begun; sleep 300")
    )
    await asyncio.to_thread((tmp_path / "begun").read_text)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert left_of(tmp_path) == []


async def test_a_command_cancelled_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """There is no moment at which a process exists that nobody ends."""
    made, before = shell(tmp_path), os.listdir("/proc/self/fd")
    for turns in range(12):
        task = asyncio.ensure_future(made.execute("sleep 300"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert left_of(tmp_path) == []
    assert len(asyncio.all_tasks()) == 1
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1


@pytest.mark.slow
async def test_no_moment_of_a_process_hides_it(tmp_path: Path) -> None:
    """A process is found while it becomes another program, and when the one that started it is gone by then."""
    made = shell(tmp_path)
    for command in ["setsid sleep 300 &", "(setsid sleep 300 &)", "setsid sh -c 'setsid sleep 300 & sleep 300' &"] * 50:
        await made.execute(command)
        assert left_of(tmp_path) == []


async def test_an_escaped_process_does_not_hold_up_the_result(tmp_path: Path) -> None:
    """What leaves the session and drops its environment is not found; that it holds the output open is no hang."""
    async with asyncio.timeout(20):
        text = (await shell(tmp_path).execute("env -i setsid sleep 300 & sleep 0.2; echo $!")).text
    escaped = int(text.split("\n")[2])
    try:
        assert text == f"Exit code: 0\n\n{escaped}"
    finally:
        os.kill(escaped, signal.SIGKILL)


async def test_a_command_reads_nothing_of_ours(tmp_path: Path) -> None:
    """A terminal of this process is not the command's: it would wait for what nobody types."""
    reading, writing = os.pipe()
    ours = os.dup(0)
    try:
        os.dup2(reading, 0)
        assert (await shell(tmp_path, timeout=5).execute("cat")).text == f"Exit code: 0\n\n{NO_OUTPUT}"
    finally:
        os.dup2(ours, 0)
        for descriptor in (reading, writing, ours):
            os.close(descriptor)


async def test_commands_side_by_side_end_only_their_own(tmp_path: Path) -> None:
    """One command's end is not another one's."""
    made = shell(tmp_path)
    os.mkfifo(tmp_path / "go")
    waiting = asyncio.ensure_future(made.execute("cat go"))
    for _ in range(3):
        assert (await made.execute("sleep 300 & echo quick")).text == "Exit code: 0\n\nquick"
    assert not waiting.done()
    await asyncio.to_thread((tmp_path / "go").write_text, "slow")
    assert (await waiting).text == "Exit code: 0\n\nslow"


async def test_no_descriptor_is_inherited_or_left(tmp_path: Path) -> None:
    """A command sees its three streams, and this process keeps none of them."""
    made = shell(tmp_path)
    await made.execute("true")
    before = sorted(os.listdir("/proc/self/fd"))
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_inheritable(descriptor, True)
    assert (await made.execute("ls /proc/$$/fd")).text == "Exit code: 0\n\n0\n1\n2"
    for descriptor in (reading, writing):
        os.close(descriptor)
    for command in ("yes | head -c 1000000", "exit 1", "sleep 300 &"):
        await made.execute(command)
    assert sorted(os.listdir("/proc/self/fd")) == before
