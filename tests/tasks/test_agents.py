"""Tasks of whole agents: who may change them, what the session keeps, and what is left of a call that fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import ContextPolicy, HarnessAgent, ReActAgent, RuntimeContext, ToolContext, tool
from agentscope_rx.errors import InvalidOption, ReentrantCall, RunError, TaskConflict, TaskRefused
from agentscope_rx.events import ToolResultEnd
from agentscope_rx.messages import ToolResultState
from agentscope_rx.tasks import RequirementKind, Task, TaskContextState
from agentscope_rx.testing import ScriptedModel, calls
from tests.context.support import ALICE, CharEstimator, builder_before, harness, manifests, model_of, scripted
from tests.support import until, watch
from tests.tasks.support import EXPORT
from tests.virtual import virtual


def todos(*contents: str) -> str:
    return json.dumps({"todos": [{"content": content, "status": "pending"} for content in contents]})


def one_task(state: TaskContextState) -> TaskContextState:
    return state.replace_tasks([Task(subject="one", id="t1")], state.revision)


def failing(state: TaskContextState) -> TaskContextState:
    raise LookupError("no task today")


def ends(seen: Any) -> list[ToolResultState]:
    return [event.state for event in seen.of(ToolResultEnd)]


# -- the application ----------------------------------------------------------------------------------------


@virtual
async def test_update_tasks_changes_the_stored_task() -> None:
    """It gives the new task; a change decided on an older revision is a conflict and changes nothing."""
    agent = scripted(enable_task_list=True).build()
    assert (await agent.update_tasks(ALICE, one_task)).revision == 1
    with pytest.raises(TaskConflict):
        await agent.update_tasks(ALICE, lambda state: state.replace_tasks([], 0))
    with pytest.raises(TaskRefused):
        await agent.update_tasks(ALICE, lambda state: state.set_subject_version("v1", state.revision))
    with pytest.raises(LookupError):
        await agent.update_tasks(ALICE, failing)
    state = (await agent.state(ALICE)).tasks_context
    assert ([task.subject for task in state.tasks], state.revision) == (["one"], 1)
    assert (await agent.state(RuntimeContext(session_id="other"))).tasks_context == TaskContextState()


@virtual
async def test_two_updates_take_turns() -> None:
    """Each sees what the one before has made; neither is lost."""
    agent = scripted().build()

    def one_more(state: TaskContextState) -> TaskContextState:
        return state.replace_tasks([*state.tasks, Task(subject=f"{len(state.tasks)}")], state.revision)

    await asyncio.gather(*(agent.update_tasks(ALICE, one_more) for _ in range(5)))
    state = (await agent.state(ALICE)).tasks_context
    assert ([task.subject for task in state.tasks], state.revision) == (["0", "1", "2", "3", "4"], 5)


async def test_a_task_outlives_its_process(tmp_path: Path) -> None:
    """Another builder over the same folder finds it, shows it, and its own todo_write goes on from there."""
    made: dict[str, Any] = {"workspace": tmp_path, "enable_task_list": True, "task_context": {"requirements": True}}
    async with scripted(**made).build() as agent:
        await agent.update_tasks(ALICE, lambda state: one_task(state.begin_task(EXPORT, state.revision)))
        before = (await agent.state(ALICE)).tasks_context
    async with scripted(calls(("c1", "todo_write", todos("one", "two"))), "done", **made).build() as agent:
        seen = await watch(agent, "go", ALICE)
        after = (await agent.state(ALICE)).tasks_context
        (shown,) = [message.text for message in model_of(agent).requests[0].tail if "TASK_STATE" in message.text]
    assert seen.error is None
    assert "Objective: Fix the export" in shown
    assert "- [ ] one" in shown
    assert (after.scope, after.tasks[0], after.revision) == (before.scope, before.tasks[0], 3)
    assert [manifest.task_revision for manifest in manifests(seen)] == [2, 3]


@virtual
async def test_a_react_agent_has_a_list_too() -> None:
    """todo_write, its guidance and the projection, without anything else of a harness."""
    model = ScriptedModel([calls(("c1", "todo_write", todos("one"))), "done", "again"])
    agent = ReActAgent.builder(name="tester", model=model, enable_task_list=True).build()
    assert "project_task_state" in agent.pipeline.names
    await agent.call("go", ALICE)
    await agent.update_tasks(ALICE, lambda state: state.replace_tasks(state.tasks[:1], state.revision))
    await agent.call("more", ALICE)
    first, second, third = model.requests
    assert [spec.name for spec in first.tools] == ["todo_write"]
    assert "todo_write" in first.system
    assert second.tail == ()
    (shown,) = third.tail
    assert '<TASK_STATE revision="2">' in shown.text


# -- the options --------------------------------------------------------------------------------------------


def test_what_is_not_switched_on_is_not_there() -> None:
    """No tool, no operator, no guidance."""
    plain = scripted().build()
    assert "project_task_state" not in plain.pipeline.names
    assert plain.options.all_tools.specs() == ()
    proposing = scripted(task_context={"requirements": True, "proposals": True}).build()
    assert [spec.name for spec in proposing.options.all_tools.specs()] == ["task_requirement_propose"]
    assert "project_task_state" in proposing.pipeline.names
    assert scripted(enable_task_list=True, task_context={"requirements": True}).task_context(None).build()


def test_a_tool_of_the_same_name_is_refused() -> None:
    """A tool of the user's that is called like ours is refused at build."""

    @tool(name="todo_write")
    def mine() -> str:
        return ""

    with pytest.raises(InvalidOption, match="todo_write"):
        scripted(tools=[mine]).enable_task_list().build()


@pytest.mark.parametrize("options", [{"proposals": True}, {"requirements": "maybe"}, {"nothing": True}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """Proposals that the model could not see, values and names that are none."""
    with pytest.raises(InvalidOption, match="task_context"):
        HarnessAgent.builder().task_context(**options)
    with pytest.raises(InvalidOption, match="enable_task_list"):
        HarnessAgent.builder().enable_task_list("yes")  # type: ignore[arg-type]


# -- tools --------------------------------------------------------------------------------------------------


@virtual
async def test_tools_of_one_step_see_each_other_and_the_session_gets_all_at_once() -> None:
    """A list, a proposal and a tool of the user's in one reply: each builds on the one before."""

    @tool(concurrency_safe=False)
    def finish_first(context: ToolContext) -> str:
        """From a thread."""
        state = context.update_tasks(lambda s: s.replace_tasks(s.tasks[1:], s.revision))
        return f"revision {state.revision}"

    proposal = json.dumps({"kind": "CONSTRAINT", "text": "t", "source_ref": "s"})
    script = calls(
        ("c1", "todo_write", todos("one", "two")),
        ("c2", "task_requirement_propose", proposal),
        ("c3", "finish_first", "{}"),
        ("c4", "todo_write", todos("  ")),
    )
    options: dict[str, Any] = {"task_context": {"requirements": True, "proposals": True}}
    agent = scripted(script, "done", tools=[finish_first], enable_task_list=True, **options).build()
    seen = await watch(agent, "go", ALICE)
    assert ends(seen) == ["success", "success", "success", "error"]
    state = (await agent.state(ALICE)).tasks_context
    assert ([task.subject for task in state.tasks], state.revision) == (["two"], 3)
    assert state.requirements[0].kind is RequirementKind.CONSTRAINT
    shown = [message.text for message in model_of(agent).requests[1].tail if "TASK_STATE" in message.text]
    assert "- [ ] two" in shown[0]  # the receipt is of revision 1


@virtual
async def test_an_agent_can_be_asked_from_inside_a_tool() -> None:
    """agent.update_tasks in a tool is part of the running step; anywhere else in a call it would wait for itself."""
    seen_inside: list[int] = []

    @tool
    async def plan() -> str:
        """Plan."""
        seen_inside.append((await agent.update_tasks(ALICE, one_task)).revision)
        return "planned"

    async def load(_: object) -> list[Any]:
        await agent.update_tasks(ALICE, one_task)
        return []

    agent = scripted(calls(("c1", "plan", "{}")), "done", tools=[plan]).build()
    assert (await watch(agent, "go", ALICE)).error is None
    assert seen_inside == [1]
    assert (await agent.state(ALICE)).tasks_context.revision == 1
    agent = scripted("done", context_sources={"s": load}).build()
    error = (await watch(agent, "go", ALICE)).error
    assert isinstance(error, ReentrantCall) or isinstance(getattr(error, "__cause__", None), ReentrantCall)


@virtual
async def test_a_conflict_in_a_tool_is_an_error_result() -> None:
    """Nothing is changed by it, and the run goes on."""

    @tool
    async def late(context: ToolContext) -> str:
        """Decide on revision 7."""
        context.update_tasks(lambda state: state.replace_tasks([], 7))
        return "never"

    agent = scripted(calls(("c1", "late", "{}")), "done", tools=[late]).build()
    seen = await watch(agent, "go", ALICE)
    assert (ends(seen), seen.error) == (["error"], None)
    state = await agent.state(ALICE)
    assert state.tasks_context == TaskContextState()


@virtual
async def test_what_a_tool_changed_before_a_cancel_is_kept_and_later_it_can_change_nothing() -> None:
    """The list that was written is the session's, with an interrupted result for the call that hung; the context of a
    call that is over refuses."""
    contexts: list[ToolContext] = []

    @tool(concurrency_safe=False)
    async def hang(context: ToolContext) -> str:
        """Never end."""
        contexts.append(context)
        await asyncio.Event().wait()
        return ""

    script = calls(("c1", "todo_write", todos("one")), ("c2", "hang", "{}"))
    agent = scripted(script, "done", tools=[hang], enable_task_list=True).build()
    running = asyncio.ensure_future(agent.acall("go", ALICE))
    await until(lambda: bool(contexts))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    state = await agent.state(ALICE)
    assert ([task.subject for task in state.tasks_context.tasks], state.tasks_context.revision) == (["one"], 1)
    results = [message.tool_result for message in state.context.messages if message.tool_result]
    assert [result.state for result in results] == ["success", "interrupted"]
    with pytest.raises(RunError, match="over"):
        contexts[0].update_tasks(one_task)
    assert (await agent.state(ALICE)).tasks_context == state.tasks_context


async def test_a_list_that_fills_the_window_is_refused_and_not_cut() -> None:
    """The projection is counted and never left out: the request is refused, with the list as its largest item."""
    async with harness() as (_, provider):
        agent = builder_before(provider, window=4_000, enable_task_list=True).build()
        long = Task(subject="step " * 4_000)
        await agent.update_tasks(ALICE, lambda state: state.replace_tasks([long], state.revision))
        seen = await watch(agent, "go", ALICE)
    assert type(seen.error).__name__ == "ContextBudgetExceeded"
    assert seen.error.largest[0][0] == "harness:todo_state"  # type: ignore[union-attr]
    assert provider.requests == []


@virtual
async def test_there_is_room_for_the_list_whatever_becomes_of_its_receipt() -> None:
    """The receipt is the largest result, and moves into a file when room is short: the list that is shown in its
    place had its room already, so that the request fits."""
    written = json.dumps({"todos": [{"content": f"{n:03} " + "x" * 90} for n in range(30)]})
    contents = "0" * 2_000

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return contents

    script = [calls(("t1", "todo_write", written)), *[calls((f"c{n}", "look", "{}")) for n in range(3)], "done"]
    options: dict[str, Any] = {
        "tools": [look],
        "enable_task_list": True,
        "workspace_context": False,
        "compaction": None,
        "tool_result_eviction": {"preview_chars": 100},
    }

    async def run(limit: int) -> Any:
        policy = ContextPolicy(estimator=CharEstimator(), max_input_tokens=limit)
        agent = scripted(*script, context_policy=policy, **options).build()
        return await watch(agent, "go", ALICE), model_of(agent).requests

    roomy, _ = await run(60_000)
    most = max(manifest.estimated_input_tokens for manifest in manifests(roomy))
    seen, requests = await run(most - 1_000)
    assert seen.error is None
    assert all(manifest.estimated_input_tokens <= most - 1_000 for manifest in manifests(seen))
    assert any("- [ ] 029 " in message.text for message in requests[-1].tail)
