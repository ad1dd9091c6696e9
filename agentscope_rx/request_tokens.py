"""What a request costs in tokens: all of it, by category, and item by item."""

from __future__ import annotations

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft, Zone
from agentscope_rx.history import Exchange, Measure
from agentscope_rx.messages import Msg
from agentscope_rx.requests import ToolSpec
from agentscope_rx.token_counter import TokenCounter


def draft_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What a request costs: the sum of its items."""
    return fixed_tokens(draft, counter) + draft.conversation.measure(counter)


def fixed_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What all of a request costs that is not its conversation."""
    blocks = sum(counter.block(block) for _, zone in block_zones(draft) for block in zone)
    return blocks + sum(map(counter.tool, draft.tools)) + counter.framing(draft)


def category_tokens(draft: RequestDraft, counter: TokenCounter) -> dict[Zone, int]:
    """Tokens by category; framing counts as System."""
    zones = {zone: sum(map(counter.block, blocks)) for zone, blocks in block_zones(draft)}
    return {
        "system": zones["system"] + counter.framing(draft),
        "tools": sum(map(counter.tool, draft.tools)),
        "conversation": draft.conversation.measure(counter),
        "transient": zones["transient"],
        "references": zones["references"],
    }


def block_zones(draft: RequestDraft) -> tuple[tuple[Zone, tuple[ContextBlock, ...]], ...]:
    """The zones that hold blocks, in the order in which they are read."""
    return (("system", draft.system), ("transient", draft.transient), ("references", draft.references))


def text_tokens(text: str, counter: Measure[int]) -> int:
    """What a text costs as a message of its own."""
    return Exchange(Msg.user(text)).measure(counter)


def token_cost(each: object, counter: TokenCounter) -> int:
    """What one item costs, or an exchange; anything else costs nothing."""
    match each:
        case ContextBlock():
            return counter.block(each)
        case ToolSpec():
            return counter.tool(each)
        case Exchange():
            return each.measure(counter)
        case _:
            return 0
