"""Figures and picture of `long_run.py`: what each request cost, and what made it smaller. The SVG is hand-written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import mean, median

from agentscope_rx import ContextManifest
from agentscope_rx.compactions import CompactionOutcome

WIDTH, HEIGHT = 1280, 580
LEFT, RIGHT, TOP, BOTTOM = 80, 1130, 96, 480  # the plot; beside and below it there is room for words
LANES = {"compacted": 524, "moved": 550}  # below the plot: where the marks of each kind stand
BANDS = ("#fff6d6", "#ffe3c2", "#ffcfc9")  # pressure 1, 2 and 3
LINE, MARKS = "#2b5f9e", {"compacted": "#1a7f37", "moved": "#a0522d"}


@dataclass(frozen=True)
class Point:
    """One request."""

    tokens: int
    limit: int
    window: int
    levels: tuple[float, float, float]
    passed: bool
    compacted: bool
    moved: int

    @classmethod
    def of(cls, manifest: ContextManifest) -> Point:
        """What the picture shows of a request."""
        decision = manifest.compaction
        moves = [change for change in manifest.changes if change.reason == "tool_result_offload"]
        return cls(
            tokens=manifest.estimated_input_tokens,
            limit=manifest.input_limit or 0,
            window=manifest.window or 0,
            levels=manifest.pressure_levels,
            passed=manifest.validation == "passed",
            compacted=decision is not None and decision.outcome is CompactionOutcome.DONE,
            moved=sum(change.action == "rewritten" for change in moves),
        )


def figures(points: Sequence[Point], freed: Sequence[int]) -> Iterator[str]:
    """The same in words; `freed` is what each compaction has made free."""
    tokens = [point.tokens for point in points]
    yield f"requests    {len(points):,}, refused {sum(not point.passed for point in points)}"
    yield f"tokens      median {median(tokens):,.0f}, largest {max(tokens):,}, limit {points[0].limit:,}"
    yield f"compactions {len(freed)}, which freed {mean(freed or [0]):,.0f} tokens each"
    yield f"offloads    {sum(point.moved for point in points)} results moved into files"


def draw(points: Sequence[Point], path: str) -> None:
    """Write the picture to a file."""
    chart = _Chart(points)
    shapes = (*chart.bands(), *chart.axes(), *chart.line(), *chart.marks(), *chart.words())
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    style = ' font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222">'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    Path(path).write_text("\n".join((head + style, paper, *shapes, "</svg>\n")), encoding="utf-8")


class _Chart:
    """The parts of the picture, in the order in which they are laid over one another."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points, self.first = points, points[0]
        self.step = _round(len(points) / 8)  # between two ticks of the x axis
        self.top = max(self.first.window, *(point.tokens for point in points))

    def x(self, at: int) -> float:
        return LEFT + (RIGHT - LEFT) * at / max(1, len(self.points) - 1)

    def y(self, tokens: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * tokens / self.top

    def bands(self) -> Iterator[str]:
        """The levels of pressure, and the limit."""
        limit = self.first.limit
        ends = (*self.first.levels[1:], 1.0)
        for level, (begin, end, colour) in enumerate(zip(self.first.levels, ends, BANDS, strict=True), start=1):
            top, bottom = self.y(end * limit), self.y(begin * limit)
            yield f'<rect x="{LEFT}" y="{top:.1f}" width="{RIGHT - LEFT}" height="{bottom - top:.1f}" fill="{colour}"/>'
            yield _text(
                RIGHT + 8, (top + bottom) / 2 + 4, f"pressure {level}, from {begin:.0%}", size=12, colour="#666"
            )
        y = self.y(limit)
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#c1121f" stroke-width="1.5" stroke-dasharray="7 4"/>'
        yield _text(RIGHT + 8, y - 3, f"limit: {limit:,} tokens", colour="#c1121f")

    def axes(self) -> Iterator[str]:
        """Both axes with ticks, and what they measure."""
        yield f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#444"/>'
        for tokens in range(0, self.top + 1, _round(self.top / 8)):
            y = self.y(tokens)
            yield f'<path d="M{LEFT - 5} {y:.1f}H{LEFT}" stroke="#444"/>'
            yield _text(LEFT - 9, y + 4, f"{tokens:,}", anchor="end")
        for at in range(0, len(self.points), self.step):
            x = self.x(at)
            yield f'<path d="M{x:.1f} {BOTTOM}V{BOTTOM + 5}" stroke="#444"/>'
            yield _text(x, BOTTOM + 20, f"{at:,}", anchor="middle")
        yield _text(RIGHT + 8, BOTTOM + 20, "step of the run")
        middle = (TOP + BOTTOM) / 2
        title = _text(22, middle, "tokens of the request", anchor="middle")
        yield f'<g transform="rotate(-90 22 {middle})">{title}</g>'

    def line(self) -> Iterator[str]:
        """What each request cost."""
        path = " ".join(f"{self.x(at):.1f},{self.y(point.tokens):.1f}" for at, point in enumerate(self.points))
        yield f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1" stroke-linejoin="round"/>'

    def marks(self) -> Iterator[str]:
        """A stroke for each request that was made smaller, in a lane of its own for each way."""
        for name, y in LANES.items():
            yield f'<path d="M{LEFT} {y}H{RIGHT}" stroke="#ddd"/>'
            hits = (self.x(at) for at, point in enumerate(self.points) if getattr(point, name))
            strokes = "".join(f"M{x:.1f} {y - 8}v16" for x in hits)
            yield f'<path d="{strokes or "M0 0"}" stroke="{MARKS[name]}" stroke-width="1.4"/>'

    def words(self) -> Iterator[str]:
        """The title, and what the marks mean."""
        compacted, moved = (sum(getattr(point, name) for point in self.points) for name in LANES)
        refused = sum(not point.passed for point in self.points)
        yield _text(LEFT, 40, f"{len(self.points):,} steps in a window of {self.first.window:,} tokens", size=22)
        summary = f"{compacted:,} compactions, {moved:,} results moved into files, {refused or 'no'} requests refused"
        yield _text(LEFT, 66, summary, size=15, colour="#555")
        yield _text(RIGHT + 8, LANES["compacted"] + 4, "history compacted", colour=MARKS["compacted"])
        yield _text(RIGHT + 8, LANES["moved"] + 4, "result offloaded", colour=MARKS["moved"])


def _round(wanted: float) -> int:
    """A round number of about this size, for the distance of ticks."""
    unit = 10 ** (len(str(int(wanted))) - 1)
    return max(1, min((unit, 2 * unit, 5 * unit, 10 * unit), key=lambda each: abs(each - wanted)))


def _text(x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", colour: str = "#222") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"
