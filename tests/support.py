"""What several test files need: an agent before a provider, and ways to look at what a run gave."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Unpack

from agentscope_rx.agent import NOBODY
from agentscope_rx.builder import AgentBuilder, BuilderKeywords
from agentscope_rx.events import AgentEvent, AgentResult
from agentscope_rx.messages import Msg
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing.fake_provider import FakeProvider, Script, ScriptedReply

ONE_ATTEMPT = ExecutionConfig(max_attempts=1)
MODELS = (HttpxChatModel, OpenAIChatModel)


@dataclass
class Seen:
    """What a run gave to its subscriber."""

    events: list[AgentEvent] = field(default_factory=list[AgentEvent])
    error: Exception | None = None

    @property
    def types(self) -> list[str]:
        """The types of the events, in order."""
        return [type_of(event) for event in self.events]

    @property
    def result(self) -> Msg:
        """The message of `AGENT_RESULT`."""
        (result,) = [event.result for event in self.events if isinstance(event, AgentResult)]
        return result

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


def type_of(event: AgentEvent) -> str:
    """The type of an event, as its JSON has it."""
    return str(event.type)  # type: ignore[attr-defined]


async def watch(agent: Any, input: str | None, context: RuntimeContext = NOBODY) -> Seen:
    """Run to the end, and keep everything."""
    seen = Seen()
    try:
        async for event in agent.stream_events(input, context):
            seen.events.append(event)
    except Exception as error:
        seen.error = error
    return seen


def builder_for(
    provider: FakeProvider,
    make_model: type[HttpxChatModel] | type[OpenAIChatModel] = HttpxChatModel,
    **options: Unpack[BuilderKeywords],
) -> AgentBuilder[ReActAgent]:
    """A builder of agents that ask this provider over HTTP."""
    model = make_model("fake-model", base_url=provider.base_url, api_key="k")
    return ReActAgent.builder(name="tester", model=model, execution=ONE_ATTEMPT).configured(options)


@asynccontextmanager
async def http_agent(
    replies: Sequence[ScriptedReply] | Script, **options: Unpack[BuilderKeywords]
) -> AsyncGenerator[tuple[ReActAgent, FakeProvider]]:
    """An agent and the provider that it asks; both are closed, and no task of either is left."""
    async with FakeProvider(replies) as provider:
        builder = builder_for(provider).configured(options)
        async with builder.build() as agent:
            yield agent, provider


def stack_depth() -> int:
    """How deep the caller's stack is."""
    depth, frame = 0, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's time-out is the bound."""
    while not condition():  # noqa: ASYNC110 - anything may be waited for, not only what sets an event
        await asyncio.sleep(0)
