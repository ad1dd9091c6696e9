"""`agentscope-rx fork`: another session from a point of one, and what is told of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.cli import main
from agentscope_rx.cli.run import RunOptions, stored_builder
from agentscope_rx.messages import Msg
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, calls

Captured = pytest.CaptureFixture[str]
BOB = RuntimeContext(user_id="bob", session_id="s")


def talk(*script: Any) -> Msg:
    """A conversation of bob's in the current folder; the last answer."""
    agent = stored_builder(ScriptedModel(list(script)), RunOptions()).build()
    return asyncio.run(agent.acall("Which one?", BOB))


def shown(session: str, capsys: Captured) -> list[str]:
    assert main(["sessions", "show", session, "--user", "bob", "--json"]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [block.get("text", block["type"]) for message in messages for block in message["content"]]


def test_a_session_is_forked(folder: Path, capsys: Captured) -> None:
    """At its end, before a step, or behind a record: the fork has what was said before, and the source is as it was."""
    last = talk(calls(("c1", "read_file", '{"path": "notes.txt"}')), "It is beta.")
    whole = shown("s", capsys)
    assert main(["fork", "s", "--user", "bob", "--to", "t"]) == 0
    assert "t goes on from record" in capsys.readouterr().err
    assert shown("t", capsys) == whole
    assert main(["fork", "s", "--user", "bob", "--to", "before", "--at", last.id]) == 0
    assert "will not run again" not in capsys.readouterr().err
    assert shown("before", capsys) == whole[:-1]
    assert main(["fork", "s", "--user", "bob", "--to", "begin", "--at", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"sessionId": "begin", "from": "s", "seq": 2, "recordedCalls": 1}
    assert shown("begin", capsys) == ["Which one?"]
    assert main(["fork", "s", "--user", "bob", "--to", "anew", "--at", "2", "--json", "--run-tools-again"]) == 0
    assert json.loads(capsys.readouterr().out)["recordedCalls"] == 0
    assert main(["fork", "s", "--user", "bob", "--to", "told", "--at", "2"]) == 0
    assert "1 call that ran behind it will not run again" in capsys.readouterr().err
    assert shown("s", capsys) == whole


def test_what_cannot_be_forked(folder: Path, capsys: Captured) -> None:
    """A session that is not there, a point that it does not have, and a target that is there: one line each."""
    talk("It is beta.")
    assert main(["fork", "nobody", "--to", "t"]) == 2
    assert "there is none of agent" in capsys.readouterr().err
    assert main(["fork", "s", "--user", "bob", "--to", "t", "--at", "999"]) == 2
    assert "at=999" in capsys.readouterr().err
    assert main(["fork", "s", "--user", "bob", "--to", "s"]) == 1
    assert "is there already" in capsys.readouterr().err
