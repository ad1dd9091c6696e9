"""A recording, read: its runs, each with what arrived and what it asked and told."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from agentscope_rx.replay.recording import RecordingLines
from agentscope_rx.replay.requests import RequestItems, request_from

Line = Mapping[str, Any]


@dataclass(slots=True)
class Asked:
    """A request of a recorded run, and what came of it.

    Attributes:
        at: When it went out, in seconds since the recording began.
        items: The request.
        answer: The line of its answer.
    """

    at: float
    items: RequestItems
    answer: Line


@dataclass(slots=True)
class RecordedCall:
    """One run of a recording.

    Attributes:
        number: Which run, from 0.
        line: The line of its beginning.
        state: The session as the run found it, where another run of the recording had not left it so.
        opened_at: When it had its session.
        asked: Its requests, in order.
        reached: What came of other things outside, by their name, in order.
        tools: What came of tool calls, by their id, in order.
        inputs: What it has taken in meanwhile, by how often it had looked.
        events: What it told.
        exact_events: How many of these were told before the first secret was removed.
        touches: When somebody wanted it to end.
        end: The line of its end.
    """

    number: int
    line: Line
    state: Line | None = None
    opened_at: float = 0.0
    asked: list[Asked] = field(default_factory=list[Asked])
    reached: dict[str, deque[Line]] = field(default_factory=dict[str, "deque[Line]"])
    tools: dict[str, deque[Line]] = field(default_factory=dict[str, "deque[Line]"])
    inputs: dict[int, Line] = field(default_factory=dict[int, Line])
    events: list[Line] = field(default_factory=list[Line])
    exact_events: int = 0
    touches: list[Line] = field(default_factory=list[Line])
    end: Line | None = None


@dataclass(slots=True)
class Recording:
    """All of a recording.

    Attributes:
        path: The file.
        started: When it began; None = nothing was recorded.
        note: What its recorder was told of it.
        calls: Its runs, in the order in which they began.
        items: The items of its requests, by zone and digest.
    """

    path: Path
    started: datetime | None = None
    note: Line = field(default_factory=dict[str, Any])
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    items: dict[tuple[str, str], object] = field(default_factory=dict[tuple[str, str], object])

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read a recording.

        Raises:
            RecordingDamaged: It is not what a recorder has written; the error says where.
            OSError: There is no such file.
        """
        recording = cls(Path(path))
        lines, reader = RecordingLines(Path(path)), _Reader(recording)
        for line in lines:
            try:
                reader.take(line)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise lines.damaged(f"this line does not fit those before it ({error!r})") from None
        open_runs = [call.number for call in recording.calls if call.end is None]
        if open_runs:
            raise lines.damaged(f"run {open_runs[0]} had not ended when the recorder was closed")
        return recording


class _Reader:
    """Puts the lines of a recording where they belong."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._before: dict[tuple[int, str], RequestItems] = {}
        self._waiting: dict[str, tuple[RecordedCall, float, RequestItems]] = {}

    def take(self, line: Line) -> None:
        recording = self._recording
        match line["type"]:
            case "header":
                recording.note = line.get("note", recording.note)
                recording.started = None if line["started"] is None else datetime.fromisoformat(line["started"])
            case "item":
                recording.items[line["zone"], line["digest"]] = line["value"]
            case "run":
                number = len(recording.calls)
                if line["run"] != number:
                    raise ValueError(f"run {number} was expected")
                recording.calls.append(RecordedCall(number, line))
            case _:
                self._of_run(recording.calls[int(line["run"])], line)

    def _of_run(self, call: RecordedCall, line: Line) -> None:
        match line["type"]:
            case "opened":
                call.state, call.opened_at = line["state"], line["at"]
            case "request":
                key = (call.number, line["purpose"])
                items = self._before[key] = request_from(line, self._before.get(key))
                self._waiting[line["call"]] = (call, line["at"], items)
            case "answer":
                owner, at, items = self._waiting.pop(line["call"])
                owner.asked.append(Asked(at, items, line))
            case "reached":
                call.reached.setdefault(line["name"], deque()).append(line)
            case "tool":
                call.tools.setdefault(line["id"], deque()).append(line)
            case "inputs":
                call.inputs[line["look"]] = line
            case "event":
                call.events.append(line["event"])
                if line["exact"]:
                    call.exact_events = len(call.events)
            case "touch":
                call.touches.append(line)
            case "end":
                call.end = line
            case other:
                raise ValueError(f"its type {other!r}")
