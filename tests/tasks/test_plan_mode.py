"""Plan mode: what is denied, what is told of it, and who may end it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import GenerateReason, InMemoryWorkspace, PermissionRule, approve, reject, tool
from agentscope_rx.errors import InvalidOption
from agentscope_rx.events import RequireUserConfirm, ToolResultEnd, ToolResultStart, ToolResultTextDelta
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.interactions import PendingCall
from agentscope_rx.messages import ToolCallState, ToolResultState, ToolUseBlock
from agentscope_rx.permissions.decision import PASSTHROUGH
from agentscope_rx.requests import ModelRequest
from agentscope_rx.tasks import PlanModeConfig, PlanModeContextState
from agentscope_rx.tasks.plan_mode import plan_gate, plan_tools
from agentscope_rx.testing import calls
from agentscope_rx.tools import Toolkit, schema_tool
from tests.context.support import ALICE, BOB, model_of, scripted
from tests.support import Seen, watch
from tests.virtual import virtual

PLANNING = PlanModeContextState(plan_active=True)


class Hands:
    """Tools that count, so that nothing can run unseen."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        ran = self.ran

        @tool(read_only=True)
        async def look() -> str:
            """Look."""
            ran.append("look")
            return "seen"

        @tool
        async def change() -> str:
            """Change."""
            ran.append("change")
            return "changed"

        @tool
        async def execute(command: str) -> str:
            """Run a command."""
            ran.append("execute")
            return "ran"

        self.tools = [look, change, execute]


def planner(*script: Any, **options: Any) -> tuple[HarnessAgent, Hands]:
    hands = Hands()
    keywords: dict[str, Any] = {"enable_plan_mode": True, "tools": hands.tools, **options}
    return scripted(*script, **keywords).build(), hands


async def responded(agent: HarnessAgent, answers: Any) -> Seen:
    """Answer what waits, and keep everything that happens."""
    seen = Seen()
    async for event in agent.respond(ALICE, answers):
        seen.events.append(event)
    return seen


def ends(seen: Any) -> list[tuple[str, ToolResultState]]:
    return [(event.tool_call_name, event.state) for event in seen.of(ToolResultEnd)]


def plan_parts(request: ModelRequest) -> tuple[bool, str]:
    """Whether the mode rules are there, and the state that stands for the plan."""
    (runtime,) = [message.text for message in request.tail if message.text.startswith("<RUNTIME_STATE>")]
    return "<MODE_RULES" in request.system, next((x for x in runtime.splitlines() if x.startswith("Mode: ")), "")


# -- what may be done ---------------------------------------------------------------------------------------

KIT = Toolkit.of(
    *Hands().tools,
    *plan_tools(PlanModeConfig(), lambda context: InMemoryWorkspace()),
    schema_tool("todo_write", "A list.", {}),
    schema_tool("task_requirement_propose", "Propose.", {}),
    schema_tool("pay", "Pay.", {}),
)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("look", "passthrough"),
        ("change", "deny"),
        ("execute", "deny"),
        ("pay", "deny"),
        ("todo_write", "passthrough"),
        ("task_requirement_propose", "passthrough"),
        ("plan_enter", "passthrough"),
        ("plan_write", "passthrough"),
        ("plan_exit", "ask"),
        ("no_such_tool", "passthrough"),
    ],
)
def test_the_gate(name: str, verdict: str) -> None:
    """While planning by name and read-only mark; else everything passes. An unknown tool is told so by who runs it."""
    call = ToolUseBlock(id="c1", name=name)
    assert plan_gate(PLANNING, call, KIT, PlanModeConfig()).behavior == verdict
    assert plan_gate(PlanModeContextState(current_plan_file="x"), call, KIT, PlanModeConfig()) is PASSTHROUGH
    if name == "execute":
        assert plan_gate(PLANNING, call, KIT, PlanModeConfig(allow_shell=True)) is PASSTHROUGH
    if name == "plan_exit":
        asked = plan_gate(replace(PLANNING, current_plan_file="plans/PLAN.md"), call, KIT, PlanModeConfig())
        assert (asked.non_bypassable, "plans/PLAN.md" in asked.message) == (True, True)
    if name == "change":  # no approval of a call makes it one that plans
        allowed = replace(call, state=ToolCallState.ALLOWED)
        assert plan_gate(PLANNING, allowed, KIT, PlanModeConfig(allow_shell=True)).behavior == "deny"


@virtual
async def test_denied_calls_are_seen_and_never_run() -> None:
    """START, one delta and END (denied) are told before the others of the batch run; the history has all."""
    script = calls(("c1", "look", "{}"), ("c2", "change", "{}"), ("c3", "execute", '{"command":"ls"}'))
    agent, hands = planner(script, "done")
    await agent.enter_plan_mode(ALICE)
    seen = await watch(agent, "go", ALICE)
    assert hands.ran == ["look"]
    assert ends(seen) == [("change", "denied"), ("execute", "denied"), ("look", "success")]
    assert [event.tool_call_id for event in seen.of(ToolResultStart)] == ["c2", "c3", "c1"]
    (said,) = [event.delta for event in seen.of(ToolResultTextDelta) if event.tool_call_id == "c2"]
    assert "permission was denied: this session is planning, and change is no tool that only reads" in said
    found = [m.tool_result for m in (await agent.state(ALICE)).context.messages if m.tool_result]
    results = {result.id: result for result in found}
    assert {id: result.state for id, result in results.items()} == {"c1": "success", "c2": "denied", "c3": "denied"}
    assert results["c2"].text == said


@virtual
async def test_a_session_that_plans_is_held_to_it_by_every_agent() -> None:
    """The state decides: an agent without plan mode denies the same call, and says why in its request."""
    agent, _ = planner("never")
    await agent.enter_plan_mode(ALICE)
    hands = Hands()
    runtime = agent.options.runtime
    other = scripted(calls(("c1", "change", "{}")), "ok", tools=hands.tools, runtime=runtime).build()
    seen = await watch(other, "go", ALICE)
    assert (hands.ran, ends(seen)) == ([], [("change", "denied")])
    assert plan_parts(model_of(other).requests[0]) == (True, "Mode: PLAN (read-only)")


@virtual
async def test_the_mode_holds_from_the_call_that_enters_it() -> None:
    """A call behind plan_enter in the same reply is denied; the next request has rules and state."""
    script = calls(("c1", "plan_enter", "{}"), ("c2", "change", "{}"))
    agent, hands = planner(script, "done")
    seen = await watch(agent, "go", ALICE)
    assert (hands.ran, ends(seen)) == ([], [("plan_enter", "success"), ("change", "denied")])
    first, second = model_of(agent).requests
    assert plan_parts(first) == (False, "")
    assert plan_parts(second) == (True, "Mode: PLAN (read-only)")
    assert "plans/PLAN.md" in second.system


# -- the plan -----------------------------------------------------------------------------------------------


@virtual
async def test_a_plan_is_written_as_a_whole() -> None:
    """The file holds the last one; its path is part of the state from then on."""
    writing = [calls((f"c{n}", "plan_write", json.dumps({"content": f"# Plan {n}"}))) for n in range(2)]
    agent, _ = planner(*writing, "done")
    await agent.enter_plan_mode(ALICE)
    await agent.call("plan it", ALICE)
    assert (await agent.files(ALICE).read("plans/PLAN.md")).data == b"# Plan 1"
    state = (await agent.state(ALICE)).plan_mode_context
    assert state == PlanModeContextState(plan_active=True, current_plan_file="plans/PLAN.md")


@virtual
async def test_each_user_has_a_plan_of_their_own() -> None:
    """Where files are kept apart, a plan is neither read nor replaced by what another user plans."""
    mine, theirs = (calls(("c1", "plan_write", json.dumps({"content": text}))) for text in ("mine", "theirs"))
    agent, _ = planner(mine, "done", theirs, "done")
    for who in (ALICE, BOB):
        await agent.enter_plan_mode(who)
        await agent.call("plan it", who)
    assert (await agent.files(ALICE).read("plans/PLAN.md")).data == b"mine"
    assert (await agent.files(BOB).read("plans/PLAN.md")).data == b"theirs"


@virtual
async def test_nothing_is_planned_out_of_plan_mode() -> None:
    """plan_write and plan_exit are errors there, and write nothing; so is a blank plan."""
    script = calls(("c1", "plan_write", '{"content":"x"}'), ("c2", "plan_exit", "{}"))
    agent, _ = planner(script, "done", calls(("c3", "plan_write", '{"content":" "}')), "done")
    assert ends(await watch(agent, "go", ALICE)) == [("plan_write", "error"), ("plan_exit", "error")]
    await agent.enter_plan_mode(ALICE)
    assert ends(await watch(agent, "go", ALICE)) == [("plan_write", "error")]
    with pytest.raises(FileNotFoundError):
        await agent.files(ALICE).read("plans/PLAN.md")


# -- the end of planning ------------------------------------------------------------------------------------


async def asked(agent: HarnessAgent) -> PendingCall:
    """A run in which the model asks for the approval; what waits since."""
    await agent.enter_plan_mode(ALICE)
    seen = await watch(agent, "plan it", ALICE)
    assert seen.result.reason is GenerateReason.PERMISSION_ASKING
    (event,) = seen.of(RequireUserConfirm)
    assert [call.name for call in event.tool_calls] == ["plan_exit"]
    assert event.tool_calls[0].input == {"summary": "s"}
    assert await agent.is_plan_mode_active(ALICE)
    (waiting,) = await agent.pending(ALICE)
    return waiting


EXIT = calls(("c1", "plan_exit", '{"summary":"s"}'), ("c2", "change", "{}"))


@virtual
@pytest.mark.parametrize(
    "said",
    [
        {},
        *({"permission_mode": mode} for mode in ("default", "accept_edits", "bypass")),
        {"permission_rules": [PermissionRule.allow("plan_exit"), PermissionRule.allow("look")]},
    ],
)
async def test_an_approval_ends_planning(said: dict[str, Any]) -> None:
    """A person is asked whatever modes and rules allow, and no rule is offered that would answer for good. With the
    yes planning ends; only what the model calls after it is done."""
    agent, hands = planner(EXIT, calls(("c3", "look", "{}")), "done", **said)
    waiting = await asked(agent)
    assert (waiting.kind, waiting.suggestions) == ("confirmation", ())
    assert "no plan was written" in waiting.message
    seen = await responded(agent, {waiting.id: True})
    assert ends(seen) == [("plan_exit", "success"), ("look", "success")]
    assert not await agent.is_plan_mode_active(ALICE)
    assert (seen.result.text, hands.ran) == ("done", ["look"])
    assert plan_parts(model_of(agent).requests[-1]) == (False, "")


@virtual
async def test_work_begins_after_the_approval() -> None:
    """A call beside plan_exit was written while planning, and stays denied; one after the approval runs."""
    agent, hands = planner(EXIT, calls(("c3", "change", "{}")), "done")
    waiting = await asked(agent)
    assert hands.ran == []
    seen = await responded(agent, {waiting.id: approve(input={"summary": "shorter"})})
    assert ends(seen) == [("plan_exit", "success"), ("change", "success")]
    assert hands.ran == ["change"]
    found = [m.tool_result for m in (await agent.state(ALICE)).context.messages if m.tool_result]
    assert {result.id: result.state for result in found} == {"c1": "success", "c2": "denied", "c3": "success"}


@virtual
async def test_a_refusal_leaves_the_session_planning() -> None:
    """The model reads why; what may change something is denied as before."""
    agent, hands = planner(EXIT, calls(("c3", "change", "{}")), "done")
    waiting = await asked(agent)
    seen = await responded(agent, {waiting.id: reject("Too vague.")})
    assert ends(seen) == [("plan_exit", "denied"), ("change", "denied")]
    assert "Too vague." in str(model_of(agent).requests[1].messages)
    assert hands.ran == []
    assert await agent.is_plan_mode_active(ALICE)


@virtual
@pytest.mark.parametrize(
    "said",
    [
        {"permission_mode": "dont_ask"},
        {"permission_mode": "explore"},
        {"permission_rules": [PermissionRule.deny("plan_exit")]},
    ],
)
async def test_where_nobody_may_be_asked_planning_goes_on(said: dict[str, Any]) -> None:
    """The end of planning is denied like any other question, and the session plans on."""
    agent, hands = planner(EXIT, "done", **said)
    await agent.enter_plan_mode(ALICE)
    seen = await watch(agent, "plan it", ALICE)
    assert ends(seen) == [("plan_exit", "denied"), ("change", "denied")]
    assert (seen.result.text, hands.ran) == ("done", [])
    assert await agent.is_plan_mode_active(ALICE)


@virtual
async def test_another_answer_is_no_approval_of_the_plan() -> None:
    """While a sibling waits too, a yes to it alone leaves the plan waiting; a rule that comes with it does not help."""
    both = calls(("c1", "plan_exit", '{"summary":"s"}'), ("c2", "execute", '{"command":"ls"}'))
    rules = [PermissionRule.ask("execute")]
    agent, hands = planner(both, "done", enable_plan_mode={"allow_shell": True}, permission_rules=rules)
    await agent.enter_plan_mode(ALICE)
    await agent.call("plan it", ALICE)
    assert [each.id for each in await agent.pending(ALICE)] == ["c1", "c2"]
    await responded(agent, {"c2": approve(rules=[PermissionRule.allow("plan_exit")])})
    assert [each.id for each in await agent.pending(ALICE)] == ["c1"]
    assert hands.ran == []
    assert await agent.is_plan_mode_active(ALICE)
    await responded(agent, {"c1": True})
    assert hands.ran == ["execute"]
    assert not await agent.is_plan_mode_active(ALICE)


@virtual
async def test_a_plan_is_not_begun_and_ended_in_one_reply() -> None:
    """Nobody was asked about a plan_exit that was written before planning began: it is denied, and planning goes on."""
    script = calls(("c1", "plan_enter", "{}"), ("c2", "plan_exit", "{}"))
    agent, _ = planner(script, "done")
    assert ends(await watch(agent, "go", ALICE)) == [("plan_enter", "success"), ("plan_exit", "denied")]
    assert await agent.is_plan_mode_active(ALICE)


@virtual
async def test_the_application_may_end_planning_while_the_plan_waits() -> None:
    """An approval that comes later finds nothing to end, and the work goes on."""
    agent, hands = planner(EXIT, calls(("c3", "change", "{}")), "done")
    waiting = await asked(agent)
    await agent.exit_plan_mode(ALICE)
    seen = await responded(agent, {waiting.id: True})
    assert ends(seen) == [("plan_exit", "error"), ("change", "success")]
    assert (seen.result.text, hands.ran) == ("done", ["change"])


async def test_an_approval_outlives_the_process(tmp_path: Path) -> None:
    """Asked in one agent over a folder, answered by another one over the same."""
    agent, _ = planner(EXIT, workspace=tmp_path)
    waiting = await asked(agent)
    other, hands = planner(calls(("c3", "change", "{}")), "done", workspace=tmp_path)
    assert [(each.id, each.message) for each in await other.pending(ALICE)] == [(waiting.id, waiting.message)]
    await responded(other, {waiting.id: True})
    assert (hands.ran, await other.is_plan_mode_active(ALICE)) == (["change"], False)


@virtual
async def test_what_only_the_session_keeps_is_not_asked_about() -> None:
    """With rules every other tool is asked about; list, proposals, plan and the answer's form are not."""
    proposal = json.dumps({"kind": "CONSTRAINT", "text": "keep it", "source_ref": "m1"})
    script = calls(
        ("c1", "todo_write", '{"todos":[]}'),
        ("c2", "task_requirement_propose", proposal),
        ("c3", "plan_enter", "{}"),
        ("c4", "plan_write", '{"content":"x"}'),
    )
    answer = calls(("c5", "generate_response", '{"response":{"n":1}}'))
    agent, _ = planner(
        script,
        answer,
        enable_task_list=True,
        task_context={"requirements": True, "proposals": True},
        permission_rules=[PermissionRule.ask("change")],
    )
    seen = Seen()
    async for event in agent.stream_events("go", ALICE, output={"type": "object"}):
        seen.events.append(event)
    assert seen.of(RequireUserConfirm) == []
    assert [state for _, state in ends(seen)] == ["success"] * 5


@virtual
async def test_a_plan_that_is_there_is_said_to_prove_nothing() -> None:
    """In build mode with a plan file: rules and state name it; without one there is nothing."""
    agent, _ = planner(calls(("c1", "plan_write", '{"content":"x"}')), "planned", "built")
    await agent.enter_plan_mode(ALICE)
    await agent.call("plan", ALICE)
    await agent.exit_plan_mode(ALICE)
    await agent.call("build", ALICE)
    request = model_of(agent).requests[-1]
    assert plan_parts(request) == (True, "Mode: BUILD")
    assert any("Plan file: plans/PLAN.md" in message.text for message in request.tail)


async def test_planning_outlives_the_process(tmp_path: Path) -> None:
    """Another agent over the same folder plans on."""
    agent, _ = planner("x", workspace=tmp_path)
    await agent.enter_plan_mode(ALICE)
    await agent.enter_plan_mode(ALICE)
    other, hands = planner(calls(("c1", "change", "{}")), "done", workspace=tmp_path)
    assert await other.is_plan_mode_active(ALICE)
    assert ends(await watch(other, "go", ALICE)) == [("change", "denied")]
    assert hands.ran == []


@virtual
async def test_planning_survives_a_cancelled_call() -> None:
    """What plan_enter did before the cancel is the session's."""
    entered = asyncio.Event()

    @tool(read_only=True, concurrency_safe=False)
    async def hang() -> str:
        """Never end."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    agent = scripted(
        calls(("c1", "plan_enter", "{}"), ("c2", "hang", "{}")), tools=[hang], enable_plan_mode=True
    ).build()
    running = asyncio.ensure_future(agent.acall("go", ALICE))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await agent.is_plan_mode_active(ALICE)


# -- options ------------------------------------------------------------------------------------------------


@virtual
async def test_commands_have_to_be_allowed() -> None:
    """With allow_shell `execute` runs, and the rules say what for; another directory is where the plan lies."""
    script = calls(("c1", "execute", '{"command":"ls"}'), ("c2", "plan_write", '{"content":"x"}'))
    agent, hands = planner(script, "done", enable_plan_mode={"allow_shell": True, "directory": "docs/plans/"})
    await agent.enter_plan_mode(ALICE)
    await agent.call("go", ALICE)
    assert hands.ran == ["execute"]
    assert (await agent.files(ALICE).read("docs/plans/PLAN.md")).data == b"x"
    assert "execute" in model_of(agent).requests[0].system


def test_it_is_off_by_default() -> None:
    """No tools without it; False and None switch it off."""
    names = {spec.name for spec in scripted().build().options.all_tools.specs()}
    assert names == set()
    for off in (False, None):
        assert scripted(enable_plan_mode=True).enable_plan_mode(off).build().options.all_tools.specs() == ()


@pytest.mark.parametrize("wrong", [{"directory": "../out"}, {"directory": "/etc"}, {"shell": True}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    """A directory outside of the workspace, and options that there are not."""
    with pytest.raises(InvalidOption, match="enable_plan_mode"):
        HarnessAgent.builder().enable_plan_mode(**wrong)
    with pytest.raises(InvalidOption, match="enable_plan_mode"):
        HarnessAgent.builder().enable_plan_mode(wrong)
