"""Reasoning steps of the past, out of the log of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.replay.sent_blocks import Account
from agentscope_rx.session import LoggedRequest, SessionLog
from agentscope_rx.session.codecs import TRACED
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.request_reader import RequestReader
from agentscope_rx.state import AgentState

Line = Mapping[str, Any]
_FIXED: Final = ("tools", "system")
_NOT_LOGGED: Final = "its log holds no requests; agents write them unless log_requests(False) was called"


@frozen
class LoggedStep:
    """A request of a session, with all that is known of how it came about.

    Args:
        asked: The request, with its account.
        number: Which step of its run it is of.
        again: Whether an earlier request of the step had failed.
        found: The state that its preparation began with.
        sent: The state when it went out.
        items: All of its items but those of the conversation.
        reached: What sources and workspace gave, by name, as lines of a `SessionRecorder`; None = nobody watched.
        previous: The request of the session before it.
        user_id: Whose session it is.
        session_id: The session.
    """

    asked: LoggedRequest
    number: int
    again: bool
    found: AgentState
    sent: AgentState
    items: Sequence[Account]
    reached: Mapping[str, Line] | None
    previous: LoggedStep | None
    user_id: str | None
    session_id: str

    @property
    def account(self) -> Account:
        """Its manifest, as the log has it."""
        return self.asked.manifest or {}


async def logged_step(log: SessionLog, run: int, step: int | str) -> LoggedStep:
    """A step of a session.

    Args:
        log: The session's log.
        run: Which run, from 0, or from the end, from -1; for a step that is named by its id it does not matter.
        step: Which step of that run, from 0; or the id of a request.

    Raises:
        InvalidOption: There is no such run or step, or the log does not say what is needed.
        LogUnreadable: The log cannot be read.
    """
    reading = _Reading(log)
    async with aclosing(log.scan()) as found:
        async for record in found:
            reading.take(record)
    found_step = reading.step(run, step)
    if found_step.asked.manifest is None:
        raise InvalidOption("step", step, f"the log of session {log.key.session_id!r} has no account of its request")
    return found_step


@dataclass
class _Reading:
    """The steps of a log, while it is read: each record is taken with the state before it."""

    log: SessionLog
    _steps: list[LoggedStep] = field(default_factory=list[LoggedStep])
    _runs: list[str] = field(default_factory=list[str])
    _requests: RequestReader = field(default_factory=RequestReader)
    _began: tuple[str, AgentState] | None = None
    _reached: dict[str, Line] = field(default_factory=dict[str, Line])
    _traced: dict[str, Mapping[str, Line]] = field(default_factory=dict[str, Mapping[str, Line]])

    def __post_init__(self) -> None:
        key = self.log.key
        self._state = AgentState(session_id=key.session_id, user_id=key.user_id)

    def take(self, record: LogRecord) -> None:
        """One more record."""
        if record.step_id and (self._began is None or self._began[0] != record.step_id):
            self._began = record.step_id, self._state
        if record.type == TRACED:
            self._trace(record.payload["lines"])
        asked = self._requests.take(record, self._state)
        if asked is not None and asked.request.purpose == "reasoning":
            self._steps.append(self._step(asked))
            if asked.run_id not in self._runs[-1:]:
                self._runs.append(asked.run_id)
        self._state = record.applied_to(self._state)

    def step(self, run: int, step: int | str) -> LoggedStep:
        """The step that is wanted, with what was traced of it."""
        if not self._steps:
            raise InvalidOption("session", self.log.key.session_id, _NOT_LOGGED)
        found = self._named(step) if isinstance(step, str) else self._numbered(run, step)
        return replace(found, reached=self._traced.get(found.asked.request.call_id))

    def _named(self, id: str) -> LoggedStep:
        for each in self._steps:
            if each.asked.request.call_id == id:
                return each
        raise InvalidOption("step", id, "the log holds no such request; `stepId` of its records are their ids")

    def _numbered(self, run: int, number: int) -> LoggedStep:
        count = len(self._runs)
        if not -count <= run < count:
            raise InvalidOption("run", run, f"the log has requests of {count} runs, counted from 0")
        of_run = [each for each in self._steps if each.asked.run_id == self._runs[run]]
        for each in of_run:
            if each.number == number:
                return each
        shown = f"{of_run[0].number} to {of_run[-1].number}"
        raise InvalidOption("step", number, f"run {run % count} has requests of the steps {shown}")

    def _step(self, asked: LoggedRequest) -> LoggedStep:
        previous = self._steps[-1] if self._steps else None
        in_run = previous is not None and previous.asked.run_id == asked.run_id
        before = previous.number if previous is not None and in_run else -1
        began, key = self._began, self.log.key
        return LoggedStep(
            asked=asked,
            number=before + 1 if asked.step is None else asked.step,
            again=in_run and asked.step == before,
            found=began[1] if began is not None and began[0] == asked.request.call_id else self._state,
            sent=self._state,
            items=_items(asked.manifest or {}, () if previous is None else previous.items),
            reached=None,
            previous=previous,
            user_id=key.user_id,
            session_id=key.session_id,
        )

    def _trace(self, lines: Sequence[Line]) -> None:
        for line in lines:
            match line["type"]:
                case "run":
                    self._reached = {}
                case "reached":
                    self._reached[line["name"]] = line
                case "request":
                    self._traced[line["call"]] = dict(self._reached)
                case _:
                    pass


def _items(account: Account, before: Sequence[Account]) -> Sequence[Account]:
    """All items of a request; of those at its beginning that the one before had, an account tells only how many."""
    told = [item for item in account.get("items", ()) if item["placement"] != "conversation"]
    if account.get("full", True):
        return told
    known = [item for item in before if item["placement"] in _FIXED and item["sourceType"] != "framing"]
    return [*known[: account["prefix"]["fixed"]], *told]
