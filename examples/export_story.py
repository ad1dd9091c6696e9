"""The other side of `export_fix.py`: a project with a bug, and a model that finds it, for a `FakeProvider`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply, failure, text, tool_calls

TESTS = f"{sys.executable} -B -m unittest -q"  # the command that runs the project's tests
_WRONG, _RIGHT = "{row['account']},{row['amount']}", "{row['date']},{row['account']},{row['amount']}"
_EXPORT = f"""\
def export(rows):
    return [f"{_WRONG}" for row in rows]
"""
_TEST = """\
import unittest

from export import export


class Export(unittest.TestCase):
    def test_columns(self):
        row = {"date": "2026-05-01", "account": "alice", "amount": 7}
        self.assertEqual(export([row]), ["2026-05-01,alice,7"])
"""
_PLAN = """\
# Plan

1. Reproduce: the test of the columns fails.
2. Fix `export.py`: each row begins with its date again. Nothing else changes.
3. Verify: the tests pass.
"""
_OVERFLOW = {"message": "This model's maximum context length is exceeded.", "code": "context_length_exceeded"}


def make_project(folder: Path, *, pages: int = 3) -> Path:
    """Write the project into a folder: an export that forgets a column, its test, and the pages of a log.

    Args:
        folder: Where; it is made.
        pages: How many pages of some 400 tokens the log has.
    """
    (folder / "log").mkdir(parents=True)
    (folder / "export.py").write_text(_EXPORT)
    (folder / "test_export.py").write_text(_TEST)
    for page in range(pages):
        lines = (f"{page:03}:{line:02} export of report {page * 40 + line}: 2 columns written" for line in range(30))
        (folder / "log" / f"{page:03}.txt").write_text("\n".join(lines))
    return folder


def version_of(project: Path) -> str:
    """What the sources of a project are now, as a short digest."""
    sources = sorted(project.glob("*.py"))
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]


class Story:
    """The model: it plans, asks for approval, fixes, verifies and reports, one reply a request.

    Requests for summaries are answered beside that. It does not look at what it is sent, so that every request of a
    run is the same as in the run before.

    Args:
        pages: How many pages of the log it reads before it plans, one a step.
        overflow: The request that the provider finds too long, once, counted from 0 among those for steps; None = none.

    Attributes:
        told: How many replies of the story were given.
    """

    def __init__(self, *, pages: int = 3, overflow: int | None = None) -> None:
        self.told = 0
        self._replies = [*_investigation(pages), *_work(), *_verification(), text(_REPORT)]
        self._overflow = overflow

    def __call__(self, request: RecordedRequest, number: int) -> ScriptedReply:
        """The reply to a request."""
        if "tools" not in request.body:
            return text(_SUMMARY)
        if self.told == self._overflow:
            self._overflow = None
            return failure(400, {"error": _OVERFLOW})
        self.told += 1
        return self._replies[self.told - 1]


_SUMMARY = "## SESSION INTENT\nThe report export is to be fixed.\n\n## SUMMARY\nAll pages of the log tell of 2 columns."
_REPORT = "Change 42 is done: each row of the export begins with its date again. The tests of the export support that."


def _investigation(pages: int) -> Iterator[ScriptedReply]:
    yield tool_calls(("enter", "plan_enter", "{}"))
    yield _todo("reproduce")
    yield tool_calls(_read("source", "export.py"), _read("test", "test_export.py"))
    for page in range(pages):
        yield tool_calls(_read(f"page-{page}", f"log/{page:03}.txt"))
        if page % 40 == 39:
            yield _todo("reproduce", again=page)
    criterion = {"kind": "ACCEPTANCE_CRITERION", "text": "The tests of the export pass.", "source_ref": "change 42"}
    yield tool_calls(("propose", "task_requirement_propose", json.dumps(criterion)))
    yield tool_calls(("plan", "plan_write", json.dumps({"content": _PLAN})))
    yield tool_calls(("exit", "plan_exit", json.dumps({"summary": "Each row begins with its date again."})))


def _work() -> Iterator[ScriptedReply]:
    yield tool_calls(("reproduce", "execute", json.dumps({"command": TESTS})))
    edit = {"path": "export.py", "old_string": _WRONG, "new_string": _RIGHT}
    yield tool_calls(("fix", "edit_file", json.dumps(edit)))
    yield _todo("verify")
    yield text("The export is fixed, and has to be verified.")


def _verification() -> Iterator[ScriptedReply]:
    yield tool_calls(("verify", "execute", json.dumps({"command": TESTS})))
    yield _todo("all")
    yield text("The tests pass.")


def _read(id: str, path: str) -> tuple[str, str, str]:
    return id, "read_file", json.dumps({"path": path})


def _todo(now: str, *, again: int = 0) -> ScriptedReply:
    """The to-do list when one item is worked on, or `all` is done."""
    items = ("reproduce", "fix", "verify", "all")
    place = items.index(now)
    states = ("completed" if at < place else "in_progress" if at == place else "pending" for at in range(3))
    todos = [{"content": item, "status": state} for item, state in zip(items, states, strict=False)]
    return tool_calls((f"todo-{now}-{again}", "todo_write", json.dumps({"todos": todos})))
