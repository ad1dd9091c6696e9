"""What comes into a session from outside, before the first step of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from agentscope_rx.errors import InteractionMismatch, InteractionPending, InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.interactions import PERMISSION_KEY, Answer, Approval, is_waiting, open_exchanges, pending_calls
from agentscope_rx.messages import (
    MetadataKey,
    Msg,
    Role,
    TextBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    timestamp_of,
)
from agentscope_rx.records import CallsClosed, CallsConfirmed, CallsExecuted, InputAccepted
from agentscope_rx.session.answers import Answers, answers_of, confirmations_in, records_of
from agentscope_rx.state import AgentState, Record
from agentscope_rx.wire import clean_text

B = TypeVar("B")
_INPUT: Final = "a text, a Msg, a list of them, or None to go on"
CLOSED_TEXT: Final = "This tool call was interrupted; whether it had any effect is not known."
NOT_RUN_TEXT: Final = "This tool call was interrupted before it was run."


class UncertainCalls(StrEnum):
    """What becomes of tool calls that ran when a process ended, so that nobody knows whether they had an effect.

    `tell`: the model is told so, by a result that says it. `refuse`: no run begins until somebody has found out.
    """

    TELL = "tell"
    REFUSE = "refuse"


@frozen
class Intake:
    """How messages get their identity.

    Args:
        new_id: Makes an id.
        now: The moment of acceptance.
    """

    new_id: Callable[[], str]
    now: datetime

    def accept(self, message: Msg) -> Msg:
        """The message as the session keeps it: with id and timestamp, and without lone surrogates."""
        return replace(
            message,
            id=self.new_id(),
            timestamp=timestamp_of(self.now),
            content=tuple(map(_clean, message.content)),
        )

    def closing(self, call: ToolUseBlock, *, text: str = CLOSED_TEXT) -> Msg:
        """The result of a call that nobody can answer any more."""
        result = ToolResultBlock(
            id=call.id,
            name=call.name,
            output=(TextBlock(text=text),),
            state=ToolResultState.INTERRUPTED,
        )
        return self.accept(Msg.tool(result))

    def answering(self, call: ToolUseBlock, outcome: str | ToolResultBlock) -> Msg:
        """The result of a call, as somebody has found it out."""
        if isinstance(outcome, str):
            outcome = ToolResultBlock(id=call.id, name=call.name, output=(TextBlock(text=outcome),))
        return self.accept(Msg.tool(replace(outcome, id=call.id, name=call.name)))


def _clean(block: B) -> B:
    match block:
        case TextBlock(text=text):
            return replace(block, text=clean_text(text))
        case ToolResultBlock(output=output, metadata=metadata):
            # Nobody brings evidence along: what an action was about is noted by the session that has run it.
            told = {key: value for key, value in metadata.items() if key != MetadataKey.OBSERVATION}
            return replace(block, output=tuple(map(_clean, output)), metadata=told)
        case ToolUseBlock(state=ToolCallState.ASKING | ToolCallState.ALLOWED | ToolCallState.SUBMITTED):
            # Nobody brings along that a call was allowed, or that it waits: that is the session's to say.
            told = {key: value for key, value in block.metadata.items() if key != PERMISSION_KEY}
            return replace(block, state=ToolCallState.PENDING, metadata=told)
        case _:
            return block


def messages_of(input: str | Msg | Sequence[Msg] | None) -> tuple[Msg, ...]:
    """The messages of a call's input.

    Raises:
        InvalidOption: It is neither text nor messages, or a message has a role that no input may have.
    """
    if input is None:
        return ()
    if isinstance(input, str):
        return (Msg.user(input),)
    if not isinstance(input, Msg | Iterable):  # type: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("input", input, _INPUT)
    messages = (input,) if isinstance(input, Msg) else tuple(input)
    for message in messages:
        if not isinstance(message, Msg):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("input", message, _INPUT)
        if message.role is Role.SYSTEM:
            raise InvalidOption("input", message.text, "a SYSTEM message is no input; set sys_prompt instead")
    return messages


def uncertain_calls(state: AgentState) -> tuple[ToolUseBlock, ...]:
    """The open calls of which nobody knows whether they had an effect."""
    if not state.dispatched:
        return ()
    return tuple(call for call in state.context.open_calls if call.id in state.dispatched)


def take_in(
    history: History,
    messages: Sequence[Msg],
    intake: Intake,
    answers: Mapping[str, Answer] | None = None,
    *,
    closing: Callable[[ToolUseBlock], str] | None = None,
) -> list[Record]:
    """The records with which a run begins.

    Answers to calls that wait come first, and nothing else may come in before all of them are answered. Then come
    results for other open calls; those that get none are closed, since what follows would otherwise separate them from
    any answer; then the messages, with the results of calls that are themselves among them.

    Args:
        history: The session's history.
        messages: The input.
        intake: How messages get their identity.
        answers: Answers to calls that wait, by their ids. Default None: only those that the messages carry.
        closing: What the result of a call says that is closed; None = that nobody knows of any effect.

    Raises:
        InteractionPending: Calls wait for somebody outside, and the input answers none of them.
        InteractionMismatch: An answer fits no call that waits.
        InvalidToolPairs: A TOOL message answers no open call.
    """
    late, others, approvals = _sorted_out(history, [intake.accept(message) for message in messages])
    waiting = pending_calls(history)
    records: list[Record] = []
    if waiting or approvals or answers:
        if waiting and not (approvals or answers or late):
            raise InteractionPending(waiting)
        given = answers_of(answers or {}, history, intake.accept)
        results = (*late, *given.results) if waiting else given.results
        records += records_of(Answers({**approvals, **given.approvals}, results), history, intake.accept)
        if others and _left_open(history, records):
            raise InteractionMismatch("a message may come along only when it leaves no tool call without a result")
        late = [] if waiting else late
    closable = closable_calls(history.append(*late))
    closed = tuple(intake.closing(call, text=closing(call) if closing else CLOSED_TEXT) for call in closable)
    if late:
        records.append(InputAccepted(tuple(late)))
    if closed:
        records.append(CallsClosed(closed))
    if others:
        records.append(InputAccepted(tuple(others)))
    return records


def closable_calls(history: History) -> tuple[ToolUseBlock, ...]:
    """The open calls that nobody can answer any more: all but those that wait for somebody, and their batch."""
    return tuple(call for each in open_exchanges(history) if not is_waiting(each) for call in each.open_calls)


def _left_open(history: History, records: Sequence[Record]) -> bool:
    """Whether calls of a batch that waits have no result even with these records."""
    given = [m.tool_result for r in records if isinstance(r, CallsConfirmed | CallsExecuted) for m in r.results]
    answered = {result.id for result in given if result is not None}
    waiting = (each for each in open_exchanges(history) if is_waiting(each))
    return any(call.id not in answered for each in waiting for call in each.open_calls)


def _sorted_out(history: History, accepted: Sequence[Msg]) -> tuple[list[Msg], list[Msg], dict[str, Approval]]:
    """Results for calls of the session, other messages, and answers that messages carry."""
    late, others, approvals = list[Msg](), list[Msg](), dict[str, Approval]()
    asked = set[str]()  # by the input itself
    for message in accepted:
        carried = confirmations_in(message, history)
        if carried is not None:
            if twice := approvals.keys() & carried.keys():
                raise InteractionMismatch(f"two answers for the call {min(twice)!r}: give one")
            approvals |= carried
            continue
        asked.update(call.id for call in message.tool_calls)
        result = message.tool_result
        answers = message.role is Role.TOOL and (result is None or result.id not in asked)
        (late if answers else others).append(message)
    return late, others, approvals
