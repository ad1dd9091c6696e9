"""Answers to tool calls that wait: they are checked against what waits, and become records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

import agentscope_rx.events as ev
from agentscope_rx.errors import InteractionMismatch
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.interactions import (
    PERMISSION_KEY,
    Answer,
    Approval,
    exchange_of,
    pending_calls,
)
from agentscope_rx.messages import (
    DataBlock,
    MetadataKey,
    Msg,
    OutputBlock,
    TextBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.records import CallsConfirmed, CallsExecuted
from agentscope_rx.state import Record
from agentscope_rx.wire import to_json

_REFUSED: Final = "The user refused this call. It was not run."


def confirmations_in(message: Msg, history: History) -> dict[str, Approval] | None:
    """The answers that a message carries in its metadata, as `ConfirmResult`s or as their JSON; None = it is none.

    Raises:
        InteractionMismatch: They cannot be read, two are for one call, or one is for no call that waits.
    """
    given = message.metadata.get(MetadataKey.CONFIRM_RESULTS)
    if given is None:
        return None
    try:
        results = _confirm_adapter().validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InteractionMismatch(f"the answers of a message cannot be read: {where}: {first['msg']}") from None
    found: dict[str, Approval] = {}
    for each in results:
        if each.tool_call.id in found:
            raise InteractionMismatch(f"two answers for the call {each.tool_call.id!r}: give one")
        asked = _open_call(history, each.tool_call.id)
        if each.tool_call.name != asked.name:
            raise InteractionMismatch(f"the call {asked.id!r} is one of {asked.name}, not of {each.tool_call.name!r}")
        found[each.tool_call.id] = Approval(
            approved=each.confirmed, input=each.tool_call.input, rules=each.rules or (), reason=each.reason
        )
    return found


@cache
def _confirm_adapter() -> TypeAdapter[tuple[ev.ConfirmResult, ...]]:
    return TypeAdapter(tuple[ev.ConfirmResult, ...])


@frozen(kw_only=False)
class Answers:
    """What was answered, by the id of the call.

    Args:
        approvals: Yes or no to confirmations.
        results: Messages with the results of external executions.
    """

    approvals: Mapping[str, Approval]
    results: tuple[Msg, ...]


def answers_of(given: Mapping[str, Answer], history: History, accept: Callable[[Msg], Msg]) -> Answers:
    """Tell yes and no from results.

    Args:
        given: What `respond` was given.
        history: The session's history.
        accept: Gives a message its identity.

    Raises:
        InteractionMismatch: An answer is for no call that waits, or of the wrong kind.
    """
    approvals: dict[str, Approval] = {}
    results: list[Msg] = []
    for id, answer in given.items():
        call = _open_call(history, id)
        if isinstance(answer, bool | Approval):
            approvals[id] = Approval(approved=answer) if isinstance(answer, bool) else answer
        else:
            results.append(accept(Msg.tool(_result(call, answer))))
    return Answers(approvals, tuple(results))


def _result(call: ToolUseBlock, answer: object) -> ToolResultBlock:
    if isinstance(answer, ToolResultBlock):
        return replace(answer, id=call.id, name=call.name)
    blocks: object = (TextBlock(text=answer),) if isinstance(answer, str) else answer
    output = tuple(cast("Sequence[OutputBlock]", blocks)) if isinstance(blocks, Sequence) else (None,)
    if not all(isinstance(each, TextBlock | DataBlock) for each in output):
        kind = type(answer).__name__
        raise InteractionMismatch(f"the call {call.id!r} got a {kind}: give True or False, a text, or blocks")
    return ToolResultBlock(id=call.id, name=call.name, output=cast("tuple[OutputBlock, ...]", output))


def _open_call(history: History, id: str) -> ToolUseBlock:
    exchange = exchange_of(history, id)
    call = None if exchange is None else next(each for each in exchange.open_calls if each.id == id)
    if call is None or call.state not in (ToolCallState.ASKING, ToolCallState.SUBMITTED):
        waiting = ", ".join(repr(each.id) for each in pending_calls(history)) or "nothing"
        raise InteractionMismatch(
            f"the call {id!r} waits for no answer; what waits: {waiting}. An answer that was accepted once is not "
            "given again: go on with call(None)"
        )
    return call


def records_of(answers: Answers, history: History, accept: Callable[[Msg], Msg]) -> Iterator[Record]:
    """The records by which answers come into a session.

    Args:
        answers: What was answered.
        history: The session's history.
        accept: Gives a message its identity.

    Raises:
        InteractionMismatch: An answer is for no call that waits, of the wrong kind, or given twice.
    """
    confirmed = [(_waiting(history, id, ToolCallState.ASKING), answer) for id, answer in answers.approvals.items()]
    for exchange, group in _by_exchange(history, (call.id for call, _ in confirmed)):
        yield _confirmation(exchange, [(call, answer) for call, answer in confirmed if call.id in group], accept)
    executed = [_answered(message) for message in answers.results]
    if len(set(executed)) < len(executed):
        raise InteractionMismatch(f"two results for one call, among {', '.join(map(repr, executed))}: give one")
    for message in answers.results:
        id = _answered(message)
        _waiting(history, id, ToolCallState.SUBMITTED)
        if message.tool_result is not None and message.tool_result.state is ToolResultState.RUNNING:
            raise InteractionMismatch(f"the result of {id!r} is still running, and so is none yet")
    for exchange, group in _by_exchange(history, executed):
        results = tuple(message for message in answers.results if _answered(message) in group)
        yield CallsExecuted(_reply_id(exchange, MetadataKey.EXTERNAL_REPLY_ID), results)


def _answered(message: Msg) -> str:
    result = message.tool_result
    return "" if result is None else result.id


def _waiting(history: History, id: str, state: ToolCallState) -> ToolUseBlock:
    call = _open_call(history, id)
    if call.state is not state:
        wanted = "yes or no" if call.state is ToolCallState.ASKING else "the result of an execution"
        raise InteractionMismatch(f"the call {id!r} waits for {wanted}, and got another kind of answer")
    return call


def _by_exchange(history: History, ids: Iterable[str]) -> Iterator[tuple[Exchange, set[str]]]:
    found: dict[str, tuple[Exchange, set[str]]] = {}
    for id in ids:
        exchange = exchange_of(history, id)
        assert exchange is not None  # _waiting has found it
        found.setdefault(exchange.id, (exchange, set()))[1].add(id)
    yield from found.values()


def _reply_id(exchange: Exchange, key: str) -> str:
    return str(exchange.messages[0].metadata.get(key, ""))


def _confirmation(
    exchange: Exchange, answered: Sequence[tuple[ToolUseBlock, Approval]], accept: Callable[[Msg], Msg]
) -> CallsConfirmed:
    results: list[Msg] = []
    calls: list[ToolUseBlock] = []
    told: list[ev.ConfirmResult] = []
    for call, answer in answered:
        final = _final(call, answer)
        if answer.approved:
            calls.append(final)
        else:
            results.append(accept(Msg.tool(_refused(call, answer.reason))))
        told.append(
            ev.ConfirmResult(
                confirmed=answer.approved, tool_call=final, rules=answer.rules or None, reason=answer.reason
            )
        )
    return CallsConfirmed(
        message_id=exchange.id,
        reply_id=_reply_id(exchange, MetadataKey.CONFIRM_REPLY_ID),
        answers=tuple(told),
        calls=tuple(calls),
        results=tuple(results),
    )


def _final(call: ToolUseBlock, answer: Approval) -> ToolUseBlock:
    """The call as it will run, with the person's arguments where they differ from the model's."""
    if not answer.approved:
        return call
    allowed = replace(
        call, state=ToolCallState.ALLOWED, metadata={**call.metadata, PERMISSION_KEY: {"confirmed": True}}
    )
    if answer.input is None or answer.input == call.input:
        return allowed
    return replace(allowed, input=answer.input, content=to_json(answer.input).decode())


def _refused(call: ToolUseBlock, reason: str | None) -> ToolResultBlock:
    text = f"{_REFUSED} The reason given: {reason}" if reason else _REFUSED
    return ToolResultBlock(id=call.id, name=call.name, output=(TextBlock(text=text),), state=ToolResultState.DENIED)


# -- what the subscribers are told --------------------------------------------------------------------------


def events_of(records: Iterable[Record], new_stage: Callable[[], str]) -> Iterator[ev.AgentEvent]:
    """What is told of answers: who said what, and the results of calls that were refused.

    Args:
        records: What has come into the session.
        new_stage: Makes an id for the batch of those results.
    """
    for record in records:
        if isinstance(record, CallsConfirmed):
            yield ev.UserConfirmResult(reply_id=record.reply_id, confirm_results=record.answers)
            stage = new_stage()
            for result in _results(record):
                yield from result_events(result, stage)
        elif isinstance(record, CallsExecuted):
            yield ev.ExternalExecutionResult(reply_id=record.reply_id, tool_results=_results(record))


def _results(record: CallsConfirmed | CallsExecuted) -> tuple[ToolResultBlock, ...]:
    return tuple(result for message in record.results for result in message.blocks(ToolResultBlock))


def result_events(result: ToolResultBlock, stage: str) -> Iterator[ev.AgentEvent]:
    """All that is told of a call that no tool has run: start, text, end."""
    yield ev.ToolResultStart(reply_id=stage, tool_call_id=result.id, tool_call_name=result.name)
    yield ev.ToolResultTextDelta(reply_id=stage, tool_call_id=result.id, tool_call_name=result.name, delta=result.text)
    yield ev.ToolResultEnd(reply_id=stage, tool_call_id=result.id, tool_call_name=result.name, state=result.state)
