"""The values that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_KEPT: Final = 256


class Recent(Generic[K, V]):
    """The 256 values that were used last, by key; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key; None where it is not known, or no more."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Remember a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > _KEPT:
                self._values.popitem(last=False)
