'''Marbles for pipelines: a picture is played with real operators, and what happens is drawn again and compared.

await assert_pipeline(
    redact_emails,
    """
    --s--|
    redact_emails
    --t--|
    """,
    {"s": a_step(history=a_history(["ann@example.org"])), "t": lambda step: "[email]" in str(step.draft)},
)
'''

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias, cast

from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.lifting import StepOperator
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.testing.marble_model import ChunkLetters, spoken
from agentscope_rx.testing.marbles import END_MARKS, MarbleError, marbles, read_marks
from agentscope_rx.testing.outlines import outline
from agentscope_rx.testing.pictures import Picture, drawn
from agentscope_rx.testing.recorder import Recorded, record
from agentscope_rx.testing.values import RecordingRun

#: What a letter stands for: a step, or what is asked of one that came out.
StepLetters: TypeAlias = Mapping[str, "Step | Callable[[Step], bool]"]
Marks: TypeAlias = "list[tuple[float, str]]"
_NO_CHUNKS: Final[ChunkLetters] = {}
_NOT_DRAWN: Final = "?"
_DIGITS: Final = 6  # below that, times are rounding errors of the loop's clock


async def assert_pipeline(
    operator: StepOperator | Pipeline,
    picture: str | Picture,
    steps: StepLetters,
    *,
    chunks: ChunkLetters = _NO_CHUNKS,
    error: type[Exception] | Exception = MarbleError,
) -> None:
    """Play a picture with an operator, and compare what happens with it.

    In virtual time (`run_virtual`) a picture of hours takes none.

    A step that came out is drawn as the first letter that it fits: a step, when it has the same data, durations apart;
    a function, when that says True. A letter that is in the legend stands for its event; a piece of text or of
    thinking is drawn as that piece, where it is one character. What fits no letter is drawn as `?`.

    Args:
        operator: An operator, a stock Rx operator on steps, or a pipeline.
        picture: What is to happen; a text that holds one picture, or that.
        steps: What the letters of the steps stand for; those that go in are steps, as `a_step` makes them. Their model
            is the one of the picture, where it has a row for that.
        chunks: What letters of the model stand for; others are pieces of text.
        error: What `#` stands for: a class, or an error that is compared by type and text.

    Raises:
        AssertionError: Something else happened; both are drawn.
        ValueError: The picture cannot be read.
        LookupError: A letter of a step that goes in stands for nothing.

    Examples:
        >>> async def checked() -> None:
        ...     await assert_pipeline(
        ...         ops.delay(2),
        ...         '''
        ...         -s-|
        ...         delay
        ...         ---s-|
        ...         ''',
        ...         {"s": a_step()},
        ...     )
        >>> run_virtual(checked)  # no answer is a good answer
    """
    if isinstance(picture, str):
        picture = Picture.of(picture)
    playing = _Playing(picture, steps, chunks)
    recorded = await playing.play(operator)
    differences = [
        *_difference("steps", picture.comes_out, playing.steps_drawn(recorded, error), picture),
        *_difference("events", picture.events, playing.events_drawn(), picture),
        *_difference("model", picture.model, playing.model_drawn(), picture),
    ]
    if differences:
        lines = [f"{picture.title} is not as it is drawn", *differences, *playing.unknown]
        raise AssertionError("\n  ".join(lines)) from recorded.error


class _DrawnModel:
    """Says what a picture has the model say, each piece in its column, and notes what it has said."""

    def __init__(self, picture: Picture, chunks: ChunkLetters, card: ModelCard) -> None:
        self.name, self.context_window, self.max_output_tokens = card.name, card.window, card.max_output
        self._title, self._seconds, self._chunks = picture.title, picture.seconds, chunks
        self._answers = iter(_answers(picture.model, chunks))
        self.said: Marks = []
        self.began = 0.0

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        answer = next(self._answers, None)
        if answer is None:
            raise AssertionError(f"the model is asked once more than {self._title} has answers")
        marks = [(self.began + column * self._seconds, mark) for column, mark in answer]
        async for chunk in spoken(marks, self._chunks, self._note):
            yield chunk

    def _note(self, mark: str) -> None:
        passed = asyncio.get_running_loop().time() - self.began
        self.said.append((round(passed / self._seconds, _DIGITS), mark))


def _answers(row: str, chunks: ChunkLetters) -> list[list[tuple[int, str]]]:
    answers: list[list[tuple[int, str]]] = [[]]
    for column, mark in read_marks(row, ends=False):
        answers[-1].append((column, mark))
        if mark in END_MARKS or isinstance(chunks.get(mark), Exception):
            answers.append([])
    return [answer for answer in answers if answer]


class _Playing:
    """One picture at work."""

    def __init__(self, picture: Picture, steps: StepLetters, chunks: ChunkLetters) -> None:
        self.picture, self._chunks = picture, chunks
        self._model: _DrawnModel | None = None
        self._letters = {letter: self._ready(value) for letter, value in steps.items()}
        self._runs = self._runs_of(picture)
        self.unknown: list[str] = []

    def _ready(self, value: Step | Callable[[Step], bool]) -> Step | Callable[[Step], bool]:
        if not isinstance(value, Step) or not self.picture.model:
            return value
        self._model = self._model or _DrawnModel(self.picture, self._chunks, value.card)
        return replace(value, card=replace(value.card, model=self._model))

    def _runs_of(self, picture: Picture) -> list[RecordingRun]:
        runs: dict[int, RecordingRun] = {}
        for _, mark in read_marks(picture.goes_in):
            if mark in END_MARKS:
                continue
            step = self._letters.get(mark)
            if not isinstance(step, Step):
                raise LookupError(f"the step {mark!r} goes into {picture.title}, and no step was given for it")
            if not isinstance(step.run, RecordingRun):
                raise TypeError(f"the step {mark!r} must have a run that keeps its events, as those of a_step() have")
            runs[id(step.run)] = step.run
        return list(runs.values())

    async def play(self, operator: StepOperator | Pipeline) -> Recorded[Step]:
        """Let the steps go in, and take down what comes."""
        scale, row, loop = self.picture.seconds, self.picture.comes_out, asyncio.get_running_loop()
        self._began = loop.time()
        if self._model is not None:
            self._model.began = self._began
        for run in self._runs:
            run.events.clear()
            run.heard_at.clear()
        letters = cast("Mapping[str, Step]", self._letters)  # those that go in are
        recorded = record(operator(marbles(self.picture.goes_in, letters, seconds=scale)))
        if any(mark in END_MARKS for _, mark in read_marks(row)):
            await recorded.ended()
        else:
            await asyncio.sleep((len(row) - 0.5) * scale)
            recorded.dispose()
        return recorded

    def steps_drawn(self, recorded: Recorded[Step], error: type[Exception] | Exception) -> Marks:
        """What came out, in letters."""
        return [
            (self._column(self._began + signal.time), self._step_mark(signal.kind, signal.value, error))
            for signal in recorded.signals
        ]

    def _step_mark(self, kind: str, value: object, error: type[Exception] | Exception) -> str:
        if kind == "completed":
            return "|"
        if isinstance(value, Exception):
            return "#" if _fits_error(value, error) else self._foreign(f"the error {value!r}; expected was {error!r}")
        step = cast(Step, value)
        found = next((letter for letter, wanted in self._letters.items() if _fits(step, wanted)), None)
        return found or self._foreign(f"a step that is none of {', '.join(self._letters)}; {self._beside(step)}")

    def _beside(self, step: Step) -> str:
        known = {letter: each for letter, each in self._letters.items() if isinstance(each, Step)}
        parts = {letter: _other_parts(step, each) for letter, each in known.items()}
        letter = min(parts, key=lambda each: len(parts[each]))
        return f"beside {letter} it has another {', '.join(parts[letter])}" if parts[letter] else f"it equals {letter}"

    def events_drawn(self) -> Marks:
        """What was told, in letters."""
        told = [each for run in self._runs for each in zip(run.heard_at, run.events, strict=True)]
        told.sort(key=lambda each: each[0])
        return [(self._column(time), self._event_mark(event)) for time, event in told]

    def _event_mark(self, event: AgentEvent) -> str:
        kind = event.name if isinstance(event, Custom) else str(cast("Any", event).type)
        found = next((letter for letter, wanted in self.picture.legend.items() if wanted == kind), None)
        piece = getattr(event, "delta", "")
        if found is None and isinstance(piece, str) and len(piece) == 1:
            found = piece
        return found or self._foreign(f"an event that no letter stands for: {outline([event])[0]:.400}")

    def model_drawn(self) -> Marks:
        """What the model was asked for, in letters."""
        return [] if self._model is None else self._model.said

    def _column(self, time: float) -> float:
        return round((time - self._began) / self.picture.seconds, _DIGITS)

    def _foreign(self, what: str) -> str:
        self.unknown.append(f"{_NOT_DRAWN} is {what}")
        return _NOT_DRAWN


def _fits(step: Step, wanted: Step | Callable[[Step], bool]) -> bool:
    if isinstance(wanted, Step):
        return replace(step, timings=()) == replace(wanted, timings=())
    return wanted(step)


def _other_parts(step: Step, known: Step) -> list[str]:
    """Which parts of a step are other ones than those of a step that is known."""
    names = (each.name for each in fields(step) if each.compare and each.name != "timings")
    return [name for name in names if getattr(step, name) != getattr(known, name)]


def _fits_error(error: Exception, wanted: type[Exception] | Exception) -> bool:
    if isinstance(wanted, Exception):
        return type(error) is type(wanted) and str(error) == str(wanted)
    return isinstance(error, wanted)


def _difference(voice: str, row: str, came: Marks, picture: Picture) -> Iterator[str]:
    """Both rows below each other, where they are not the same, and the first moment at which they are not."""
    wanted = [(float(column), mark) for column, mark in read_marks(row, ends=False)]
    if came == wanted:
        return
    yield f"{voice:<6}  drawn  {row or 'nothing'}"
    yield f"{'':<6}  came   {drawn(came, row) if came else 'nothing'}"
    first = next((pair for pair in zip(wanted, came, strict=False) if pair[0] != pair[1]), None)
    if first is None:
        longer, verb = (
            (wanted, "is drawn, and did not come") if len(wanted) > len(came) else (came, "came, and is not drawn")
        )
        first_more = longer[min(len(wanted), len(came))]
        yield f"{'':<6}  {_at(first_more, picture)} {verb}"
    else:
        yield f"{'':<6}  {_at(first[0], picture)} is drawn, {_at(first[1], picture)} came"


def _at(mark: tuple[float, str], picture: Picture) -> str:
    return f"{mark[1]} at {mark[0] * picture.seconds:g} s"
