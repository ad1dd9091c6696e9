"""The runs that hold their session's turn, so that any agent of a Runtime can reach them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from agentscope_rx.errors import AgentScopeError
from agentscope_rx.stores import SessionKey, StateStore
from agentscope_rx.task_state import TaskContextState


class Interruptible(Protocol):
    """A run, as far as others may touch it."""

    def interrupt(self) -> None:
        """End with what there is."""
        ...

    def stop(self, error: AgentScopeError, /) -> None:
        """End at the next safe point."""
        ...

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState], /) -> TaskContextState | None:
        """Change the task with the tools that are at work; None where none is."""
        ...


class LiveRuns:
    """One per Runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[StateStore, SessionKey], Interruptible] = {}

    @contextmanager
    def open(self, store: StateStore, key: SessionKey, run: Interruptible) -> Generator[None, None, None]:
        """Let the run be found inside the block."""
        at = (store, key)
        with self._lock:
            self._runs[at] = run
        try:
            yield
        finally:
            with self._lock:
                del self._runs[at]

    def find(self, store: StateStore, key: SessionKey) -> Interruptible | None:
        """The run that holds the session's turn."""
        with self._lock:
            return self._runs.get((store, key))
