"""What counts the tokens of a request's items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.history import Exchange, History
from agentscope_rx.requests import ToolSpec


class TokenCounter(Protocol):
    """Counts items; as a measure, the exchanges of a history. One for each method and process."""

    def of(self, exchange: Exchange, /) -> int:
        """Tokens of one exchange."""
        ...

    def join(self, parts: Sequence[int], /) -> int:
        """Tokens of several."""
        ...

    def items(self, exchange: Exchange, /) -> tuple[int, ...]:
        """Tokens of each message of an exchange."""
        ...

    def block(self, block: ContextBlock, /) -> int:
        """Tokens of a block, with the tags around it."""
        ...

    def tool(self, spec: ToolSpec, /) -> int:
        """Tokens of a tool's schema."""
        ...

    def framing(self, draft: RequestDraft, /) -> int:
        """Tokens of what belongs to no item."""
        ...

    def method_for(self, history: History, /) -> str:
        """How a history is counted."""
        ...

    def exact_for(self, history: History, /) -> bool:
        """Whether that is the provider's own way, framing apart."""
        ...

    async def ready(self) -> None:
        """Load what counting needs, without holding up the event loop."""
        ...
