"""What somebody may have meant who asked for a text that is not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_NUMBERED = re.compile(r"\s*\d+\t")
_GOOD_ENOUGH = 0.6
# What comparing costs grows with these; beyond them a hint comes later than the next look at the file would.
_LINES_COMPARED = 5000
_LETTERS_COMPARED = 200
_CANDIDATES = 5
_LINES_SHOWN = 20
_LETTERS_SHOWN = 300


def nearest_hint(text: str, wanted: str) -> str:
    """Say in a sentence or two what is nearest to a text that was not found.

    Args:
        text: All of the file.
        wanted: What was looked for.

    Examples:
        >>> nearest_hint("a = 1\\n  b = 2\\n", "b  =  2")
        'Only its white space differs; line 2 is:\\n  b = 2'
    """
    if not text.strip():
        return "The file is empty."
    lines, asked = _lines(text), _lines(wanted.strip("\r\n"))
    if asked and all(_NUMBERED.match(line) for line in asked if line.strip()) and wanted.strip():
        return "Its lines begin with numbers, as read_file shows them on request: leave those out."
    if "\ufffd" in wanted:
        return "It holds \ufffd, which stands for bytes that are no UTF-8: choose a text beside them."
    if (at := _squeezed(lines, asked)) is not None:
        return f"Only its white space differs; {_quoted(lines, at, len(asked))}"
    if wanted.casefold() in text.casefold():
        return "It is there with other upper and lower case."
    if (at := _nearest(lines, asked)) is not None:
        return f"The nearest is this; {_quoted(lines, at, len(asked))}"
    return "Nothing in it is similar: read the file again."


def _lines(text: str) -> list[str]:
    # Not splitlines(), which counts lines that no editor and no other tool does.
    return text.replace("\r\n", "\n").split("\n")


def _squeezed(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    """Where the lines are but for their white space."""
    wanted = ["".join(line.split()) for line in asked]
    if not any(wanted):
        return None
    found = ["".join(line.split()) for line in lines]
    for at, line in enumerate(found):
        if wanted[0] in line and (len(wanted) == 1 or found[at : at + len(wanted)] == wanted):
            return at
    return None


def _nearest(lines: Sequence[str], asked: Sequence[str]) -> int | None:
    """Where the lines begin that are most similar, if any are similar enough."""
    offset, anchor = max(enumerate(asked), key=lambda each: len(each[1].strip()), default=(0, ""))
    if not anchor.strip():
        return None
    matcher = SequenceMatcher(b=anchor.strip()[:_LETTERS_COMPARED], autojunk=False)
    scored: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:_LETTERS_COMPARED])
        if matcher.real_quick_ratio() > _GOOD_ENOUGH and (score := matcher.quick_ratio()) > _GOOD_ENOUGH:
            scored.append((score, number))
    scored = sorted(scored, key=lambda each: (-each[0], each[1]))[:_CANDIDATES]
    windows = [(_similarity(lines, max(at - offset, 0), asked), -max(at - offset, 0)) for _, at in scored]
    best = max(windows, default=(0.0, 0))
    return -best[1] if best[0] > _GOOD_ENOUGH else None


def _similarity(lines: Sequence[str], at: int, asked: Sequence[str]) -> float:
    pairs = list(zip(asked, lines[at : at + len(asked)], strict=False))[:_LINES_SHOWN]
    total = sum(
        SequenceMatcher(None, a.strip()[:_LETTERS_COMPARED], b.strip()[:_LETTERS_COMPARED], autojunk=False).ratio()
        for a, b in pairs
    )
    return total / min(len(asked), _LINES_SHOWN)


def _quoted(lines: Sequence[str], at: int, count: int) -> str:
    quoted = [line[:_LETTERS_SHOWN] for line in lines[at : at + min(count, _LINES_SHOWN)]]
    where = f"line {at + 1} is" if len(quoted) == 1 else f"lines {at + 1} to {at + len(quoted)} are"
    return f"{where}:\n" + "\n".join(quoted)
