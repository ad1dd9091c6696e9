"""What the tests of background work need: agents on a store, whose tools wait for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.events import AgentEvent
from agentscope_rx.messages import Role
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import Model, ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SessionStore
from agentscope_rx.testing import ScriptedModel, calls, text
from agentscope_rx.testing.scripted_model import Scripted

ALICE = RuntimeContext(user_id="alice", session_id="s1")


class Gate:
    """A tool that tells when it has begun, and ends when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.opened = asyncio.Event(), asyncio.Event()

    async def work(self) -> str:
        """Work until the test lets go."""
        self.begun.set()
        await self.opened.wait()
        return "worked"


def builder_on(
    store: SessionStore, script: Model | Sequence[Scripted] = (), *tools: Any, **options: Any
) -> AgentBuilder[ReActAgent]:
    """A builder with a Runtime of its own, as another process has one."""
    model = ScriptedModel(script) if isinstance(script, Sequence) else script
    builder = ReActAgent.builder(
        name="worker", model=model, tools=[*tools], state_store=store, state_only=False, **options
    )
    return builder.runtime(Runtime())


def told(events: Sequence[AgentEvent]) -> list[str]:
    """The types of events, in order, without the pieces of texts and arguments."""
    return [event.type for event in events if not event.type.endswith("_DELTA")]  # type: ignore[attr-defined]


class ByTurn:
    """A model that answers by what it is asked: so many calls of `work` as the user says (1 by default), then an answer
    to that. Any process gives the same."""

    name, context_window, max_output_tokens = "by-turn", 1_000_000, None

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """The next call, or the answer."""
        messages = list(request.messages)
        at = max(n for n, message in enumerate(messages) if message.role is Role.USER)
        asked, done = messages[at].text, sum(message.tool_result is not None for message in messages[at:])
        wanted = int(asked.split()[-1]) if asked.split()[-1].isdecimal() else 1
        turn = calls((f"{asked}/{done}", "work", "{}")) if done < wanted else text(f"answer to {asked}")
        for chunk in turn.chunks:
            assert isinstance(chunk, ModelChunk)
            yield chunk
