"""Records as the log holds them: written, read, of older and newer versions, and of strange types."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentscope_rx.records as records
from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.edits import edits_between
from agentscope_rx.errors import InvalidOption, LogUnreadable, UndoRefused
from agentscope_rx.history import History
from agentscope_rx.messages import Role
from agentscope_rx.past import PastPoint, RecordedEffect
from agentscope_rx.records import (
    CallsClosed,
    CompactionUndone,
    ContextCleared,
    EffectsReused,
    HistoryEdited,
    InputAccepted,
    LimitLearned,
    OutcomesReconciled,
    RecoveryApplied,
    ReplyBroken,
    ReplyRecorded,
    RequestPrepared,
    ResultsRecorded,
    RunEnded,
    RunStarted,
    SessionForked,
    SessionRewound,
    StateReplaced,
    ToolsDispatched,
)
from agentscope_rx.requests import PURPOSES
from agentscope_rx.session.codecs import Codec, codec_for, codec_of, plain, register_record
from agentscope_rx.session.log_record import LogRecord, written
from agentscope_rx.state import AgentState, Record
from tests.session.support import ORIGIN, SAMPLES, TALK, said
from tests.strategies import JSON_OBJECTS, ODD_TEXTS, TEXTS, conversations, messages

FIXTURES = Path(__file__).parent
TYPES = {codec_of(record).type: (before, record) for before, record in SAMPLES}


def read(body: bytes, before: AgentState = TALK) -> Record:
    """The record in a body."""
    record = LogRecord.from_json(body)
    codec = codec_for(record.type)
    assert codec is not None
    return codec.read(record.version, record.payload, before)


def changed(record: Record, **fields: Any) -> LogRecord:
    """A record whose envelope says something else."""
    body: dict[str, Any] = json.loads(written(1, record, ORIGIN)) | fields
    return LogRecord.from_json(json.dumps(body).encode())


# -- what is written is read --------------------------------------------------------------------------------

_MESSAGES = st.lists(messages(), max_size=3).map(tuple)
_OF_TOOLS = st.lists(messages((Role.TOOL,)), max_size=2).map(tuple)
_IDS = st.lists(TEXTS, max_size=3).map(tuple)
_NUMBERS = st.integers(0, 10**9)
_POINTS = st.builds(PastPoint, agent_id=TEXTS, user_id=st.none() | TEXTS, session_id=TEXTS, seq=_NUMBERS, mark=TEXTS)
_EFFECTS = st.builds(RecordedEffect, call_id=TEXTS, tool=TEXTS, arguments=TEXTS, result=st.none() | _POINTS)
_DECISIONS = st.builds(
    CompactionDecision,
    outcome=st.sampled_from(CompactionOutcome),
    trigger=TEXTS,
    id=TEXTS,
    tokens_before=st.integers(0, 10**9),
    break_even_steps=st.none() | st.floats(0, 1e6),
    steps_since=st.none() | st.integers(0, 10**6),
)


@st.composite
def edits(draw: st.DrawFn) -> HistoryEdited:
    """A shortening or rewriting of a random conversation; its own `before` is what it was made of."""
    history = History.of(*draw(conversations()))
    count = draw(st.integers(0, len(history)))
    summary = replace(draw(messages((Role.USER,))), id="summary")
    after = history.replace_first(count, *([summary] if count and draw(st.booleans()) else []))
    return HistoryEdited(edits_between(history, after), draw(st.none() | _DECISIONS), draw(TEXTS))


RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(RunStarted, TEXTS, TEXTS),
    st.builds(RunEnded, TEXTS, TEXTS, TEXTS),
    st.builds(InputAccepted, _MESSAGES),
    st.builds(CallsClosed, _OF_TOOLS),
    st.builds(ReplyRecorded, messages((Role.ASSISTANT,))),
    st.builds(ReplyBroken, messages((Role.ASSISTANT,)), st.none() | messages((Role.ASSISTANT,))),
    st.builds(ToolsDispatched, _IDS),
    st.builds(ResultsRecorded, _OF_TOOLS, st.none() | _IDS),
    edits(),
    st.builds(
        RequestPrepared,
        call_id=TEXTS,
        purpose=st.sampled_from(PURPOSES),
        model=TEXTS,
        since=TEXTS,
        system=st.none() | JSON_OBJECTS,
        tools=st.none() | st.lists(JSON_OBJECTS, max_size=2),
        options=st.none() | JSON_OBJECTS,
        tail=st.none() | st.lists(JSON_OBJECTS, max_size=2),
        conversation=st.lists(JSON_OBJECTS, max_size=2),
        digest=TEXTS,
        values=JSON_OBJECTS,
        manifest=st.none() | JSON_OBJECTS,
    ),
    st.builds(CompactionUndone, TEXTS, st.integers(0, 10**6)),
    st.builds(LimitLearned, TEXTS, st.integers(0, 10**9)),
    st.builds(RecoveryApplied, TEXTS, _IDS),
    st.builds(OutcomesReconciled, _OF_TOOLS, TEXTS),
    st.builds(ContextCleared, TEXTS),
    st.builds(StateReplaced, TEXTS, TEXTS),
    st.builds(SessionForked, _POINTS, TEXTS),
    st.builds(SessionRewound, _POINTS, TEXTS),
    st.builds(EffectsReused, st.lists(_EFFECTS, max_size=2).map(tuple)),
)


@given(RECORDS)
def test_what_is_written_is_read(record: Record) -> None:
    """A record of any type and content comes back from the log as it was, and is written the same again."""
    before = TALK
    if isinstance(record, HistoryEdited):
        removed = [exchange for edit in record.edits for exchange in edit.removed]
        before = replace(TALK, context=History(removed))
    body = written(7, record, ORIGIN)
    found = read(body, before)
    assert found == record
    assert written(7, found, ORIGIN) == body


def test_the_envelope() -> None:
    """Each record says what it is, what it belongs to and when it was, in the names of the log's format."""
    body = json.loads(written(7, RunStarted("run1", "turn1"), ORIGIN))
    assert body == {
        "schemaVersion": 1,
        "eventId": "e1",
        "seq": 7,
        "occurredAt": 1_767_323_045_678,
        "type": "run/start",
        "version": 1,
        "executionRunId": "run1",
        "turnId": "turn1",
        "stepId": "call1",
        "required": True,
        "payload": {"run_id": "run1", "turn_id": "turn1"},
    }
    nobody = written(1, ContextCleared(), replace(ORIGIN, run_id="", turn_id="", step_id=""))
    assert [json.loads(nobody)[name] for name in ("executionRunId", "turnId", "stepId")] == [None] * 3
    record = LogRecord.from_json(nobody)
    assert (record.run_id, record.turn_id, record.step_id) == ("", "", "")


@given(ODD_TEXTS, JSON_OBJECTS)
def test_records_hold_plain_data(text: str, metadata: Mapping[str, object]) -> None:
    """Whatever a tool or a provider put into a message: the log holds JSON to the letter, which any reader reads."""
    inside: dict[str, object] = {
        "n": float("nan"),
        "i": float("inf"),
        "s": {1},
        "b": b"\xff",
        "o": object,
        "t": (text,),
    }
    message = replace(said("u3", text), metadata={**metadata, "odd": inside, text: text})
    body = written(1, InputAccepted((message,)), ORIGIN)

    def no_json(constant: str) -> NoReturn:
        raise AssertionError(constant)

    assert json.loads(body.decode(), parse_constant=no_json)["seq"] == 1
    assert read(body) == read(written(1, read(body), ORIGIN))


# -- versions -----------------------------------------------------------------------------------------------


def test_each_type_has_a_sample() -> None:
    """No class of records is without a codec, and none escapes the tests of this module."""
    classes = {each for _, each in inspect.getmembers(records, inspect.isclass)}
    assert {type(record) for _, record in SAMPLES} == classes


@pytest.mark.parametrize("type", TYPES)
def test_every_version_is_read(type: str) -> None:
    """What any version has ever written means the same to this one; such files are never changed, only added."""
    codec = codec_for(type)
    assert codec is not None
    for version in range(1, codec.version + 1):
        kept = json.loads((FIXTURES / f"records_v{version}" / f"{type.replace('/', '_')}.json").read_text())
        before, after = (AgentState.from_json(json.dumps(kept[name]).encode()) for name in ("before", "after"))
        record = LogRecord.from_json(json.dumps(kept["record"]).encode())
        assert (record.type, record.version) == (type, version)
        assert record.applied_to(before) == after
    sample_before, sample = TYPES[type]
    assert read(written(1, sample, ORIGIN), sample_before) == sample


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused(version: int) -> None:
    """A record of a version that this library does not know is an error, and is not read as if it were its own."""
    with pytest.raises(LogUnreadable, match="version"):
        changed(RunStarted("r", "t"), version=version).applied_to(TALK)
    with pytest.raises(LogUnreadable, match="schema version 2"):
        changed(RunStarted("r", "t"), schemaVersion=2)


@dataclass(frozen=True)
class Noted:
    """A record of somebody's own; its first version had a text, its second has words."""

    words: tuple[str, ...] = field(default=())

    def apply(self, state: AgentState) -> AgentState:
        """Say it."""
        return state.apply(InputAccepted((said("noted", " ".join(self.words)),)))


def split(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Version 1 as version 2."""
    return {"words": payload["text"].split()}


def test_an_older_version_is_brought_up_step_by_step() -> None:
    """A codec with upgrades reads what was written before them, and writes only the newest."""
    codec = Codec(
        type="extension/words",
        record=Noted,
        encode=lambda record: json.dumps({"words": record.words, "loud": True}).encode(),
        decode=lambda payload, _: Noted(tuple(payload["words"])),
        upgrades=(split, lambda payload: {**payload, "loud": False}),
    )
    assert codec.version == 3
    for version, payload in (
        (1, {"text": "a b"}),
        (2, {"words": ["a", "b"]}),
        (3, {"words": ["a", "b"], "loud": True}),
    ):
        assert codec.read(version, payload, TALK) == Noted(("a", "b"))
    with pytest.raises(LogUnreadable, match="KeyError"):
        codec.read(3, {"text": "a b"}, TALK)


# -- types that are not known -------------------------------------------------------------------------------


def test_a_type_that_is_not_known() -> None:
    """What is required stops a reader that does not know it; what is not required changes nothing."""
    assert changed(RunStarted("r", "t"), type="extension/later", required=False).applied_to(TALK) is TALK
    with pytest.raises(LogUnreadable, match="record 1 has the type 'extension/later', which is not known here"):
        changed(RunStarted("r", "t"), type="extension/later").applied_to(TALK)


@dataclass(frozen=True)
class Marked:
    """A record of somebody's own that changes nothing."""

    mark: str

    def apply(self, state: AgentState) -> AgentState:
        """Nothing."""
        return state


def test_records_of_ones_own() -> None:
    """A registered class is written and read like any other; names, types and classes that are taken are refused."""
    with pytest.raises(InvalidOption, match="register_record"):
        written(1, Marked("x"), ORIGIN)
    register_record(plain("extension/marked", Marked, required=False))
    body = written(1, Marked("x"), ORIGIN)
    assert json.loads(body)["required"] is False
    assert read(body) == Marked("x")
    for codec in (
        plain("run/start", Marked),
        plain("marked", Noted),
        plain("extension/", Noted),
        plain("extension/marked", Noted),
        plain("extension/started", RunStarted),
        plain("extension/again", Marked),
    ):
        with pytest.raises(InvalidOption):
            register_record(codec)


# -- what is no record --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"type": ["run/start"]},
        {"type": None},
        {"version": "1"},
        {"seq": "1"},
        {"required": None},
        {"occurredAt": "today"},
        {"payload": None},
        {"payload": []},
        {"payload": {}},
        {"payload": {"run_id": 1, "turn_id": []}},
    ],
)
def test_a_damaged_record_is_one_error(fields: dict[str, Any]) -> None:
    """Whatever a record holds in the place of what belongs there, reading it fails in one way."""
    with pytest.raises(LogUnreadable):
        changed(RunStarted("r", "t"), **fields).applied_to(TALK)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b"7", b"\xff", b'{"schemaVersion":1}', b'{"seq":1'])
def test_what_is_no_record(body: bytes) -> None:
    """JSON that is none, and JSON that is something else."""
    with pytest.raises(LogUnreadable):
        LogRecord.from_json(body)


@pytest.mark.parametrize(
    "record",
    [CallsClosed(TYPES["calls/closed"][1].results), StateReplaced("{}", "x"), StateReplaced("[", "x")],  # type: ignore[attr-defined]
)
def test_a_record_that_does_not_fit(record: Record) -> None:
    """A record that cannot follow what came before it makes the log unreadable, and says which one it is."""
    with pytest.raises(LogUnreadable, match=r"record 7 \(.*\) does not fit what came before it"):
        LogRecord.from_json(written(7, record, ORIGIN)).applied_to(AgentState())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(SAMPLES), st.data())
def test_no_damage_is_another_error(sample: tuple[AgentState, Record], data: st.DataObject) -> None:
    """One value anywhere in a record replaced by any other: it is read, or an error of ours says that it cannot be."""
    before, record = sample
    body: Any = json.loads(written(1, record, ORIGIN))
    inner: Any = body
    while True:
        keys: list[Any] = [*inner] if hasattr(inner, "keys") else [*range(len(inner))]
        key = data.draw(st.sampled_from(keys))
        if not isinstance(inner[key], dict | list) or not inner[key] or data.draw(st.booleans()):
            break
        inner = inner[key]
    inner[key] = data.draw(_JSON)
    after = None
    with suppress(LogUnreadable, *([UndoRefused] if isinstance(record, CompactionUndone) else [])):
        after = LogRecord.from_json(json.dumps(body).encode()).applied_to(before)
    assert after is None or type(after) is AgentState
    assert LogRecord.from_json(written(1, record, ORIGIN)).applied_to(before) is not None  # undamaged it is read


def test_an_error_shows_nothing_of_what_was_said() -> None:
    """The text of an error gets into logs, and what users said does not."""
    body = written(1, InputAccepted((said("u", "my secret"),)), ORIGIN).replace(b'"USER"', b'"SOMEBODY"')
    with pytest.raises(LogUnreadable) as caught:
        LogRecord.from_json(body).applied_to(TALK)
    assert "my secret" not in str(caught.value)
    assert caught.value.__cause__ is None
