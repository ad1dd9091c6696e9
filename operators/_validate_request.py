from __future__ import annotations

from typing import Final

from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded, ContextError, InvalidToolPairs
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.manifest import draft_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter

_NAMED: Final = 5


def validate_request(*, policy: ContextPolicy | None = None) -> Operator:
    """Refuse a request that no provider would take, before money is spent on it.

        --s-------|          --s----#
        validate_request     validate_request, with an open tool call
        --s-------|          -------#

    Args:
        policy: How large a request may be; None = there is no limit.

    Raises:
        InvalidToolPairs: A tool call has no result.
        ContextError: There is nothing to answer.
        ContextBudgetExceeded: The request is too large.
    """

    @view_operator
    def validate_request(draft: RequestDraft, step: Step) -> RequestDraft:
        open_calls = draft.conversation.open_calls
        if open_calls:
            named = ", ".join(f"{call.name} ({call.id})" for call in open_calls)
            raise InvalidToolPairs(f"these tool calls have no result in the request: {named}")
        if not draft.conversation.leaves and not draft.transient and not draft.references:
            raise ContextError("the request holds no message: give the call an input, or a session with a history")
        if policy is not None and step.card.counter is not None:
            _check_size(draft, step.card.counter, request_limit(step, policy).limit)
        return draft

    return validate_request


def _check_size(draft: RequestDraft, counter: TokenCounter, limit: int) -> None:
    estimated = draft_tokens(draft, counter)
    if estimated > limit:
        raise ContextBudgetExceeded(estimated, limit, _largest(draft, counter))


def _largest(draft: RequestDraft, counter: TokenCounter) -> tuple[tuple[str, int], ...]:
    blocks = [(block.id, counter.block(block)) for block in (*draft.system, *draft.transient, *draft.references)]
    tools = [(f"tool {tool.name}", counter.tool(tool)) for tool in draft.tools]
    messages = [
        (f"message {message.id}", tokens)
        for exchange in draft.conversation
        for message, tokens in zip(exchange.messages, counter.items(exchange), strict=True)
    ]
    return tuple(sorted((*blocks, *tools, *messages), key=lambda item: -item[1])[:_NAMED])
