"""The one writer of a session's state, for as long as a run holds the session's turn."""

from __future__ import annotations

from hashlib import sha256

from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import StateConflict, StateUnreadable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.logs import logger
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import ToolResultBlock
from agentscope_rx.past import RecordedEffect
from agentscope_rx.recent import Recent
from agentscope_rx.requests import ModelRequest
from agentscope_rx.session.conflicts import ConflictPolicy, merged
from agentscope_rx.session.folding import is_checkpoint
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import InMemoryStore, SessionKey, StateStore, Stored
from agentscope_rx.stores.store import ABSENT


class StateCache:
    """The newest states of a Runtime, as values.

    A store holds bytes. A state that is read from them knows nothing of its history: neither what it weighs nor how
    it is written. The cache spares the next run of the session the reading and the weighing.
    """

    def __init__(self) -> None:
        self._states: Recent[tuple[StateStore, SessionKey], tuple[object, AgentState]] = Recent()

    def find(self, store: StateStore, key: SessionKey, stored: Stored) -> AgentState | None:
        """The state that is stored, if it is known."""
        known = self._states.get((store, key))
        return known[1] if known is not None and known[0] == _mark(stored) else None

    def keep(self, store: StateStore, key: SessionKey, stored: Stored, state: AgentState) -> None:
        """Remember what was stored, as a value."""
        self._states.put((store, key), (_mark(stored), state))


def _mark(stored: Stored) -> object:
    # Versions are counts: a session that was deleted and begun anew elsewhere has them again.
    return stored.version, sha256(stored.body).digest()


class RequestCache:
    """The newest request of each session and its level of pressure, so that the next can be compared with it."""

    def __init__(self) -> None:
        self._requests: Recent[tuple[StateStore, SessionKey], tuple[RequestDraft, int]] = Recent()

    def find(self, store: StateStore, key: SessionKey) -> tuple[RequestDraft, int] | None:
        """The session's newest request and its level of pressure, if they are known."""
        return self._requests.get((store, key))

    def keep(self, store: StateStore, key: SessionKey, request: tuple[RequestDraft, int]) -> None:
        """Remember a request and its level of pressure."""
        self._requests.put((store, key), request)


class StoredSession:
    """A session's state, loaded from a store and saved to it, without a log.

    `record` changes the state in memory, at once, on the run's loop; `save` writes it where it differs from what
    the store holds.

    Args:
        state: The state as loaded.
        version: Its version in the store.
        key: The session.
        store: Where it is kept.
        cache: What this process knows of stored states.
        policy: What becomes of a state that somebody else was faster than.
    """

    def __init__(
        self,
        state: AgentState,
        version: int,
        *,
        key: SessionKey,
        store: StateStore,
        cache: StateCache,
        policy: ConflictPolicy = ConflictPolicy.FAIL,
    ) -> None:
        self.step_id, self.step_number, self.recovery = "", 0, None
        #: The state with which it was opened.
        self.found = state
        self._state = self._saved = state
        self._version = version
        self._key, self._store, self._cache, self._policy = key, store, cache, policy
        self._unsaved: list[Record] = []

    @classmethod
    async def open(
        cls,
        key: SessionKey,
        *,
        store: StateStore,
        cache: StateCache,
        policy: ConflictPolicy = ConflictPolicy.FAIL,
    ) -> StoredSession:
        """Load the session, or begin it.

        Raises:
            StateUnreadable: Something is stored that cannot be read; no fresh state is made in its place.
        """
        stored = await store.get(key)
        if stored is None:
            fresh = AgentState(session_id=key.session_id, user_id=key.user_id)
            return cls(fresh, ABSENT, key=key, store=store, cache=cache, policy=policy)
        state = cache.find(store, key, stored) or _read(key, stored)
        return cls(state, stored.version, key=key, store=store, cache=cache, policy=policy)

    @classmethod
    def beside(cls, state: AgentState) -> StoredSession:
        """A session for trying something out: what is recorded in it is kept nowhere."""
        key = SessionKey(agent_id="nobody", user_id=None, session_id="nobody")
        return cls(state, ABSENT, key=key, store=InMemoryStore(), cache=StateCache())

    @property
    def state(self) -> AgentState:
        """The newest state."""
        return self._state

    @property
    def durable(self) -> bool:
        """There is no log."""
        return False

    @property
    def pending(self) -> bool:
        """Nothing waits to be written to a log."""
        return False

    async def recorded_result(self, effect: RecordedEffect, /) -> ToolResultBlock | None:
        """Without a log nothing is known of another future."""
        return None

    def record(self, record: Record, /) -> AgentState:
        """Fold a record into the state."""
        self._state = self._state.apply(record)
        self._unsaved.append(record)
        return self._state

    def note_request(self, request: ModelRequest, model: str, manifest: ContextManifest | None, /) -> None:
        """There is no log to keep it in."""

    def begin(self) -> None:
        """Nothing is noted of a run."""

    def end(self, status: str, reason: str = "") -> None:
        """Nothing is noted of a run."""

    async def barrier(self) -> None:
        """There is no log to write to."""

    async def catch_up(self) -> None:
        """Nobody can tell it anything."""

    async def close(self) -> None:
        """Nothing is held."""

    async def save(self) -> None:
        """Store the state, if it has changed; a cancelled caller waits until the store is done, since what has
        happened must be known to the next call.

        Raises:
            StateConflict: Somebody else stored another version meanwhile, and the policy does not settle it; nothing
                was overwritten.
        """
        if self._state is not self._saved:
            await to_the_end(self._store_it())

    async def _store_it(self) -> None:
        try:
            await self._put(self._state)
        except StateConflict:
            match self._policy:
                case ConflictPolicy.FAIL:
                    raise
                case ConflictPolicy.OVERWRITE:
                    await self._overwrite()
                case ConflictPolicy.APPEND_MERGE:
                    await self._merge()

    async def _overwrite(self) -> None:
        """Store the state in the place of theirs, however often they are faster."""
        while True:
            stored = await self._newest()
            try:
                await self._put(self._state)
            except StateConflict:
                if await self._store.get(self._key) == stored:
                    raise  # nobody was faster: the store refuses for a reason of its own
                continue
            logger().warning(
                "state_overwritten",
                session=self._key.session_id,
                version=self._version,
                lost=0 if stored is None else stored.version,
            )
            return

    async def _merge(self) -> None:
        stored = await self._newest()
        begin = AgentState(session_id=self._key.session_id, user_id=self._key.user_id)
        theirs = begin if stored is None else _read(self._key, stored)
        state = merged(theirs, self._unsaved)
        await self._put(state)
        self._state = state
        logger().info("state_merged", session=self._key.session_id, version=self._version)

    async def _newest(self) -> Stored | None:
        """What is stored now, which the next `put` takes the place of."""
        stored = await self._store.get(self._key)
        if stored is not None:
            _check_no_checkpoint(self._key, stored)
        self._version = ABSENT if stored is None else stored.version
        return stored

    async def _put(self, state: AgentState) -> None:
        body = state.to_json()
        self._version = await self._store.put(self._key, body, expected_version=self._version)
        self._saved = state
        self._unsaved.clear()
        self._cache.keep(self._store, self._key, Stored(body, self._version), state)


def _read(key: SessionKey, stored: Stored) -> AgentState:
    _check_no_checkpoint(key, stored)
    return AgentState.from_json(stored.body)


def _check_no_checkpoint(key: SessionKey, stored: Stored) -> None:
    if is_checkpoint(stored.body):
        raise StateUnreadable(
            f"session {key.session_id!r} has a log, and what is stored is a checkpoint of it: open it without "
            "state_only(True)"
        )
