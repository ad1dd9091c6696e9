"""Which values of requests a log holds, so that each is written once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

_REMEMBERED: Final = 8_192


class KnownValues:
    """The hashes of the newest values that a log holds; older ones are written again when they come again."""

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._hashes = OrderedDict.fromkeys(hashes)

    def add(self, hashes: Iterable[str]) -> None:
        """Note values that the log holds now."""
        for each in hashes:
            self._hashes[each] = None
            self._hashes.move_to_end(each)
            if len(self._hashes) > _REMEMBERED:
                self._hashes.popitem(last=False)

    def __contains__(self, hash: str) -> bool:
        return hash in self._hashes

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def copy(self) -> KnownValues:
        """The same hashes, for somebody who adds to them."""
        return KnownValues(self._hashes)
