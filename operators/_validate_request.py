from __future__ import annotations

from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextError, InvalidToolPairs
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.step import Step


def validate_request() -> Operator:
    """Refuse a request that no provider would take, before money is spent on it.

        --s-------|          --s----#
        validate_request     validate_request, with an open tool call
        --s-------|          -------#

    Raises:
        InvalidToolPairs: A tool call has no result.
        ContextError: There is nothing to answer.
    """

    @view_operator
    def validate_request(draft: RequestDraft, step: Step) -> RequestDraft:
        open_calls = draft.conversation.open_calls
        if open_calls:
            named = ", ".join(f"{call.name} ({call.id})" for call in open_calls)
            raise InvalidToolPairs(f"these tool calls have no result in the request: {named}")
        if not draft.conversation.leaves and not draft.transient and not draft.references:
            raise ContextError("the request holds no message: give the call an input, or a session with a history")
        return draft

    return validate_request
