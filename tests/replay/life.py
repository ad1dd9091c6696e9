"""The life of a session: compactions, an overflow, an approval, restarts, and every way in which a run can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.context.sources import ContextRequest
from agentscope_rx.errors import ContextOverflow
from agentscope_rx.events import TextBlockDelta
from agentscope_rx.harness_agent import HarnessAgent, HarnessBuilder
from agentscope_rx.interactions import approve
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.shutdown import shut_down
from agentscope_rx.stores import SessionStore
from agentscope_rx.testing.scripted_model import Scripted, ScriptedModel, calls, text
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.workspace import InMemoryWorkspace

ALICE = RuntimeContext(user_id="alice", session_id="change-42")
Watch: TypeAlias = Callable[[HarnessBuilder], HarnessBuilder]
Stores: TypeAlias = Callable[[], SessionStore]
PIECES = ("I ", "look ", "at ", "it ", "once ", "more.")


class Talker(ScriptedModel):
    """Answers from its script, and sums up whenever it is asked to."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        if request.purpose == "summary":
            yield ModelChunk(text="## SESSION INTENT\nPages were looked at, ")
            yield ModelChunk(text="and they say little.", finish_reason="stop")
            return
        async for chunk in super().stream(request):
            await asyncio.sleep(0)
            yield chunk


@tool
async def look(at: int) -> str:
    """Look at a page."""
    return f"page {at}: " + f"line of page {at}, which says little. " * 20


@tool
def publish(what: str) -> str:
    """Publish something; a person is asked before."""
    return f"published {what}"


@tool
async def dig(context: ToolContext) -> str:
    """Dig until the program is to end."""
    runtime = context.get(Runtime)
    assert runtime is not None
    context.report("digging")
    asyncio.get_running_loop().create_task(shut_down(runtime, grace=10))
    await asyncio.sleep(0.01)
    return "gold"


async def record_of_change(request: ContextRequest) -> list[ContextBlock]:
    """Where the change stands."""
    return [ContextBlock.runtime("status", "Change 42 is under investigation")]


def life_builder(store: SessionStore | None = None, script: Sequence[Scripted] = ()) -> HarnessBuilder:
    """The agent of the session."""
    workspace = InMemoryWorkspace({"AGENTS.md": "Be exact.", "MEMORY.md": "The export was broken before."})
    builder = HarnessAgent.builder(
        name="assistant",
        model=Talker(script),
        sys_prompt="Look at pages.",
        tools=[look, publish, dig],
        workspace=workspace,
        filesystem_tools=False,
        max_iters=100,
        context_policy=ContextPolicy(max_input_tokens=6_000, reserved_output_tokens=500),
        compaction={"trigger_messages": 14, "keep_messages": 4},
        permission_rules=[PermissionRule.allow("look"), PermissionRule.allow("dig"), PermissionRule.ask("publish")],
        enable_task_list=True,
    )
    builder = builder.context_source("change-record", record_of_change).instruction("policy", "Preserve behaviour.")
    return builder if store is None else builder.state_store(store)


async def live(stores: Stores, watch: Watch) -> None:
    """Live the whole life; each part is lived as in a process of its own.

    Args:
        stores: Opens the store.
        watch: Makes the builder of a process one that is recorded.
    """
    await _works(watch(life_builder(stores(), _working())))
    await _is_left(watch(life_builder(stores(), [text(*PIECES), text(*PIECES), "Here I am."])))
    runtime = Runtime()
    digging = life_builder(stores(), [calls(("d1", "dig", "{}")), "never said"]).runtime(runtime)
    await _is_stopped(watch(digging), runtime)
    async with watch(life_builder(stores(), [calls(("e1", "look", '{"at": 99}')), "All is done."])).build() as agent:
        reply = await agent.stream_events("Go on.", ALICE, purposes=("reasoning", "summary")).reply()
        assert reply.text == "All is done."


def _working() -> list[Scripted]:
    todo = '{"todos": [{"content": "look", "status": "in_progress"}]}'
    looks = [calls((f"c{at}", "look", f'{{"at": {at}}}'), text="I look.") for at in range(12)]
    overflow = ContextOverflow("too long", status=400)
    return [
        calls(("t1", "todo_write", todo)),
        *looks[:10],
        overflow,
        *looks[10:],
        calls(("p1", "publish", '{"what": "the fix"}')),
        text("It is ", "published."),
    ]


async def _works(builder: HarnessBuilder) -> None:
    async with builder.build() as agent:
        await agent.call("Look at all pages, then publish.", ALICE)
        waiting = await agent.pending(ALICE)
        reply = await agent.respond(ALICE, {call.id: approve() for call in waiting}).reply()
        assert reply.text == "It is published."


async def _is_left(builder: HarnessBuilder) -> None:
    async with builder.build() as agent:
        for how in ("leave", "interrupt"):
            seen = 0
            async for event in agent.stream_events("And now?", ALICE):
                seen += isinstance(event, TextBlockDelta)
                if seen == 2 and how == "leave":
                    break
                if seen == 2 and isinstance(event, TextBlockDelta):
                    agent.interrupt(ALICE)
        assert (await agent.call("Are you there?", ALICE)).text == "Here I am."


async def _is_stopped(builder: HarnessBuilder, runtime: Runtime) -> None:
    ctx = RuntimeContext(user_id="alice", session_id="change-42", values=(runtime,))
    async with builder.build() as agent:
        assert (await agent.call("Dig.", ctx)).reason.value == "INTERRUPTED"
