"""The agent of `export_fix.py`, as an application configures it at start-up, and what its user has to say."""

from __future__ import annotations

from pathlib import Path

from export_story import TESTS

from agentscope_rx import ContextBlock, ContextRequest, HarnessAgent, HarnessBuilder, HttpxChatModel, PermissionRule
from agentscope_rx.tasks import Authority, Decision, RequirementStatus, Scope, TaskContextState

SCOPE = Scope(task_id="change-42", objective="The report export works again.", source_ref="change 42")


async def change_record(request: ContextRequest) -> list[ContextBlock]:
    """What is known of the change, read anew for each request."""
    return [
        ContextBlock.runtime("status", "Change 42: export fix under investigation"),
        ContextBlock.reference("format", "Export columns: date, account, amount", priority=20),
    ]


def confirmed(task: TaskContextState) -> TaskContextState:
    """The task once its user has confirmed what was proposed."""
    by_alice = Decision(authority=Authority.USER, source_ref="the approval of the plan")
    for each in task.requirements:
        task = task.decide(each.id, RequirementStatus.CONFIRMED, by_alice, task.revision)
    return task


def change_assistant(url: str, folder: Path) -> HarnessBuilder:
    """An agent that plans first, edits the project, and may run its tests and no other command.

    Args:
        url: Where its model answers.
        folder: Holds the `project`, and the `workspace` with plans and sessions.
    """
    builder = HarnessAgent.builder(
        name="change-assistant",
        model=HttpxChatModel("story", base_url=url, api_key="none"),
        sys_prompt="Investigate changes, implement fixes, and report supporting evidence.",
        instructions={"change-policy": "Preserve public behaviour and say which checks support the fix."},
        context_sources={"change-record": change_record},
        workspace=folder / "workspace",
        project=folder / "project",
        project_writable=True,
        max_iters=40,
    )
    return (
        builder.enable_task_list()
        .task_context(requirements=True, verification=True, proposals=True)
        .enable_plan_mode()
        .permission_mode("accept_edits")
        .working_directories(["."])
        .permission_rules([PermissionRule.allow("execute", TESTS)])
    )
