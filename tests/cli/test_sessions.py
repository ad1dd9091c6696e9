"""`agentscope-rx sessions`: what is kept, shown, taken elsewhere and removed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.cli import main
from agentscope_rx.cli.run import RunOptions, stored_builder
from agentscope_rx.messages import Msg
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SqlStore
from agentscope_rx.testing import ScriptedModel, calls
from tests.cli.command import SESSION, ended, environment, keep, start
from tests.cli.test_harmless import EVIL, SHOWN

Captured = pytest.CaptureFixture[str]


def talk(*script: Any, session: str = "s", user: str | None = None) -> None:
    """A conversation in the current folder."""
    agent = stored_builder(ScriptedModel(list(script)), RunOptions()).build()
    asyncio.run(agent.acall("Which one?", RuntimeContext(session_id=session, user_id=user)))


def sessions(*arguments: str) -> int:
    return main(["sessions", *arguments])


def lines(captured: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def test_sessions_are_listed(folder: Path, capsys: Captured) -> None:
    """All sessions with agent and user, those of one user on demand, as text and as JSON; none are no failure."""
    assert sessions("list") == 0
    assert capsys.readouterr() == ("", "")
    talk("one", session="a")
    talk("two", session="b", user="bob")
    assert sessions("list") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["agentscope-rx\t\ta", "agentscope-rx\tbob\tb"]
    assert sessions("list", "--user", "bob", "--json") == 0
    assert lines(capsys) == [{"agentId": "agentscope-rx", "userId": "bob", "sessionId": "b"}]
    assert sessions("list", "--agent", "other") == 0
    assert capsys.readouterr().out == ""


def test_a_long_list_is_listed_whole(folder: Path, capsys: Captured) -> None:
    """A store gives a page at a time; all of them are printed, each once."""
    agent = stored_builder(ScriptedModel([]), RunOptions()).build()

    async def fill() -> None:
        for number in range(105):
            await agent.observe(Msg.user("x"), RuntimeContext(session_id=f"s{number}"))

    asyncio.run(fill())
    assert sessions("list") == 0
    assert len(set(capsys.readouterr().out.splitlines())) == 105


def test_a_session_is_shown(folder: Path, capsys: Captured) -> None:
    """Who said what, calls and results in one line each; the newest on demand, and then it is said so."""
    talk(calls(("c1", "read_file", '{"path": "notes.txt"}'), text="I look."), "It is beta.")
    assert sessions("show", "s") == 0
    shown = capsys.readouterr()
    parts = ["Which one?", "I look.", '-> read_file {"path": "notes.txt"}', "<- read_file (success): ", "It is beta."]
    assert [shown.out.index(part) for part in parts] == sorted(shown.out.index(part) for part in parts)
    assert shown.err == ""
    assert sessions("show", "s", "--last", "1", "--json") == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["content"][0]["text"] for line in captured.out.splitlines()] == ["It is beta."]
    assert "the last 1 of 4 messages" in captured.err


def test_a_log_is_shown(folder: Path, capsys: Captured) -> None:
    """The newest records, one line each, with all that they hold as JSON."""
    talk("It is beta.")
    assert sessions("tail", "s", "--last", "2") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "message/assistant" in first
    assert "run/end" in second
    assert sessions("tail", "s", "--json", "--last", "0") == 0
    records = lines(capsys)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[-1]["payload"]["status"] == "completed"


async def test_a_log_is_followed(folder: Path) -> None:
    """With `--follow` records are printed as they come, each once, until Ctrl-C."""
    agent = stored_builder(ScriptedModel(["one", "two"]), RunOptions()).build()
    await agent.call("first", SESSION)
    process = await start("sessions", "tail", "s", "--follow", "--json", cwd=folder, env=environment())
    assert process.stdout is not None
    seen, last = list[int](), ""
    while "run/end" not in last:
        last = (await process.stdout.readline()).decode()
        seen.append(json.loads(last)["seq"])
    await agent.call("second", SESSION)
    last = ""
    while "run/end" not in last:
        last = (await process.stdout.readline()).decode()
        seen.append(json.loads(last)["seq"])
    process.send_signal(signal.SIGINT)
    done = await ended(process)
    assert (done.code, done.out, "Traceback" in done.err) == (130, "", False)
    assert seen == list(range(1, len(seen) + 1))


def test_a_session_is_taken_elsewhere(folder: Path, capsys: Captured, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was exported is imported into another folder or a database, goes on there, and exports as the same again."""
    talk(calls(("c1", "read_file", '{"path": "notes.txt"}')), f"It is {EVIL} beta.", user="bob")
    assert sessions("export", "s", "--user", "bob") == 0
    exported = capsys.readouterr().out
    assert not set(exported) & set("\x1b\x9b\x07\u202e")
    file, elsewhere = folder / "s.jsonl", tmp_path_factory.mktemp("elsewhere")
    file.write_text(exported)
    database = f"sqlite:///{elsewhere}/sessions.db"
    for place in (["--workspace", str(elsewhere)], ["--store", database]):
        assert sessions("import", str(file), *place) == 0
        assert "imported session s" in capsys.readouterr().err
        assert sessions("export", "s", "--user", "bob", *place) == 0
        assert capsys.readouterr().out == exported
        assert sessions("import", str(file), *place) == 1
        assert "is there already" in capsys.readouterr().err
    agent = stored_builder(ScriptedModel(["Yes."]), RunOptions()).state_store(SqlStore(database)).build()
    assert asyncio.run(agent.acall("Sure?", RuntimeContext(session_id="s", user_id="bob"))).text == "Yes."
    assert sessions("import", str(file), "--session", "t", "--user", "eve") == 0
    assert sessions("show", "t", "--user", "eve", "--last", "1") == 0
    assert SHOWN in capsys.readouterr().out


def test_what_is_no_session_is_not_imported(folder: Path, capsys: Captured) -> None:
    """A file that cannot be read, is none, or lacks a line is refused, and nothing is kept of it."""
    talk("one")
    assert sessions("export", "s") == 0
    good = capsys.readouterr().out.splitlines(keepends=True)
    file = folder / "x.jsonl"
    for content, code in (
        ("", 1),
        ("nonsense\n", 1),
        (good[0], 1),
        ("".join([good[0], *good[2:]]), 1),
        ("".join([*good[:2], "{}\n"]), 1),
        (good[0].replace('"session":1', '"session":2') + "".join(good[1:]), 1),
    ):
        file.write_text(content)
        assert sessions("import", str(file), "--session", "t") == code
        assert capsys.readouterr().err.startswith("error: ")
    assert sessions("import", "nowhere.jsonl") == 2
    assert sessions("list") == 0
    assert capsys.readouterr().out == "agentscope-rx\t\ts\n"


def test_old_sessions_are_removed(folder: Path, capsys: Captured) -> None:
    """Those that nobody has touched for so many days go, the others stay; how many is said."""
    talk("one", session="old")
    talk("two", session="new")
    for path in folder.rglob("*"):
        if path.is_file() and "s_n5wgi" in str(path):  # the folder's name of `old`
            os.utime(path, (0, 0))
    assert sessions("prune", "--older-than", "30") == 0
    assert capsys.readouterr().out == "deleted 1 session\n"
    assert sessions("list") == 0
    assert capsys.readouterr().out == "agentscope-rx\t\tnew\n"
    assert sessions("prune", "--older-than", "30", "--json") == 0
    assert lines(capsys) == [{"deleted": 0}]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("tail", "nobody"),
        ("export", "nobody"),
        ("show", " "),
        ("list", "--workspace", "nowhere"),
        ("list", "--store", "oracle://x"),
        ("prune",),
        ("prune", "--older-than", "-1"),
        ("shw", "s"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(folder: Path, capsys: Captured, arguments: tuple[str, ...]) -> None:
    """Sessions that are not there and options that cannot be are told in one line, and nothing is made."""
    assert sessions(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "plan.md"]


def test_evil_text_is_shown_as_text(folder: Path, capsys: Captured) -> None:
    """What was said and under which ids: none of it reaches the terminal as more than text."""
    keep(Msg.user(EVIL))
    talk(EVIL, session="x\u202ey")
    for command in (["list"], ["show", "s"], ["tail", "s"], ["show", "s", "--json"], ["tail", "s", "--json"]):
        assert sessions(*command) == 0
        assert not set(capsys.readouterr().out) & set("\x1b\x9b\x07\u202e\r")


def test_a_session_without_a_log_is_taken_elsewhere(folder: Path, capsys: Captured) -> None:
    """Of a session that is kept as a state only, the state is exported; it is imported under any id."""
    agent = stored_builder(ScriptedModel(["one"]), RunOptions()).state_only().build()
    asyncio.run(agent.acall("first", SESSION))
    assert sessions("show", "s") == 0
    assert "one" in capsys.readouterr().out
    assert sessions("export", "s") == 0
    (folder / "s.jsonl").write_text(capsys.readouterr().out)
    assert sessions("import", "s.jsonl", "--session", "t", "--user", "bob") == 0
    again = stored_builder(ScriptedModel(["two"]), RunOptions()).state_only().build()
    there = RuntimeContext(session_id="t", user_id="bob")
    assert asyncio.run(again.acall("second", there)).text == "two"
    state = asyncio.run(again.state(there))
    assert [message.text for message in state.context.messages] == ["first", "one", "second", "two"]
    assert (state.session_id, state.user_id) == ("t", "bob")
    talk("three", session="u")
    assert sessions("export", "u") == 0
    (folder / "u.jsonl").write_text(capsys.readouterr().out)
    assert sessions("import", "u.jsonl", "--session", "s") == 1  # a log under a state would hide it
    assert sessions("import", "s.jsonl", "--session", "u") == 1
    assert "is there already" in capsys.readouterr().err
