"""How records are written into a session's log, and read from it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

import agentscope_rx.records as rec
from agentscope_rx.compactions import CompactionDecision
from agentscope_rx.edits import Edit
from agentscope_rx.errors import InvalidOption, LogUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Msg
from agentscope_rx.state import AgentState, Record
from agentscope_rx.wire import to_json, write

#: The type of the records of requests.
REQUEST: Final = "request/prepared"
#: The type of the records of what came into a run and out of it.
TRACED: Final = "run/traced"
#: What an older version of a payload has to become to be the next one's.
Upgrade: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@frozen
class Codec:
    """How one type of record is written.

    Args:
        type: Its name in the log; what is nobody's own begins with `extension/`.
        record: Its class.
        encode: Writes a record as the JSON of a payload.
        decode: Reads a payload; gets the state before it too, for what the payload only names.
        upgrades: For each older version, from 1, how its payload becomes the next one's.
        required: Whether a reader that does not know the type must stop.
        silent: Whether it changes no state, so that folding a log need not read it.
    """

    type: str
    record: type[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[Mapping[str, Any], AgentState], Record]
    upgrades: Sequence[Upgrade] = ()
    required: bool = True
    silent: bool = False

    @property
    def version(self) -> int:
        """The version that is written."""
        return len(self.upgrades) + 1

    def read(self, version: int, payload: Mapping[str, Any], state: AgentState) -> Record:
        """A record of any version up to this one.

        Raises:
            LogUnreadable: It is of a newer version, or is no such record.
        """
        if not 1 <= version <= self.version:
            raise LogUnreadable(
                f"a record {self.type!r} of version {version} is newer than this library, which reads "
                f"up to version {self.version}"
            )
        for upgrade in self.upgrades[version - 1 :]:
            payload = upgrade(payload)
        try:
            return self.decode(payload, state)
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            # Not the error's own words: they quote what was said in the session.
            raise LogUnreadable(f"a record {self.type!r} cannot be read ({type(error).__name__})") from None


def plain(
    type: str, record: type[Any], *, upgrades: Sequence[Upgrade] = (), required: bool = True, silent: bool = False
) -> Codec:
    """The codec of a record whose payload is its fields.

    Args:
        type: Its name in the log.
        record: Its class: a frozen value whose fields can be written as JSON.
        upgrades: As for `Codec`.
        required: As for `Codec`.
        silent: As for `Codec`.
    """

    @cache
    def adapter() -> TypeAdapter[Any]:
        return TypeAdapter(record)

    return Codec(
        type=type,
        record=record,
        encode=lambda value: write(adapter(), value),
        decode=lambda payload, _: adapter().validate_python(payload),
        upgrades=upgrades,
        required=required,
        silent=silent,
    )


# -- edits: what is gone is named, what came is written -----------------------------------------------------


def _encode_edited(record: rec.HistoryEdited) -> bytes:
    decision = None if record.compaction is None else _decision(record.compaction)
    rest = to_json({"compaction": decision, "at": record.at})
    return b'{"edits":[' + b",".join(map(_edit_json, record.edits)) + b"]," + rest[1:]


def _edit_json(edit: Edit) -> bytes:
    removed = to_json([exchange.id for exchange in edit.removed])
    inserted = [message.to_json() for exchange in edit.inserted for message in exchange.messages]
    return b'{"removed":' + removed + b',"inserted":[' + b",".join(inserted) + b"]}"


def _decision(decision: CompactionDecision) -> dict[str, object]:
    names = (each.name for each in fields(decision) if each.name != "failure")  # type: ignore[reportArgumentType]
    return {name: getattr(decision, name) for name in names}


def _decode_edited(payload: Mapping[str, Any], state: AgentState) -> rec.HistoryEdited:
    wanted = {id for edit in payload["edits"] for id in edit["removed"]}
    known = {exchange.id: exchange for exchange in state.context if exchange.id in wanted} if wanted else {}
    edits = tuple(_edit(edit, known) for edit in payload["edits"])
    decision = payload["compaction"]
    return rec.HistoryEdited(
        edits, None if decision is None else _decision_adapter().validate_python(decision), payload["at"]
    )


def _edit(edit: Mapping[str, Any], known: Mapping[str, Exchange]) -> Edit:
    messages = _messages_adapter().validate_python(edit["inserted"])
    return Edit(tuple(known[id] for id in edit["removed"]), tuple(History.of(*messages)))


@cache
def _decision_adapter() -> TypeAdapter[CompactionDecision]:
    return TypeAdapter(CompactionDecision)


@cache
def _messages_adapter() -> TypeAdapter[list[Msg]]:
    return TypeAdapter(list[Msg])


# -- requests: nothing of them is a part of the state, and folding a log does not look into them -------------


def _encode_request(record: rec.RequestPrepared) -> bytes:
    return to_json({each.name: getattr(record, each.name) for each in fields(record)})  # type: ignore[reportArgumentType]


def _encode_traced(record: rec.RunTraced) -> bytes:
    return b'{"lines":' + to_json(record.lines) + b"}"


def _decode_traced(payload: Mapping[str, Any], _: AgentState) -> rec.RunTraced:
    return rec.RunTraced(payload["lines"])


def _decode_request(payload: Mapping[str, Any], _: AgentState) -> rec.RequestPrepared:
    return rec.RequestPrepared(**payload)


# -- the registry -------------------------------------------------------------------------------------------

_EDITED: Final = Codec(type="context/edited", record=rec.HistoryEdited, encode=_encode_edited, decode=_decode_edited)
_BUILT_IN: Final = (
    Codec(
        type=REQUEST,
        record=rec.RequestPrepared,
        encode=_encode_request,
        decode=_decode_request,
        required=False,
        silent=True,
    ),
    plain("run/start", rec.RunStarted),
    plain("run/end", rec.RunEnded),
    plain("input/received", rec.InputAccepted),
    plain("calls/closed", rec.CallsClosed),
    plain("message/assistant", rec.ReplyRecorded),
    plain("message/broken", rec.ReplyBroken),
    plain("tool/dispatch", rec.ToolsDispatched),
    plain("tool/results", rec.ResultsRecorded),
    _EDITED,
    plain("compaction/undone", rec.CompactionUndone),
    plain("limit/learned", rec.LimitLearned),
    plain("interaction/requested", rec.CallsPaused),
    plain("interaction/confirmed", rec.CallsConfirmed),
    plain("interaction/executed", rec.CallsExecuted),
    plain("permission/mode", rec.PermissionModeChanged),
    plain("permission/changed", rec.PermissionsReplaced),
    plain("task/changed", rec.TasksChanged),
    plain("plan/changed", rec.PlanModeChanged),
    plain("verification/result", rec.VerificationRecorded),
    plain("recovery/applied", rec.RecoveryApplied),
    plain("recovery/reconciled", rec.OutcomesReconciled),
    plain("context/cleared", rec.ContextCleared),
    plain("state/replaced", rec.StateReplaced),
    plain("session/forked", rec.SessionForked),
    plain("session/rewound", rec.SessionRewound),
    plain("tool/reused", rec.EffectsReused),
    plain("inbox/command", rec.CommandQueued),
    plain("inbox/input", rec.InputQueued),
    plain("inbox/interrupt", rec.InterruptAsked),
    plain("inbox/begun", rec.CommandBegun),
    plain("inbox/rejected", rec.CommandRejected),
    plain("inbox/taken", rec.InputsTaken),
    plain("events/emitted", rec.EventsEmitted, required=False, silent=True),
    Codec(
        type=TRACED,
        record=rec.RunTraced,
        encode=_encode_traced,
        decode=_decode_traced,
        required=False,
        silent=True,
    ),
)
_by_type: Final[dict[str, Codec]] = {codec.type: codec for codec in _BUILT_IN}
_by_class: Final[dict[type, Codec]] = {codec.record: codec for codec in _BUILT_IN}
_EXTENSION: Final = "extension/"


def register_record(codec: Codec) -> None:
    """Let logs hold records of a type of your own, for the life of the process.

    Args:
        codec: How it is written; `plain(type, record)` where its payload is its fields.

    Raises:
        InvalidOption: The type does not begin with `extension/`, or it or its class is known already.
    """
    if not codec.type.startswith(_EXTENSION) or codec.type == _EXTENSION:
        raise InvalidOption("type", codec.type, f"must begin with {_EXTENSION!r} and go on")
    if codec.type in _by_type or codec.record in _by_class:
        raise InvalidOption("codec", codec.type, "its type and its class must not be known already")
    _by_type[codec.type] = codec
    _by_class[codec.record] = codec


def codec_of(record: Record) -> Codec:
    """How a record is written.

    Raises:
        InvalidOption: Nobody has said how.
    """
    codec = _by_class.get(type(record))
    if codec is None:
        raise InvalidOption("record", type(record).__name__, "has no codec: register_record(plain(type, class))")
    return codec


def codec_for(type: str) -> Codec | None:
    """How a type of record is read; None = it is not known."""
    return _by_type.get(type)
