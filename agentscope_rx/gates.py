"""Whose turn it is in a session: first in, first out, across agents, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

from agentscope_rx.errors import ReentrantCall, SessionBusy
from agentscope_rx.frozen import frozen

_held: ContextVar[frozenset[object]] = ContextVar("agentscope_rx_held_turns", default=frozenset())
_NO_WAIT: Final = 0


@frozen(kw_only=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]


class SessionGate:
    """Lets one run at a time into a session.

    Made and forgotten by the Runtime. Nothing in it belongs to an event loop: runs of one session may live on the
    loops of different threads, and still take turns in the order in which they came.
    """

    def __init__(self, key: Hashable, *, on_idle: Callable[[SessionGate], None]) -> None:
        self.key = key
        self._on_idle = on_idle
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        self._claims = 0
        self._busy = False
        self._next: _Waiter | None = None  # who was given the turn last
        self._turn: object = None

    def claimed(self) -> SessionGate:
        """Keep the gate from being forgotten; each claim is given back by `enter`."""
        with self._lock:
            self._claims += 1
        return self

    @property
    def unclaimed(self) -> bool:
        """Whether nobody is in, waits, or is about to wait."""
        with self._lock:
            return self._claims == 0

    @asynccontextmanager
    async def enter(self, *, wait_timeout: float) -> AsyncGenerator[None, None]:
        """Wait for the turn and hold it inside the block.

        Args:
            wait_timeout: Seconds to wait at most; 0 = not at all.

        Raises:
            SessionBusy: The turn did not come in time.
            ReentrantCall: The running task, or one that started it, holds the session itself.
        """
        try:
            if self._turn in _held.get():
                raise ReentrantCall(
                    "a call was made from inside a call that holds the same session, and would wait for it for ever; "
                    "use another session, or make it after that call has ended"
                )
            await self._wait_for_turn(wait_timeout)
            self._turn = turn = object()
            _held.set(_held.get() | {turn})
            try:
                yield
            finally:
                # Not by a token: a coroutine that is thrown away may end in another context.
                _held.set(_held.get() - {turn})
                self._turn = None
                self._pass_on()
        finally:
            with self._lock:
                self._claims -= 1
            self._on_idle(self)

    async def _wait_for_turn(self, wait_timeout: float) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            if wait_timeout == _NO_WAIT:
                raise SessionBusy(f"session {self.key!r} is held by another call; wait_timeout=0 does not wait")
            waiter = _Waiter(loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            async with asyncio.timeout(wait_timeout):
                await waiter.turn
        except BaseException as error:
            self._give_up(waiter)
            if isinstance(error, TimeoutError):
                raise SessionBusy(
                    f"session {self.key!r} was held by other calls for {wait_timeout} s; raise wait_timeout, or "
                    "interrupt the running call"
                ) from None
            raise

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
            if waiter is not self._next:
                return  # its loop was closed, and its turn is another's by now
        self._pass_on()  # the turn came in the very moment of giving up

    def _pass_on(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy, self._next = False, None
                    return
                self._next = waiter = self._waiting.popleft()
            try:
                waiter.loop.call_soon_threadsafe(_grant, waiter.turn)
            except RuntimeError:  # its loop was closed while it waited
                continue
            return


def _grant(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
