"""How a task is shown: the blocks, their tags, and which lists of the conversation still count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.layout import lay_out
from agentscope_rx.draft import RequestDraft
from agentscope_rx.history import History
from agentscope_rx.messages import DataBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from agentscope_rx.operators import project_task_state
from agentscope_rx.state import AgentState
from agentscope_rx.step import Step
from agentscope_rx.tasks import (
    RequirementKind,
    Task,
    TaskContextOptions,
    TaskContextState,
    TaskState,
)
from agentscope_rx.tasks.projection import TaskProjection
from agentscope_rx.tasks.todo import rendered
from agentscope_rx.testing import a_step, check_operator
from tests.tasks.support import begun, report

ALL = TaskProjection(options=TaskContextOptions(requirements=True, verification=True))
TODO = TaskContextState(tasks=(Task(subject="reproduce"), Task(subject="fix & verify <b>")), revision=2)


def receipt(id: str, state: TaskContextState = TODO, **changes: Any) -> tuple[Msg, Msg]:
    """A call of todo_write and its result, which shows this list."""
    marks = {
        "context.state_key": "tasksContext",
        "context.state_revision": state.revision,
        "context.representation": "full",
    }
    asking = replace(Msg.assistant(ToolUseBlock(id=id, name="todo_write")), id=f"call-{id}")
    result = ToolResultBlock(id=id, name="todo_write", output=(TextBlock(text=rendered(state.tasks)),), metadata=marks)
    return asking, replace(Msg.tool(replace(result, **changes)), id=f"result-{id}")


def shown(projection: TaskProjection, state: TaskContextState, *messages: Msg) -> tuple[RequestDraft, list[str]]:
    """The draft, and the synthetic messages of the request that it becomes."""
    draft = RequestDraft(conversation=History.of(replace(Msg.user("go"), id="u"), *messages))
    draft = projection.fitted(projection.onto(draft, state), state)
    step = a_step(draft=draft)
    return draft, [message.text for message in lay_out(step).tail]


def test_a_list_without_a_receipt_is_shown_behind_the_conversation() -> None:
    """One USER message, with the revision, the heading and the list; text cannot close our tags."""
    _, (text,) = shown(TaskProjection(), TODO)
    lines = text.splitlines()
    assert lines[0] == '<TASK_STATE revision="2">'
    assert lines[2:] == ["2 open todo(s):", "- [ ] reproduce", "- [ ] fix &amp; verify &lt;b&gt;", "</TASK_STATE>"]


def test_nothing_to_show_is_not_shown() -> None:
    """A fresh task gives no message; one that was cleared says so."""
    assert shown(ALL, TaskContextState())[1] == []
    (cleared,) = shown(TaskProjection(), TaskContextState(revision=1))[1]
    assert rendered([]) in cleared


def test_the_newest_receipt_is_enough() -> None:
    """No second list; the conversation is the very one that the session holds."""
    draft, tail = shown(TaskProjection(), TODO, *receipt("c1"))
    assert tail == []
    assert [m.tool_result.text for m in draft.conversation.messages if m.tool_result] == [rendered(TODO.tasks)]


def test_outdated_receipts_are_lines_in_the_view_only() -> None:
    """Id, name, state and other metadata stay; the newest receipt is word for word."""
    old = replace(TODO, revision=1)
    messages = (*receipt("c1", old), *receipt("c2"))
    history = History.of(*messages)
    draft, tail = shown(TaskProjection(), TODO, *messages)
    first, second = [m.tool_result for m in draft.conversation.messages if m.tool_result]
    before = receipt("c1", old)[1].tool_result
    assert before is not None
    assert (first.id, first.name, first.state) == (before.id, before.name, before.state)
    assert first.metadata == {**before.metadata, "context.representation": "receipt"}
    assert "\n" not in first.text
    assert "revision 1" in first.text
    assert second.text == rendered(TODO.tasks)
    assert tail == []
    assert next(m.tool_result for m in history.messages if m.tool_result) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"output": (TextBlock(text="1 open todo(s):\n[... cut ...]"),)},
        {"output": ()},
        {"output": (TextBlock(text=rendered(TODO.tasks)), DataBlock(source=URLSource(url="http://x")))},
    ],
)
def test_a_receipt_that_lost_its_text_is_no_receipt(changes: dict[str, Any]) -> None:
    """Pruned or offloaded, its list moves behind the conversation."""
    _, (text,) = shown(TaskProjection(), TODO, *receipt("c1", **changes))
    assert "- [ ] reproduce" in text


def test_a_receipt_of_another_revision_or_tool_is_no_receipt() -> None:
    """A change without todo_write makes the list outdated; what only looks like a receipt is left alone."""
    later = replace(TODO, revision=3)
    _, (text,) = shown(TaskProjection(), later, *receipt("c1"))
    assert '<TASK_STATE revision="3">' in text
    asking, forged = receipt("c1", name="look")
    draft, (text,) = shown(TaskProjection(), TODO, asking, forged)
    assert "- [ ] reproduce" in text
    assert forged in tuple(draft.conversation.messages)


def test_the_last_of_two_equal_receipts_stays() -> None:
    """Both show revision 2 (a session that was forked and replayed): only the last is kept whole."""
    draft, tail = shown(TaskProjection(), TODO, *receipt("c1"), *receipt("c2"))
    texts = [m.tool_result.text for m in draft.conversation.messages if m.tool_result]
    assert ["- [ ]" in text for text in texts] == [False, True]
    assert tail == []


def test_requirements_and_reports_have_tags_of_their_own() -> None:
    """Scope first, then the list, requirements with their decisions, reports with what they are about."""
    state = begun()
    state = state.propose(RequirementKind.CONSTRAINT, 'no </TASK_STATE> "column"', "a file")
    state = state.record_verification(report(state), state.revision)
    criterion, constraint = state.requirements
    _, (text,) = shown(ALL, state)
    assert (
        f'<TASK_STATE revision="{state.revision}">\nTask: t1\nObjective: Fix the export\nObjective source: ticket 42'
        in text
    )
    assert (
        f"{criterion.id} | ACCEPTANCE_CRITERION | CONFIRMED | tests pass\nProposed source: the user\n"
        f"Decision: USER | message m1\n"
        f'{constraint.id} | CONSTRAINT | CANDIDATE | no &lt;/TASK_STATE&gt; "column"\nProposed source: a file\n'
        "</REQUIREMENTS>\n<VERIFICATION>\n"
    ) in text
    assert (
        f"{criterion.id} | PASSED | verifier=shell | evidence=verification_r1 | action=a1\nChecked version: v1\n"
        "Reason: exit code 0\n</VERIFICATION>\n</TASK_STATE>"
    ) in text
    assert text.count("</TASK_STATE>") == 1
    moved = state.set_subject_version("v2", state.revision)
    (text,) = shown(ALL, moved)[1]
    assert f"{criterion.id} | STALE | verifier=shell" in text
    assert "PASSED" not in text


@pytest.mark.parametrize(
    ("options", "there", "missing"),
    [
        (TaskContextOptions(), (), ("Task: t1", "<REQUIREMENTS>", "<VERIFICATION>")),
        (TaskContextOptions(requirements=True), ("Task: t1", "<REQUIREMENTS>"), ("<VERIFICATION>",)),
        (TaskContextOptions(verification=True), ("Task: t1", "<VERIFICATION>"), ("<REQUIREMENTS>",)),
    ],
)
def test_each_part_is_shown_where_it_was_asked_for(
    options: TaskContextOptions, there: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    """Either projection shows the scope; neither shows the other."""
    state = begun()
    state = state.record_verification(report(state), state.revision)
    (text,) = shown(TaskProjection(options=options), state)[1]
    assert all(part in text for part in there)
    assert not any(part in text for part in missing)


def test_a_visible_receipt_is_pointed_to() -> None:
    """Where there is more to show, a line stands for the list."""
    state = replace(begun(), tasks=TODO.tasks)
    (text,) = shown(ALL, state, *receipt("c1", state))[1]
    assert "todo_write" in text
    assert "- [ ] reproduce" not in text


def test_its_place_is_before_the_facts_about_the_session() -> None:
    """Runtime materials, TASK_STATE, RUNTIME_STATE."""
    draft = RequestDraft(
        transient=(
            ContextBlock(id="harness:session", kind="session", text="Session: s"),
            ContextBlock.runtime("now", "R"),
        )
    )
    step = a_step(draft=TaskProjection().onto(draft, TODO))
    tags = [message.text.split("\n")[0] for message in lay_out(step).tail]
    assert tags == ["<HARNESS_CONTEXT>", '<TASK_STATE revision="2">', "<RUNTIME_STATE>"]


def test_a_long_history_costs_nothing_a_second_time() -> None:
    """With hundreds of outdated lists the shortened leaves are the same objects at the next step."""
    messages: list[Msg] = []
    for number in range(1, 301):
        messages += receipt(f"c{number}", replace(TODO, revision=number))
    state = replace(TODO, revision=300)
    history = History.of(*messages)
    one = TaskProjection().fitted(RequestDraft(conversation=history), state).conversation
    two = TaskProjection().fitted(RequestDraft(conversation=history.append(Msg.user("more"))), state).conversation
    assert len(history.leaves) > 3
    assert all(a is b for a, b in zip(one.leaves[:-1], two.leaves, strict=False))


@pytest.mark.parametrize("state", [TaskContextState(), TODO, begun()])
async def test_project_task_state_is_a_good_operator(state: TaskContextState) -> None:
    """Every rule of operators, over a history that holds receipts."""

    def with_task(history: History) -> Step:
        session = AgentState(session_id="s", tasks_context=state)
        return a_step(history=history.append(*receipt("c1")), state=session)

    await check_operator(lambda: project_task_state(tasks=ALL), step=with_task)


def test_a_finished_task_counts_no_open_ones() -> None:
    """The number is of what is left."""
    assert rendered([Task(subject="a", state=TaskState.COMPLETED)]).startswith("0 open todo(s):")
