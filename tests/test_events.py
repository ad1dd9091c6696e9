"""Events: their fields and their JSON, which other programs read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

import agentscope_rx.events as ev
from agentscope_rx.messages import (
    Base64Source,
    DataBlock,
    GenerateReason,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.usage import ChatUsage
from tests.strategies import ODD_TEXTS
from tests.support import type_of

CALL = ToolUseBlock(id="c1", name="look", input={"p": None}, content='{"p":null}')
RESULT = ToolResultBlock(id="c1", name="look", output=(TextBlock(text="seen"),))
IMAGE = DataBlock(source=Base64Source(media_type="image/png", data="AAAA"), name="cat")
RULE = PermissionRule(tool_name="look", behavior="allow", rule_content="p:*", source="suggested")
BLOCK: dict[str, Any] = {"reply_id": "r1", "block_id": "text-2"}
TOOL: dict[str, Any] = {"reply_id": "r1", "tool_call_id": "c1", "tool_call_name": "look"}

#: One event of each type.
EXAMPLES: tuple[ev.AgentEvent, ...] = (
    ev.AgentStart(reply_id="r1", session_id="s1", name="helper"),
    ev.AgentResult(result=Msg.assistant("Done.", CALL)),
    ev.AgentEnd(reply_id="r1"),
    ev.ExceedMaxIters(reply_id="", max_iters=3, current_iter=3),
    ev.RequestStop(reason="enough", generate_reason=GenerateReason.REASONING_STOP_REQUESTED),
    ev.ModelCallStart(reply_id="r1", model="gpt"),
    ev.ModelCallEnd(reply_id="r1", usage=ChatUsage(input_tokens=2, output_tokens=1, cached_tokens=1, time=0.25)),
    ev.TextBlockStart(**BLOCK),
    ev.TextBlockDelta(**BLOCK, delta="Hi"),
    ev.TextBlockEnd(**BLOCK),
    ev.ThinkingBlockStart(**BLOCK),
    ev.ThinkingBlockDelta(**BLOCK, delta="hm"),
    ev.ThinkingBlockEnd(**BLOCK),
    ev.DataBlockStart(**BLOCK, media_type="image/png"),
    ev.DataBlockDelta(**BLOCK, delta="AAAA"),
    ev.DataBlockEnd(**BLOCK),
    ev.ToolCallStart(**TOOL),
    ev.ToolCallDelta(**TOOL, delta='{"p":'),
    ev.ToolCallEnd(**TOOL),
    ev.HintBlockEvent(**BLOCK, hint="be brief", hint_source="inbox"),
    ev.ToolResultStart(**TOOL),
    ev.ToolResultTextDelta(**TOOL, delta="seen"),
    ev.ToolResultDataDelta(**TOOL, data=IMAGE),
    ev.ToolResultEnd(**TOOL, state=ToolResultState.DENIED),
    ev.RequireUserConfirm(reply_id="r1", tool_calls=(CALL,)),
    ev.UserConfirmResult(
        reply_id="r1",
        confirm_results=(ev.ConfirmResult(confirmed=False, tool_call=CALL, rules=(RULE,), reason="not now"),),
    ),
    ev.RequireExternalExecution(reply_id="r1", tool_calls=(CALL,)),
    ev.ExternalExecutionResult(reply_id="r1", tool_results=(RESULT,)),
    ev.AllToolsDenied(denied_tool_calls=(CALL,)),
    ev.SubagentExposed(subagent_id="a2", agent_id="a1", session_id="s1", label="scout"),
    ev.Custom(name="note", value={"k": None, "deep": {"n": [1, None]}}),
)

#: The fields that each type has of its own, by the names that its JSON gives them.
FIELDS: Mapping[str, str] = {
    "AGENT_START": "sessionId replyId name role",
    "AGENT_END": "replyId",
    "AGENT_RESULT": "result",
    "MODEL_CALL_START": "replyId model",
    "MODEL_CALL_END": "replyId usage",
    "TEXT_BLOCK_START": "replyId blockId",
    "TEXT_BLOCK_DELTA": "replyId blockId delta",
    "TEXT_BLOCK_END": "replyId blockId",
    "THINKING_BLOCK_START": "replyId blockId",
    "THINKING_BLOCK_DELTA": "replyId blockId delta",
    "THINKING_BLOCK_END": "replyId blockId",
    "DATA_BLOCK_START": "replyId blockId mediaType",
    "DATA_BLOCK_DELTA": "replyId blockId delta",
    "DATA_BLOCK_END": "replyId blockId",
    "TOOL_CALL_START": "replyId toolCallId toolCallName",
    "TOOL_CALL_DELTA": "replyId toolCallId toolCallName delta",
    "TOOL_CALL_END": "replyId toolCallId toolCallName",
    "TOOL_RESULT_START": "replyId toolCallId toolCallName",
    "TOOL_RESULT_TEXT_DELTA": "replyId toolCallId toolCallName delta",
    "TOOL_RESULT_DATA_DELTA": "replyId toolCallId toolCallName data",
    "TOOL_RESULT_END": "replyId toolCallId toolCallName state",
    "EXCEED_MAX_ITERS": "replyId maxIters currentIter",
    "REQUIRE_USER_CONFIRM": "replyId toolCalls",
    "REQUIRE_EXTERNAL_EXECUTION": "replyId toolCalls",
    "USER_CONFIRM_RESULT": "replyId confirmResults",
    "EXTERNAL_EXECUTION_RESULT": "replyId toolResults",
    "REQUEST_STOP": "reason generateReason",
    "SUBAGENT_EXPOSED": "subagentId agentId sessionId label",
    "HINT_BLOCK": "replyId blockId hintSource hint",
    "ALL_TOOLS_DENIED": "deniedToolCalls",
    "CUSTOM": "name value",
}
COMMON = {"id", "createdAt", "source", "callReplyId", "execution", "metadata"}

EXECUTION = ev.Execution(agent_id="a1", session_id="s1", turn_id="t1", run_id="run1")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)


def stamped(event: ev.AgentEvent) -> ev.AgentEvent:
    return ev.stamp(dataclasses.replace(event), id="e1", created_at=MOMENT, call_reply_id="r0", execution=EXECUTION)


by_type = pytest.mark.parametrize("event", EXAMPLES, ids=type_of)


# -- fields -------------------------------------------------------------------------------------------------


def test_there_is_an_example_of_each_type() -> None:
    """These tests see every class of the union, and the table names every type."""
    union, *_ = get_args(ev.Event)
    assert {type(event) for event in EXAMPLES} == set(get_args(union))
    assert sorted(map(type_of, EXAMPLES)) == sorted(FIELDS)


@by_type
def test_the_fields_are_those_of_agentscope(event: ev.AgentEvent) -> None:
    """Each type has the fields of AgentScope Java; beyond them a call names its model and data their media type."""
    names = {to_camel(field.name) for field in dataclasses.fields(event)} - COMMON - {"type"}
    assert names == set(FIELDS[type_of(event)].split())


@by_type
def test_the_class_is_named_after_the_type(event: ev.AgentEvent) -> None:
    """`TEXT_BLOCK_DELTA` is `TextBlockDelta`; only the hint's class says that it is an event and not the block."""
    name = type_of(event).title().replace("_", "")
    assert type(event).__name__ == ("HintBlockEvent" if name == "HintBlock" else name)


@by_type
def test_events_cannot_be_changed(event: ev.AgentEvent) -> None:
    """An event is the same for all who see it."""
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)


# -- JSON ---------------------------------------------------------------------------------------------------


@by_type
def test_events_survive_json(event: ev.AgentEvent) -> None:
    """An event is read back as it was written, fresh or emitted, and with metadata."""
    for each in (
        event,
        stamped(event),
        dataclasses.replace(event, source="scout", metadata={"taskId": "t", "n": None}),
    ):
        assert ev.event_from_json(each.to_json()) == each
        assert ev.event_from_json(each.to_json().decode()) == each


@by_type
def test_the_names_in_json_are_camel_case(event: ev.AgentEvent) -> None:
    """An emitted event has its own fields and the common ones under the names of AgentScope, on one line."""
    written = stamped(event).to_json()
    assert b"\n" not in written
    own = set(FIELDS[type_of(event)].split())
    assert set(json.loads(written)) == own | {"type", "id", "createdAt", "callReplyId", "execution"}
    assert json.loads(written)["execution"] == {
        "agentId": "a1",
        "sessionId": "s1",
        "turnId": "t1",
        "runId": "run1",
    }


@by_type
def test_absent_values_are_left_out(event: ev.AgentEvent) -> None:
    """A fresh event has neither moment nor source nor execution, and its JSON holds no null of ours."""
    fields = json.loads(event.to_json())
    assert not COMMON - {"id", "callReplyId"} & set(fields)
    assert [name for name, value in fields.items() if value is None] == []


def test_optional_fields_are_left_out_where_they_are_absent() -> None:
    """A call that failed has no usage, a hint may have no source, an answer may have neither rules nor reason."""
    assert "usage" not in json.loads(ev.ModelCallEnd(reply_id="r1").to_json())
    assert "hintSource" not in json.loads(ev.HintBlockEvent(**BLOCK, hint="h").to_json())
    answer = ev.UserConfirmResult(reply_id="r1", confirm_results=(ev.ConfirmResult(confirmed=True, tool_call=CALL),))
    assert set(json.loads(answer.to_json())["confirmResults"][0]) == {"confirmed", "toolCall"}
    assert ev.event_from_json(answer.to_json()) == answer


def test_values_inside_of_events_keep_their_names() -> None:
    """Content blocks, sources and permission rules have the same names in an event as in a message or a state."""
    data = json.loads(ev.ToolResultDataDelta(**TOOL, data=IMAGE).to_json())["data"]
    assert data["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    answer = ev.ConfirmResult(confirmed=True, tool_call=CALL, rules=(RULE,))
    written = json.loads(ev.UserConfirmResult(reply_id="r1", confirm_results=(answer,)).to_json())
    (rule,) = written["confirmResults"][0]["rules"]
    assert rule == {"tool_name": "look", "behavior": "allow", "rule_content": "p:*", "source": "suggested"}


def test_nulls_in_a_value_are_the_authors() -> None:
    """What the author put into a custom event, or a model into arguments, is written as it is."""
    custom = ev.Custom(name="note", value={"k": None, "deep": {"n": [None]}}, metadata={"m": None})
    fields = json.loads(custom.to_json())
    assert (fields["value"], fields["metadata"]) == ({"k": None, "deep": {"n": [None]}}, {"m": None})


def test_moments_are_instants_in_utc() -> None:
    """`createdAt` is ISO 8601 with its zone; another zone is the same instant when it is read."""
    assert json.loads(stamped(EXAMPLES[0]).to_json())["createdAt"] == "2026-01-02T03:04:05.678901Z"
    elsewhere = dataclasses.replace(EXAMPLES[0], created_at=MOMENT.astimezone(timezone(timedelta(hours=2))))
    assert ev.event_from_json(elsewhere.to_json()).created_at == MOMENT


@by_type
def test_unknown_fields_are_ignored(event: ev.AgentEvent) -> None:
    """A newer writer may say more."""
    fields = {**json.loads(stamped(event).to_json()), "newField": {"deep": 1}}
    assert ev.event_from_json(json.dumps(fields)) == stamped(event)


@pytest.mark.parametrize("type", ["NO_SUCH_TYPE", "agent_end", "", "RUN_FINISHED", "REPLY_END", "THREAD_EXPOSED"])
def test_an_unknown_type_is_refused(type: str) -> None:
    """A type that there is not is an error; Java's old names are such types."""
    with pytest.raises(ValidationError, match="does not match any of the expected tags"):
        ev.event_from_json(json.dumps({"type": type, "replyId": "r1"}))


@pytest.mark.parametrize(
    "data", ["{}", "[]", "null", '{"type":"AGENT_END"}', '{"type":"AGENT_END","replyId":', b"\xff"]
)
def test_what_is_no_event_is_refused(data: bytes | str) -> None:
    """Neither a type nor a field without a default may be missing."""
    with pytest.raises(ValidationError):
        ev.event_from_json(data)


@given(ODD_TEXTS)
def test_no_text_keeps_an_event_from_being_written(text: str) -> None:
    """Lone surrogates become U+FFFD; an event log must not end a run."""
    clean = text.encode("utf-8", "replace").decode().replace("?", "\ufffd")
    assert json.loads(ev.TextBlockDelta(**BLOCK, delta=text).to_json())["delta"] == clean
    assert json.loads(ev.Custom(name="n", value={"k": [text]}).to_json())["value"] == {"k": [clean]}


def test_no_value_keeps_a_custom_event_from_being_written() -> None:
    """In process a custom event may hold anything; as JSON it holds the text of what JSON has no form for."""
    event = ev.Custom(name="n", value={"error": ValueError("no"), "nan": float("nan"), "when": MOMENT, "many": (1, 2)})
    assert json.loads(event.to_json())["value"] == {
        "error": "no",
        "nan": None,
        "when": "2026-01-02T03:04:05.678901Z",
        "many": [1, 2],
    }


@dataclasses.dataclass
class Report:
    """Something with a part that is not for others."""

    count: int
    secret: str = "prompt"

    def to_data(self) -> dict[str, object]:
        return {"howMany": self.count}


@pytest.mark.parametrize("odd", ["plain", "\ud83d"])
def test_a_typed_value_is_written_in_its_own_form(odd: str) -> None:
    """What leaves the process of a manifest is what the manifest shows, and never the request that it is about."""
    event = ev.Custom(name="context_build", value={"manifest": Report(3), "note": odd})
    assert json.loads(event.to_json())["value"]["manifest"] == {"howMany": 3}
    assert b"prompt" not in event.to_json()
    assert event.value["manifest"] == Report(3)


# -- identity -----------------------------------------------------------------------------------------------


@by_type
def test_a_fresh_event_gets_its_identity(event: ev.AgentEvent) -> None:
    """Emitting gives id, moment, call and execution to the very object, and touches nothing else."""
    fresh = dataclasses.replace(event)
    after = ev.stamp(fresh, id="e1", created_at=MOMENT, call_reply_id="r0", execution=EXECUTION)
    assert after is fresh
    assert (after.id, after.created_at, after.call_reply_id, after.execution) == ("e1", MOMENT, "r0", EXECUTION)
    unstamped = dataclasses.replace(after, id="", created_at=None, call_reply_id="", execution=None)
    assert unstamped == event


def test_an_event_that_is_passed_on_keeps_its_identity() -> None:
    """A subagent's event is still the event that it was."""
    event = dataclasses.replace(stamped(EXAMPLES[0]), source="scout")
    other = ev.Execution(agent_id="a9", session_id="s9", turn_id="t9", run_id="run9")
    assert ev.stamp(event, id="e9", created_at=MOMENT, call_reply_id="r9", execution=other) is event
    assert (event.id, event.call_reply_id, event.execution) == ("e1", "r0", EXECUTION)


@by_type
def test_an_event_that_is_emitted_again_is_another(event: ev.AgentEvent) -> None:
    """A constant that an operator emits in each run never shows one run, or its user, to the subscribers of another."""
    first = stamped(event)
    other = ev.Execution(agent_id="a9", session_id="s9", turn_id="t9", run_id="run9")
    again = ev.stamp(first, id="e9", created_at=MOMENT, call_reply_id="r9", execution=other)
    assert (again.id, again.call_reply_id, again.execution) == ("e9", "r9", other)
    assert first == stamped(event)
    assert dataclasses.replace(again, id="e1", call_reply_id="r0", execution=EXECUTION) == first
