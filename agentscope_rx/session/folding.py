"""A session's state, folded from its log; a checkpoint is a fold that was kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import field, replace
from hashlib import sha256
from typing import Any, Final, cast

from agentscope_rx.errors import LogUnreadable, StateUnreadable, UndoRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.recent import Recent
from agentscope_rx.records import RequestPrepared
from agentscope_rx.session.codecs import REQUEST
from agentscope_rx.session.known_values import KnownValues
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.request_writer import RequestWriter
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore, StateStore
from agentscope_rx.stores.store import ABSENT
from agentscope_rx.wire import from_json, to_json

_PAGE: Final = 1_000
_STATE: Final = b',"state":'


@frozen
class Folded:
    """A session as its log has it.

    Args:
        state: The state.
        seq: The number of the last record in it; 0 = there is none.
        mark: A hash of that record, by which it is known again; empty = there is none.
        checkpoint_version: The version of the stored checkpoint; 0 = there is none.
        checkpoint_seq: The last record in that.
        values: What the log holds of the values of requests.
        asked: The newest request of the conversation itself in it.
        writer: What has told that request in this process; None = nobody has.
    """

    state: AgentState
    seq: int = 0
    mark: str = ""
    checkpoint_version: int = ABSENT
    checkpoint_seq: int = 0
    values: KnownValues = field(default_factory=KnownValues, compare=False)
    asked: str = ""
    writer: RequestWriter | None = field(default=None, compare=False)

    def request_writer(self) -> RequestWriter:
        """What tells the next requests: the same as before, if the log ends with what it has told."""
        known, writer = self.values.copy(), self.writer
        if writer is None or writer.newest != self.asked:
            return RequestWriter(known)
        writer.known = known
        return writer

    def with_requests(self, requests: Iterable[RequestPrepared], writer: RequestWriter) -> Folded:
        """The same with requests that the log holds now too, and who has told them."""
        asked = self.asked
        for each in requests:
            self.values.add(each.values)
            asked = each.call_id if each.purpose == "reasoning" else asked
        return replace(self, asked=asked, writer=writer)


class FoldCache:
    """The newest folds of a Runtime, so that the next run of a session reads only what is new."""

    def __init__(self) -> None:
        self._folds: Recent[tuple[StateStore, SessionKey], Folded] = Recent()

    def find(self, store: StateStore, key: SessionKey) -> Folded | None:
        """The newest fold of a session, if it is known."""
        return self._folds.get((store, key))

    def keep(self, store: StateStore, key: SessionKey, folded: Folded) -> None:
        """Remember a fold."""
        self._folds.put((store, key), folded)


async def fold_whole(store: SessionStore, key: SessionKey) -> Folded:
    """Read a session from the beginning of its log, with all that compactions have replaced; errors as of `fold`."""
    stored = await store.get(key)
    begin = Folded(state=AgentState(session_id=key.session_id, user_id=key.user_id))
    return await _extended(begin if stored is None else replace(begin, checkpoint_version=stored.version), store, key)


async def fold(store: SessionStore, key: SessionKey, cache: FoldCache) -> Folded:
    """Read a session: from what is known of it, else from its checkpoint, else from the beginning.

    Args:
        store: Where it is kept.
        key: The session.
        cache: What is known.

    Raises:
        LogUnreadable: A record cannot be read, or the log ends before its checkpoint.
        LogCorrupt: The log is damaged.
        StateUnreadable: The session was kept without a log.
    """
    begin = Folded(state=AgentState(session_id=key.session_id, user_id=key.user_id))
    known = await _still_there(cache.find(store, key), store, key)
    try:
        return await _extended(known or await _from_checkpoint(begin, store, key), store, key)
    except UndoRefused:  # a compaction was undone whose messages only the log holds
        return await fold_whole(store, key)


async def _still_there(known: Folded | None, store: SessionStore, key: SessionKey) -> Folded | None:
    """What is known of a session, if that was not deleted and begun anew since."""
    if known is None or not known.seq:
        return None
    last = await store.read_after(key, known.seq - 1, limit=1)
    return known if last and mark_of(last[0]) == known.mark else None


async def records(store: SessionStore, key: SessionKey, after: int) -> AsyncGenerator[tuple[bytes, LogRecord]]:
    """The records behind a number, page by page."""
    while True:
        page = await store.read_after(key, after, limit=_PAGE)
        for body in page:
            record = LogRecord.from_json(body)
            after += 1
            if record.seq != after:
                raise LogUnreadable(f"the log of session {key.session_id!r} holds record {record.seq} at place {after}")
            yield body, record
        if len(page) < _PAGE:
            return


async def _extended(begin: Folded, store: SessionStore, key: SessionKey) -> Folded:
    state, seq, last, asked = begin.state, begin.seq, b"", begin.asked
    async with aclosing(records(store, key, seq)) as new:
        async for body, record in new:
            state, seq, last = record.applied_to(state), record.seq, body
            if record.type == REQUEST:
                begin.values.add(record.payload.get("values", ()))
                asked = record.payload["call_id"] if record.payload.get("purpose") == "reasoning" else asked
    if seq == begin.seq:
        return begin
    return Folded(
        state=state,
        seq=seq,
        mark=mark_of(last),
        checkpoint_version=begin.checkpoint_version,
        checkpoint_seq=begin.checkpoint_seq,
        values=begin.values,
        asked=asked,
        writer=begin.writer,
    )


# -- checkpoints --------------------------------------------------------------------------------------------


def checkpoint_json(folded: Folded) -> bytes:
    """A fold as it is kept; what compactions have replaced is in the log."""
    head = to_json({"checkpoint": 1, "seq": folded.seq, "mark": folded.mark, "values": list(folded.values)})
    return head[:-1] + _STATE + folded.state.to_json(with_replaced=False) + b"}"


def is_checkpoint(body: bytes) -> bool:
    """Whether what a store holds is a checkpoint of a log, and no state that was kept without one."""
    return body.startswith(b'{"checkpoint":')


async def _from_checkpoint(begin: Folded, store: SessionStore, key: SessionKey) -> Folded:
    stored = await store.get(key)
    if stored is None:
        return begin
    if not is_checkpoint(stored.body):
        raise StateUnreadable(
            f"session {key.session_id!r} was kept without a log: open it with state_only(True), or import its state"
        )
    without = replace(begin, checkpoint_version=stored.version)
    try:
        head, state = stored.body.split(_STATE, 1)
        fields = cast("dict[str, Any]", from_json(head + b"}"))
        seq, mark, kept = int(fields["seq"]), str(fields["mark"]), AgentState.from_json(state[:-1])
        values = KnownValues(map(str, fields.get("values", ())))
    except (ValueError, KeyError, TypeError, StateUnreadable) as error:
        logger().warning("checkpoint_unreadable", session=key.session_id, error=type(error).__name__)
        return without  # it is only a fold that was kept: the log has it all
    last = await store.read_after(key, seq - 1, limit=1) if seq else ()
    if seq and (not last or mark_of(last[0]) != mark):
        raise LogUnreadable(
            f"the log of session {key.session_id!r} does not hold record {seq}, which its checkpoint was made of"
        )
    return Folded(state=kept, seq=seq, mark=mark, checkpoint_version=stored.version, checkpoint_seq=seq, values=values)


def mark_of(body: bytes) -> str:
    """A hash by which a record is known again."""
    return sha256(body).hexdigest()
