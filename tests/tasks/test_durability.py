"""Nothing of a task is lost: by ten compactions, by restarts, in any store."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentscope_rx import InMemoryWorkspace, PermissionMode, PermissionRule, ToolContext, VerificationService, tool
from agentscope_rx.events import ToolResultEnd
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import TextBlock, ToolResultBlock
from agentscope_rx.permission_context import PermissionContextState, WorkingDirectory
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionStore
from agentscope_rx.tasks import VerificationOutcome
from agentscope_rx.tasks.observation import evidence_of
from agentscope_rx.tasks.verifiers import ShellExitCodeVerifier
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply, text, tool_calls
from tests.context.support import ALICE, builder_before
from tests.stores.conftest import Place
from tests.stores.places import store_at
from tests.support import watch
from tests.tasks.support import begun

ITEMS = [{"content": 'fix "it" & <more>', "status": "in_progress"}, {"content": "verify", "status": "pending"}]
PERMISSIONS = (
    PermissionContextState(mode=PermissionMode.ACCEPT_EDITS)
    .with_rules([PermissionRule.deny("pay"), PermissionRule.allow("execute", "true"), PermissionRule.allow("execute")])
    .with_directories([WorkingDirectory(path="src")])
)
VERIFIER = ShellExitCodeVerifier("execute")


@tool
async def execute(command: str, context: ToolContext) -> ToolResultBlock:
    """Run the tests."""
    details = {"kind": "shell", "outcome": "SUCCEEDED", "exit_code": 0}
    output = (TextBlock(text=f"ran {command}"),)
    return ToolResultBlock(id=context.call.id, name="execute", output=output, metadata={"execution_details": details})


class Script:
    """A model that writes a list and a plan, runs the tests, and then talks; its summaries say nothing of that."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: RecordedRequest, number: int) -> ScriptedReply:
        if "tools" not in request.body:
            return text("They talked.")
        self.asked += 1
        if self.asked == 1:
            todos = ("t1", "todo_write", json.dumps({"todos": ITEMS}))
            return tool_calls(todos, ("t2", "execute", '{"command":"true"}'))
        if self.asked == 2:
            return tool_calls(("t3", "plan_enter", "{}"), ("t4", "plan_write", '{"content":"# Plan"}'))
        return text(f"Answer {self.asked}. " + "So much was said. " * 20)


def kept(state: AgentState) -> tuple[Any, ...]:
    """What has to be equal."""
    return state.tasks_context, state.plan_mode_context, state.permission_context, state.tool_context


def shown(request: RecordedRequest) -> tuple[str, str, str]:
    """What a request shows of task and plan: the task, the mode, and the rules of the mode."""
    contents = [str(message["content"]) for message in request.messages]
    (task,) = [content for content in contents if content.startswith("<TASK_STATE")]
    (runtime,) = [content for content in contents if content.startswith("<RUNTIME_STATE")]
    return task, runtime, contents[0]


@pytest.mark.parametrize("state_only", [False, True], ids=["log", "state"])
async def test_ten_compactions_and_as_many_restarts(place: Place, state_only: bool) -> None:
    """Todo, requirements, evidence, plan and permissions are equal in every process, and task and plan are shown with
    the same bytes in every request from the first compaction on. The evidence can still be verified at the end."""
    at = place()
    memory = store_at(at)  # the memory of a process is the one store that no other can open
    workspace = InMemoryWorkspace()

    async with FakeProvider(Script()) as provider:

        def agent() -> HarnessAgent:
            """As if in a process of its own: a Runtime, a model and a store of its own."""
            store: SessionStore = memory if at == "memory" else store_at(at)
            builder = builder_before(
                provider,
                workspace=workspace,
                tools=[execute],
                enable_task_list=True,
                enable_plan_mode=True,
                task_context={"requirements": True, "verification": True},
                compaction={"trigger_messages": 2, "keep_tokens": 0, "keep_messages": 1},
            )
            return builder.state_store(store).state_only(state_only).build()

        async with agent() as first:
            await first.replace_permissions(ALICE, PERMISSIONS)
            await first.update_tasks(ALICE, lambda _: begun())
            seen = await watch(first, "Begin.", ALICE)
            ends = {end.tool_call_name: end for end in seen.of(ToolResultEnd)}
            action: str = ends["execute"].metadata["observation"]["action_id"]
            criterion = (await first.state(ALICE)).tasks_context.requirements[0].id
            report = await VerificationService(first).verify(ALICE, criterion, action, VERIFIER)
            before = await first.state(ALICE)
        assert before.plan_mode_context.plan_active
        assert before.permission_context == PERMISSIONS
        evidence = evidence_of(before, action)

        compactions = 0
        projections: set[tuple[str, str, str]] = set()
        while compactions < 10:
            async with agent() as later:
                await later.call(f"Go on, {compactions}.", ALICE)
                state = await later.state(ALICE)
                compactions = len(await later.compactions(ALICE))
            assert kept(state) == kept(before)
            if compactions:
                projections.add(shown(provider.requests[-1]))
        ((task, runtime, system),) = projections
        assert provider.refusals == []

        async with agent() as last:
            again = await VerificationService(last).verify(ALICE, criterion, action, VERIFIER)
    assert '- [~] fix "it" &amp; &lt;more&gt;' in task
    assert f"{criterion} | PASSED | " in task
    assert "Mode: PLAN (read-only)" in runtime
    assert "plans/PLAN.md" in runtime
    assert "<MODE_RULES" in system
    assert evidence is not None
    assert again == replace(report, id=again.id, recorded_at=again.recorded_at)
    assert again.outcome is VerificationOutcome.PASSED
