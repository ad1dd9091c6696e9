from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import Category, ContextPolicy, SelectionPolicy, memory_knowledge_rest
from agentscope_rx.context.shares import category_ceilings
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import InvalidOption
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.manifest import category_tokens, draft_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter

_CATEGORIES: Final[tuple[Category, Category]] = ("transient", "references")


def evict_optional_blocks(*, policy: ContextPolicy, selection: SelectionPolicy = memory_knowledge_rest) -> Operator:
    """Leave out optional blocks, one by one, while the request is too large.

        --s-------|
        evict_optional_blocks
        --t-------|     t.draft fits, or holds no optional block any more

    Args:
        policy: How much may go into a request, and into each category.
        selection: Which block goes first.

    Raises:
        InvalidOption: The selection names a block twice, or one that is not there or must stay; checked also where
            nothing has to go (facts F.7).
    """

    @view_operator
    def evict_optional_blocks(draft: RequestDraft, step: Step) -> RequestDraft:
        optional = [block for block in (*draft.transient, *draft.references) if not block.required]
        order = _checked(selection(optional), optional)
        counter = step.card.counter
        if not order or counter is None:
            return draft
        limit = request_limit(step, policy).limit
        for category, ceiling in _ceilings(draft, counter, limit, policy).items():
            draft = _without_excess(draft, counter, order, category, ceiling)
        for id in order:
            if draft_tokens(draft, counter) <= limit:
                break
            draft = draft.without((id,), reason=f"omitted_for_budget:{id}")
        return draft

    return replace(evict_optional_blocks, note="memory, knowledge, other; priority, id")


def _ceilings(draft: RequestDraft, counter: TokenCounter, limit: int, policy: ContextPolicy) -> dict[Category, int]:
    if not policy.category_budgets:
        return {}
    ceilings = category_ceilings(category_tokens(draft, counter), limit, policy.category_budgets)
    return {category: ceilings[category] for category in _CATEGORIES}


def _without_excess(
    draft: RequestDraft, counter: TokenCounter, order: Sequence[str], category: Category, ceiling: int
) -> RequestDraft:
    for id in order:
        if category_tokens(draft, counter)[category] <= ceiling:
            break
        zone = draft.transient if category == "transient" else draft.references
        if any(block.id == id for block in zone):
            draft = draft.without((id,), reason=f"over_category_budget:{category}")
    return draft


def _checked(order: Sequence[str], optional: Sequence[ContextBlock]) -> Sequence[str]:
    known = {block.id for block in optional}
    if unknown := [id for id in order if id not in known]:
        rule = f"names {unknown[0]!r}, which is no optional block of this request"
        raise InvalidOption("context_selection_policy", list(order), rule)
    if len(set(order)) != len(order):
        raise InvalidOption("context_selection_policy", list(order), "names a block twice")
    return order
