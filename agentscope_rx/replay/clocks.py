"""Time and identity of a recorded run, which a replay has again without a line of the recording for each.

The time of a run moves only when something arrives from outside: a piece of an answer, a result, a block. Between two
of these it stands still. So all that reads it, however often, reads the same when the same things arrive again.
Ids are counted by kind, behind a part that each run has of its own.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Final

SEED_LENGTH: Final = 20
_KIND_LENGTH: Final = 4
_DIGITS: Final = 6


class RunClock:
    """The time of one run.

    Args:
        started: The moment at which the recording began.
        at: Seconds since then.

    Attributes:
        started: The moment at which the recording began.
        at: Seconds since the recording began, as of the last thing that arrived.
    """

    def __init__(self, started: datetime, at: float) -> None:
        self.started, self.at = started, at
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The wall clock."""
        return self.started + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        """Seconds since the recording began."""
        return self.at

    def tick(self, at: float) -> float:
        """Something arrives; no two things do at the same moment."""
        with self._lock:
            self.at = max(round(at, _DIGITS), round(self.at + 10**-_DIGITS, _DIGITS))
            return self.at

    def move(self, at: float) -> None:
        """Something arrives again that has arrived at this moment."""
        with self._lock:
            self.at = max(self.at, at)


class RunIds:
    """The ids of one run: 32 hexadecimal digits.

    Args:
        seed: What no other run has.

    Examples:
        >>> ids = RunIds(seed_of("some id"))
        >>> first, second = ids.new_id("message"), ids.new_id("event")
        >>> RunIds(seed_of("some id")).new_id("event") == second
        True
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._kinds: dict[str, Callable[[], str]] = {}

    def new_id(self, kind: str, /) -> str:
        """The next id of its kind."""
        make = self._kinds.get(kind)
        if make is None:
            make = self._kinds.setdefault(kind, self._counted(kind))
        return make()

    def _counted(self, kind: str) -> Callable[[], str]:
        prefix, following = f"{self.seed}{_hex(kind, _KIND_LENGTH)}", count(1).__next__
        return lambda: f"{prefix}{following():08x}"


class Chance:
    """Numbers from 0 to 1 that look random and are the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self._seed, self._next = seed, count(1).__next__

    def __call__(self) -> float:
        """The next number."""
        return int(_hex(f"{self._seed}/{self._next()}", 12), 16) / 16**12


def seed_of(id: str) -> str:
    """The seed that belongs to a unique id."""
    return _hex(id, SEED_LENGTH)


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
