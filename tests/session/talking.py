"""A session at which random things happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from agentscope_rx.edits import edits_between
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.records import (
    CallsClosed,
    ContextCleared,
    HistoryEdited,
    LimitLearned,
    ReplyBroken,
    ReplyRecorded,
    ResultsRecorded,
    ToolsDispatched,
)
from agentscope_rx.session import LoggedSession
from tests.session.support import DONE, answered, said
from tests.session.support import input_of as heard
from tests.strategies import result_of


@dataclass
class Talk:
    """A session at which random things happen, as a run and its operators make them happen.

    Args:
        session: The session.
        said: Every message that was committed, by its id, as it was when it came.
    """

    session: LoggedSession
    said: dict[str, Msg] = field(default_factory=dict[str, Msg])
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def happen(self, what: str) -> None:
        """One thing more."""
        session, n = self.session, next(self.numbers)
        history = session.state.context
        match what:
            case "say":
                session.record(heard(self.kept(said(f"u{n}"))))
            case "reply":
                session.record(ReplyRecorded(self.kept(answered(f"a{n}"))))
            case "break":
                session.record(ReplyBroken(answered(f"f{n}"), self.kept(answered(f"k{n}"))))
            case "call":
                calls = (ToolUseBlock(id=f"c{n}", name="look"), ToolUseBlock(id=f"d{n}", name="look"))
                session.record(ReplyRecorded(self.kept(replace(Msg.assistant(*calls), id=f"q{n}"))))
                session.record(ToolsDispatched(tuple(call.id for call in calls)))
            case "answer":
                results = tuple(self.kept(self.result(call)) for call in history.open_calls)
                session.record(ResultsRecorded(results, ("web",) if n % 2 else None))
            case "close":
                session.record(CallsClosed(tuple(self.kept(self.result(call)) for call in history.open_calls[:1])))
            case "offload":
                self.edit(history, history.map(offloaded))
            case "compact" if len(history) > 1 and not next(iter(history)).open_calls:
                shorter = history.replace_first((len(history) + 1) // 2, said(f"s{n}", "a summary"))
                self.edit(history, shorter, id=f"k{n}")
            case "learn":
                session.record(LimitLearned("m", 1_000 * n))
            case "clear":
                session.record(ContextCleared("enough"))
            case _:
                pass

    def edit(self, before: History, after: History, *, id: str = "") -> None:
        if after is not before:
            decision = replace(DONE, id=id, tokens_before=len(before), tokens_after=len(after)) if id else None
            self.session.record(HistoryEdited(edits_between(before, after), decision, "2026-01-01"))

    def kept(self, message: Msg) -> Msg:
        return self.said.setdefault(message.id, message)

    def result(self, call: ToolUseBlock) -> Msg:
        return replace(result_of(call, "original"), id=f"r-{call.id}")


def offloaded(exchange: Exchange) -> Exchange:
    """The exchange with its results moved elsewhere."""

    def shortened(message: Msg) -> Msg:
        result = message.tool_result
        return message if result is None else replace(message, content=(replace(result, output=()),))

    return exchange.map(shortened) if len(exchange.messages) > 1 else exchange


WAYS = ("say", "reply", "break", "call", "answer", "close", "offload", "compact", "learn", "undo", "clear")
#: What happens between: nothing, a write, a checkpoint, the end of the process, of which nothing is left.
PAUSES = ("", "", "", "barrier", "save", "restart", "elsewhere")
