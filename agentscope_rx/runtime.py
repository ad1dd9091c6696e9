"""What all agents of a builder share: time, identity, chance, threads, and whose turn it is.

This is the only module that reads a clock or draws a random number. A run that gets both from somewhere else, a
test or a recording, behaves the same each time.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Hashable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime
from itertools import count
from typing import Final, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakSet

from agentscope_rx.errors import InvalidOption
from agentscope_rx.gates import SessionGate
from agentscope_rx.outside import Direct, Outside

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """The wall clock, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds on the clock that time-outs go by."""
        ...


class Ids(Protocol):
    """Identity."""

    def new_id(self, kind: str, /) -> str:
        """A new id; `kind` says what it is for, for those who hand out readable ones."""
        ...


class SystemClock:
    """The computer's clocks; `monotonic()` is the running loop's, so that virtual time holds for it too."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The running loop's time, else the computer's."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()


class UniqueIds:
    """Ids of 32 hexadecimal digits: a random part for the process and a count.

    Making one costs a tenth of a UUID, and each event has one. A forked process draws a new random part.
    """

    def __init__(self) -> None:
        self._draw()
        _LIVING.add(self)

    def _draw(self) -> None:
        self._prefix = secrets.token_hex(10)
        self._next = count(1).__next__  # one step of the interpreter, and so safe from any thread

    def new_id(self, kind: str, /) -> str:
        """A new id; `kind` does not matter."""
        return f"{self._prefix}{self._next():012x}"

    @staticmethod
    def draw_again() -> None:
        """Give all living sources of ids a new random part: this process was forked from one that has the old."""
        for each in _LIVING:
            each._draw()


_LIVING: Final[WeakSet[UniqueIds]] = WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=UniqueIds.draw_again)


class Runtime:
    """Shared by a builder, the builders derived from it and all their agents.

    Args:
        clock: Where time comes from.
        ids: Where ids come from.
        jitter: Gives a number from 0 to 1, for the waits between two attempts.
        tool_threads: How many synchronous tools may run at once. A thread cannot be stopped: one whose tool timed out
            or was cancelled is busy, and keeps the process alive, until the tool returns; a long one should look at
            `ToolContext.cancelled`.

    Raises:
        InvalidOption: There is no thread for tools.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        jitter: Callable[[], float] = random.random,
        tool_threads: int = 16,
    ) -> None:
        if tool_threads < 1:
            raise InvalidOption("tool_threads", tool_threads, "at least 1")
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or UniqueIds()
        self.jitter = jitter
        self.outside: Outside = Direct()
        #: For work that is no part of a run, and so of no recording; None = such work is not done.
        self.apart: Runtime | None = self
        self._tool_threads = tool_threads
        self._lock = threading.Lock()
        self._gates: dict[Hashable, SessionGate] = {}
        self._single: dict[object, object] = {}
        self._own_single: dict[object, object] = {}
        self._afresh: frozenset[object] = frozenset()

    def seen_through(
        self,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        jitter: Callable[[], float] | None = None,
        outside: Outside | None = None,
        afresh: Collection[type] = (),
        apart: bool = True,
    ) -> Runtime:
        """The same Runtime, sessions, runs and threads included, for whom time or the world outside is another.

        Args:
            clock: Where time comes from; None = as here.
            ids: Where ids come from; None = as here.
            jitter: Chance; None = as here.
            outside: The way to models, tools and sources; None = as here.
            afresh: Of what, by class, there is another one in it and in those made from it.
            apart: Whether work is done that is no part of a run; it goes by this Runtime. Default True.
        """
        other = copy(self)
        if not apart:
            other.apart = None
        other.clock, other.ids = clock or self.clock, ids or self.ids
        other.jitter, other.outside = jitter or self.jitter, outside or self.outside
        if afresh:
            other._afresh, other._own_single = frozenset(afresh), {}
        return other

    @property
    def threads(self) -> ThreadPoolExecutor:
        """The threads in which synchronous tools run."""
        return self.single(ThreadPoolExecutor, self._tool_threads, "agentscope-rx-tool")

    def gate(self, key: Hashable) -> SessionGate:
        """The gate of one session: who holds it, and who waits.

        Args:
            key: Store, agent, user and session.
        """
        with self._lock:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = SessionGate(key, on_idle=self._forget)
            return gate.claimed()

    def _forget(self, gate: SessionGate) -> None:
        with self._lock:
            if gate.unclaimed and self._gates.get(gate.key) is gate:
                del self._gates[gate.key]

    def single(self, make: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        """The one thing of its kind in this Runtime, made on first use.

        Args:
            make: A class or function; with its arguments also the name of the thing.
            args: What it is made of.
            keywords: More of that.
        """
        key = (make, args, tuple(keywords.items()))
        single = self._own_single if make in self._afresh else self._single
        with self._lock:
            if key not in single:
                single[key] = make(*args, **keywords)
            return cast(T, single[key])
