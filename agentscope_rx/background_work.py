"""Work that goes on when the run that began it has ended, and who waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from typing import Any, Final

from agentscope_rx.bridge import running_loop
from agentscope_rx.logs import logger
from agentscope_rx.portal import PORTAL

#: Seconds that work in the background has to end, where somebody closes what it belongs to.
PATIENCE: Final = 5.0
_AFTER_CANCEL: Final = 1.0


class _Piece:
    __slots__ = ("ended", "loop", "owner", "task")

    def __init__(self, work: Coroutine[Any, Any, None], owner: object) -> None:
        self.loop, self.owner = asyncio.get_running_loop(), owner
        self.task = self.loop.create_task(work)
        self.ended: Future[None] = Future()

    def cancel(self) -> None:
        if running_loop() is self.loop:
            self.task.cancel()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.task.cancel)


class BackgroundWork:
    """All of it in a Runtime, which keeps it; one per Runtime. From any thread.

    Work on the background loop of the blocking calls is waited for when the interpreter exits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: set[_Piece] = set()
        self._let_go: Callable[[], None] | None = None

    def start(self, work: Coroutine[Any, Any, None], *, owner: object) -> Future[None]:
        """Begin a piece of work on the running loop.

        Args:
            work: The work; what it raises is logged.
            owner: Whose it is: who closes that waits for it.

        Returns:
            What is done when the work has ended, however it did.
        """
        piece = _Piece(work, owner)
        with self._lock:
            self._pieces.add(piece)
            if piece.loop is PORTAL.started and self._let_go is None:
                self._let_go = PORTAL.open(self.finish)
        piece.task.add_done_callback(lambda _: self._ended(piece))
        return piece.ended

    def open(self, owner: object = None) -> Collection[Future[None]]:
        """What has not ended.

        Args:
            owner: Whose; None = anybody's.
        """
        return tuple(piece.ended for piece in self._of(owner))

    async def finish(self, owner: object = None, *, patience: float = PATIENCE) -> None:
        """Wait for what has not ended; cancel what takes too long.

        Args:
            owner: Whose; None = anybody's.
            patience: Seconds to wait.
        """
        await _wait(self.open(owner), patience)
        late = self._of(owner)
        if late:
            logger().warning("background_work_cancelled", pieces=len(late), patience=patience)
        for piece in late:
            piece.cancel()
        await _wait(tuple(piece.ended for piece in late), _AFTER_CANCEL)

    def _of(self, owner: object) -> tuple[_Piece, ...]:
        with self._lock:
            return tuple(piece for piece in self._pieces if owner is None or piece.owner is owner)

    def _ended(self, piece: _Piece) -> None:
        with self._lock:
            self._pieces.discard(piece)
            let_go, self._let_go = (None, self._let_go) if self._pieces else (self._let_go, None)
        if not piece.task.cancelled() and (error := piece.task.exception()) is not None:
            logger().warning("background_work_failed", error=type(error).__name__)
        piece.ended.set_result(None)
        if let_go is not None:
            let_go()


async def _wait(ends: Collection[Future[None]], seconds: float) -> None:
    if ends:
        await asyncio.wait(map(asyncio.wrap_future, ends), timeout=seconds)
