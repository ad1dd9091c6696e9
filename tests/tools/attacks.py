"""How attacks are made through an agent, and what must be as it was afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from agentscope_rx import HarnessAgent, InMemoryStore, RuntimeContext
from agentscope_rx.messages import ToolResultBlock, ToolUseBlock
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import Toolkit
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.execution import run_call
from agentscope_rx.tools.shell_tool import ShellSettings

#: A tool and its arguments.
Asked = tuple[str, dict[str, object]]


def outside(tree: Path) -> dict[str, str]:
    """All that is there but the workspace, and its private part."""
    found = [*(tree / "out").rglob("*"), *(tree / "ws2").rglob("*"), *(tree / "ws/.agentscope-runtime").rglob("*")]
    return {str(path): path.read_text() for path in found} | {str(path): "" for path in tree.iterdir()}


def agent(tree: Path, model: ScriptedModel, settings: ShellSettings | None = None) -> HarnessAgent:
    """An agent over the workspace, with the tools that it has by itself; results stay where they are."""
    builder = HarnessAgent.builder(name="a", model=model, workspace=tree / "ws", compaction=None)
    if settings is not None:
        builder = builder.shell_tool(settings)
    return builder.permission_mode("bypass").disable_tool_result_eviction().state_store(InMemoryStore()).build()


async def answers(
    tree: Path, asked: Sequence[Asked], *, user: str | None = None, settings: ShellSettings | None = None
) -> list[ToolResultBlock]:
    """What the tools of an agent answer to a model that asks all this at once."""
    wanted = calls(*((f"c{number}", name, json.dumps(given)) for number, (name, given) in enumerate(asked)))
    made, context = (
        agent(tree, ScriptedModel([wanted, "done"]), settings),
        RuntimeContext(user_id=user, session_id="s"),
    )
    async with asyncio.timeout(60):
        reply = await made.call("Attack.", context)
        while waiting := await made.pending(context):  # a command that looks dangerous is asked about, in every mode
            reply = await made.respond(context, {each.id: True for each in waiting}).reply()
    assert reply.text == "done"
    found = [m.tool_result for m in (await made.state(context)).context.messages if m.tool_result is not None]
    assert len(found) == len(asked)
    return found


async def ask(tree: Path, name: str, **arguments: object) -> ToolResultBlock:
    """What one tool of an agent answers."""
    return (await answers(tree, [(name, arguments)]))[0]


async def use(toolkit: Toolkit, name: str, **arguments: object) -> ToolResultBlock:
    """What a tool of a toolkit answers."""
    call = ToolUseBlock(id="c", name=name, input=arguments)
    async with asyncio.timeout(30):
        return (await run_call(toolkit, call, ToolContext(call=call))).result
