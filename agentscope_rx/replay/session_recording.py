"""`record_session`: the runs of a session, from its log, as a recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from agentscope_rx.__about__ import __version__
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import InvalidOption, LogUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.records import RunStarted, RunTraced
from agentscope_rx.replay.codecs import chunk_from, chunks_data
from agentscope_rx.replay.recording import VERSION, RecordingWriter
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.replay_outcome import counted
from agentscope_rx.replay.requests import BLOCK_ZONES, ZONES, Itemizer, RequestItems, request_from, request_line
from agentscope_rx.replay.states import state_data
from agentscope_rx.requests import ModelRequest
from agentscope_rx.session import SessionLog
from agentscope_rx.session.codecs import codec_for
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.request_reader import RequestReader
from agentscope_rx.state import AgentState

_DIGITS: Final = 6
_OF_THE_LOG: Final = ("type", "memory", "started", "note")
_HOW: Final = "runs are recorded into a log by SessionRecorder().watch(builder)"
Line = Mapping[str, Any]


@frozen
class SessionRecording:
    """What came of recording a session.

    Args:
        path: The recording.
        runs: How many runs it holds.
        left_out: The runs that it does not hold, each with the reason.
    """

    path: Path
    runs: int
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.path}: {counted(self.runs, 'run')}", *(f"left out: {each}" for each in self.left_out)]
        )


async def record_session(
    log: SessionLog,
    path: str | Path,
    *,
    rules: Iterable[SecretRule] = DEFAULT_RULES,
    secrets: Iterable[str] | None = None,
    note: Mapping[str, object] | None = None,
) -> SessionRecording:
    """Make a recording of a session whose agents a `SessionRecorder` has watched; `replay` plays it.

    A run that was not watched, or whose process died, is left out; the next one begins with the state that it left.

    Args:
        log: `agent.session_log(ctx)`.
        path: The file; an earlier recording of this name is replaced.
        rules: How secrets look. Default: the built-in rules.
        secrets: Secrets that are known: those of the process that ran the session are not known here otherwise.
            Default: the values of the environment's variables with secret names.
        note: What else is to be known of the recording, as plain data. Default: the note of the recorder.

    Raises:
        InvalidOption: The log holds no run that was watched.
        LogUnreadable: It cannot be read.
        OSError: The file cannot be written.
    """
    redaction = Redaction(rules, secrets)
    writer = await asyncio.to_thread(RecordingWriter, Path(path))
    copied, left_out = _Copied(writer, redaction, note), list[str]()
    try:
        async with aclosing(_runs(log)) as runs:
            async for run in runs:
                why = run.missing
                if why:
                    left_out.append(f"run {run.id} (from record {run.seq}): {why}")
                else:
                    copied.take(run)
        if not copied.runs:
            raise InvalidOption("session", log.key.session_id, f"its log holds no run to be replayed: {_HOW}")
    except BaseException:
        await asyncio.to_thread(writer.discard)
        raise
    await asyncio.to_thread(writer.close)
    return SessionRecording(path=Path(path), runs=copied.runs, left_out=tuple(left_out))


# -- reading the log ----------------------------------------------------------------------------------------


@dataclass
class LoggedRun:
    """One run, as the log has it.

    Attributes:
        id: The run.
        seq: The record with which it begins.
        before: The state that it found.
        after: The state that it left.
        lines: What a `SessionRecorder` has taken down of it.
        requests: Its requests, by their id.
    """

    id: str
    seq: int
    before: AgentState
    after: AgentState
    lines: list[Line] = field(default_factory=list[Line])
    requests: dict[str, ModelRequest] = field(default_factory=dict[str, ModelRequest])

    @property
    def missing(self) -> str:
        """Why it cannot be replayed; empty = it can."""
        if not self.lines:
            return "it was not watched by a SessionRecorder"
        if self.lines[0]["type"] != "run" or self.lines[-1]["type"] != "end":
            return "its process died before it ended"
        return ""


async def _runs(log: SessionLog) -> AsyncGenerator[LoggedRun]:
    """The runs of a log, in their order, each when it is whole."""
    state = AgentState(session_id=log.key.session_id, user_id=log.key.user_id)
    reader, run, began = RequestReader(), None, ("", state)
    async with aclosing(log.scan()) as found:
        async for record in found:
            kind = _kind(record)
            if record.run_id != began[0]:
                began = record.run_id, state
            if kind is RunStarted:
                if run is not None:
                    yield run
                run = LoggedRun(record.run_id, record.seq, began[1], state)
            request = reader.take(record, state)
            state = record.applied_to(state)
            if run is None or record.run_id != run.id:
                continue
            run.after = state
            if request is not None:
                run.requests[request.request.call_id] = request.request
            if kind is RunTraced:
                run.lines += record.payload["lines"]
    if run is not None:
        yield run


def _kind(record: LogRecord) -> type[Any] | None:
    codec = codec_for(record.type)
    return None if codec is None else codec.record


# -- writing the recording ----------------------------------------------------------------------------------


class _Copied:
    """The runs of a log as lines of a recording.

    Attributes:
        runs: How many there are.
    """

    def __init__(self, writer: RecordingWriter, redaction: Redaction, note: Mapping[str, object] | None) -> None:
        self._writer, self._redaction, self._note = writer, redaction, note
        self._itemizer = Itemizer(redaction)
        self._known_items: set[str] = set()
        self._memories: dict[str, int] = {}
        self._started: datetime | None = None
        self._state: AgentState | None = None
        self.runs = 0

    def take(self, run: LoggedRun) -> None:
        """Write one run."""
        started = datetime.fromisoformat(run.lines[0]["started"])
        if self._started is None:
            self._started = started
            note = self._redaction.data(run.lines[0]["note"] if self._note is None else self._note)
            self._writer.write("header", version=VERSION, started=started, library=__version__, note=note)
        shift = (started - self._started).total_seconds()
        before: dict[str, RequestItems] = {}
        for line in run.lines:
            match line["type"]:
                case "item":
                    self._item(line["zone"], line["digest"], line["value"])
                case "request":
                    self._request(run, line, before, shift)
                case _:
                    self._write(line, shift, **self._completed(run, line, shift))
        self._state = run.after
        self.runs += 1

    def _completed(self, run: LoggedRun, line: Line, shift: float) -> Line:
        """What of a line is another thing in a recording."""
        match line["type"]:
            case "run":
                return {"builder": self._memories.setdefault(line["memory"], len(self._memories))}
            case "opened":
                return {"state": state_data(run.before, self._state, self._redaction)}
            case "answer":
                chunks = [(_shifted(at, shift), chunk_from(chunk)) for at, chunk in line["chunks"]]
                return {"chunks": chunks_data(chunks, self._redaction)}
            case "tool":
                return {"steps": self._redaction.data([[_shifted(at, shift), step] for at, step in line["steps"]])}
            case "event":
                event = self._redaction.data(line["event"])
                return {"event": event, "exact": line["exact"] and not self._redaction.found}
            case _:
                return {}

    def _write(self, line: Line, shift: float, **fields: object) -> None:
        given = {name: value for name, value in line.items() if name not in (*_OF_THE_LOG, *fields)}
        clean = cast("dict[str, Any]", self._redaction.data(given))
        self._writer.write(line["type"], **{**clean, "run": self.runs, "at": _shifted(line["at"], shift), **fields})

    def _item(self, zone: str, digest: str, value: object) -> None:
        if digest not in self._known_items:
            self._known_items.add(digest)
            self._writer.write("item", zone=zone, digest=digest, value=self._redaction.data(value))

    def _request(self, run: LoggedRun, line: Line, before: dict[str, RequestItems], shift: float) -> None:
        """A request, with what the log holds of it in a record of its own."""
        asked, earlier = run.requests.get(line["call"]), before.get(line["purpose"])
        if asked is None:
            raise LogUnreadable(f"the log holds no record of the request {line['call']!r} of run {run.id}")
        items = request_from(line, earlier)
        draft = RequestDraft(conversation=asked.conversation, tools=asked.tools)
        measured = self._itemizer.zones(draft)
        zones = {**items.zones, **{zone: measured[zone] for zone in ZONES if zone not in BLOCK_ZONES}}
        items = before[line["purpose"]] = replace(items, zones=zones)
        for fields in self._itemizer.new_items(draft, replace(items, zones=measured), earlier, self._known_items):
            self._writer.write("item", **fields)
        self._write(line, shift, **request_line(items, earlier))


def _shifted(at: float, shift: float) -> float:
    return round(at + shift, _DIGITS)
