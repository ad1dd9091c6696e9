"""Token counts of whole requests: messages, blocks as they are rendered, tools, and what holds them together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.layout import SPEAKER, SYSTEM_JOINT, frames, render_block
from agentscope_rx.draft import RequestDraft
from agentscope_rx.history import Exchange, History
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tokens import MESSAGE_TOKENS, REPLY_TOKENS, ContextTokenEstimator, TokenEstimator
from agentscope_rx.tokens.measure import NAME_TOKENS, TokenMeasure, token_measure

_COUNTERS: Final = 64
_BLOCKS: Final = 4_096


class RequestCounter:
    """Counts the items of requests; as a measure, those of a history.

    Args:
        measure: Counts messages and texts.
    """

    __slots__ = ("_blocks", "_measure")

    def __init__(self, measure: TokenMeasure) -> None:
        self._measure = measure
        self._blocks: dict[tuple[int, int], int] = {}

    async def ready(self) -> None:
        """Load what counting needs, in a thread; nothing where it is loaded."""
        await self._measure.ready()

    def of(self, exchange: Exchange, /) -> int:
        """Tokens of one exchange."""
        return self._measure.of(exchange)

    def join(self, parts: Sequence[int], /) -> int:
        """Tokens of several."""
        return sum(parts)

    def items(self, exchange: Exchange, /) -> tuple[int, ...]:
        """Tokens of each message of an exchange."""
        return self._measure.items(exchange)

    def block(self, block: ContextBlock, /) -> int:
        """Tokens of a block with the tags around it; remembered, so that it is not rendered to be counted again."""
        # By hash, since texts may be long and each remembers its own; what is not rendered does not count.
        key = hash((block.kind, block.id, block.revision, block.text)), len(block.text)
        known = self._blocks.get(key)
        if known is not None:
            return known
        tokens = self._measure.block(render_block(block))
        if len(self._blocks) >= _BLOCKS:
            self._blocks.clear()  # at once, since dropping one by one is not safe among threads
        self._blocks[key] = tokens
        return tokens

    def tool(self, spec: ToolSpec, /) -> int:
        """Tokens of a tool's schema."""
        return self._measure.tool(spec)

    def framing(self, draft: RequestDraft, /) -> int:
        """Tokens of what belongs to no item: frames of synthetic messages, headings, the start of the answer."""
        around, shown = self._measure.block, sum(not block.blank for block in draft.system)
        system = MESSAGE_TOKENS + around(SYSTEM_JOINT) * (shown - 1) if shown else 0
        speaker = MESSAGE_TOKENS + NAME_TOKENS + around(SPEAKER)
        return REPLY_TOKENS + system + sum(speaker + around(text) for text in frames(draft))

    def method_for(self, history: History, /) -> str:
        """How a history is counted."""
        return self._measure.method_for(history)

    def exact_for(self, history: History, /) -> bool:
        """Whether that is the provider's own way, framing apart."""
        return self._measure.exact_for(history)


def counter_for(estimator: TokenEstimator | None, model: str) -> RequestCounter:
    """The process's one counter of an estimator; by default of a model's family.

    Args:
        estimator: What counts texts; None = by the model's name.
        model: The model's name.
    """
    return _counter(token_measure(estimator or ContextTokenEstimator.for_model(model)))


@lru_cache(_COUNTERS)
def _counter(measure: TokenMeasure) -> RequestCounter:
    return RequestCounter(measure)
