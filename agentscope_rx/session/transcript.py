"""Everything that was said in a session, as its log has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import agentscope_rx.records as rec
from agentscope_rx.messages import Msg
from agentscope_rx.session.codecs import codec_for
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.state import AgentState

_NOTHING = AgentState()


class Transcript:
    """Folds the records of a log into the messages that came in, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._messages: dict[str, Msg] = {}

    @property
    def messages(self) -> Sequence[Msg]:
        """The messages, oldest first."""
        return tuple(self._messages.values())

    def take(self, record: LogRecord) -> None:
        """One more record; what shortens or rewrites a history adds nothing."""
        if is_fork(record) and self._messages:
            return  # what was said before has been read where it was said
        for message in messages_said(record):
            self._messages.setdefault(message.id, message)


def is_fork(record: LogRecord) -> bool:
    """Whether a record says that its session began as another one was."""
    codec = codec_for(record.type)
    return codec is not None and codec.record is rec.SessionForked


def messages_said(record: LogRecord) -> Iterable[Msg]:
    """The messages that came into a session by a record of its log."""
    codec = codec_for(record.type)
    if codec is None or codec.record not in _SAYING:
        return ()
    return messages_in(codec.read(record.version, record.payload, _NOTHING))


_SAYING: frozenset[type[Any]] = frozenset(
    {
        rec.InputAccepted,
        rec.CallsClosed,
        rec.ReplyRecorded,
        rec.ReplyBroken,
        rec.ResultsRecorded,
        rec.OutcomesReconciled,
        rec.CallsConfirmed,
        rec.CallsExecuted,
        rec.StateReplaced,
        rec.SessionForked,
        rec.InputsTaken,
    }
)


def messages_in(record: object) -> Iterable[Msg]:
    """The messages that came into a session with a record."""
    match record:
        case (
            rec.InputAccepted(messages=messages)
            | rec.ResultsRecorded(messages=messages)
            | rec.InputsTaken(messages=messages)
        ):
            return messages
        case (
            rec.CallsClosed(results=results)
            | rec.OutcomesReconciled(results=results)
            | rec.CallsConfirmed(results=results)
            | rec.CallsExecuted(results=results)
        ):
            return results
        case rec.ReplyRecorded(message=message):
            return (message,)
        case rec.ReplyBroken(kept=kept):
            return () if kept is None else (kept,)
        case rec.StateReplaced(state=state) | rec.SessionForked(state=state):
            return AgentState.from_json(state.encode()).context.messages
        case _:
            return ()
