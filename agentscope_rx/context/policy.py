"""How much may go into a request, and what goes first when it is too much."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, model_validator

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import Zone
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.tokens import TokenEstimator

Category: TypeAlias = Zone


class SourceFailurePolicy(StrEnum):
    """What becomes of a request whose source fails: it fails too, or goes without the source."""

    FAIL = "fail"
    OMIT = "omit"


class CategoryBudget(BaseModel):
    """How much one category of a request may take; shares of the limit, from 0 to 1.

    Args:
        floor: What no other category may take from it.
        ceiling: What it may take at most; what is not used by others may be borrowed up to there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    floor: float = Field(default=0.0, ge=0, le=1)
    ceiling: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _in_order(self) -> CategoryBudget:
        if self.floor > self.ceiling:
            raise ValueError(f"floor {self.floor} is above ceiling {self.ceiling}")
        return self


class ContextPolicy(BaseModel):
    """How much may go into a request; zeros mean: from the model.

    Args:
        max_input_tokens: At most so many tokens, whatever the window.
        reserved_output_tokens: Kept for the answer.
        safety_margin_tokens: Kept for what the estimate misses.
        estimator: Counts tokens; None = by the model's name.
        observer: Told of every manifest; what it raises is logged and changes nothing.
        category_budgets: Floors and ceilings of categories.
        pressure: From which shares of the limit on the pressure is 1, 2 and 3.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    max_input_tokens: int = Field(default=0, ge=0)
    reserved_output_tokens: int = Field(default=0, ge=0)
    safety_margin_tokens: int = Field(default=0, ge=0)
    estimator: SkipValidation[TokenEstimator | None] = None
    observer: Callable[[ContextManifest], object] | None = None
    category_budgets: Mapping[Category, CategoryBudget] | None = None
    pressure: tuple[float, float, float] = (0.70, 0.85, 0.95)

    @model_validator(mode="after")
    def _consistent(self) -> ContextPolicy:
        if self.estimator is not None and not isinstance(getattr(self.estimator, "method", None), str):
            raise ValueError(f"estimator={self.estimator!r}: an object with method, exact and count(text)")
        if inspect.iscoroutinefunction(self.observer):
            raise ValueError(f"observer={self.observer!r}: a plain function, which nobody has to await")
        if list(self.pressure) != sorted(self.pressure) or not all(0 < each <= 1 for each in self.pressure):
            raise ValueError(f"pressure={self.pressure}: three rising shares between 0 and 1")
        floors = sum(each.floor for each in (self.category_budgets or {}).values())
        if floors > 1:
            raise ValueError(f"the floors of category_budgets add up to {floors}, which is more than 1")
        return self


class SelectionPolicy(Protocol):
    """Says in which order optional blocks are left out while a request is too large."""

    def __call__(self, optional: Sequence[ContextBlock], /) -> Sequence[str]:
        """The ids of the blocks that may go, first to go first; a block that is not named stays."""
        ...


_CATEGORY_ORDER: Final = {"memory": 0, "knowledge": 1}


def memory_knowledge_rest(optional: Sequence[ContextBlock], /) -> Sequence[str]:
    """The default order: memory, then knowledge, then the rest; in each the lowest priority first."""
    ordered = sorted(optional, key=lambda block: (_CATEGORY_ORDER.get(block.kind, 2), block.priority, block.id))
    return [block.id for block in ordered]
