"""In what two requests differ: item by item, with the operator that made the difference."""

from __future__ import annotations

from difflib import unified_diff
from typing import Final, Literal, TypeAlias

from agentscope_rx.frozen import frozen

DifferenceKind: TypeAlias = Literal["changed", "added", "removed", "moved"]
_MOST_LINES: Final = 24
_LONGEST_LINE: Final = 200


@frozen
class Difference:
    """One item that is another one in the newer of two requests.

    Args:
        zone: Where it lies: a zone of the request, or `options`, `model`, `layout`.
        item: Message id, block id, tool name or name of an option.
        kind: What has become of it.
        operator: Who made it so; empty = nobody in the pipeline.
        before: What the older request holds, as text.
        after: What the newer one holds.
    """

    zone: str
    item: str
    kind: DifferenceKind
    operator: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        by = f", by {self.operator}" if self.operator else ""
        return "\n".join([f"{self.zone}: {self.item} {self.kind}{by}", *(f"    {line}" for line in self._lines())])

    def _lines(self) -> list[str]:
        if self.kind == "moved":
            return []
        lines = unified_diff(self.before.splitlines(), self.after.splitlines(), "before", "after", n=1, lineterm="")
        shown = [line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in list(lines)[2:]]
        if len(shown) > _MOST_LINES:
            shown[_MOST_LINES:] = [f"… {len(shown) - _MOST_LINES} more lines"]
        return shown
