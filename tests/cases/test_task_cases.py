"""Cases O36 to O38 and the to-do list of O17: a list that is lost, roles that a provider refuses, and what it costs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from agentscope_rx import HarnessAgent, InMemoryWorkspace
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.events import Custom
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.requests import CallDelta, ModelChunk, ModelRequest
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore, SessionKey
from agentscope_rx.stores.store import ABSENT
from agentscope_rx.tasks import (
    Authority,
    Decision,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    TaskContextState,
)
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import RecordedRequest, from_case
from agentscope_rx.tools import tool
from tests.cases import case
from tests.cases.playing import CaseTool, check_pairs
from tests.cases.roles import STRICT, no_user_after_a_result, sources
from tests.context.support import ALICE, harness, manifests, scripted
from tests.support import ONE_ATTEMPT, watch
from tests.virtual import virtual


def call_of(message: dict[str, Any]) -> tuple[str, str, str]:
    (call,) = message["tool_calls"]
    return call["id"], call["function"]["name"], call["function"]["arguments"]


def said(messages: list[dict[str, Any]]) -> list[Msg]:
    make = {"user": Msg.user, "assistant": Msg.assistant}
    return [make[message["role"]](message["content"]) for message in messages]


def task_states(request: RecordedRequest) -> list[str]:
    """The messages of a request that show the task."""
    return [str(m["content"]) for m in request.messages if str(m["content"]).startswith("<TASK_STATE")]


# -- O17 ----------------------------------------------------------------------------------------------------


async def test_o17_the_list_is_counted() -> None:
    """A list raises the estimate by 1,200 at least, and by what its message costs beside the rest."""
    (todo,) = [each["todo"] for each in case("O17")["add_one_each"] if "todo" in each]
    agent = scripted(enable_task_list=True).build()
    await agent.observe(Msg.user("u"), ALICE)
    base = (await agent.prepare(None, ALICE)).manifest
    await agent.update_tasks(ALICE, lambda state: state.replace_tasks([Task(subject=todo)], state.revision))
    manifest = (await agent.prepare(None, ALICE)).manifest
    added = manifest.estimated_input_tokens - base.estimated_input_tokens
    assert added >= 1_200
    (item,) = [item for item in manifest.items if item.kind == "todo_state"]
    assert added - 50 <= item.tokens <= added
    assert (item.zone, item.required, manifest.task_revision) == ("transient", True, 1)


# -- O36 ----------------------------------------------------------------------------------------------------


async def test_o36_a_list_survives_the_compaction_of_its_receipts() -> None:
    """The first request after a compaction shows the list behind the conversation; history and state know nothing
    of that. Before, the receipt is enough."""
    the = case("O36")
    asked, calling, _, *later = the["history"]
    options: dict[str, Any] = {
        "enable_task_list": the["config"]["enable_task_list"],
        "compaction": CompactionConfig(**the["config"]["compaction"]),
    }
    replies = [
        fake.tool_calls(call_of(calling)),
        fake.text("noted"),
        *map(from_case, the["summary"]),
        *map(from_case, the["model"]),
    ]
    async with harness(*replies, **options) as (agent, provider):
        await agent.call(asked["content"], ALICE)
        before = (await agent.state(ALICE)).tasks_context
        await agent.observe(said(later), ALICE)
        seen = await watch(agent, the["input"]["content"], ALICE)
        state = await agent.state(ALICE)
    assert seen.error is None
    assert "compaction_end" in [event.name for event in seen.of(Custom)]
    first, second, _, last = provider.requests
    assert task_states(first) == task_states(second) == []
    assert "- [~] fix" in second.messages[-2]["content"]
    (shown,) = task_states(last)
    for line in ("- [x] reproduce", "- [~] fix", "- [ ] verify"):
        assert line in shown
        assert str(last.messages).count(line) == 1
    roles = [message["role"] for message in last.messages]
    assert roles[-2:] == ["user", "user"]  # the task, then the facts about the session
    assert last.messages[-3]["content"] == the["input"]["content"]
    assert not any("TASK_STATE" in message.text for message in state.context.messages)
    assert state.tasks_context == before
    assert [task.state for task in before.tasks] == ["completed", "in_progress", "pending"]


# -- ten compactions ----------------------------------------------------------------------------------------

ITEMS = [("reproduce", "completed"), ('fix "it" & <more>', "in_progress")]
TODOS = json.dumps({"todos": [{"content": content, "status": status} for content, status in ITEMS]})


class Endless:
    """A model that writes a list, then talks; asked for a summary, it says nothing of tasks."""

    name, context_window, max_output_tokens = "endless", 100_000, None

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        if request.purpose == "summary":
            yield ModelChunk(text="Nothing about tasks.", finish_reason="stop")
            return
        self.requests.append(request)
        if len(self.requests) == 1:
            yield ModelChunk(calls=(CallDelta(0, "t1", "todo_write", TODOS),), finish_reason="tool_calls")
            return
        yield ModelChunk(text=f"answer {len(self.requests)} " + "words " * 50, finish_reason="stop")


def with_requirement(state: TaskContextState) -> TaskContextState:
    state = state.begin_task(Scope(task_id="t", objective="o <b>", source_ref="s"), state.revision)
    state = state.propose(RequirementKind.ACCEPTANCE_CRITERION, "tests pass", "user")
    decision = Decision(authority=Authority.USER, source_ref="m1")
    return state.decide(state.requirements[0].id, RequirementStatus.CONFIRMED, decision, state.revision)


@virtual
async def test_ten_compactions_leave_the_task_and_what_is_shown_of_it_as_they_were() -> None:
    """Equal state after each, and the same bytes in every request from the first compaction on."""
    model = Endless()
    builder = HarnessAgent.builder(
        name="tester",
        model=model,
        workspace=InMemoryWorkspace(),
        execution=ONE_ATTEMPT,
        enable_task_list=True,
        task_context={"requirements": True, "verification": True},
        compaction={"trigger_messages": 6, "keep_tokens": 0, "keep_messages": 2},
    )
    async with builder.build() as agent:
        await agent.update_tasks(ALICE, with_requirement)
        await agent.call("begin", ALICE)
        before = (await agent.state(ALICE)).tasks_context
        while len(await agent.compactions(ALICE)) < 10:
            await agent.call("go on", ALICE)
            state = await agent.state(ALICE)
            assert state.tasks_context == before
    assert [task.subject for task in before.tasks] == ["reproduce", 'fix "it" & <more>']
    projections = [[message for message in request.tail if "TASK_STATE" in message.text] for request in model.requests]
    compacted = [shown for shown in projections if "- [~] fix" in shown[0].text]
    assert len(compacted) >= 10
    assert projections[-len(compacted) :] == compacted
    assert {message.to_json() for (message,) in compacted} == {compacted[0][0].to_json()}
    (text,) = {message.text for (message,) in compacted}
    assert 'fix "it" &amp; &lt;more&gt;' in text
    assert "| CONFIRMED | tests pass" in text


# -- O37 ----------------------------------------------------------------------------------------------------


async def test_o37_there_is_one_system_message_and_it_is_the_first() -> None:
    """Main and summary requests: prompt, instructions, rules of the workspace and of the mode in it. The summary is
    the user's; a System message of an old history is neither in the middle nor lost."""
    the = case("O37")
    config = the["config"]

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return the["tools"]["look"]

    options: dict[str, Any] = {
        "sys_prompt": config["sys_prompt"],
        "instructions": dict(config["instruction"]),
        "workspace": InMemoryWorkspace({"AGENTS.md": config["agents_md"]}),
        "enable_plan_mode": config["plan_mode"],
        "enable_task_list": config["enable_task_list"],
        "compaction": config["compaction"],
        "tools": [look],
        "state_store": (store := InMemoryStore()),
        "state_only": True,
    }
    old = Msg.system(the["legacy_history_has"]["content"])
    history = History.of(*(replace(m, id=f"m{at}") for at, m in enumerate([*said(the["history"]), old])))
    key = SessionKey(agent_id="tester", user_id=ALICE.user_id, session_id=str(ALICE.session_id))
    stored = AgentState(session_id=key.session_id, user_id=key.user_id, context=history)
    await store.put(key, stored.to_json(), expected_version=ABSENT)
    replies = [*map(from_case, the["summary"]), *map(from_case, the["model"])]
    async with harness(*replies, **options) as (agent, provider):
        await agent.enter_plan_mode(ALICE)
        seen = await watch(agent, the["input"]["content"], ALICE)
    assert seen.error is None
    assert provider.refusals == []
    assert len(provider.requests) == 3  # a summary, then two steps
    for request in provider.requests:
        system, *others = request.messages
        assert system["role"] == "system"
        assert "system" not in [message["role"] for message in others]
        for words in ("P", "I1", "I2", "\nG\n", "<MODE_RULES"):
            assert words in system["content"]
    summary, *main = provider.requests
    assert "old note" in str(summary.messages) + str(main[0].messages)
    assert all(any("S" in str(m["content"]) and m["role"] == "user" for m in request.messages) for request in main)
    assert all("Mode: PLAN (read-only)" in str(request.messages) for request in main)


# -- O38 ----------------------------------------------------------------------------------------------------


async def test_o38_the_task_is_merged_like_the_rest() -> None:
    """Request 2 is accepted and still has R, D and the task; history and task know nothing of it."""
    the = case("O38")
    options: dict[str, Any] = {
        "context_sources": {"s": sources},
        "tools": [CaseTool("look", the["tools"]["look"])],
        "profile": STRICT,
        "enable_task_list": the["config"]["enable_task_list"],
    }
    async with harness(script=no_user_after_a_result, **options) as (agent, provider):
        await agent.update_tasks(ALICE, lambda state: state.replace_tasks([Task(subject="look at it")], 0))
        seen = await watch(agent, the["input"]["content"], ALICE)
        state = await agent.state(ALICE)
    assert seen.error is None
    assert provider.refusals == []
    result = provider.requests[1].messages[-1]
    assert result["role"] == "tool"
    for words in (">\nR\n<", ">\nD\n<", '<TASK_STATE revision="1">', "- [ ] look at it"):
        assert words in result["content"]
    check_pairs(provider.requests[1].body)
    assert [message.tool_result.text for message in state.context.messages if message.tool_result] == ["1"]
    assert all(manifest.validation == "passed" for manifest in manifests(seen))
