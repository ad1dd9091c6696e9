"""A long story over HTTP: compactions, an overflow that is recovered from, retries, an approval, two calls."""

from __future__ import annotations

from pathlib import Path

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.context.sources import ContextRequest
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.interactions import approve
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.replay import Recorder
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply
from agentscope_rx.tools import tool
from agentscope_rx.workspace import InMemoryWorkspace

ALICE = RuntimeContext(user_id="alice", session_id="change-42")
WINDOW = 6_000


@tool
async def look(at: int) -> str:
    """Look at a page."""
    return f"page {at}: " + f"line of page {at}, which says little. " * 8


@tool
def publish(what: str) -> str:
    """Publish something; a person is asked before."""
    return f"published {what}"


async def change_record(request: ContextRequest) -> list[ContextBlock]:
    return [ContextBlock.runtime("status", "Change 42 is under investigation")]


class Story:
    """Plays the model: it looks at a page in each step, overflows once, is busy once, and at last wants to publish."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.asked = self.summaries = self.refused = 0

    def __call__(self, request: RecordedRequest, number: int) -> ScriptedReply:
        if not request.body.get("tools"):
            self.summaries += 1
            return fake.text(f"## SESSION INTENT\nSummary {self.summaries}: pages were looked at.", deltas=3)
        if self.asked == self._steps // 2 and not self.refused:
            self.refused += 1
            message = f"This model's maximum context length is {WINDOW} tokens. However, you requested 7000 tokens"
            return fake.failure(400, {"error": {"code": "context_length_exceeded", "message": message}})
        self.asked += 1
        if self.asked == 3:
            return fake.failure(503, {"error": {"message": "busy"}}, {"retry-after": "0"})
        if self.asked < self._steps:
            return fake.tool_calls((f"c{self.asked}", "look", f'{{"at": {self.asked}}}'), text="I look.", pieces=2)
        if self.asked == self._steps:
            return fake.tool_calls(("publish-1", "publish", '{"what": "the fix"}'))
        return fake.text("All is done.", deltas=4)


def story_builder(base_url: str = "http://127.0.0.1:9/v1") -> HarnessBuilder:
    """The agent of the story; where nothing is recorded, its model's address need not answer."""
    return (
        HarnessAgent.builder(
            name="assistant",
            model=HttpxChatModel("fake-model", base_url=base_url, api_key="k", context_window=WINDOW),
            sys_prompt="Look at pages.",
            tools=[look, publish],
            workspace=InMemoryWorkspace(),
            filesystem_tools=False,
            max_iters=1_000,
            context_policy=ContextPolicy(reserved_output_tokens=500),
            execution=ExecutionConfig(initial_backoff=0.0),
            compaction={"trigger_messages": 30, "keep_messages": 8},
            permission_rules=[PermissionRule.allow("look"), PermissionRule.ask("publish")],
        )
        .context_source("change-record", change_record)
        .instruction("policy", "Preserve public behaviour.")
    )


def record_story(path: Path, *, steps: int) -> tuple[Story, list[bytes]]:
    """Record the story over HTTP; gives its teller, and the bodies that the provider got."""
    story = Story(steps)
    with FakeProvider.in_thread(story) as provider, Recorder(path, secrets=()) as recorder:
        builder = recorder.watch(story_builder(provider.base_url))
        builder.call("Look at all pages, then publish.", ALICE).run()
        waiting = builder.pending(ALICE).run()
        builder.respond(ALICE, {call.id: approve() for call in waiting}).reply().run()
        builder.call("Thanks. Anything else?", ALICE).run()
        return story, [request.raw for request in provider.requests]
