"""A session's state, folded from its log; a checkpoint is a fold that was kept."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import field, replace
from typing import Any, Final, cast

from agentscope_rx.errors import LogUnreadable, StateUnreadable, UndoRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.recent import Recent
from agentscope_rx.records import RequestPrepared
from agentscope_rx.session.codecs import REQUEST
from agentscope_rx.session.known_values import KnownValues
from agentscope_rx.session.lineage import lineage, mark_of, records
from agentscope_rx.session.request_writer import RequestWriter
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore, StateStore
from agentscope_rx.stores.store import ABSENT
from agentscope_rx.wire import from_json, to_json

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


async def fold_whole(store: SessionStore, key: SessionKey, through: int | None = None) -> Folded:
    """Read a session from its beginning, with all that compactions have replaced; errors as of `fold`.

    Of one that was forked, what lies before is read where it is, if it is there still.

    Args:
        store: Where it is kept.
        key: The session.
        through: The last record that is wanted; None = all.
    """
    stored = await store.get(key)
    *past, _ = await lineage(store, key)
    state = AgentState()
    for stretch in past:
        state = (await _extended(_begin(stretch.key, state), store, stretch.key, stretch.through)).state
    begin = _begin(key, state)
    begin = begin if stored is None else replace(begin, checkpoint_version=stored.version)
    return await _extended(begin, store, key, through)


async def fold_through(store: SessionStore, key: SessionKey, seq: int) -> AgentState:
    """The state of a session as it was after one of its records; errors as of `fold`."""
    try:
        kept = await _from_checkpoint(_begin(key), store, key)
        begin = kept if kept.seq <= seq else _begin(key)
        return (await _extended(begin, store, key, seq)).state
    except UndoRefused:
        return (await fold_whole(store, key, seq)).state


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
    begin = _begin(key)
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


def _begin(key: SessionKey, past: AgentState | None = None) -> Folded:
    """A session before its first record: with nothing, or with what lies before it."""
    return Folded(state=replace(past or AgentState(), session_id=key.session_id, user_id=key.user_id))


async def _extended(begin: Folded, store: SessionStore, key: SessionKey, through: int | None = None) -> Folded:
    state, seq, last, asked = begin.state, begin.seq, b"", begin.asked
    async with aclosing(records(store, key, seq, through)) as new:
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
