"""`evict_optional_blocks`: what nobody needs leaves a request that is too large, before anything is shortened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import Category, ContextPolicy, SelectionPolicy, memory_knowledge_rest
from agentscope_rx.context.shares import Shares
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import InvalidOption
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.request_tokens import category_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter

_CATEGORIES: Final[tuple[Category, ...]] = ("transient", "references")


def evict_optional_blocks(*, policy: ContextPolicy, selection: SelectionPolicy = memory_knowledge_rest) -> Operator:
    """Leave out optional blocks, one by one, while the request is too large.

        --s-------|
        evict_optional_blocks
        --t-------|     t.draft fits, or holds no optional block any more

        --s-------|
        evict_optional_blocks     all fits
        --s-------|

    Args:
        policy: How much may go into a request, and into each category.
        selection: Which block goes first.

    Raises:
        InvalidOption: The selection names a block twice, or one that is not there or must stay; checked also where
            nothing has to go.
    """

    @view_operator
    def evict_optional_blocks(draft: RequestDraft, step: Step) -> RequestDraft:
        optional = [block for block in (*draft.transient, *draft.references) if not block.required]
        order = _checked(selection(optional), optional)
        counter = step.card.counter
        if not order or counter is None:
            return draft
        shares = Shares(limit=request_limit(step, policy).limit, budgets=policy.category_budgets or {})
        leaving = _Leaving(draft, counter, shares, order)
        for category in _CATEGORIES:
            leaving.keep_to_room(category)
        leaving.keep_to_limit()
        return leaving.draft

    return replace(evict_optional_blocks, note="memory, knowledge, other; priority, id")


class _Leaving:
    """The blocks that have to go, found out without making a draft for each."""

    def __init__(self, draft: RequestDraft, counter: TokenCounter, shares: Shares, order: Sequence[str]) -> None:
        self._whole, self._counter, self._shares = draft, counter, shares
        self._used = category_tokens(draft, counter)
        sizes: dict[str, tuple[Category, int]] = {}
        for category, zone in zip(_CATEGORIES, (draft.transient, draft.references), strict=True):
            sizes |= {block.id: (category, counter.block(block)) for block in zone}
        self._waiting = {id: sizes[id] for id in order if sizes[id][1]}  # what says nothing takes no room
        self._left = Counter(category for category, _ in self._waiting.values())
        self._reasons: dict[str, str] = {}

    @property
    def draft(self) -> RequestDraft:
        """What is left."""
        whole, gone = self._whole, self._reasons
        if not gone:
            return whole
        return replace(  # and not draft.without(): a tool may be called like a block
            whole,
            transient=tuple(block for block in whole.transient if block.id not in gone),
            references=tuple(block for block in whole.references if block.id not in gone),
            reasons={**whole.reasons, **gone},
        )

    def keep_to_room(self, category: Category) -> None:
        """Let blocks of a category go until it has no more than it may."""
        room = self._shares.room(category)
        if room >= self._shares.limit:
            return  # it may have all that the request may
        for id, (its, _) in tuple(self._waiting.items()):
            if its == category and self._used[category] > room:
                self._drop(id, f"over_category_budget:{category}")

    def keep_to_limit(self) -> None:
        """Let blocks go until all of the request fits; a category at its floor gives none."""
        for id, (category, _) in tuple(self._waiting.items()):
            if self._shares.held(self._used) <= self._shares.limit:
                return
            if self._used[category] > self._shares.floor(category):
                self._drop(id, f"omitted_for_budget:{id}")

    def _drop(self, id: str, reason: str) -> None:
        category, tokens = self._waiting.pop(id)
        self._reasons[id] = reason
        self._used[category] -= tokens
        self._left[category] -= 1
        if not self._left[category]:
            self._used = category_tokens(self.draft, self._counter)  # the last one takes its frame along


def _checked(order: Sequence[str], optional: Sequence[ContextBlock]) -> Sequence[str]:
    known = {block.id for block in optional}
    order = list(order)
    if unknown := [id for id in order if id not in known]:
        rule = f"names {unknown[0]!r}, which is no optional block of this request"
        raise InvalidOption("context_selection_policy", order, rule)
    if len(set(order)) != len(order):
        raise InvalidOption("context_selection_policy", order, "names a block twice")
    return order
