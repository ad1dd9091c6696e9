"""What came of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

from agentscope_rx.differences import Difference
from agentscope_rx.errors import ReplayMismatch
from agentscope_rx.frozen import frozen
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg
from agentscope_rx.replay.events import without_figures
from agentscope_rx.replay.reading import Line, RecordedCall
from agentscope_rx.replay.serving import ServedRun
from agentscope_rx.requests import ModelRequest
from agentscope_rx.wire import to_json

_MOST_EVENTS: Final = 20
_ABSENT: Final[Line] = {"type": "(none)"}
#: What names an event and its moment, and tells nothing of what has happened.
_IDENTITY: Final = ("id", "createdAt", "replyId", "type")


@frozen
class EventDifference:
    """An event that is another one than the recorded one.

    Args:
        number: Which event of the run, from 0.
        before: The recorded one, as plain data; its type is `(none)` where there was none.
        after: The new one.
    """

    number: int
    before: Line
    after: Line

    def __str__(self) -> str:
        before, after = self.before["type"], self.after["type"]
        if self.after is _ABSENT:
            return f"event {self.number}: {before} is missing"
        if self.before is _ABSENT or before != after:
            what = "is new" if self.before is _ABSENT else f"stands in the place of {before}"
            return "\n".join([f"event {self.number}: {after} {what}", *self._rows(told_by=self.after)])
        return "\n".join([f"event {self.number}: {before}", *self._rows()])

    def _rows(self, *, told_by: Line | None = None) -> Iterator[str]:
        """What differs, by name; of an event that stands alone what it tells beside its identity."""
        if told_by is not None:
            told = {name: value for name, value in told_by.items() if name not in _IDENTITY and value is not None}
            yield from (f"    {name}: {to_json(value).decode():.200}" for name, value in told.items())
            return
        for name in {**self.before, **self.after}:
            old, new = self.before.get(name), self.after.get(name)
            if old != new:
                yield f"    {name}: {to_json(old).decode():.200} -> {to_json(new).decode():.200}"


@frozen
class ReplayedRun:
    """One run, as it ran again.

    Args:
        requests: What the models were asked.
        manifests: The accounts of the requests.
        events: What it told, as plain data.
        result: Its answer; None = it failed.
        error: What it failed with.
        request_differences: The reasoning steps whose requests were others, where that was accepted.
        event_differences: The events that were others; at most 20 of them.
    """

    requests: tuple[ModelRequest, ...]
    manifests: tuple[ContextManifest, ...]
    events: tuple[Line, ...]
    result: Msg | None
    error: BaseException | None
    request_differences: tuple[tuple[int, tuple[Difference, ...]], ...] = ()
    event_differences: tuple[EventDifference, ...] = ()


@frozen
class Replayed:
    """What came of a replay.

    Args:
        path: The recording.
        runs: Its runs.
        seconds: How long they took in virtual time; none of it was waited.
        updated: Whether the recording was written anew.
    """

    path: Path
    runs: tuple[ReplayedRun, ...]
    seconds: float
    updated: bool = False

    @property
    def same(self) -> bool:
        """Whether all requests and all events are the recorded ones."""
        return not any(run.request_differences or run.event_differences for run in self.runs)

    def check(self) -> None:
        """Refuse events that differ.

        Raises:
            ReplayMismatch: Some do.
        """
        if not self.same:
            raise ReplayMismatch(str(self))

    def __str__(self) -> str:
        requests = sum(len(run.requests) for run in self.runs)
        lines = [f"{self.path}: {counted(len(self.runs), 'run')}, {counted(requests, 'request')}"]
        for number, run in enumerate(self.runs):
            for step, found in run.request_differences:
                lines += [f"run {number}, step {step}: another request", *map(str, found)]
            lines += [f"run {number}, {each}" for each in run.event_differences]
            if run.error is not None and not self.same:
                lines.append(f"run {number} has failed: {type(run.error).__name__}: {run.error}")
        return "\n".join([*lines, "all as recorded"] if self.same else lines)


def counted(count: int, what: str) -> str:
    """So many of something, in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def replayed_run(call: RecordedCall, served: ServedRun) -> ReplayedRun:
    """What came of one run."""
    return ReplayedRun(
        requests=tuple(served.requests),
        manifests=tuple(served.manifests),
        events=tuple(served.told),
        result=served.result,
        error=served.error,
        request_differences=tuple(served.differences),
        event_differences=tuple(islice(_event_differences(call, served.told), _MOST_EVENTS)),
    )


def _event_differences(call: RecordedCall, told: Sequence[Line]) -> Iterator[EventDifference]:
    for number, (before, after) in enumerate(zip_longest(call.events, told, fillvalue=_ABSENT)):
        if before == after or (number >= call.exact_events and without_figures(before) == without_figures(after)):
            continue
        yield EventDifference(number=number, before=before, after=after)
