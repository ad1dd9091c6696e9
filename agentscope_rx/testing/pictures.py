"""Pictures of pipelines: what goes into an operator, what comes out, what the model says and what is told meanwhile.

    --s-----------|
    call_model          the name of what is drawn, and a case of it
    ---------t----|     t.reply is the answer
    -----h-i-|          model
    --S--(bh)(ieE)      events: S MODEL_CALL_START, b TEXT_BLOCK_START, e TEXT_BLOCK_END, E MODEL_CALL_END

Every row is a marble diagram, and all rows have one clock: a column is a second. They need two rows and the name
between them; what the model says is drawn where it takes part. What is not drawn must not happen: without a row of
events none comes. A line that is indented further goes on with the words above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentscope_rx.testing.marbles import END_MARKS, read_marks

_ROW: Final = re.compile(r"(?P<row>(?=\S\S)\S*[-|#]\S*)(?:\s+(?P<words>\S.*))?")
_NAME: Final = re.compile(r"(?P<row>\w+)(?:\s{2,}(?P<words>\S.*))?")
_VOICES: Final = ("model", "events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture.

    Args:
        name: What is drawn: the name of an operator or pipeline.
        case: In which case; empty = the usual one.
        goes_in: The steps that go in.
        comes_out: The steps that come out.
        words: What is said of them.
        model: What the model says, one answer behind the other; each ends with `|` or `#`, or with a letter that
            stands for an error. Empty = it is not asked.
        events: What is told. Empty = nothing.
        legend: The type of the event for which a letter stands, or the name of one of type `CUSTOM`.
        seconds: How many seconds a column is.
    """

    name: str
    case: str = ""
    goes_in: str
    comes_out: str
    words: str = ""
    model: str = ""
    events: str = ""
    legend: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 1.0

    @classmethod
    def of(cls, text: str, *, seconds: float = 1.0) -> Picture:
        """The one picture in a text.

        Raises:
            ValueError: There is none, or more than one, or it cannot be read.
        """
        found = pictures_in(text, seconds=seconds)
        if len(found) != 1:
            raise ValueError(f"one picture was expected, and there are {len(found)}: a row, a name below it, a row")
        return found[0]

    @property
    def title(self) -> str:
        """Its name, with the case."""
        return f"{self.name}, {self.case}" if self.case else self.name


def pictures_in(text: str, *, seconds: float = 1.0) -> tuple[Picture, ...]:
    """All pictures in a text, as a docstring is.

    Args:
        text: Any text. Where a row, a name and a row stand below each other, indented alike, a picture begins; it
            goes on to the next empty line.
        seconds: How many seconds a column is.

    Raises:
        ValueError: A picture cannot be read.

    Examples:
        >>> (found,) = pictures_in('''
        ...     --s--|
        ...     shorten         an old result
        ...     --t--|          t.history is shorter
        ... ''')
        >>> found.title, found.comes_out, found.words
        ('shorten, an old result', '--t--|', 't.history is shorter')
    """
    lines, found, at = text.expandtabs().splitlines(), list[Picture](), 0
    while at < len(lines) - 2:
        if not _begins(lines[at : at + 3]):
            at += 1
            continue
        end = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
        found.append(_picture(lines[at:end], seconds))
        at = end
    return tuple(found)


def _begins(lines: Sequence[str]) -> bool:
    patterns = (_ROW, _NAME, _ROW)
    alike = len({_indent(line) for line in lines}) == 1
    return alike and all(pattern.fullmatch(line.strip()) for pattern, line in zip(patterns, lines, strict=True))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _picture(lines: Sequence[str], seconds: float) -> Picture:
    (goes_in, _), (name, case), (comes_out, words), *others = _rows(lines)
    voices: dict[str, tuple[str, str]] = {}
    for row, said in others:
        voice, _, more = said.partition(":")
        if voice not in _VOICES or voice in voices:
            raise ValueError(
                f"{row!r} in the picture of {name}: its words begin with one of {', '.join(_VOICES)}, once"
            )
        voices[voice] = row, more
    events, legend = voices.get("events", ("", ""))
    picture = Picture(
        name=name,
        case=case,
        goes_in=goes_in,
        comes_out=comes_out,
        words=words,
        model=voices.get("model", ("", ""))[0],
        events=events,
        legend=dict(_legend(name, legend)),
        seconds=seconds,
    )
    for row in (goes_in, comes_out):
        read_marks(row)
    read_marks(picture.model, ends=False)
    if any(mark in END_MARKS for _, mark in read_marks(events)):
        raise ValueError(f"{events!r} in the picture of {name}: events have no end of their own")
    return picture


def _rows(lines: Sequence[str]) -> list[tuple[str, str]]:
    indent, rows = _indent(lines[0]), list[tuple[str, str]]()
    for number, line in enumerate(lines):
        if _indent(line) > indent:
            row, words = rows[-1]
            rows[-1] = row, f"{words} {line.strip()}"
            continue
        found = (_NAME if number == 1 else _ROW).fullmatch(line.strip())
        if found is None:
            raise ValueError(f"{line.strip()!r} is no row of a picture; an empty line ends one")
        rows.append((found["row"], found["words"] or ""))
    return rows


def _legend(name: str, words: str) -> Iterable[tuple[str, str]]:
    for entry in filter(None, map(str.strip, words.split(","))):
        letter, _, kind = entry.partition(" ")
        if len(letter) != 1 or not kind.strip():
            raise ValueError(f"{entry!r} in the picture of {name}: a letter and the type of an event were expected")
        yield letter, kind.strip()


def drawn(marks: Sequence[tuple[float, str]], like: str) -> str:
    """Draw marks in a row.

    Args:
        marks: When each came, in columns, and what it was.
        like: The row that it is to be as long as, at least.

    Returns:
        The row; where it would not be true to time, the moments in words.

    Examples:
        >>> drawn([(2.0, "a"), (4.0, "b"), (4.0, "c")], "---------|")
        '--a-(bc)--'
        >>> drawn([(0.5, "a")], "---|")
        'a at 0.5'
    """
    moments: dict[float, str] = {}
    for time, mark in marks:
        moments[time] = moments.get(time, "") + mark
    row = ""
    for time, said in moments.items():
        if time != int(time) or len(row) > time:
            return ", ".join(f"{mark} at {time:g}" for time, mark in marks)
        row = row.ljust(int(time), "-") + (said if len(said) == 1 else f"({said})")
    return row if row[-1:] in END_MARKS else row.ljust(len(like), "-")
