"""How many tokens and seconds model calls took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from agentscope_rx.frozen import frozen


@frozen
class ChatUsage:
    """What one model call, or several, consumed.

    Args:
        input_tokens: Tokens of the request.
        output_tokens: Tokens of the answer.
        cached_tokens: The part of `input_tokens` that the provider served from its prefix cache.
        time: Seconds from the request to the end of the answer.

    Examples:
        >>> (ChatUsage(input_tokens=3, output_tokens=1) + ChatUsage(input_tokens=4)).total_tokens
        8
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    time: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: ChatUsage) -> ChatUsage:
        return ChatUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            time=self.time + other.time,
        )


def total(usages: Iterable[ChatUsage]) -> ChatUsage:
    """Add up the usages of several model calls."""
    return sum(usages, ChatUsage())
