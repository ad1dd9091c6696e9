"""Facts as lines of text: which of them are known already."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
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


def in_own_words(text: str, original: str, worded: Callable[[str], str]) -> str:
    """A text that was made of another, which was shown in other words, with the words of that one.

    A line that was shown in other words has its own again where it stands in the text as it was shown; where it does
    not, it comes behind the text. What was hidden from who wrote the text could not be kept by them.

    Args:
        text: The text.
        original: What it was made of.
        worded: How a line of that was shown.

    Examples:
        >>> in_own_words("# Boss\n- mail [m]", "- mail a@b.c\n- old", lambda line: line.replace("a@b.c", "[m]"))
        '# Boss\n- mail a@b.c'
    """
    own: dict[str, list[str]] = {}
    for line in original.splitlines():
        shown = worded(line)
        if shown != line:
            own.setdefault(_fact(shown), []).append(line)
    lines = [each for line in text.splitlines() for each in own.pop(_fact(line), [line])]
    return "\n".join([*lines, *(line for left in own.values() for line in left)])


def facts_in(text: str) -> int:
    """How many facts a text holds: its lines with a bullet; one where it has none."""
    return max(1, sum(line.lstrip().startswith("-") for line in text.splitlines()))


def _fact(line: str) -> str:
    said = _LINE_START.sub("", line.strip(), count=1)
    return _SPACE.sub(" ", unicodedata.normalize("NFC", said)).casefold().rstrip(" .")
