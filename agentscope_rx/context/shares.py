"""Floors and ceilings of categories, with borrowing."""

from __future__ import annotations

from collections.abc import Mapping

from agentscope_rx.context.policy import Category, CategoryBudget
from agentscope_rx.frozen import frozen


@frozen
class Shares:
    """How the tokens of a request are shared out among its categories.

    What lies below the floor of a category is kept free for it, used or not. Of the rest each may borrow what the
    others leave, up to its ceiling. A category that is not named has no floor, and the whole as its ceiling.

    Args:
        limit: Tokens of the whole request.
        budgets: Floors and ceilings.

    Examples:
        >>> shares = Shares(limit=1_000, budgets={"conversation": CategoryBudget(floor=0.7)})
        >>> shares.room("references"), shares.held({"conversation": 100, "references": 250})
        (300, 950)
    """

    limit: int
    budgets: Mapping[Category, CategoryBudget]

    def floor(self, category: Category) -> int:
        """What is kept free for a category; it is never asked to have less."""
        return int(self.budgets[category].floor * self.limit) if category in self.budgets else 0

    def ceiling(self, category: Category) -> int:
        """What a category may have at most."""
        return int(self.budgets[category].ceiling * self.limit) if category in self.budgets else self.limit

    def room(self, category: Category) -> int:
        """What a category may have at most while others have no more than their floors."""
        kept_free = sum(self.floor(other) for other in self.budgets if other != category)
        return max(self.floor(category), min(self.ceiling(category), self.limit - kept_free))

    def held(self, used: Mapping[Category, int]) -> int:
        """What is used or kept free, all in all."""
        categories = dict.fromkeys((*used, *self.budgets))
        return sum(max(used.get(each, 0), self.floor(each)) for each in categories)
