"""Marble diagrams: streams in time, drawn in a line of text. One character is one second of the loop's clock.

--a--b-|      a after 2 s, b after 5 s, the end after 7 s
-(ab)#        a and b both after 1 s; an error after 5 s
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable

from agentscope_rx.bridge import LoopScheduler
from agentscope_rx.testing.recorder import Signal, record

T = TypeVar("T")
_NO_VALUES: Final[Mapping[str, Any]] = {}
END_MARKS: Final = "|#"


class MarbleError(Exception):
    """The error of a `#` for which no other one was given."""


def marbles(
    diagram: str, values: Mapping[str, T] = _NO_VALUES, *, error: Exception | None = None, seconds: float = 1.0
) -> Observable[T]:
    """Make a cold Observable of a diagram.

    Args:
        diagram: `-` lets a second pass, `|` completes, `#` fails; every other character is an item. What stands in
            brackets comes at once, when the bracket opens. Spaces only please the eye.
        values: The item for a character; a character without one is the item itself.
        error: What `#` fails with.
        seconds: How many seconds a character is.

    Raises:
        ValueError: The diagram cannot be read.
    """
    moments = _read(diagram, values, error or MarbleError("#"))

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        clock = scheduler or LoopScheduler(asyncio.get_running_loop())

        def at(signals: list[Signal]) -> abc.ScheduledAction[Any]:
            def tell(_: abc.SchedulerBase, __: Any = None) -> None:
                for signal in signals:
                    _tell(observer, signal)

            return tell

        timers = [clock.schedule_relative(time * seconds, at(signals)) for time, signals in moments.items()]
        return CompositeDisposable(timers)

    return Observable(subscribe)


async def assert_marbles(
    source: Observable[T],
    diagram: str,
    values: Mapping[str, T] = _NO_VALUES,
    *,
    error: Exception | None = None,
    ticks: bool = False,
    seconds: float = 1.0,
) -> None:
    """Compare what an Observable gives with a diagram.

    Args:
        source: Any Observable; subscribed here. A diagram without an end is watched for as long as it is.
        diagram: As for `marbles`.
        values: As for `marbles`.
        error: What `#` stands for; compared by type and text.
        ticks: Whether each signal has to come in its second, too. Else only what comes counts, and its order.
        seconds: How many seconds a character is.

    Raises:
        AssertionError: It gave something else; both are drawn.
    """
    moments = _read(diagram, values, error or MarbleError("#"))
    wanted = [replace(signal, time=signal.time * seconds) for signals in moments.values() for signal in signals]
    recorded = record(source)
    if wanted and wanted[-1].kind != "next":
        await recorded.ended()
    else:
        await asyncio.sleep(
            (len(diagram.replace(" ", "")) - 0.5) * seconds
        )  # what comes after the last second is not drawn
        recorded.dispose()
    found = recorded.signals
    if not ticks:
        wanted = [Signal(0.0, each.kind, each.value) for each in wanted]
        found = [Signal(0.0, each.kind, each.value) for each in found]
    if found != wanted:
        raise AssertionError(
            "\n  ".join(
                [
                    f"the stream is not {diagram}",
                    "wanted:",
                    *(f"  {_shown(each, ticks)}" for each in wanted),
                    "came:",
                    *(f"  {_shown(each, ticks)}" for each in found),
                ]
            )
        )


def read_marks(diagram: str, *, ends: bool = True) -> list[tuple[int, str]]:
    """The marks of a diagram, each with its second.

    Args:
        diagram: As for `marbles`.
        ends: Whether nothing may come after the end. False for several streams behind one another.

    Raises:
        ValueError: The diagram cannot be read.
    """
    marks: list[tuple[int, str]] = []
    together: int | None = None  # when the open bracket opened
    ended = False
    for time, mark in enumerate(diagram.replace(" ", "")):
        if ended and mark not in "-)":
            raise ValueError(f"{diagram!r}: nothing comes after the end, and {mark!r} does")
        if (mark == "(" and together is not None) or (mark == ")" and together is None):
            raise ValueError(f"{diagram!r}: the brackets do not match")
        match mark:
            case "-":
                continue
            case "(":
                together = time
            case ")":
                together = None
            case _:
                ended = ends and mark in END_MARKS
                marks.append((time if together is None else together, mark))
    if together is not None:
        raise ValueError(f"{diagram!r}: the brackets do not match")
    return marks


def _read(diagram: str, values: Mapping[str, T], error: Exception) -> dict[int, list[Signal]]:
    moments: dict[int, list[Signal]] = {}
    for at, mark in read_marks(diagram):
        match mark:
            case "|":
                signal = Signal(float(at), "completed")
            case "#":
                signal = Signal(float(at), "error", error)
            case _:
                signal = Signal(float(at), "next", values.get(mark, mark))
        moments.setdefault(at, []).append(signal)
    return moments


def _tell(observer: abc.ObserverBase[T], signal: Signal) -> None:
    match signal.kind:
        case "next":
            observer.on_next(cast(T, signal.value))
        case "error":
            observer.on_error(cast(Exception, signal.value))
        case "completed":
            observer.on_completed()


def _shown(signal: Signal, ticks: bool) -> str:
    said = "|" if signal.kind == "completed" else f"{'#' if signal.kind == 'error' else ''}{signal.value!r}"
    return f"{signal.time:g} s  {said}" if ticks else said
