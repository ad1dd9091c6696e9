"""The log of a session, for those who read it: everything that was ever said and done in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from agentscope_rx.compactions import Compaction
from agentscope_rx.errors import RequestUnknown
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import Msg
from agentscope_rx.past import PastPoint
from agentscope_rx.session.folding import FoldCache, fold_whole
from agentscope_rx.session.forking import Branch, branch_at
from agentscope_rx.session.intake import uncertain_calls
from agentscope_rx.session.lineage import forked_from, records, whole_past
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.request_reader import LoggedRequest, RequestReader
from agentscope_rx.session.transcript import Transcript
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore


@frozen
class Projection:
    """A session as its log has it, for those who only look.

    Args:
        as_of_seq: The last record in it; 0 = the session is new.
        state: The state.
        active_run: The run that is at work, or was when its process died; empty = none.
        uncertain_tool_calls: The open calls of which nobody knows whether they had an effect, while nobody is at
            work.
    """

    as_of_seq: int
    state: AgentState
    active_run: str
    uncertain_tool_calls: tuple[str, ...]


class SessionLog:
    """The log of one session. Reading never writes, and never waits for who is at work.

    Args:
        store: Where it is kept.
        key: The session.
    """

    def __init__(self, store: SessionStore, key: SessionKey) -> None:
        self._store, self._key = store, key

    @property
    def key(self) -> SessionKey:
        """The session."""
        return self._key

    async def read_after(self, seq: int, limit: int = 1_000) -> Sequence[LogRecord]:
        """The records behind a number, at most `limit`; none where the log ends before.

        Args:
            seq: The last record that is known; 0 = from the beginning.
            limit: How many at most.

        Raises:
            LogUnreadable: One of them cannot be read.
        """
        return [LogRecord.from_json(body) for body in await self._store.read_after(self._key, seq, limit=limit)]

    async def scan(self, after: int = 0, through: int | None = None) -> AsyncGenerator[LogRecord]:
        """All records behind a number, one by one; of a session that was forked, its own.

        Args:
            after: The last record that is known.
            through: The last one that is wanted; None = to the end.
        """
        async with aclosing(records(self._store, self._key, after, through)) as found:
            async for _, record in found:
                yield record

    async def forked_from(self) -> PastPoint | None:
        """The point of another session at which this one was forked; None where it was not."""
        return await forked_from(self._store, self._key)

    async def project(self) -> Projection:
        """The session as it is now."""
        folded = await fold_whole(self._store, self._key)
        state = folded.state
        return Projection(
            as_of_seq=folded.seq,
            state=state,
            active_run=state.active_run,
            uncertain_tool_calls=tuple(call.id for call in uncertain_calls(state)),
        )

    async def transcript(self) -> Sequence[Msg]:
        """All messages that were ever said, oldest first, word for word: no compaction and no offload shortens it.

        Of a session that was forked, what was said before is read where it was said. If that session is gone, the
        transcript begins with what the model saw at the fork.
        """
        transcript = Transcript()
        async with aclosing(whole_past(self._store, self._key)) as found:
            async for _, record in found:
                transcript.take(record)
        return transcript.messages

    async def requests(self) -> AsyncGenerator[LoggedRequest]:
        """All requests that went to models, oldest first, each as it was.

        Raises:
            LogUnreadable: One cannot be made again as it was.
        """
        state, reader = AgentState(session_id=self._key.session_id, user_id=self._key.user_id), RequestReader()
        async with aclosing(self.scan()) as found:
            async for record in found:
                if (request := reader.take(record, state)) is not None:
                    yield request
                state = record.applied_to(state)

    async def request(self, call_id: str) -> LoggedRequest:
        """The request of one model call, as it was.

        Args:
            call_id: Its id, as `replyId` of the call's events and `callId` of its manifest.

        Raises:
            RequestUnknown: The log holds no such request.
            LogUnreadable: It cannot be made again as it was.
        """
        async with aclosing(self.requests()) as found:
            async for each in found:
                if each.request.call_id == call_id:
                    return each
        raise RequestUnknown(f"the log of session {self._key.session_id!r} holds no request {call_id!r}")

    async def branch(
        self, at: int | str | None = None, *, reuse_tool_effects: bool = True, cache: FoldCache | None = None
    ) -> Branch:
        """A point from which another future of the session can begin; `agent.fork` and `agent.rewind` begin it.

        Args:
            at: Behind which record; or, as the id of a step, before that step; None = at the end.
            reuse_tool_effects: Whether what has run behind the point is not run again.
            cache: What is known of sessions.

        Raises:
            InvalidOption: The session has no such record or step.
        """
        return await branch_at(self._store, self._key, at, reuse_tool_effects=reuse_tool_effects, cache=cache)

    async def compactions(self) -> Sequence[Compaction]:
        """All compactions that were not undone, with everything that gave way to them."""
        return (await fold_whole(self._store, self._key)).state.compactions
