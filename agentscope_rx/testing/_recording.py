"""What a fake provider remembers of each request, and a way to wait for it from any event loop."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Bell", "RecordedRequest"]


@dataclass(slots=True, kw_only=True, eq=False)
class RecordedRequest:
    """One chat completion request as a fake provider received it, and what became of it since.

    Attributes:
        body: The decoded body; empty when the bytes are not a JSON object.
        raw: The bytes of the body.
        headers: By name in lower case.
        received_at: The loop time at which the request was complete.
        connection: Which connection it came over, counted from 1.
        refused: Why it was answered with 400; empty when it was accepted.
        finished: Whether its scripted reply was played to its end, a scripted cut included.
        client_left: Whether the client closed the connection before that.
        left_at: The loop time at which it left; None while it has not.
    """

    body: dict[str, Any]
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    received_at: float
    connection: int
    refused: tuple[str, ...] = ()
    finished: bool = False
    client_left: bool = False
    left_at: float | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the body."""
        return list(self.body.get("messages", ()))


class Bell:
    """Wakes everybody who waits for a condition, whatever loop or thread they wait in."""

    def __init__(self) -> None:
        """Make a bell that nobody waits for yet."""
        self._lock = threading.Lock()
        self._waiting: list[Future[None]] = []

    def ring(self) -> None:
        """Let everybody look again; to be called after each change."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds.

        Args:
            condition: Asked now and after each ring.
        """
        while True:
            with self._lock:  # a change after this look rings a bell that already knows of us
                if condition():
                    return
                future: Future[None] = Future()
                self._waiting.append(future)
            await asyncio.wrap_future(future)
