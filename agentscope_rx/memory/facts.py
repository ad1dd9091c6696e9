"""Facts as lines of text: which of them are known already."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_LINE_START: Final = re.compile(r"(?:[-*+•]\s+)?(?:\d{1,2}:\d{2}(?::\d{2})?\s+)?")
_SPACE: Final = re.compile(r"\s+")


def without_known(text: str, *known: str) -> str:
    """The lines of a text that say something new; empty where none does.

    Lines are the same whatever their case, their bullet, a time of day before them and a full stop behind them. A
    heading says nothing by itself.

    Args:
        text: What would be written down.
        known: What is written down already.

    Examples:
        >>> without_known("- likes tea\\n- met Bo", "* Likes  tea.")
        '- met Bo'
    """
    seen = {_fact(line) for each in known for line in each.splitlines()}
    kept: list[str] = []
    new = False
    for line in text.splitlines():
        fact = _fact(line)
        if fact and not fact.startswith("#"):
            if fact in seen:
                continue
            seen.add(fact)
            new = True
        kept.append(line)
    return "\n".join(kept).strip() if new else ""


def facts_in(text: str) -> int:
    """How many facts a text holds: its lines with a bullet; one where it has none."""
    return max(1, sum(line.lstrip().startswith("-") for line in text.splitlines()))


def _fact(line: str) -> str:
    said = _LINE_START.sub("", line.strip(), count=1)
    return _SPACE.sub(" ", unicodedata.normalize("NFC", said)).casefold().rstrip(" .")
