"""How far estimates are from what providers count."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

_MODELS: Final = 256
_KEPT: Final = 0.9


class MeasuredRatio:
    """Keeps, for each model, what its provider counted by what was estimated; for a whole process or Runtime.

    It tells, and corrects nothing: a count that depended on earlier answers would make a run impossible to
    replay. The newest call weighs most, each older one 0.9 of the next, and a long request more than a short one.
    Of 257 models the one that was noted longest ago is forgotten. Safe from any thread.

    Examples:
        >>> measured = MeasuredRatio()
        >>> measured.note("m", 1000, 1100)
        >>> measured.ratio("m")
        1.1
    """

    __slots__ = ("_lock", "_sums")

    def __init__(self) -> None:
        self._sums: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, model: str, estimated: int, actual: int) -> None:
        """Take in one call; ignored where either figure is not known.

        Args:
            model: The model's name.
            estimated: Tokens of the request, as estimated; below 1 = not known.
            actual: Tokens of the request, as the provider reported them; below 1 = not known.
        """
        if estimated < 1 or actual < 1:
            return
        with self._lock:
            before_estimated, before_actual = self._sums.pop(model, (0.0, 0.0))
            self._sums[model] = before_estimated * _KEPT + estimated, before_actual * _KEPT + actual
            if len(self._sums) > _MODELS:
                self._sums.popitem(last=False)

    def ratio(self, model: str) -> float | None:
        """What the provider counts for one estimated token; None where nothing was noted."""
        with self._lock:
            sums = self._sums.get(model)
        return None if sums is None else sums[1] / sums[0]
