"""Floors and ceilings of categories, with borrowing."""

from __future__ import annotations

from collections.abc import Mapping

from agentscope_rx.context.policy import Category, CategoryBudget


def category_ceilings(
    used: Mapping[str, int], limit: int, budgets: Mapping[Category, CategoryBudget]
) -> dict[str, int]:
    """How much each category may take at most, given what the others take.

    A category may take its ceiling, and borrows for it what others leave unused; what it may never have is what
    lies below another category's floor and is not used there yet.

    Args:
        used: Tokens by category.
        limit: Tokens of the whole request.
        budgets: Floors and ceilings; a category that is not named has none.

    Examples:
        >>> budgets = {"references": CategoryBudget(ceiling=0.5), "conversation": CategoryBudget(floor=0.7)}
        >>> category_ceilings({"conversation": 100, "references": 900}, 1_000, budgets)["references"]
        300
    """
    kept_free = {
        category: max(used.get(category, 0), int(budget.floor * limit)) for category, budget in budgets.items()
    }
    ceilings: dict[str, int] = {}
    for category in used:
        ceiling = int(budgets[category].ceiling * limit) if category in budgets else limit  # type: ignore[index]
        reserved = sum(tokens - used.get(other, 0) for other, tokens in kept_free.items() if other != category)
        others = sum(tokens for other, tokens in used.items() if other != category)
        ceilings[category] = max(0, min(ceiling, limit - reserved - others))
    return ceilings
