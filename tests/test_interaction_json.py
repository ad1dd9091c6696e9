"""Questions and answers as JSON, and their way over HTTP to another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx import answers_from_json, answers_to_json, approve, pending_from_json, pending_to_json, reject
from agentscope_rx.errors import InteractionMismatch
from agentscope_rx.interactions import Answer, Approval, PendingCall
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.testing.fake_provider import FakeProvider, text, tool_calls
from agentscope_rx.wire import clean_text
from tests.strategies import CALL_BLOCKS, JSON_OBJECTS, ODD_TEXTS, OUTPUTS, RESULT_BLOCKS, TEXTS

ROOT = Path(__file__).resolve().parents[1]

# -- the form -----------------------------------------------------------------------------------------------

RULES = st.lists(
    st.builds(
        PermissionRule,
        tool_name=TEXTS,
        behavior=st.sampled_from(["allow", "deny", "ask"]),
        rule_content=st.none() | TEXTS,
        source=TEXTS,
    ),
    max_size=2,
).map(tuple)
PENDING = st.builds(
    PendingCall,
    call=CALL_BLOCKS,
    kind=st.sampled_from(["confirmation", "external_execution"]),
    message=TEXTS,
    suggestions=RULES,
)
APPROVALS = st.builds(
    Approval, approved=st.booleans(), input=st.none() | JSON_OBJECTS, rules=RULES, reason=st.none() | TEXTS
)


@given(st.lists(PENDING, max_size=3))
def test_what_waits_comes_back_as_it_was(pending: list[PendingCall]) -> None:
    """Written and read, by any process."""
    written = pending_to_json(pending)
    assert pending_from_json(written) == pending_from_json(json.loads(written)) == tuple(pending)


def meant(id: str, answer: Answer) -> Approval | ToolResultBlock:
    """What an answer says, whatever its form."""
    match answer:
        case bool():
            return Approval(approved=answer)
        case str():
            return ToolResultBlock(id=id, name="", output=(TextBlock(text=answer),))
        case Approval():
            return answer
        case ToolResultBlock():
            return ToolResultBlock(
                id=id, name=answer.name, output=answer.output, metadata=answer.metadata, state=answer.state
            )
        case _:
            return ToolResultBlock(id=id, name="", output=tuple(answer))


@given(st.dictionaries(TEXTS, st.booleans() | TEXTS | OUTPUTS | APPROVALS | RESULT_BLOCKS, max_size=3))
def test_answers_come_back_with_their_meaning(answers: dict[str, Answer]) -> None:
    """Shorthands are written out; nothing is lost."""
    written = answers_to_json(answers)
    assert answers_from_json(written) == answers_from_json(json.loads(written))
    assert answers_from_json(written) == {id: meant(id, answer) for id, answer in answers.items()}


@given(ODD_TEXTS, ODD_TEXTS)
def test_strange_texts_are_carried(said: str, reason: str) -> None:
    """Half characters become replacement signs; writing and reading never fail for what was said."""
    call = ToolUseBlock(id="c", name="pay", input={"to": said})
    (read,) = pending_from_json(pending_to_json([PendingCall(call=call, kind="confirmation", message=said)]))
    assert (read.message, read.call.input) == (clean_text(said), {"to": clean_text(said)})
    assert answers_from_json(answers_to_json({"c": reject(reason)})) == {"c": reject(clean_text(reason))}


#: What the first version has written, and what people write by hand; it is read for ever.
VERSION_1 = {
    "version": 1,
    "answers": {
        "c1": {
            "type": "confirmation",
            "confirmed": True,
            "input": {"n": 3, "note": None},
            "rules": [{"tool_name": "pay", "behavior": "allow", "rule_content": None, "source": "suggested"}],
        },
        "c2": {"type": "confirmation", "confirmed": False, "reason": "too expensive"},
        "c3": {
            "type": "external_execution",
            "result": {"output": [{"type": "text", "text": "stuck"}], "state": "error"},
        },
        "c4": True,
        "c5": "opened",
    },
}


@pytest.mark.parametrize("versioned", [True, False])
def test_the_first_version_is_read(versioned: bool) -> None:
    """With its number or without."""
    given = VERSION_1 if versioned else {"answers": VERSION_1["answers"]}
    assert answers_from_json(json.dumps(given)) == {
        "c1": approve(input={"n": 3, "note": None}, rules=[PermissionRule.allow("pay", source="suggested")]),
        "c2": reject("too expensive"),
        "c3": ToolResultBlock(id="", name="", output=(TextBlock(text="stuck"),), state=ToolResultState.ERROR),
        "c4": True,
        "c5": "opened",
    }
    waiting = {"kind": "confirmation", "call": {"type": "tool_use", "id": "c1", "name": "pay"}, "new": 1}
    (read,) = pending_from_json({"version": 1, "pending": [waiting], "more": 2})
    assert read == PendingCall(call=ToolUseBlock(id="c1", name="pay"), kind="confirmation")


YES: dict[str, Any] = {"type": "confirmation", "confirmed": True}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{", "a JSON object was expected"),
        (b"[true]", "a JSON object was expected"),
        ({}, "answers: Field required"),
        ({"version": 2, "answers": {"c": True}}, "version 2; this library reads up to 1"),
        ({"version": "1", "answers": {"c": True}}, "version '1'"),
        ({"answers": {"c": True}, "secret": 1}, "secret: Unexpected"),
        ({"answers": {"c": None}}, "answers.c: an answer is true, false, a text, or of type"),
        ({"answers": {"c": 1}}, "answers.c: an answer is"),
        ({"answers": {"c": {"confirmed": True}}}, "answers.c: an answer is"),
        ({"answers": {"c": {"type": "secret"}}}, "answers.c: an answer is"),
        ({"answers": {"c": {**YES, "confirmed": "yes"}}}, "confirmed: Input should be a valid boolean"),
        ({"answers": {"c": {**YES, "confirmed": 1}}}, "confirmed: Input should be a valid boolean"),
        ({"answers": {"c": {**YES, "inputs": {"n": 3}}}}, "inputs: Unexpected"),
        ({"answers": {"c": {**YES, "input": "secret"}}}, "input: Input should be"),
        ({"answers": {"c": {**YES, "rules": [{"tool_name": "pay"}]}}}, "behavior: Field required"),
        ({"answers": {"c": {"type": "external_execution", "result": {}}}}, "output: Field required"),
    ],
)
def test_what_is_no_answer_is_refused(data: Any, why: str) -> None:
    """Nothing is guessed: an answer with a part that is not known would do something else than was meant. The error
    says where, and not what was said."""
    with pytest.raises(InteractionMismatch, match=why) as refused:
        answers_from_json(data)
    assert "'secret'" not in str(refused.value)


def test_a_newer_question_is_refused() -> None:
    """A client that cannot know what it is asked does not answer."""
    with pytest.raises(InteractionMismatch, match="the calls that wait are of version 2"):
        pending_from_json({"version": 2, "pending": []})
    with pytest.raises(InteractionMismatch, match="kind"):
        pending_from_json({"pending": [{"kind": "riddle", "call": {"type": "tool_use", "id": "c", "name": "n"}}]})


# -- over HTTP, to another process --------------------------------------------------------------------------


@contextmanager
def desk(provider: FakeProvider, folder: Path) -> Generator[str]:
    """The address of a desk in a process of its own, which is killed at the end."""
    command = [sys.executable, "-m", "tests.desk", provider.base_url, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def post(url: str, body: str | bytes) -> tuple[int, dict[str, Any]]:
    data = body.encode() if isinstance(body, str) else body
    try:
        with urlopen(Request(url, data=data)) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def get(url: str) -> bytes:
    with urlopen(url) as response:
        return response.read()


def test_a_person_behind_http_answers_after_a_restart(tmp_path: Path) -> None:
    """Asked by one process, which is killed; read from and answered to the next one: the call runs once, with the
    person's arguments, their rule lasts, and so does the wait for a result from outside."""
    script = [tool_calls(("c1", "pay", '{"n":5}'), ("c2", "gate", "{}")), text("done"), text("paid again")]
    again = tool_calls(("c3", "pay", '{"n":7}'))
    with FakeProvider.in_thread([*script[:2], again, script[2]]) as provider:
        with desk(provider, tmp_path) as url:
            assert post(f"{url}/ask", "Pay and open.") == (200, {"reason": "PERMISSION_ASKING", "text": ""})
        with desk(provider, tmp_path) as url:
            (waiting,) = pending_from_json(get(f"{url}/pending"))
            assert (waiting.call.name, dict(waiting.call.input), waiting.kind) == ("pay", {"n": 5}, "confirmation")
            assert post(f"{url}/answers", '{"answers":{"c1":{"confirmed":true}}}') == (
                409,
                {"code": "interaction_mismatch"},
            )
            assert post(f"{url}/answers", answers_to_json({"zz": True}))[1] == {"code": "interaction_mismatch"}
            assert post(f"{url}/ask", "Well?") == (409, {"code": "interaction_pending"})
            assert not (tmp_path / "paid.txt").exists()
            answer = answers_to_json({waiting.id: approve(input={"n": 3}, rules=waiting.suggestions)})
            assert post(f"{url}/answers", answer) == (200, {"reason": "TOOL_SUSPENDED", "text": ""})
        with desk(provider, tmp_path) as url:
            (waiting,) = pending_from_json(get(f"{url}/pending"))
            assert (waiting.id, waiting.kind) == ("c2", "external_execution")
            assert post(f"{url}/answers", '{"answers":{"c2":"opened"}}') == (
                200,
                {"reason": "MODEL_STOP", "text": "done"},
            )
            assert post(f"{url}/answers", answer)[1] == {"code": "interaction_mismatch"}
            assert post(f"{url}/ask", "Again.") == (200, {"reason": "MODEL_STOP", "text": "paid again"})
            assert json.loads(get(f"{url}/pending")) == {"version": 1, "pending": []}
        assert provider.refusals == []
        results = [message["content"] for message in provider.requests[1].messages if message["role"] == "tool"]
        assert sorted(results) == ["opened", "paid"]
    assert (tmp_path / "paid.txt").read_text() == "3\n7\n"
