"""What users do with events, for the type checker alone: nobody runs this file."""

from __future__ import annotations

from typing import assert_type

from agentscope_rx import EventStream
from agentscope_rx.events import TextBlockDelta


async def watch(events: EventStream) -> None:
    """Look at the type, match, and leave in the middle."""
    async for event in events:
        print(event.type.lower())
        match event:
            case TextBlockDelta(delta=delta):
                assert_type(delta, str)
            case _:
                pass
        if event.type == "TEXT_BLOCK_DELTA":
            assert_type(event, TextBlockDelta)
