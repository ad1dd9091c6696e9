"""What a provider wants back word for word: which fields of a delta that is, and how its pieces are joined.

A field of a delta is provider state when its name begins with `reasoning_`, `thinking_` or `thought_`, ends
with `_signature`, or is `extra_content`, unless the library reads it itself (`reasoning_content`). Of a tool
call it is every field that the library does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

#: Fields of a delta that are read, or that are known to be nothing to send back.
KNOWN_FIELDS: Final = frozenset(
    {"role", "content", "tool_calls", "refusal", "reasoning", "reasoning_content", "annotations", "audio"}
)
_PREFIXES: Final = ("reasoning_", "thinking_", "thought_")
#: Fields of an item that come in pieces; all others come once.
_IN_PIECES: Final = ("text", "summary", "thinking")


class ProviderState:
    """Gathers the provider state of one answer; `fields` is what to send back."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}

    def take(self, delta: Mapping[str, object]) -> None:
        """Keep what is the provider's: text is appended, lists are joined, else the last value counts."""
        for key, value in delta.items():
            if key in KNOWN_FIELDS or not value:
                continue
            if key.startswith(_PREFIXES) or key.endswith("_signature") or key == "extra_content":
                self.fields[key] = _joined(self.fields.get(key), value)


def _joined(before: object, value: object) -> object:
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(value, list):
        items = list(cast("list[object]", before)) if isinstance(before, list) else []
        for item in cast("list[object]", value):
            _add(items, item)
        return items
    if isinstance(before, dict) and isinstance(value, dict):
        return {**cast("dict[str, object]", before), **cast("dict[str, object]", value)}
    return value


def _add(items: list[object], item: object) -> None:
    """Add an item, or continue the one of the same index and type.

    A signature covers a whole item: sent back in its pieces it would be refused.
    """
    if not isinstance(item, dict):
        items.append(item)
        return
    new = cast("dict[str, object]", item)
    same = next((each for each in reversed(items) if _continues(new, each)), None)
    if same is None:
        items.append(dict(new))
        return
    known = cast("dict[str, object]", same)
    for key, value in new.items():
        if value is None:
            continue
        earlier = known.get(key)
        in_pieces = key in _IN_PIECES and isinstance(earlier, str) and isinstance(value, str)
        known[key] = f"{earlier}{value}" if in_pieces else value


def _continues(new: Mapping[str, object], item: object) -> bool:
    if not isinstance(item, dict) or type(new.get("index")) is not int or new.get("data"):
        return False  # what is encrypted comes whole
    known = cast("dict[str, object]", item)
    return known.get("index") == new["index"] and known.get("type") == new.get("type")
