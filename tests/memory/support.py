"""What the tests of memory need: an agent with a model of its own for it, and ways to look at files and requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from agentscope_rx.background_work import BackgroundWork
from agentscope_rx.errors import WorkspaceConflict
from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, a_runtime
from agentscope_rx.workspace import InMemoryWorkspace, WorkspaceFS
from tests.support import ONE_ATTEMPT

ALICE = RuntimeContext(user_id="alice", session_id="s1")
#: The ledger of the day on which the tests' clock begins.
TODAY = "memory/2026-01-01.md"
WATERMARK = "memory/.consolidation_state"
NOTHING = "NO_REPLY"


class Writer(ScriptedModel):
    """The model that keeps the memory; it can be told to wait before it answers.

    Attributes:
        begun: How many answers were asked for.
    """

    def __init__(self, script: Iterable[Any] = (), **options: Any) -> None:
        super().__init__([*script, *[NOTHING] * 50], name="writer", **options)
        self.let_go = asyncio.Event()
        self.let_go.set()

    def hold(self) -> None:
        """Let no answer come."""
        self.let_go.clear()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer when it may."""
        async for chunk in super().stream(request):
            await self.let_go.wait()
            yield chunk


class Ledger(InMemoryWorkspace):
    """A workspace in memory whose files are texts.

    Args:
        files: The files.
        due: Whether its memory has never been consolidated; else it was when the tests' clock began.
    """

    def __init__(self, files: dict[str, str] | None = None, *, due: bool = False) -> None:
        mark = {} if due else {WATERMARK: '{"at": "2026-01-01T00:00:00+00:00", "ledgers": {}}'}
        super().__init__({**mark, **(files or {})})

    async def text(self, path: str) -> str:
        """What a file holds; empty where there is none."""
        return await text_of(self, path)


async def text_of(workspace: WorkspaceFS, path: str) -> str:
    """What a file holds; empty where there is none."""
    try:
        return (await workspace.read(path)).data.decode()
    except FileNotFoundError:
        return ""


async def write(workspace: WorkspaceFS, path: str, text: str) -> None:
    """Add to a file, as another process would."""
    try:
        before = await workspace.read(path)
        await workspace.write(path, before.data + text.encode(), if_match=before.version)
    except FileNotFoundError:
        await workspace.write(path, text.encode(), create_only=True)
    except WorkspaceConflict:
        await write(workspace, path, text)


def remembering(writer: Any, *answers: Any, files: WorkspaceFS | None = None, **options: Any) -> HarnessBuilder:
    """A builder of agents with a memory that this model keeps, and that all users share.

    Args:
        writer: The model for the memory.
        answers: What the agent's own model says; `done` again and again where nothing is given.
        files: The workspace.
        options: Of the builder, `memory` as a mapping among them.
    """
    memory = {"model": writer, **options.pop("memory", {})}
    keywords: dict[str, Any] = {
        "name": "tester",
        "model": ScriptedModel(answers or ["done"] * 50),
        "workspace": files if files is not None else Ledger(),
        "isolation": "global",
        "filesystem_tools": False,
        "execution": ONE_ATTEMPT,
        "runtime": a_runtime(),
        **options,
    }
    return HarnessAgent.builder(**keywords).memory(memory)


async def finished(agent: HarnessAgent) -> None:
    """Wait for what goes on in the background, and let the agent work on."""
    await agent.options.runtime.single(BackgroundWork).finish(agent, patience=1000)


def prompts(writer: ScriptedModel) -> list[str]:
    """What the memory's model got to read, request by request."""
    return ["".join(message.text for message in request.conversation.messages) for request in writer.requests]


def rules(writer: ScriptedModel) -> list[str]:
    """What it was told to do."""
    return [request.system for request in writer.requests]


async def heard(agent: HarnessAgent, text: str = "go", context: RuntimeContext = ALICE) -> list[AgentEvent]:
    """The events of a call, those of the memory too."""
    return [event async for event in agent.stream_events(text, context, purposes=("reasoning", "memory"))]


def told(events: Sequence[AgentEvent], name: str) -> list[dict[str, Any]]:
    """What the custom events of a name say."""
    return [dict(event.value) for event in events if isinstance(event, Custom) and event.name == name]
