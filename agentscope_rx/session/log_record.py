"""One record of a session's log: its envelope and its payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

from agentscope_rx.errors import InvalidToolPairs, LogUnreadable, StateUnreadable, TaskConflict, TaskRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.session.codecs import codec_for, codec_of
from agentscope_rx.state import AgentState, Record
from agentscope_rx.wire import from_json, to_json

SCHEMA_VERSION: Final = 1


@frozen
class Origin:
    """What a record belongs to.

    Args:
        event_id: Its own id.
        occurred_at: When it happened.
        run_id: The run; empty = none.
        turn_id: The turn; empty = none.
        step_id: The request of the step; empty = none.
    """

    event_id: str
    occurred_at: datetime
    run_id: str = ""
    turn_id: str = ""
    step_id: str = ""


@frozen
class LogRecord:
    """A record as the log holds it.

    Args:
        seq: Its number, from 1, without gaps.
        event_id: Its own id.
        occurred_at: When it happened, in milliseconds since 1970 in UTC.
        type: Its type.
        version: The version of its payload.
        run_id: The run; empty = none.
        turn_id: The turn; empty = none.
        step_id: The request of the step; empty = none.
        required: Whether a reader that does not know the type must stop.
        payload: What happened, as plain data.
    """

    seq: int
    event_id: str
    occurred_at: int
    type: str
    version: int
    run_id: str
    turn_id: str
    step_id: str
    required: bool
    payload: Mapping[str, Any]

    @classmethod
    def from_json(cls, data: bytes) -> LogRecord:
        """Read a record.

        Raises:
            LogUnreadable: It is none, or of a newer schema.
        """
        try:
            fields = cast("dict[str, Any]", from_json(data))
            if fields["schemaVersion"] != SCHEMA_VERSION:
                found = fields["schemaVersion"]
                raise LogUnreadable(f"a record has the schema version {found!r}; this library reads {SCHEMA_VERSION}")
            seq, version, occurred_at = fields["seq"], fields["version"], fields["occurredAt"]
            name, required = fields["type"], fields["required"]
            if not (
                isinstance(seq, int)
                and isinstance(version, int)
                and isinstance(occurred_at, int)
                and isinstance(name, str)
                and isinstance(required, bool)
            ):
                raise TypeError
            return cls(
                seq=seq,
                event_id=fields["eventId"],
                occurred_at=occurred_at,
                type=name,
                version=version,
                run_id=fields["executionRunId"] or "",
                turn_id=fields["turnId"] or "",
                step_id=fields["stepId"] or "",
                required=required,
                payload=fields["payload"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LogUnreadable(f"a record of the log cannot be read ({type(error).__name__})") from None

    def applied_to(self, state: AgentState) -> AgentState:
        """The state after this record.

        Raises:
            LogUnreadable: Its type is not known and it is required, its payload cannot be read, or it does not fit
                what came before.
            UndoRefused: It undoes a compaction, and the state does not hold what that has replaced.
        """
        codec = codec_for(self.type)
        if codec is not None and codec.silent:
            return state
        try:
            record = self.read(state)
            return state if record is None else record.apply(state)
        except (InvalidToolPairs, StateUnreadable, TaskConflict, TaskRefused) as error:
            raise LogUnreadable(f"record {self.seq} ({self.type}) does not fit what came before it: {error}") from None

    def read(self, state: AgentState) -> Record | None:
        """What happened; None where its type is not known and need not be.

        Args:
            state: The state before it, for what it only names.

        Raises:
            LogUnreadable: Its type is not known and it is required, or its payload cannot be read.
        """
        codec = codec_for(self.type)
        if codec is not None:
            return codec.read(self.version, self.payload, state)
        if self.required:
            raise LogUnreadable(
                f"record {self.seq} has the type {self.type!r}, which is not known here and is required"
            )
        return None


def written(seq: int, record: Record, origin: Origin) -> bytes:
    """A record as the log holds it.

    Args:
        seq: Its number.
        record: What happened.
        origin: What it belongs to.

    Raises:
        InvalidOption: Nobody has said how records of its class are written.
    """
    codec = codec_of(record)
    head = to_json(
        {
            "schemaVersion": SCHEMA_VERSION,
            "eventId": origin.event_id,
            "seq": seq,
            "occurredAt": int(origin.occurred_at.timestamp() * 1_000),
            "type": codec.type,
            "version": codec.version,
            "executionRunId": origin.run_id or None,
            "turnId": origin.turn_id or None,
            "stepId": origin.step_id or None,
            "required": codec.required,
        }
    )
    return head[:-1] + b',"payload":' + codec.encode(record) + b"}"
