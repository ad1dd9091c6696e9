"""What is remembered over sessions, and when: what a user may choose."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, field_validator, model_validator

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.memory.prompts import CAP_FIELDS, CONSOLIDATION_PROMPT, FLUSH_PROMPT
from agentscope_rx.requests import Model

_NO_TIME: Final = timedelta(0)


@frozen
class FlushTrigger:
    """When the end of a call has facts written down. Made by `always`, `never` and `throttled`.

    Args:
        gap: The least time between two; None = it never has.
    """

    gap: timedelta | None = _NO_TIME

    @classmethod
    def always(cls) -> FlushTrigger:
        """At the end of each call."""
        return cls()

    @classmethod
    def never(cls) -> FlushTrigger:
        """At the end of no call; only before messages give way to a summary."""
        return cls(gap=None)

    @classmethod
    def throttled(cls, gap: timedelta) -> FlushTrigger:
        """At the end of calls, but not within some time after the last; the first one at once.

        Args:
            gap: The least time between two; 0 = always.

        Raises:
            InvalidOption: It is negative, or no time span.

        Examples:
            >>> FlushTrigger.throttled(timedelta(minutes=10)).gap
            datetime.timedelta(seconds=600)
        """
        if not isinstance(gap, timedelta) or gap < _NO_TIME:  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("flush_trigger", gap, "a timedelta that is not negative")
        return cls(gap=gap)


class MemoryConfig(BaseModel):
    """What is remembered over sessions, and when.

    Args:
        model: Who writes down and merges facts; None = the agent's model. A `Model`, or `provider:model`.
        flush_prompt: What the model is told that finds facts in a conversation.
        consolidation_prompt: What the model is told that writes `MEMORY.md` anew; must hold `{max_tokens}` and
            `{max_chars}`.
        consolidation_max_tokens: How long `MEMORY.md` may be; what is a quarter longer is refused.
        consolidation_min_gap: The least time between two consolidations, by whatever process.
        daily_file_retention_days: How old the facts of a day are when their file moves to `memory/archive/`.
        flush_trigger: When the end of a call has facts written down: a `FlushTrigger`, or `always` or `never`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    model: SkipValidation[Model | str | None] = None
    flush_prompt: str = FLUSH_PROMPT
    consolidation_prompt: str = CONSOLIDATION_PROMPT
    consolidation_max_tokens: int = Field(default=4_000, gt=0)
    consolidation_min_gap: timedelta = Field(default=timedelta(minutes=30), ge=_NO_TIME)
    daily_file_retention_days: int = Field(default=90, gt=0)
    flush_trigger: FlushTrigger = Field(default_factory=FlushTrigger)

    @field_validator("flush_trigger", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        match value:
            case "always":
                return FlushTrigger.always()
            case "never":
                return FlushTrigger.never()
            case FlushTrigger():
                return value
            case _:
                raise ValueError("a FlushTrigger, 'always' or 'never'")

    @model_validator(mode="after")
    def _consistent(self) -> MemoryConfig:
        if not self.flush_prompt.strip():
            raise ValueError("flush_prompt must not be blank")
        for field in CAP_FIELDS:
            if field not in self.consolidation_prompt:
                raise ValueError(f"consolidation_prompt must hold {field}, which its limit takes the place of")
        return self
