"""Random histories of a store beside a dict that does the same. Imported on first use, as it needs hypothesis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from agentscope_rx.errors import LeaseLost, SessionBusy, StateConflict
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import ANYBODY, Lease, SessionStore, Stored
from agentscope_rx.testing._rules import refused, require

T = TypeVar("T")
Call: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine, and gives what it gives."""

Names: TypeAlias = tuple[str, str | None, str]
"""Agent, user and session."""

_NAMES: list[Names] = [("a", None, "s"), ("a", "u", "s"), ("b", "u", "S")]
_KEYS = st.sampled_from(_NAMES)
_BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"{}", b"", b"\0", b'{"a":"\\u0000"}', b"a\nb\r\n", bytes(range(256))]
)
_BATCHES = st.lists(_BODIES, min_size=1, max_size=4)
_OFF = st.sampled_from([0] * 9 + [-1, 1, 3])  # how far from the truth an expectation is
_WHICH = st.integers(0, 3)  # of the fences that there were, the newest first
_LONG = 3600.0


@dataclass
class _Session:
    version: int = 0
    body: bytes = b""
    log: list[bytes] = field(default_factory=list[bytes])
    leases: list[Lease] = field(default_factory=list[Lease])
    live: bool = False

    @property
    def is_there(self) -> bool:
        return self.version > 0 or bool(self.log)


def check_histories(store: SessionStore, examples: int) -> None:
    """Play random histories, each with sessions of its own, on a loop of their own, beside the dict."""
    numbers = count()
    with asyncio.Runner() as runner:
        call = runner.get_loop().run_until_complete

        class Machine(StoreMachine):
            def __init__(self) -> None:
                super().__init__(store, call, f"history-{next(numbers)}")

        run_state_machine_as_test(Machine, settings=_settings(examples))  # type: ignore[reportUnknownMemberType]


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        phases=[Phase.generate],  # to make a history shorter takes minutes where each verb takes a millisecond
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        report_multiple_bugs=False,
    )


class StoreMachine(RuleBasedStateMachine):
    """One random history.

    Args:
        store: What is checked.
        call: How its coroutines are run.
        name: What the agents of this history are called; other histories are in the same store.
    """

    def __init__(self, store: SessionStore, call: Call, name: str) -> None:
        super().__init__()
        self._store, self._call, self._name = store, call, name
        self._model = {names: _Session() for names in _NAMES}

    @rule(names=_KEYS, body=_BODIES, off=_OFF, which=_WHICH, fenced=st.booleans())
    def put(self, names: Names, body: bytes, off: int, which: int, fenced: bool) -> None:
        session, fence = self._model[names], self._fence(names, which, fenced)
        work = self._store.put(self._key(names), body, expected_version=session.version + off, fence=fence)
        if self._writes(session, fence, off, work):
            session.version, session.body = session.version + 1, body

    @rule(names=_KEYS, records=_BATCHES, off=_OFF, which=_WHICH, fenced=st.booleans())
    def append(self, names: Names, records: list[bytes], off: int, which: int, fenced: bool) -> None:
        session, fence = self._model[names], self._fence(names, which, fenced)
        work = self._store.append(self._key(names), records, expected_seq=len(session.log) + off, fence=fence)
        if self._writes(session, fence, off, work):
            session.log += records

    @rule(names=_KEYS, body=_BODIES, records=_BATCHES)
    def go_on(self, names: Names, body: bytes, records: list[bytes]) -> None:
        """What a run does, so that histories get somewhere."""
        session = self._model[names]
        fenced = session.live
        self.put(names, body, 0, 0, fenced)
        self.append(names, records, 0, 0, fenced)

    @rule(names=_KEYS, seq=st.integers(0, 8), limit=st.integers(1, 5))
    def read(self, names: Names, seq: int, limit: int) -> None:
        found = self._call(self._store.read_after(self._key(names), seq, limit=limit))
        expected = self._model[names].log[seq : seq + limit]
        require(list(found) == expected, f"read_after({seq}, limit={limit}) gives {expected}, not {found}")

    @rule(names=_KEYS)
    def acquire(self, names: Names) -> None:
        session, work = self._model[names], self._store.acquire(self._key(names), "holder", ttl=_LONG)
        if session.live:
            with refused(SessionBusy, "a session that is held is given to nobody"):
                self._call(work)
            return
        lease: Lease = self._call(work)
        require((lease.key, lease.holder) == (self._key(names), "holder"), "a lease says whose it is and of what")
        grown = not session.leases or lease.fence > session.leases[-1].fence
        require(grown, f"fences grow, also across a delete: {lease.fence} came after {session.leases}")
        session.leases.append(lease)
        session.live = True

    @rule(names=_KEYS, which=_WHICH)
    def renew(self, names: Names, which: int) -> None:
        session = self._model[names]
        if len(session.leases) > which:
            lease = session.leases[-1 - which]
            if session.live and which == 0:
                self._call(self._store.renew(lease, ttl=_LONG))
            else:
                with refused(LeaseLost, "only the newest lease is renewed"):
                    self._call(self._store.renew(lease, ttl=_LONG))

    @rule(names=_KEYS, which=_WHICH)
    def release(self, names: Names, which: int) -> None:
        session = self._model[names]
        if len(session.leases) > which:
            self._call(self._store.release(session.leases[-1 - which]))
            session.live = session.live and which > 0

    @rule(names=_KEYS, which=_WHICH, fenced=st.booleans())
    def delete(self, names: Names, which: int, fenced: bool) -> None:
        session, fence = self._model[names], self._fence(names, which, fenced)
        work = self._store.delete(self._key(names), fence=fence)
        if self._lost(session, fence):
            with refused(LeaseLost, "nothing is deleted under an old fence"):
                self._call(work)
            return
        require(self._call(work) == session.is_there, "delete says whether the session was there")
        self._model[names] = _Session(leases=session.leases)

    @rule(unused=st.sampled_from([False] * 3 + [True]))
    def prune(self, unused: bool) -> None:
        pruned = self._call(self._store.prune(untouched_for=0.0 if unused else _LONG))
        gone = [names for names, session in self._model.items() if unused and not session.live]
        there = sum(self._model[names].is_there for names in gone)
        require(pruned >= there, f"prune counts the sessions that it deleted: {there} at least, not {pruned}")
        for names in gone:
            self._model[names] = _Session(leases=self._model[names].leases)

    @rule(names=_KEYS, by_agent=st.booleans(), by_user=st.booleans(), limit=st.integers(1, 3))
    def list(self, names: Names, by_agent: bool, by_user: bool, limit: int) -> None:
        agent, user = self._key(names).agent_id, names[1]
        found: list[SessionKey] = []
        while True:
            after = found[-1] if found else None
            page = self._call(
                self._store.list(
                    agent_id=agent if by_agent else None, user_id=user if by_user else ANYBODY, after=after, limit=limit
                )
            )
            require(len(page) <= limit, f"a page has at most {limit} sessions, not {len(page)}")
            if not page:
                break
            found += page
        require(len(found) == len(set(found)), "no session is on two pages")
        expected = {
            key
            for key in map(self._key, (names for names, session in self._model.items() if session.is_there))
            if (not by_agent or key.agent_id == agent) and (not by_user or key.user_id == user)
        }
        own = {key for key in found if key.agent_id.startswith(f"{self._name}-")}
        require(own == expected, f"list gives {expected}, not {own}")
        if by_agent or by_user:
            wrong = [k for k in found if (by_agent and k.agent_id != agent) or (by_user and k.user_id != user)]
            require(not wrong, f"list gives what was asked for, not {wrong}")

    @rule(names=_KEYS)
    def get(self, names: Names) -> None:
        session, stored = self._model[names], self._call(self._store.get(self._key(names)))
        expected = Stored(session.body, session.version) if session.version else None
        require(stored == expected, f"get gives {expected}, not {stored}")

    def teardown(self) -> None:
        """Look at all sessions once more, and leave none for the next history to list."""
        for names, session in self._model.items():
            self.get(names)
            self.read(names, 0, len(session.log) + 1)
        for names in _NAMES:
            self.delete(names, 0, fenced=False)

    def _key(self, names: Names) -> SessionKey:
        agent, user, session = names
        return SessionKey(agent_id=f"{self._name}-{agent}", user_id=user, session_id=session)

    def _fence(self, names: Names, which: int, fenced: bool) -> int | None:
        leases = self._model[names].leases
        return leases[-1 - which].fence if fenced and len(leases) > which else None

    def _lost(self, session: _Session, fence: int | None) -> bool:
        return fence is not None and not (session.live and session.leases[-1].fence == fence)

    def _writes(self, session: _Session, fence: int | None, off: int, work: Coroutine[Any, Any, int]) -> bool:
        """Do a write, which is refused where it must be; whether it was done."""
        if self._lost(session, fence):
            with refused(LeaseLost, "nothing is written under an old fence"):
                self._call(work)
            return False
        if off:
            with refused(StateConflict, "nothing is written where another version or record is than was expected"):
                self._call(work)
            return False
        self._call(work)
        return True
