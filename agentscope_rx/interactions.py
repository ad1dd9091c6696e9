"""Tool calls that wait for somebody outside a run, and the answers to them.

What waits is part of the history: an open call in the state `asking` waits for a person's yes or no, one in the state
`submitted` for its result from outside. So a pause outlives the process, and any agent of the session can be answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, Literal, TypeAlias, cast

from pydantic import TypeAdapter

from agentscope_rx.frozen import frozen
from agentscope_rx.history import OPEN_CALLS, Exchange, History
from agentscope_rx.messages import NOTHING, Msg, OutputBlock, ToolCallState, ToolResultBlock, ToolUseBlock
from agentscope_rx.permission_context import PermissionRule

#: The key of `ToolUseBlock.metadata` under which the question about a call lies, and that it was answered with yes.
PERMISSION_KEY: Final = "agentscope_permission"
Kind: TypeAlias = Literal["confirmation", "external_execution"]
_KINDS: Final[Mapping[ToolCallState, Kind]] = {
    ToolCallState.ASKING: "confirmation",
    ToolCallState.SUBMITTED: "external_execution",
}


@frozen
class PendingCall:
    """A tool call that waits.

    Args:
        call: The call, with the arguments that the model wrote.
        kind: What it waits for: a `confirmation` by a person, or its `external_execution`.
        message: Why a person is asked.
        suggestions: Rules that would answer the question for good; hand them to `approve(rules=...)`.
    """

    call: ToolUseBlock
    kind: Kind
    message: str = ""
    suggestions: tuple[PermissionRule, ...] = ()

    @property
    def id(self) -> str:
        """The id of the call, under which it is answered."""
        return self.call.id


@frozen
class Approval:
    """A person's answer to a call that waits for a confirmation; `approve()` and `reject()` make one.

    Args:
        approved: Whether the call may run.
        input: The arguments that it is to run with; None = those of the model.
        rules: What is to hold for later calls of the session.
        reason: Why it was refused, in words for the model.
    """

    approved: bool
    input: Mapping[str, object] | None = None
    rules: tuple[PermissionRule, ...] = ()
    reason: str | None = None


#: The answer to a call: yes or no to a confirmation; the result of an external execution, or its text.
Answer: TypeAlias = bool | Approval | str | Sequence[OutputBlock] | ToolResultBlock


def approve(*, input: Mapping[str, object] | None = None, rules: Sequence[PermissionRule] = ()) -> Approval:
    """Let a call run.

    Args:
        input: Other arguments than the model's. Default None: the model's.
        rules: What is to hold for later calls of the session: `pending.suggestions` for "always". Default: nothing.

    Examples:
        >>> approve().approved, approve(input={"amount": 5}).input
        (True, {'amount': 5})
    """
    return Approval(approved=True, input=input, rules=tuple(rules))


def reject(reason: str | None = None, *, rules: Sequence[PermissionRule] = ()) -> Approval:
    """Do not let a call run.

    Args:
        reason: Why, in words for the model. Default None: it is told only that it was refused.
        rules: What is to hold for later calls of the session. Default: nothing.

    Examples:
        >>> reject("too expensive").reason
        'too expensive'
    """
    return Approval(approved=False, reason=reason, rules=tuple(rules))


def pending_calls(history: History) -> tuple[PendingCall, ...]:
    """The calls that wait for somebody outside, in order."""
    return tuple(_pending(call) for call in history.open_calls if call.state in _KINDS)


def is_waiting(exchange: Exchange) -> bool:
    """Whether an exchange waits for somebody outside, and all its open calls with it."""
    return any(call.state in _KINDS for call in exchange.measure(OPEN_CALLS))


def open_exchanges(history: History) -> tuple[Exchange, ...]:
    """The exchanges with open calls, oldest first; what has none is not looked at again."""
    leaves = (leaf for leaf in history.leaves if leaf.measure(OPEN_CALLS))
    return tuple(exchange for leaf in leaves for exchange in leaf.exchanges if exchange.measure(OPEN_CALLS))


def exchange_of(history: History, call_id: str) -> Exchange | None:
    """The newest exchange in which this call is open."""
    found = (each for each in reversed(open_exchanges(history)) if any(call.id == call_id for call in each.open_calls))
    return next(found, None)


def question(message: str, suggestions: Sequence[PermissionRule]) -> Mapping[str, object]:
    """What the metadata of an asked call say under `PERMISSION_KEY`."""
    return {"message": message, "suggestions": _rules_adapter().dump_python(tuple(suggestions), mode="json")}


def is_confirmed(call: ToolUseBlock) -> bool:
    """Whether a person has said yes to this call."""
    return _told(call).get("confirmed") is True


def with_calls(message: Msg, calls: Sequence[ToolUseBlock], metadata: Mapping[str, object] = NOTHING) -> Msg:
    """A message with other versions of some of its calls, and further metadata."""
    newer = {call.id: call for call in calls}
    content = tuple(
        newer.get(block.id, block) if isinstance(block, ToolUseBlock) else block for block in message.content
    )
    return replace(message, content=content, metadata={**message.metadata, **metadata})


def _pending(call: ToolUseBlock) -> PendingCall:
    told = _told(call)
    return PendingCall(
        call=call,
        kind=_KINDS[call.state],
        message=str(told.get("message", "")),
        suggestions=_rules_adapter().validate_python(told.get("suggestions", ())),
    )


def _told(call: ToolUseBlock) -> Mapping[str, object]:
    told = call.metadata.get(PERMISSION_KEY)
    return cast("Mapping[str, object]", told) if isinstance(told, Mapping) else NOTHING


@cache
def _rules_adapter() -> TypeAdapter[tuple[PermissionRule, ...]]:
    return TypeAdapter(tuple[PermissionRule, ...])
