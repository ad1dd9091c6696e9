"""Tool calls that wait for somebody outside, and what they were answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentscope_rx.errors import InvalidToolPairs
from agentscope_rx.events import ConfirmResult
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange
from agentscope_rx.interactions import open_exchanges, with_calls
from agentscope_rx.messages import NOTHING, Msg, ToolUseBlock
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class CallsPaused:
    """Tool calls of one message wait for somebody outside, and their batch with them.

    Args:
        message_id: The message that holds them.
        calls: All of its calls whose state has changed, as they are now.
        metadata: What the message says of the question from now on.
    """

    message_id: str
    calls: tuple[ToolUseBlock, ...]
    metadata: Mapping[str, object]

    def apply(self, state: AgentState) -> AgentState:
        waiting = {call.id for call in self.calls}
        dispatched = tuple(id for id in state.dispatched if id not in waiting)
        return replace(_with_calls(state, self.message_id, self.calls, self.metadata), dispatched=dispatched)


@frozen(kw_only=False)
class CallsConfirmed:
    """A person has said yes or no to tool calls that waited for it.

    Args:
        message_id: The message that holds them.
        reply_id: The batch that had asked.
        answers: What was said to which call.
        calls: The calls that may run, as they will.
        results: The results of those that may not.
    """

    message_id: str
    reply_id: str
    answers: tuple[ConfirmResult, ...]
    calls: tuple[ToolUseBlock, ...] = ()
    results: tuple[Msg, ...] = ()

    def apply(self, state: AgentState) -> AgentState:
        rules = [rule for answer in self.answers for rule in answer.rules or ()]
        after = _with_calls(state, self.message_id, self.calls, NOTHING).with_messages(self.results)
        return replace(after, permission_context=state.permission_context.with_rules(rules))


@frozen(kw_only=False)
class CallsExecuted:
    """Somebody outside has given results of tool calls that waited for them.

    Args:
        reply_id: The batch that had asked.
        results: The results.
    """

    reply_id: str
    results: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return state.with_messages(self.results)


def _with_calls(
    state: AgentState, message_id: str, calls: Sequence[ToolUseBlock], metadata: Mapping[str, object]
) -> AgentState:
    if not calls:
        return state
    held = next((each for each in open_exchanges(state.context) if each.id == message_id), None)
    if held is None:
        raise InvalidToolPairs(f"no message {message_id!r} holds tool calls that wait")
    message, *results = held.messages
    changed = Exchange(with_calls(message, calls, metadata), *results)
    return replace(state, context=state.context.with_exchange(held, changed))
