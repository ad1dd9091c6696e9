"""Other futures of a session: a new one that shares its past, or the same one, taken back.

A fork's log begins with one record: up to which record of which log its past goes, and the state at that point. So it
costs as much as what the model sees, whatever came before; and it goes on when the session that it came from is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import agentscope_rx.records as rec
from agentscope_rx.compactions import Compaction
from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.messages import Msg, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.past import PastPoint, RecordedEffect, arguments_digest
from agentscope_rx.records import OutcomesReconciled, SessionForked, SessionRewound
from agentscope_rx.session.codecs import codec_for
from agentscope_rx.session.folding import FoldCache, fold, fold_through
from agentscope_rx.session.intake import closable_calls
from agentscope_rx.session.lineage import Stretch, key_at, lineage, mark_of, point_at, record_at, records
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.transcript import messages_in
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import SessionKey, SessionStore

_NOTHING: Final = AgentState()
_AT: Final = "the number of a record, from 1 to the last one; the id of a step; or None for the end"


@frozen
class Branch:
    """A point of a session's past, from which another future can begin.

    Args:
        past: The point.
        state: The state at it; its `tool_context.effects` are what has run behind the point.
        results: What became, behind the point, of calls that were open at it.
    """

    past: PastPoint
    state: AgentState
    results: tuple[Msg, ...] = ()

    def forked(self) -> Sequence[Record]:
        """The records with which a new session begins here."""
        return (SessionForked(self.past, self.state.to_json(with_replaced=False).decode()), *self._reconciled())

    def rewound(self, now: AgentState) -> Sequence[Record]:
        """The records with which a session goes back to here.

        Args:
            now: Its state before.
        """
        known = {each.id for each in now.compactions}

        def named(compaction: Compaction) -> Compaction:
            return replace(compaction, replaced=History()) if compaction.id in known else compaction

        state = replace(self.state, compactions=tuple(map(named, self.state.compactions)))
        return (SessionRewound(self.past, state.to_json().decode()), *self._reconciled())

    def _reconciled(self) -> Sequence[Record]:
        if not self.results:
            return ()
        return (OutcomesReconciled(self.results, f"recorded in session {self.past.session_id}"),)


async def branch_at(
    store: SessionStore,
    key: SessionKey,
    at: int | str | None,
    *,
    reuse_tool_effects: bool = True,
    cache: FoldCache | None = None,
) -> Branch:
    """Read what another future of a session begins with; nothing is written.

    Args:
        store: Where the session is kept.
        key: The session.
        at: Behind which record of its log; or, as the id of a step, before that step; None = at the end.
        reuse_tool_effects: Whether what has run behind the point is not run again.
        cache: What is known of sessions.

    Raises:
        InvalidOption: The session has no such record or step.
        LogUnreadable: A record of its log cannot be read.
    """
    if at is None:
        folded = await fold(store, key, cache or FoldCache())
        if not folded.seq:
            raise InvalidOption("at", at, f"session {key.session_id!r} has no log: there is nothing to go on from")
        return Branch(past=point_at(key, folded.seq, folded.mark), state=replace(folded.state, active_run=""))
    stretches = await lineage(store, key)
    past = await _place(store, stretches, at)
    state = replace(await fold_through(store, key_at(past), past.seq), active_run="")
    if not reuse_tool_effects:
        return Branch(past=past, state=replace(state, tool_context=replace(state.tool_context, effects=())))
    future = _Future(state)
    async with aclosing(_behind(store, stretches, past)) as found:
        async for log, body, record in found:
            future.take(log, body, record)
    effects = future.effects()
    return Branch(
        past=past,
        state=replace(state, tool_context=replace(state.tool_context, effects=effects)),
        results=tuple(future.results.values()),
    )


async def recorded_result(store: SessionStore, effect: RecordedEffect) -> ToolResultBlock | None:
    """The result of a call that has run in another future; None where nobody knows it, or not any more.

    Args:
        store: Where sessions are kept.
        effect: The call.
    """
    if effect.result is None:
        return None
    found = await record_at(store, effect.result)
    if found is None:
        return None  # the session was deleted, or begun anew since
    results = (message.tool_result for message in messages_in(_read(LogRecord.from_json(found))))
    return next((each for each in results if each is not None and each.id == effect.call_id), None)


# -- the point ----------------------------------------------------------------------------------------------


async def _place(store: SessionStore, stretches: Sequence[Stretch], at: int | str) -> PastPoint:
    if isinstance(at, str):
        for stretch in stretches:
            last = b""
            async with aclosing(records(store, stretch.key, 0, stretch.through)) as found:
                async for body, record in found:
                    if at and record.step_id == at:
                        return point_at(stretch.key, record.seq - 1, mark_of(last))
                    last = body
    elif at >= 1 and (own := await store.read_after(stretches[-1].key, at - 1, limit=1)):
        return point_at(stretches[-1].key, at, mark_of(own[0]))
    raise InvalidOption("at", at, _AT)


async def _behind(
    store: SessionStore, stretches: Sequence[Stretch], past: PastPoint
) -> AsyncGenerator[tuple[SessionKey, bytes, LogRecord]]:
    """What the session has recorded since a point, be it in its own log or in that of one that it was forked from."""
    place = [stretch.key for stretch in stretches].index(key_at(past))
    for stretch in stretches[place:]:
        after = past.seq if stretch is stretches[place] else 0
        async with aclosing(records(store, stretch.key, after, stretch.through)) as found:
            async for body, record in found:
                yield stretch.key, body, record


# -- what has run behind it ---------------------------------------------------------------------------------

#: The records that tell something of tool calls.
_TELLING: Final[frozenset[type[Any]]] = frozenset(
    {
        rec.ReplyRecorded,
        rec.ToolsDispatched,
        rec.ResultsRecorded,
        rec.CallsClosed,
        rec.CallsConfirmed,
        rec.CallsExecuted,
        rec.InputAccepted,
        rec.OutcomesReconciled,
        rec.SessionForked,
        rec.SessionRewound,
    }
)


def _read(record: LogRecord) -> object:
    """What a record says of tool calls; None where it says nothing."""
    codec = codec_for(record.type)
    if codec is None or codec.record not in _TELLING:
        return None
    return codec.read(record.version, record.payload, _NOTHING)


class _Future:
    """What has run behind a point, from the records there.

    Attributes:
        results: The first result of each call that was open at the point, by the call's id.
    """

    def __init__(self, state: AgentState) -> None:
        self._calls = {call.id: call for call in state.context.open_calls}
        self._left_open = {call.id for call in closable_calls(state.context)}
        self._before = set(state.dispatched)
        self._running = set(state.dispatched)
        self._found: dict[RecordedEffect, None] = dict.fromkeys(state.tool_context.effects)
        self.results: dict[str, Msg] = {}

    def effects(self) -> tuple[RecordedEffect, ...]:
        """All of them, in the order in which they were recorded; those whose result nobody knows come last."""
        for id in sorted(self._running - self._before):
            if id in self._calls:
                self._found[_effect(self._calls[id], None)] = None
        return tuple(self._found)

    def take(self, key: SessionKey, body: bytes, record: LogRecord) -> None:
        """One more record behind the point."""
        told = _read(record)
        match told:
            case rec.ToolsDispatched(call_ids=ids):
                self._running.update(ids)
                self._before.difference_update(ids)
            case rec.SessionForked(state=state):  # its source has gone on without it, which it knows
                self._found.update(dict.fromkeys(self._begun_again(state).tool_context.effects))
            case rec.SessionRewound(state=state):
                self._begun_again(state)
            case rec.CallsConfirmed(calls=calls):
                self._calls.update((call.id, call) for call in calls)
            case rec.CallsExecuted(results=results):
                self._running.update(each.id for message in results if (each := message.tool_result) is not None)
            case _:
                pass
        if isinstance(told, rec.SessionForked):
            return
        for message in messages_in(told):
            self._calls.update((call.id, call) for call in message.tool_calls)
            if message.tool_result is not None:
                self._settle(message, message.tool_result, point_at(key, record.seq, mark_of(body)))

    def _begun_again(self, written: str) -> AgentState:
        """The session was forked or rewound here, itself, and has these open calls."""
        state = AgentState.from_json(written.encode())
        self._calls.update((call.id, call) for call in state.context.open_calls)
        return state

    def _settle(self, message: Msg, result: ToolResultBlock, at: PastPoint) -> None:
        ran = result.id in self._running
        self._running.discard(result.id)
        if result.id in self._left_open:
            self._left_open.discard(result.id)
            self.results[result.id] = message
        elif ran and result.id in self._calls and result.state is not ToolResultState.DENIED:
            self._found[_effect(self._calls[result.id], at)] = None


def _effect(call: ToolUseBlock, result: PastPoint | None) -> RecordedEffect:
    return RecordedEffect(call_id=call.id, tool=call.name, arguments=arguments_digest(call), result=result)
