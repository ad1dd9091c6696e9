"""What the tests of the context pipeline need: an agent before a provider, and ways to read requests and manifests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.models.providers import COMPATIBLE, Provider
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing.fake_provider import FakeProvider, Script, ScriptedReply, text
from agentscope_rx.workspace import InMemoryWorkspace
from tests.support import ONE_ATTEMPT, Seen, watch

ALICE = RuntimeContext(user_id="alice", session_id="s1")
BOB = RuntimeContext(user_id="bob", session_id="s1")
#: A window in which everything fits.
WIDE = 1_000_000


class CharEstimator:
    """A token is a character: sums can be done in the head."""

    method = "characters"
    exact = True

    def count(self, text: str, /) -> int:
        """How many characters."""
        return len(text)


def builder_before(
    provider: FakeProvider, *, window: int | None = None, profile: Provider = COMPATIBLE, **options: Any
) -> HarnessBuilder:
    """A builder of harness agents that ask this provider, with a workspace in memory where none is given."""
    model = HttpxChatModel(
        "fake-model", provider=profile, base_url=provider.base_url, api_key="test-key", context_window=window
    )
    keywords: dict[str, Any] = {
        "name": "tester",
        "model": model,
        "workspace": InMemoryWorkspace(),
        "filesystem_tools": False,
        "execution": ONE_ATTEMPT,
        **options,
    }
    return HarnessAgent.builder(**keywords)


@asynccontextmanager
async def harness(
    *replies: ScriptedReply | str, script: Script | None = None, **options: Any
) -> AsyncGenerator[tuple[HarnessAgent, FakeProvider]]:
    """An agent and the provider that it asks, which answers `done` where nothing else is said."""
    scripted = [text(reply) if isinstance(reply, str) else reply for reply in replies]
    async with (
        FakeProvider(script or scripted or [text("done")] * 20) as provider,
        builder_before(provider, **options).build() as agent,
    ):
        yield agent, provider


def scripted(*script: Any, window: int | None = None, **options: Any) -> HarnessBuilder:
    """A builder of agents whose model answers from a script, for tests in virtual time."""
    keywords: dict[str, Any] = {
        "name": "tester",
        "model": ScriptedModel(script or ["done"] * 20, context_window=window),
        "workspace": InMemoryWorkspace(),
        "filesystem_tools": False,
        "execution": ONE_ATTEMPT,
        **options,
    }
    return HarnessAgent.builder(**keywords)


def model_of(agent: HarnessAgent) -> ScriptedModel:
    """The scripted model of an agent."""
    return cast(ScriptedModel, agent.options.model)


# -- what came out ------------------------------------------------------------------------------------------


def builds(seen: Seen | Iterable[AgentEvent]) -> list[Custom]:
    """The `context_build` events."""
    events = seen.events if isinstance(seen, Seen) else seen
    return [event for event in events if isinstance(event, Custom) and event.name == "context_build"]


def manifests(seen: Seen | Iterable[AgentEvent]) -> list[ContextManifest]:
    """What they say."""
    return [cast(ContextManifest, event.value["context_manifest"]) for event in builds(seen)]


async def one_manifest(agent: HarnessAgent, input: str | None = "go", context: RuntimeContext = ALICE) -> Any:
    """The manifest of a call that makes one request."""
    seen = await watch(agent, input, context)
    assert seen.error is None, seen.error
    (manifest,) = manifests(seen)
    return manifest


def data_of(manifest: ContextManifest, *, full: bool = True) -> dict[str, Any]:
    """A manifest's JSON."""
    return json.loads(manifest.to_json(full=full))


def messages_of(provider: FakeProvider, number: int = -1) -> list[tuple[str, str]]:
    """Role and content of the messages of a request; of calls, what is called."""
    return [(message["role"], _content(message)) for message in provider.requests[number].messages]


def _content(message: Mapping[str, Any]) -> str:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    return message["content"] or " ".join(call["function"]["name"] for call in calls)


def system_of(provider: FakeProvider, number: int = -1) -> str:
    """The System message of a request; empty where there is none."""
    role, content = messages_of(provider, number)[0]
    return content if role == "system" else ""


def tail_of(provider: FakeProvider, number: int = -1) -> list[str]:
    """The messages of a request behind the conversation, which begin with one of our tags."""
    return [content for role, content in messages_of(provider, number) if role == "user" and content.startswith("<")]
