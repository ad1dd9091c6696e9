"""A session whose every change is a record of its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from agentscope_rx.errors import LeaseLost, SessionBusy, StateConflict
from agentscope_rx.finishing import to_the_end
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import ToolResultBlock
from agentscope_rx.past import RecordedEffect
from agentscope_rx.records import RecoveryApplied, RequestPrepared, RunEnded, RunStarted
from agentscope_rx.records.told import TOLD
from agentscope_rx.requests import ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.session.folding import FoldCache, Folded, checkpoint_json, fold, fold_whole, is_checkpoint
from agentscope_rx.session.forking import Branch, recorded_result
from agentscope_rx.session.journal import Journal
from agentscope_rx.session.lineage import mark_of, records
from agentscope_rx.session.log_record import Origin, written
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import SessionKey, SessionStore
from agentscope_rx.stores.growing import grown
from agentscope_rx.stores.store import Lease

LEASE_SECONDS: Final = 30.0
_RENEWALS: Final = 3  # in the time of a lease
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0


@frozen
class Recovery:
    """What was found of a run that had ended without saying so.

    Args:
        run_id: The run.
        uncertain: The tool calls of which nobody knows whether they had an effect.
    """

    run_id: str
    uncertain: tuple[str, ...]


@frozen
class Holder:
    """Who opens a session.

    Args:
        name: A name for people to read.
        run_id: The run; empty for who only changes the state.
        turn_id: The turn.
        wait: Seconds that it waits for another process.
        lease: Seconds after which others may have the session where this process has died.
        whole: Whether the whole log is read, with all that compactions have replaced.
        requests: Whether requests to models are recorded.
    """

    name: str
    run_id: str = ""
    turn_id: str = ""
    wait: float = 300.0
    lease: float = LEASE_SECONDS
    whole: bool = False
    requests: bool = True


class LoggedSession:
    """A session as long as one run has its turn, in this process and among all.

    `record` changes the state in memory and notes the record; `barrier` writes what was noted to the log. What was
    written is never lost, and nobody else writes meanwhile: each write carries the fence of the lease.

    Args:
        folded: The session as the log had it.
        lease: The right to write to it.
        store: Where it is kept.
        runtime: Where ids and moments come from.
        cache: What this process knows of sessions.
        holder: Who has it open.
    """

    def __init__(
        self, folded: Folded, lease: Lease, *, store: SessionStore, runtime: Runtime, cache: FoldCache, holder: Holder
    ) -> None:
        self._folded, self._state, self._lease = folded, folded.state, lease
        #: The state with which it was opened.
        self.found = folded.state
        self._store, self._runtime, self._cache, self._holder = store, runtime, cache, holder
        self._requests = folded.request_writer()
        self._noted: list[tuple[Record, Origin]] = []
        self._writing = asyncio.Lock()
        self._lost: Exception | None = None
        self._renewing = asyncio.create_task(self._keep_lease())
        self.step_id, self.step_number = "", 0
        self.journals: list[Journal] = []
        self.on_told: Callable[[], None] | None = None
        self.recovery = self._recovered()

    @classmethod
    async def open(
        cls, key: SessionKey, *, store: SessionStore, runtime: Runtime, cache: FoldCache, holder: Holder
    ) -> LoggedSession:
        """Become the one that may write to a session, and read it.

        Raises:
            SessionBusy: Another process had it for longer than the holder waits.
            LogUnreadable: Its log cannot be read.
        """
        lease = await _acquired(store, key, holder, runtime.jitter)
        try:
            folded = await (fold_whole(store, key) if holder.whole else fold(store, key, cache))
        except BaseException:
            await to_the_end(store.release(lease))
            raise
        return cls(folded, lease, store=store, runtime=runtime, cache=cache, holder=holder)

    # -- the state ------------------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The newest state."""
        return self._state

    @property
    def seq(self) -> int:
        """The number of the last record that is known."""
        return self._folded.seq

    @property
    def durable(self) -> bool:
        """What is recorded is written to a log."""
        return True

    @property
    def pending(self) -> bool:
        """Whether something is noted that is not in the log, or never will be."""
        return bool(self._noted) or self._lost is not None or any(each.filled for each in self.journals)

    async def recorded_result(self, effect: RecordedEffect, /) -> ToolResultBlock | None:
        """The result of a call that has run in another future of the session; None where nobody knows it."""
        return await recorded_result(self._store, effect)

    def record(self, record: Record, /) -> AgentState:
        """Change the state, and note why."""
        self._state = self._state.apply(record)
        self._noted.append((record, self._origin(self._runtime.clock.now())))
        return self._state

    def note_request(self, request: ModelRequest, model: str, manifest: ContextManifest | None, /) -> None:
        """Note a request that goes to a model."""
        if self._holder.requests:
            record = self._requests.record_of(request, model, manifest, self._state.context)
            of_step = request.purpose == "reasoning"
            self.record(replace(record, step=self.step_number) if of_step else record)

    async def begin_from(self, branch: Branch) -> AgentState:
        """Begin the session as a fork, and save it.

        Raises:
            StateConflict: It has begun already; it was left as it is.
        """
        if self._folded.seq or self._noted:
            id = self._lease.key.session_id
            raise StateConflict(f"session {id!r} is there already: fork into one that is not")
        return await self._recorded(branch.forked())

    async def return_to(self, branch: Branch) -> AgentState:
        """Take the session back to an earlier point, and save it."""
        return await self._recorded(branch.rewound(self._state))

    async def _recorded(self, records: Sequence[Record]) -> AgentState:
        for record in records:
            self.record(record)
        await self.save()
        return self._state

    def begin(self) -> None:
        """Note that the run begins."""
        self.record(RunStarted(self._holder.run_id, self._holder.turn_id))

    def end(self, status: str, reason: str = "") -> None:
        """Note that the run ends."""
        self.record(RunEnded(self._holder.run_id, status, reason))

    def _origin(self, now: datetime) -> Origin:
        return Origin(
            event_id=self._runtime.ids.new_id("record"),
            occurred_at=now,
            run_id=self._holder.run_id,
            turn_id=self._holder.turn_id,
            step_id=self.step_id,
        )

    def _recovered(self) -> Recovery | None:
        state = self._state
        if not state.active_run:
            return None
        still_open = {call.id for call in state.context.open_calls} if state.dispatched else set[str]()
        uncertain = tuple(id for id in state.dispatched if id in still_open)
        self.record(RecoveryApplied(state.active_run, uncertain))
        logger().warning("run_recovered", run=state.active_run, uncertain=len(uncertain))
        return Recovery(run_id=state.active_run, uncertain=uncertain)

    # -- the log --------------------------------------------------------------------------------------------

    async def barrier(self) -> None:
        """Write what was noted; who is cancelled waits until it is written.

        Raises:
            LeaseLost: Somebody else has the session by now; nothing was written.
            StoreUnavailable: The store cannot be reached.
        """
        if self.pending:
            await to_the_end(self._write())

    async def save(self) -> None:
        """Write what was noted, and keep the state so that the next run need not fold the log."""
        await self.barrier()
        if self._folded.seq != self._folded.checkpoint_seq:
            await to_the_end(self._checkpoint())

    async def catch_up(self) -> None:
        """Learn what others have told the session since this run last wrote or looked."""
        if self._lost is None:
            await to_the_end(self._catch_up())

    async def changes(self) -> AsyncGenerator[None]:
        """Tells each time that the log may hold something that this run does not know of."""
        while True:
            await grown(self._store, self._lease.key, self._folded.seq)
            yield

    async def close(self) -> None:
        """Give the session back; who is cancelled waits until it is."""
        self._renewing.cancel()
        await to_the_end(self._release())

    async def _write(self) -> None:
        async with self._writing:
            if self._lost is not None:
                raise self._lost
            self._note_journals()
            noted, self._noted = self._noted, []
            try:
                await self._append(noted, self._state)
            except Exception as error:
                self._lost = error  # what is noted later builds on what is not in the log
                raise

    async def _append(self, noted: Sequence[tuple[Record, Origin]], state: AgentState) -> None:
        while noted:
            seq = self._folded.seq
            bodies = [written(number, record, origin) for number, (record, origin) in enumerate(noted, seq + 1)]
            try:
                last = await self._store.append(self._lease.key, bodies, expected_seq=seq, fence=self._lease.fence)
            except StateConflict:
                told = await self._told()
                if not told:
                    raise
                for record in told:
                    state = state.apply(record)
                continue
            requests = [record for record, _ in noted if isinstance(record, RequestPrepared)]
            self._folded = self._folded.with_requests(requests, self._requests)
            self._fold_on(state, last, bodies[-1])
            return

    def _note_journals(self) -> None:
        for journal in self.journals:
            if journal.filled:
                self.record(journal.record())

    async def _catch_up(self) -> None:
        async with self._writing:
            await self._told()

    async def _told(self) -> Sequence[Record]:
        """Take in what others have told the session: it commutes with all that is noted here."""
        told: list[Record] = []
        async with aclosing(records(self._store, self._lease.key, self._folded.seq)) as found:
            async for body, record in found:
                read = record.read(self._state)
                if not isinstance(read, TOLD):
                    raise StateConflict(
                        f"record {record.seq} ({record.type}) of session {self._lease.key.session_id!r} was written "
                        "by somebody who did not hold the session"
                    )
                told.append(read)
                self._state = self._state.apply(read)
                self._fold_on(self._folded.state.apply(read), record.seq, body)
        if told and self.on_told is not None:
            self.on_told()
        return told

    def _fold_on(self, state: AgentState, seq: int, body: bytes) -> None:
        self._folded = replace(self._folded, state=state, seq=seq, mark=mark_of(body))
        self._cache.keep(self._store, self._lease.key, self._folded)

    async def _checkpoint(self) -> None:
        folded, body = self._folded, checkpoint_json(self._folded)
        key, fence = self._lease.key, self._lease.fence
        try:
            version = await self._store.put(key, body, expected_version=folded.checkpoint_version, fence=fence)
        except StateConflict:
            # Another process has kept one since this one read the session. It is older: nobody else writes now.
            stored = await self._store.get(key)
            if stored is None or not is_checkpoint(stored.body):
                raise
            version = await self._store.put(key, body, expected_version=stored.version, fence=fence)
        self._folded = replace(folded, checkpoint_version=version, checkpoint_seq=folded.seq)
        self._cache.keep(self._store, self._lease.key, self._folded)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._holder.lease / _RENEWALS)
            try:
                await self._store.renew(self._lease, ttl=self._holder.lease)
            except LeaseLost as error:
                self._lost = error
                return
            except Exception as error:  # the next renewal may succeed before the lease runs out
                logger().warning("lease_not_renewed", error=type(error).__name__)

    async def _release(self) -> None:
        await asyncio.wait({self._renewing})
        try:
            await self._store.release(self._lease)
        except Exception as error:  # it runs out by itself
            logger().warning("lease_not_released", error=type(error).__name__)


async def _acquired(store: SessionStore, key: SessionKey, holder: Holder, jitter: Callable[[], float]) -> Lease:
    """The lease; waits for whoever has it."""
    loop = asyncio.get_running_loop()
    until, wait = loop.time() + holder.wait, _FIRST_WAIT
    while True:
        try:
            return await _kept(store, store.acquire(key, holder.name, ttl=holder.lease))
        except SessionBusy:
            left = until - loop.time()
            if left <= 0:
                raise
        # By chance, or all who began to wait together would ask at the same moments, and one of them get it at each.
        await asyncio.sleep(min(_FIRST_WAIT + jitter() * (wait - _FIRST_WAIT), left))
        wait = min(2 * wait, _LONGEST_WAIT)


async def _kept(store: SessionStore, acquiring: Awaitable[Lease]) -> Lease:
    """A lease that is given back where nobody waits for it any more."""
    task = asyncio.ensure_future(acquiring)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):  # nobody waits for the lease, or for why there is none; one that is kept runs out
            await to_the_end(_given_back(store, task))
        raise


async def _given_back(store: SessionStore, task: asyncio.Future[Lease]) -> None:
    await store.release(await task)
