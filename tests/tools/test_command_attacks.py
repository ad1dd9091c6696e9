"""What hostile commands do: a clear result each time, no process behind, nothing outside touched, no hang."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agentscope_rx import RuntimeContext
from agentscope_rx.messages import ToolResultBlock, ToolResultState
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools.shell_tool import ShellSettings
from tests.tools.attacks import agent, answers, outside
from tests.tools.test_attacks import CONTENTS, PATTERNS, REFUSED

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
    "disowned": "bash -c 'sleep 300 & disown -a'",
    "a coprocess": "bash -c 'coproc sleep 300; exit 0'",
    "writing when it is over": "(sleep 0.1; while :; do echo late; done) &",
    "a pipe that is never read": "yes | sleep 300 &",
    "filling what nobody reads": "yes | true; yes | head -c 3000000 | wc -c",
    "executing itself in its own session": "echo 'exec sh e' > e; setsid sh e &",
    "a terminal": "cat < /dev/tty; stty sane < /dev/tty",
    "a prompt": "read -p 'Password: ' x; true",
    "a name with an escape": "touch \"$(printf '\\033[2Jx')\" && ls -N",
    "half a character": "printf 'caf\\303'; printf '\\360\\237' >&2",
    "too many arguments": "/bin/true $(seq 500000)",
    "links that lead out": "ls -L link; cat sub/nothing; rm -f file ping",
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
    "closed streams and waiting": "exec >&- 2>&- <&-; sleep 300; sleep 300",
    "a full pipe": "yes | sleep 300",
    "reading a full pipe without end": "yes | cat > /dev/null",
    "executing itself": "echo 'exec sh e' > e; exec sh e",
    "executing itself in its own session": "echo 'exec sh e' > e; setsid sh e & sleep 300",
    "deaf in its own session": "setsid sh -c \"trap '' TERM INT HUP; sleep 300; sleep 300\" & wait",
    "a slow leak": "while :; do setsid sleep 300 & sleep 0.1; done",
}
CANCELLED = {
    "waiting": "true",
    "deaf": "trap '' TERM INT HUP QUIT",
    "a daemon": f"{PYTHON} '{DAEMON}'",
    "its own session": "(setsid sh -c \"trap '' TERM; sleep 300; sleep 300\" >/dev/null 2>&1 &)",
    "flooding the background": "(yes > /dev/null &)",
    "closed streams": "exec >&- 2>&- <&-",
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


def settings(tree: Path, timeout: float = 25) -> ShellSettings:
    return ShellSettings(timeout=timeout, max_output_bytes=5_000_000, env={"ATTACK": str(tree / "ws")})


async def attack(tree: Path, command: str, timeout: float) -> ToolResultBlock:
    return (await answers(tree, [("execute", {"command": command})], settings=settings(tree, timeout)))[0]


def test_there_are_many_attacks() -> None:
    """Nobody takes any away unseen."""
    assert len(REFUSED) >= 60
    assert len(CONTENTS) + len(PATTERNS) >= 15
    assert len(ENDS) >= 30
    assert len(STOPPED) >= 15


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


@pytest.mark.parametrize("command", CANCELLED.values(), ids=CANCELLED)
@pytest.mark.parametrize("way", ["cancel", "interrupt"])
async def test_an_agent_that_is_stopped_leaves_no_process(tree: Path, command: str, way: str) -> None:
    """Whoever stops a run in the midst of a command, and however: when it is over, no process is left."""
    os.mkfifo(tree / "ws/begun")
    begun, reading = asyncio.Event(), os.open(tree / "ws/begun", os.O_RDONLY | os.O_NONBLOCK)
    asyncio.get_running_loop().add_reader(reading, begun.set)
    asked = calls(("c", "execute", json.dumps({"command": f"{command}; echo x > begun; sleep 300; sleep 300"})))
    made, context = agent(tree, ScriptedModel([asked, "done"]), settings(tree)), RuntimeContext(session_id="s")
    task = asyncio.ensure_future(made.call("Attack.", context))
    try:
        async with asyncio.timeout(20):
            await begun.wait()
            assert left_of(tree / "ws")
            if way == "interrupt":
                assert made.interrupt(context)
                await task
            else:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
    finally:
        asyncio.get_running_loop().remove_reader(reading)
        os.close(reading)
    assert left_of(tree / "ws") == []
