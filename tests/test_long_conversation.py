"""Thousands of steps in a small window: nothing is refused, nothing is compacted in vain."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply
from agentscope_rx.tokens import ContextTokenEstimator
from agentscope_rx.tools import tool
from agentscope_rx.workspace import InMemoryWorkspace

WINDOW = 8_000
ALICE = RuntimeContext(user_id="alice", session_id="long")
SAID = "the order of seven notes was read twice today and kept in a drawer 漢字 größer"
WORDS = (*SAID.split(), '{}\n"')


class Provider:
    """Plays a model with a small window: it calls a tool at each step, and writes notes when it is asked for them.

    It counts every request by itself, and refuses one that does not fit with the answer that was asked for.
    """

    def __init__(self, steps: int, chance: random.Random) -> None:
        self._chance, self._steps = chance, steps
        self._count = ContextTokenEstimator.for_model("gpt-4o").count
        self.asked = self.summaries = 0
        self.refused: list[int] = []

    def __call__(self, request: RecordedRequest, number: int) -> ScriptedReply:
        tokens = self._tokens(request)
        if tokens + (request.body.get("max_tokens") or 500) > WINDOW:
            self.refused.append(tokens)
            message = f"This model's maximum context length is {WINDOW} tokens. However, you requested {tokens} tokens"
            return fake.failure(400, {"error": {"code": "context_length_exceeded", "message": message}})
        if not request.body.get("tools"):
            self.summaries += 1
            return fake.text(f"## SESSION INTENT\nWork.\n{some_words(self._chance, 60, 200)}", usage=(tokens, 150))
        self.asked += 1
        if self.asked > self._steps:
            return fake.text("done", usage=(tokens, 1))
        said = some_words(self._chance, 0, 30)
        return fake.tool_calls((f"c{self.asked}", "look", '{"at": 1}'), text=said or None, usage=(tokens, 20))

    def _tokens(self, request: RecordedRequest) -> int:
        """What the request costs by this provider's count."""
        messages: list[dict[str, Any]] = request.body["messages"]
        calls = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
        texts = [str(message.get("content") or "") for message in messages]
        texts += [call["name"] + call["arguments"] for call in calls]
        tools = json.dumps(request.body.get("tools") or "")
        return sum(map(self._count, texts)) + 4 * len(messages) + self._count(tools) + 3


def some_words(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(least, most)))


@dataclass
class Ledger:
    """What the manifests of a run say."""

    added: int = 0
    decisions: list[CompactionDecision] = field(default_factory=list[CompactionDecision])
    repeated: list[tuple[CompactionDecision, int]] = field(default_factory=list[tuple[CompactionDecision, int]])
    _held: int = 0
    _freed_just_now: int | None = None

    def take(self, event: AgentEvent) -> None:
        if not isinstance(event, Custom) or event.name != "context_build":
            return
        manifest = event.value["context_manifest"]
        assert isinstance(manifest, ContextManifest)
        assert manifest.validation == "passed"
        decision = manifest.compaction
        assert decision is not None
        newest = max(0, decision.tokens_before - self._held)
        self.added += newest
        done = decision.outcome is CompactionOutcome.DONE
        if done:
            self.decisions.append(decision)
            if self._freed_just_now is not None and newest <= self._freed_just_now:
                self.repeated.append((decision, newest))
        self._freed_just_now = decision.tokens_before - decision.tokens_after if done else None
        self._held = manifest.categories["conversation"]

    @property
    def most_summaries(self) -> int:
        """As many as a compaction is needed for what was added, and 15 % more."""
        count = len(self.decisions)
        trigger = sum(each.tokens_before for each in self.decisions) / count
        left = sum(each.summary_tokens + each.tail_tokens for each in self.decisions) / count
        return int(1.15 * math.ceil(self.added / (trigger - left)))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(180)]),
        pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)]),
    ],
)
async def test_thousands_of_steps_in_a_small_window(steps: int) -> None:
    """No request is refused, a summary is paid for only when there is need of one, and never on two steps in a row
    unless the newest exchange is larger than what the last one freed."""
    chance, ledger = random.Random(steps), Ledger()

    @tool
    async def look(at: int) -> str:
        """Look at something."""
        return some_words(chance, 1, chance.choice([20, 100, 400, 1_500, 4_000]))

    provider = Provider(steps, chance)
    async with FakeProvider(provider) as server:
        model = HttpxChatModel("gpt-4o", base_url=server.base_url, api_key="k", context_window=WINDOW)
        builder = HarnessAgent.builder(
            name="worker",
            model=model,
            sys_prompt="Work on.",
            tools=[look],
            workspace=InMemoryWorkspace(),
            max_iters=steps + 10,
        )
        async with builder.build() as agent:
            async for event in agent.stream_events("Look at everything.", ALICE):
                ledger.take(event)
                server.requests.clear()  # a few hundred megabytes otherwise
            compactions = await agent.compactions(ALICE)
    assert provider.asked == steps + 1
    assert (provider.refused, server.refusals) == ([], [])
    assert len(compactions) == len(ledger.decisions) > steps / 100
    assert provider.summaries <= ledger.most_summaries
    assert ledger.repeated == []
