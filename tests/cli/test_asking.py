"""`agentscope-rx run` asks the person at the terminal, and ends with 3 where it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentscope_rx.cli import main
from agentscope_rx.cli.asking import ask
from agentscope_rx.interactions import PendingCall
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, text, tool_calls
from tests.cli.command import MODEL, conversation, environment
from tests.cli.conftest import Serve

Captured = pytest.CaptureFixture[str]
READ = tool_calls(("c1", "read_file", '{"path": "notes.txt"}'))
RUN = ("run", "Which one?", "--model", MODEL, "--session", "s")


def results(request: RecordedRequest) -> list[str]:
    return [message["content"] for message in conversation(request) if message["role"] == "tool"]


# -- without a terminal -------------------------------------------------------------------------------------


def test_without_a_terminal_it_is_3(serve: Serve, folder: Path, capsys: Captured) -> None:
    """What waits is kept; the next run says so too, asks no model, and keeps it again."""
    provider = serve([READ])
    assert main([*RUN, "--ask", "read_file"]) == 3
    captured = capsys.readouterr()
    assert "waiting for a person: read_file" in captured.out
    assert "waits for an answer" in captured.err
    assert "--session s" in captured.err
    assert main([*RUN, "--quiet"]) == 3
    assert capsys.readouterr().out == ""
    assert main(["context", *RUN[1:]]) == 3
    assert "read_file (c1: confirmation)" in capsys.readouterr().err
    assert len(provider.requests) == 1


def test_json_never_asks(serve: Serve, folder: Path, capsys: Captured) -> None:
    """The events say what waits."""
    serve([READ])
    assert main([*RUN, "--ask", "read_file", "--json"]) == 3
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (asked,) = [event for event in events if event["type"] == "REQUIRE_USER_CONFIRM"]
    assert [call["name"] for call in asked["toolCalls"]] == ["read_file"]


@pytest.mark.parametrize(
    ("options", "result"),
    [
        (["--deny", "read_file(*.txt)"], "permission was denied"),
        (["--deny", "read_file(secrets/**)"], "alpha"),
        (["--mode", "dont_ask", "--allow", "read_file(*.txt)"], "alpha"),
        (["--mode", "dont_ask"], "permission was denied"),
        (["--mode", "bypass", "--deny", "list_files", "--deny", "read_file"], "permission was denied"),
    ],
)
def test_rules_of_the_command_line(serve: Serve, folder: Path, options: list[str], result: str) -> None:
    """They hold for this run; looking needs no rule."""
    provider = serve([READ, text("Beta.")])
    assert main([*RUN, *options]) == 0
    assert result in results(provider.requests[1])[0]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--deny", "read_file(", "TOOL or TOOL(CONTENT)"),
        ("--ask", "no_tool", "there are read_file, list_files, glob_files, grep_files"),
        ("--allow", "", "TOOL or TOOL(CONTENT)"),
        ("--mode", "yolo", "dont_ask"),
    ],
)
def test_wrong_rules(serve: Serve, folder: Path, capsys: Captured, option: str, value: str, named: str) -> None:
    """One line that names the option, and 2; no model is asked."""
    provider = serve([])
    assert main([*RUN, option, value]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert named in err
    assert provider.requests == []


def test_a_question_hides_nothing(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a terminal would swallow is shown as an escape: nobody says yes to what they cannot see."""
    call = ToolUseBlock(id="c", name="pay", input={"to": "alice\x9d0;\u202e mallory\x9c", "note": "x" * 5000})
    reading, writing = os.pipe()
    os.write(writing, b"q\n")
    os.close(writing)
    with open(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert asyncio.run(ask([PendingCall(call=call, kind="confirmation", message="why\x1b[2J")])) == {}
    shown = capsys.readouterr().err
    assert "alice\\u009d0;\\u202e mallory\\u009c" in shown
    assert "characters more" in shown
    assert "\x1b" not in shown


# -- in a terminal ------------------------------------------------------------------------------------------


class Terminal:
    """The person's side of a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, fd: int) -> None:
        self.process, self._fd = process, fd
        self.shown = ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._fd, 4096).decode()
        except OSError:  # the other side is closed
            self.close()
        self._news.set()

    def close(self) -> None:
        """Read no more."""
        asyncio.get_running_loop().remove_reader(self._fd)

    async def sees(self, words: str, *, times: int = 1) -> None:
        """Wait until something was shown so often."""
        while self.shown.count(words) < times:
            self._news.clear()
            await self._news.wait()

    def types(self, line: str) -> None:
        """Type a line."""
        os.write(self._fd, line.encode())

    async def ended(self) -> tuple[int | None, str]:
        """The exit code, and what came on stdout."""
        out, _ = await self.process.communicate()
        return self.process.returncode, out.decode()


@asynccontextmanager
async def terminal(folder: Path, provider: FakeProvider, *options: str) -> AsyncGenerator[Terminal]:
    """The command with a terminal for its questions; stdout goes elsewhere."""
    person, command = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentscope_rx", *RUN, *options,
        cwd=folder, env=environment(provider), stdin=command, stderr=command, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(command)
    shown = Terminal(process, person)
    try:
        yield shown
    finally:
        shown.close()
        os.close(person)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "result"),
    [
        ("y\n", "alpha"),
        ("what?\ny\n", "alpha"),
        ("n not this one\n", "The reason given: not this one"),
        ("n\n", "refused this call"),
        ('e {"path": "plan.md"}\n', "Ship beta."),
    ],
)
async def test_one_answer(folder: Path, typed: str, result: str) -> None:
    """The question shows the call and why it is asked about; the run goes on with the answer."""
    async with FakeProvider([READ, text("Beta.")]) as provider:
        async with terminal(folder, provider, "--quiet", "--ask", "read_file") as person:
            await person.sees("answer later")
            assert 'read_file {"path":"notes.txt"}' in person.shown
            assert "the rule 'ask read_file' has a person asked" in person.shown
            assert "always" not in person.shown
            person.types(typed)
            assert await person.ended() == (0, "Beta.\n")
        assert result in results(provider.requests[1])[0]


@pytest.mark.slow
async def test_always(folder: Path) -> None:
    """A rule is offered, and holds for the session from then on."""
    again = tool_calls(("c2", "read_file", '{"path": "plan.md"}'), ("c3", "read_file", '{"path": "notes.txt"}'))
    async with FakeProvider([READ, again, text("Beta.")]) as provider:
        async with terminal(folder, provider, "--quiet", "--mode", "default", "--allow", "list_files") as person:
            await person.sees("a = always (allow read_file(/notes.txt))")
            person.types("a\n")
            await person.sees("a = always (allow read_file(/plan.md))")
            person.types("y\n")
            assert await person.ended() == (0, "Beta.\n")
        assert person.shown.count("May this run?") == 2
        assert len(results(provider.requests[2])) == 3


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["q\n", "\x04"])
async def test_later(folder: Path, typed: str) -> None:
    """The person leaves: the code is 3, and the next run asks first, then does its task."""
    async with FakeProvider([READ, text("Beta."), text("Still beta.")]) as provider:
        async with terminal(folder, provider, "--quiet", "--ask", "read_file") as person:
            await person.sees("answer later")
            person.types(typed)
            assert await person.ended() == (3, "")
        async with terminal(folder, provider, "--quiet") as person:
            await person.sees("answer later")
            person.types("y\n")
            assert await person.ended() == (0, "Beta.\nStill beta.\n")
        assert [each["content"] for each in conversation(provider.requests[2])][-1] == "Which one?"


@pytest.mark.slow
async def test_ctrl_c_at_the_question(folder: Path) -> None:
    """The process ends at once with 130, and what waits is kept."""
    async with FakeProvider([READ]) as provider:
        async with terminal(folder, provider, "--quiet", "--ask", "read_file") as person:
            await person.sees("answer later")
            person.process.send_signal(signal.SIGINT)
            assert await person.ended() == (130, "")
            assert "Traceback" not in person.shown
        async with terminal(folder, provider, "--quiet") as person:
            await person.sees("answer later")
            person.types("q\n")
            assert (await person.ended())[0] == 3
