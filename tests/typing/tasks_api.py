"""Never run, only type-checked: tasks and answers of a form, as their users write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from agentscope_rx import HarnessAgent, Msg, RuntimeContext, ToolContext, VerificationService
from agentscope_rx.tasks import Scope, Task, TaskContextState, Verification
from agentscope_rx.tasks.verifiers import ShellExitCodeVerifier


@dataclass
class Invoice:
    total: int


async def use(agent: HarnessAgent, ctx: RuntimeContext, tool: ToolContext) -> None:
    reply = await agent.call("Read it.", ctx, output=Invoice)
    assert_type(reply, Msg)
    assert_type(reply.output(Invoice), Invoice)
    assert_type(reply.output(list[int]), list[int])
    await agent.acall("Read it.", ctx, output={"type": "object"})
    scope = Scope(task_id="t", objective="o", source_ref="s")
    assert_type(await agent.update_tasks(ctx, lambda task: task.begin_task(scope, task.revision)), TaskContextState)
    assert_type(
        tool.update_tasks(lambda task: task.replace_tasks([Task(subject="x")], task.revision)), TaskContextState
    )
    service = VerificationService(agent, listener=print)
    assert_type(await service.verify(ctx, "r", "a", ShellExitCodeVerifier("execute")), Verification)
    assert_type(await service.load(ctx, "v"), Verification | None)
    HarnessAgent.builder(name="a", enable_task_list=True, task_context={"requirements": True}, enable_plan_mode=True)
