"""`validate_request`: the last look at a request, at what a provider refuses and at its size."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import Final

from agentscope_rx.blocks import PLAIN, ContextBlock
from agentscope_rx.context.limit import InputLimit, request_limit
from agentscope_rx.context.policy import Category, ContextPolicy
from agentscope_rx.context.shares import Shares
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded, ContextError, InvalidToolPairs, NotShortened
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.request_tokens import category_tokens, draft_tokens
from agentscope_rx.step import Pressed, Step
from agentscope_rx.token_counter import TokenCounter

_NAMED: Final = 5


def validate_request(*, policy: ContextPolicy | None = None) -> Operator:
    """Refuse a request that no provider would take, before money is spent on it.

        --s-------|
        validate_request
        --s-------|

        --s-------|
        validate_request     a tool call is open
        --#

    Args:
        policy: How large a request may be; None = there is no limit.

    Raises:
        InvalidToolPairs: A tool call has no result.
        ContextError: There is nothing to answer, or two blocks have one id.
        ContextBudgetExceeded: The request, or one category of it, is too large; caused by what kept a compaction
            from making it smaller, where something did.
        NotShortened: The provider has refused the step's request as too long, and this one is no shorter.
    """

    @view_operator
    def validate_request(draft: RequestDraft, step: Step) -> RequestDraft:
        open_calls = draft.conversation.open_calls
        if open_calls:
            named = ", ".join(f"{call.name} ({call.id})" for call in open_calls)
            raise InvalidToolPairs(f"these tool calls have no result in the request: {named}")
        if not draft.conversation.leaves and not any(map(_asks, (*draft.transient, *draft.references))):
            raise ContextError("the request holds no message: give the call an input, or a session with a history")
        _check_ids(draft)
        if policy is not None and step.card.counter is not None:
            _check_shortened(draft, step.card.counter, step.pressed)
            failure = None if step.compaction is None else step.compaction.failure
            _check_size(draft, step.card.counter, request_limit(step, policy), failure)
            _check_categories(draft, step.card.counter, request_limit(step, policy).limit, policy)
        return draft

    return validate_request


def _asks(block: ContextBlock) -> bool:
    """Whether a block may be all that there is to answer; what is there in every request is not."""
    return block.kind in PLAIN or block.kind in ("runtime", "reference")


def _check_ids(draft: RequestDraft) -> None:
    ids = [block.id for zone in (draft.system, draft.transient, draft.references) for block in zone]
    if len(set(ids)) < len(ids):
        twice = next(id for id, count in Counter(ids).items() if count > 1)
        raise ContextError(f"two blocks of the request are called {twice!r}: give each an id of its own")


def _check_shortened(draft: RequestDraft, counter: TokenCounter, pressed: Pressed | None) -> None:
    if pressed is not None and pressed.tokens is not None and draft_tokens(draft, counter) >= pressed.tokens:
        raise NotShortened(
            f"the provider has refused a request of about {pressed.tokens:,} tokens as too long, and it could not be "
            "made shorter"
        )


def _check_size(draft: RequestDraft, counter: TokenCounter, limit: InputLimit, failure: Exception | None) -> None:
    estimated = draft_tokens(draft, counter)
    if estimated > limit.limit:
        error = ContextBudgetExceeded(estimated, limit.limit, _largest(draft, counter))
        if not limit.limit:
            error.add_note(
                f"of the model's window of {limit.window:,} tokens the answer may take {limit.output:,} and the margin "
                f"takes {limit.margin:,}: ask for a shorter answer (max_tokens)"
            )
        raise error from failure


def _check_categories(draft: RequestDraft, counter: TokenCounter, limit: int, policy: ContextPolicy) -> None:
    """What could not be made smaller may still not have more than its ceiling."""
    if not policy.category_budgets:
        return
    used, shares = category_tokens(draft, counter), Shares(limit=limit, budgets=policy.category_budgets)
    for category, budget in policy.category_budgets.items():
        if used[category] > (ceiling := shares.ceiling(category)):
            error = ContextBudgetExceeded(used[category], ceiling, _largest(draft, counter, category))
            error.add_note(f"that is the category {category!r}, whose ceiling is {budget.ceiling:g} of {limit:,}")
            raise error


def _largest(
    draft: RequestDraft, counter: TokenCounter, category: Category | None = None
) -> tuple[tuple[str, int], ...]:
    blocks: dict[Category, tuple[ContextBlock, ...]] = {
        "system": draft.system,
        "transient": draft.transient,
        "references": draft.references,
    }
    sizes: list[tuple[Category, str, int]] = [
        (zone, block.id, counter.block(block)) for zone, its in blocks.items() for block in its
    ]
    tools: list[tuple[Category, str, int]] = [
        ("tools", f"tool {tool.name}", counter.tool(tool)) for tool in draft.tools
    ]
    messages: list[tuple[Category, str, int]] = [
        ("conversation", f"message {message.id}", tokens)
        for exchange in draft.conversation
        for message, tokens in zip(exchange.messages, counter.items(exchange), strict=True)
    ]
    for kind, items in (("tools", tools), ("messages", messages)):
        sizes.extend(items)
        if len(items) > 1:  # many that are small are one that is large
            sizes.append((items[0][0], f"all {len(items):,} {kind}", sum(tokens for _, _, tokens in items)))
    named = [(name, tokens) for zone, name, tokens in sizes if category in (None, zone)]
    return tuple(nlargest(_NAMED, named, key=lambda item: item[1]))
