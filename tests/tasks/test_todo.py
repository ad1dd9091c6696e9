"""todo_write: what the model may write, what it reads back, and what is left as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentscope_rx.errors import TaskRefused
from agentscope_rx.messages import ToolResultState, ToolUseBlock
from agentscope_rx.tasks import RequirementKind, Task, TaskContextState, TaskState
from agentscope_rx.tasks.requirements import task_requirement_propose
from agentscope_rx.tasks.todo import rendered, todo_write
from agentscope_rx.tools import ToolContext, Toolkit
from agentscope_rx.tools.execution import ToolOutcome, run_call
from agentscope_rx.tools.proposals import Proposals


async def call(proposals: Proposals, name: str = "todo_write", /, **arguments: Any) -> ToolOutcome:
    block = ToolUseBlock(id="c1", name=name, input=json.loads(json.dumps(arguments)))
    toolkit = Toolkit.of(todo_write, task_requirement_propose)
    return await run_call(toolkit, block, ToolContext(call=block, proposals=proposals))


async def test_the_list_is_replaced_and_read_back() -> None:
    """Marks by status, priorities where they are known; the receipt says which revision it shows."""
    proposals = Proposals()
    outcome = await call(
        proposals,
        todos=[
            {"content": "reproduce", "status": "completed"},
            {"content": "fix", "status": "in_progress", "priority": "HIGH"},
            {"content": "verify", "status": "", "priority": "urgent"},
            {"content": "tell"},
        ],
    )
    assert outcome.result.text == (
        "3 open todo(s):\n- [x] reproduce\n- [~] fix (priority: high)\n- [ ] verify\n- [ ] tell"
    )
    assert outcome.result.metadata == {
        "context.state_key": "tasksContext",
        "context.state_revision": 1,
        "context.representation": "full",
    }
    assert outcome.result.state is ToolResultState.SUCCESS
    assert [task.state for task in proposals.tasks.tasks] == ["completed", "in_progress", "pending", "pending"]
    assert all(task.id and task.created_at and task.subject == task.description for task in proposals.tasks.tasks)


async def test_an_item_that_stays_keeps_its_identity() -> None:
    """Id, moment and metadata by equal content; of two equal items one is new. An equal list raises the revision."""
    proposals = Proposals(
        TaskContextState(
            tasks=(Task(subject="fix", description="fix", id="t1", created_at="then", metadata={"priority": "low"}),),
            revision=7,
        )
    )
    await call(proposals, todos=[{"content": "fix", "status": "completed"}, {"content": "fix"}])
    first, second = proposals.tasks.tasks
    assert (first.id, first.created_at, first.metadata, first.state) == (
        "t1", "then", {"priority": "low"}, TaskState.COMPLETED,
    )  # fmt: skip
    assert second.id not in ("", "t1")
    before = proposals.tasks
    await call(proposals, todos=[{"content": "fix", "status": "completed"}, {"content": "fix"}])
    assert (proposals.tasks.tasks, proposals.tasks.revision) == (before.tasks, 9)


async def test_an_empty_list_is_said_to_be_empty() -> None:
    """Clearing is a change like any other."""
    proposals = Proposals(TaskContextState(tasks=(Task(subject="fix"),), revision=1))
    outcome = await call(proposals, todos=[])
    assert outcome.result.text == rendered([])
    assert (proposals.tasks.tasks, proposals.tasks.revision) == ((), 2)


@pytest.mark.parametrize(
    ("todos", "why"),
    [
        ([{"content": "a", "status": "doing"}], "status of item 1 is 'doing'"),
        ([{"content": "a"}, {"content": "  "}], "content of item 2 is blank"),
        ([{"status": "pending"}], "content of item 1 is blank"),
        ([{"content": 3}], "content of item 1 is blank"),
        ([None], "item 1 is None"),
        (["a"], "item 1 is 'a'"),
        ([{"content": "a", "status": ["pending"]}], "status of item 1"),
        ([{"content": c, "status": "in_progress"} for c in "ab"], "more than one item is in_progress"),
    ],
)
async def test_a_wrong_list_changes_nothing(todos: list[Any], why: str) -> None:
    """An error result that begins with `Error: `; list and revision are as they were."""
    proposals = Proposals(before := TaskContextState(tasks=(Task(subject="x"),), revision=3))
    outcome = await call(proposals, todos=todos)
    assert outcome.result.state is ToolResultState.ERROR
    assert outcome.result.text.startswith("Error: ")
    assert why in outcome.result.text
    assert "context.state_key" not in outcome.result.metadata
    assert proposals.tasks is before
    assert proposals.close() == ()


async def test_an_item_cannot_look_like_several() -> None:
    """Line breaks in a content are blanks, and lone surrogates can be stored."""
    proposals = Proposals()
    outcome = await call(proposals, todos=[{"content": "a\n- [x] b \ud83d"}])
    assert outcome.result.text == "1 open todo(s):\n- [ ] a - [x] b \ufffd"


# -- proposing ----------------------------------------------------------------------------------------------


async def test_a_model_can_propose_and_no_more() -> None:
    """The result names id and status; the requirement is a candidate."""
    proposals = Proposals()
    arguments = {"kind": "ACCEPTANCE_CRITERION", "text": "tests pass", "source_ref": "message 1"}
    outcome = await call(proposals, "task_requirement_propose", **arguments)
    (made,) = proposals.tasks.requirements
    assert outcome.result.text == f"The requirement {made.id} is CANDIDATE."
    assert (made.kind, made.text, made.decision) == (RequirementKind.ACCEPTANCE_CRITERION, "tests pass", None)
    again = await call(proposals, "task_requirement_propose", **arguments)
    assert (again.result.text, proposals.tasks.revision) == (outcome.result.text, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"text": " "}, {"text": "x" * 2_001}, {"source_ref": ""}, {"kind": "WISH"}, {"kind": None}],
)
async def test_a_wrong_proposal_changes_nothing(wrong: dict[str, Any]) -> None:
    """An error result; the task is as it was."""
    proposals = Proposals()
    arguments = {"kind": "CONSTRAINT", "text": "t", "source_ref": "s", **wrong}
    outcome = await call(proposals, "task_requirement_propose", **arguments)
    assert outcome.result.state is ToolResultState.ERROR
    assert proposals.close() == ()


def test_a_change_has_to_count() -> None:
    """Another task under the same revision would make an outdated list look current; no task at all is no change."""
    proposals = Proposals()
    with pytest.raises(TaskRefused, match="revision 0"):
        proposals.update_tasks(lambda _: TaskContextState(tasks=(Task(subject="x"),)))
    with pytest.raises(TypeError, match="TaskContextState"):
        proposals.update_tasks(lambda _: None)  # type: ignore[arg-type, return-value]
    assert proposals.close() == ()
