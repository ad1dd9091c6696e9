"""The task of a session as a value: what each change does, and what is refused as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.errors import ConflictError, StateConflict, StateUnreadable, TaskConflict, TaskRefused
from agentscope_rx.records import PlanModeChanged, TasksChanged
from agentscope_rx.state import AgentState
from agentscope_rx.tasks import (
    EvidenceBinding,
    PlanModeContextState,
    Requirement,
    RequirementKind,
    RequirementStatus,
    Task,
    TaskContextState,
    TaskState,
    VerificationOutcome,
)
from tests.tasks.support import BY_USER, CONFIRMED, CRITERION, EXPORT, begun, report

#: Every change but `propose`, with the revision that it was decided on; and what it adds to revision and contract.
CHANGES: dict[str, tuple[Callable[[TaskContextState, int], TaskContextState], int, int]] = {
    "begin_task": (lambda s, rev: s.begin_task(replace(EXPORT, task_id="t2"), rev), 1, 1),
    "begin_task, the same": (lambda s, rev: s.begin_task(EXPORT, rev), 0, 0),
    "replace_tasks": (lambda s, rev: s.replace_tasks([Task(subject="fix")], rev), 1, 0),
    "replace_tasks, the same": (lambda s, rev: s.replace_tasks(s.tasks, rev), 1, 0),
    "decide": (lambda s, rev: s.decide(s.requirements[0].id, RequirementStatus.REJECTED, BY_USER, rev), 1, 1),
    "decide, the same": (lambda s, rev: s.decide(s.requirements[0].id, CONFIRMED, BY_USER, rev), 0, 0),
    "set_subject_version": (lambda s, rev: s.set_subject_version("v2", rev), 1, 1),
    "set_subject_version, the same": (lambda s, rev: s.set_subject_version("v1", rev), 0, 0),
    "invalidate_subject": (lambda s, rev: s.invalidate_subject(rev), 1, 1),
    "record_verification": (lambda s, rev: s.record_verification(report(s), rev), 1, 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_counts_as_it_should(name: str) -> None:
    """Revision and contract version go up by what the change is worth, and the old value is as it was."""
    change, revisions, contracts = CHANGES[name]
    before = begun()
    kept = replace(before)
    after = change(before, before.revision)
    assert after.revision - before.revision == revisions
    assert after.contract_version - before.contract_version == contracts
    assert before == kept


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_change_decided_on_another_revision_is_a_conflict(name: str, off: int) -> None:
    """Wrong revision: TaskConflict, which is a StateConflict; it is checked before anything else."""
    change, _, _ = CHANGES[name]
    before = begun()
    with pytest.raises(TaskConflict, match=f"revision {before.revision + off}.*revision {before.revision}"):
        change(before, before.revision + off)
    assert issubclass(TaskConflict, StateConflict)
    assert issubclass(StateConflict, ConflictError)


def test_invalidating_nothing_counts_too() -> None:
    """An unknown subject that is invalidated again still raises revision and contract."""
    state = begun().invalidate_subject(begun().revision)
    assert state.subject_version is None
    again = state.invalidate_subject(state.revision)
    assert (again.revision, again.contract_version) == (state.revision + 1, state.contract_version + 1)


def test_another_task_begins_empty() -> None:
    """List, requirements, reports and subject are gone; the counts go on."""
    state = begun()
    state = state.record_verification(report(state), state.revision).replace_tasks([Task(subject="a")], 5)
    after = state.begin_task(replace(EXPORT, task_id="t2"), state.revision)
    assert after == TaskContextState(
        scope=replace(EXPORT, task_id="t2"), revision=state.revision + 1, contract_version=state.contract_version + 1
    )
    with pytest.raises(TaskRefused, match="t2"):
        after.begin_task(replace(EXPORT, task_id="t2", objective="another"), after.revision)


def test_a_proposal_in_the_same_words_changes_nothing() -> None:
    """The requirement that is there is kept, whatever was decided about it."""
    state = begun()
    assert state.propose(CRITERION, "tests pass", "the user") is state
    other = state.propose(CRITERION, "tests pass", "a file")
    assert (other.revision, other.contract_version) == (state.revision + 1, state.contract_version)
    assert len({each.id for each in other.requirements}) == 2
    assert other.requirements[1].status is RequirementStatus.CANDIDATE


def test_there_may_be_64_requirements() -> None:
    """The 65th is refused, and the state is what it was."""
    state = TaskContextState()
    for number in range(64):
        state = state.propose(CRITERION, f"criterion {number}", "s")
    with pytest.raises(TaskRefused, match="64"):
        state.propose(CRITERION, "one more", "s")
    assert state.propose(CRITERION, "criterion 7", "s") is state


def test_a_decision_needs_a_requirement_and_an_outcome() -> None:
    """An unknown id and CANDIDATE are refused."""
    state = begun()
    with pytest.raises(TaskRefused, match="no requirement 'x'"):
        state.decide("x", CONFIRMED, BY_USER, state.revision)
    with pytest.raises(TaskRefused, match="CANDIDATE|candidate"):
        state.decide(state.requirements[0].id, RequirementStatus.CANDIDATE, BY_USER, state.revision)


def test_a_subject_needs_a_task() -> None:
    """No subject version without a scope; a blank one never."""
    with pytest.raises(TaskRefused, match="begin_task"):
        TaskContextState().set_subject_version("v1", 0)
    with pytest.raises(TaskRefused, match="blank"):
        begun().set_subject_version(" ", begun().revision)


def test_a_report_is_about_what_is_there_now() -> None:
    """A report with another binding is a conflict; one about anything but a confirmed criterion is refused."""
    state = begun()
    old = report(state)
    moved = state.set_subject_version("v2", state.revision)
    with pytest.raises(TaskConflict, match="v1"):
        moved.record_verification(old, moved.revision)
    rejected = state.decide(state.requirements[0].id, RequirementStatus.REJECTED, BY_USER, state.revision)
    with pytest.raises(TaskRefused, match="REJECTED"):
        rejected.record_verification(report(rejected), rejected.revision)
    limit = state.propose(RequirementKind.CONSTRAINT, "no new column", "s")
    limit = limit.decide(limit.requirements[1].id, CONFIRMED, BY_USER, limit.revision)
    with pytest.raises(TaskRefused, match="CONSTRAINT"):
        limit.record_verification(report(limit, requirement_id=limit.requirements[1].id), limit.revision)


def test_a_report_replaces_the_older_one_and_grows_stale() -> None:
    """One report a criterion; it stays when the subject changes, and is stale from then on."""
    state = begun()
    state = state.record_verification(report(state), state.revision)
    state = state.record_verification(report(state, "r2", outcome=VerificationOutcome.FAILED), state.revision)
    (kept,) = state.verifications
    assert (kept.id, state.is_stale(kept)) == ("r2", False)
    moved = state.set_subject_version("v2", state.revision)
    assert moved.verifications == (kept,)
    assert moved.is_stale(kept)
    assert state.invalidate_subject(state.revision).is_stale(kept)


@pytest.mark.parametrize(
    "make",
    [
        lambda: replace(EXPORT, task_id="x" * 201),
        lambda: replace(EXPORT, objective="x" * 4_001),
        lambda: replace(EXPORT, source_ref=" "),
        lambda: replace(BY_USER, source_ref="x" * 2_001),
        lambda: Requirement(id="r", kind=CRITERION, text="", proposed_source_ref="s"),
        lambda: Requirement(id="r", kind=CRITERION, text="x" * 2_001, proposed_source_ref="s"),
        lambda: Requirement(id="r", kind=CRITERION, text="t", proposed_source_ref="s", status=CONFIRMED),
        lambda: Requirement(id="r", kind=CRITERION, text="t", proposed_source_ref="s", decision=BY_USER),
        lambda: report(begun(), reason="x" * 2_001),
        lambda: report(begun(), action_id=""),
        lambda: TaskContextState(revision=-1),
        lambda: TaskContextState(contract_version=-1),
        lambda: replace(begun(), requirements=begun().requirements * 2),
        lambda: replace(begun(), verifications=(report(begun()), report(begun(), "r2"))),
    ],
)
def test_a_broken_limit_is_refused(make: Callable[[], object]) -> None:
    """TaskRefused, which is a ValueError, and says nothing of the text."""
    with pytest.raises(TaskRefused) as raised:
        make()
    assert isinstance(raised.value, ValueError)
    assert "xxx" not in str(raised.value)


def test_a_session_keeps_task_and_plan() -> None:
    """Records put them into the state; its JSON has the names of AgentState and gives the same state back."""
    tasks = begun().replace_tasks([Task(subject="fix", state=TaskState.IN_PROGRESS, metadata={"priority": "high"})], 4)
    tasks = tasks.record_verification(report(tasks), tasks.revision)
    plan = PlanModeContextState(plan_active=True, current_plan_file="plans/PLAN.md")
    state = AgentState(session_id="s").apply(TasksChanged(tasks)).apply(PlanModeChanged(plan))
    data = state.to_json()
    assert AgentState.from_json(data) == state
    for part in (
        b'"tasks_context":{"tasks":[{"subject":"fix"',
        b'"contract_version":3',
        b'"plan_mode_context":{"plan_',
    ):
        assert part in data
    assert isinstance(AgentState.from_json(data).tasks_context.verifications[0].binding, EvidenceBinding)
    assert AgentState.from_json(b'{"session_id":"s"}') == AgentState(session_id="s")


def test_a_stored_task_that_breaks_a_rule_is_no_state() -> None:
    """StateUnreadable, which does not quote what was stored."""
    with pytest.raises(StateUnreadable, match="negative"):
        AgentState.from_json(b'{"session_id":"s","tasks_context":{"revision":-1}}')
    too_long = b'{"session_id":"s","tasks_context":{"scope":{"task_id":"%s","objective":"o","source_ref":"s"}}}'
    with pytest.raises(StateUnreadable) as raised:
        AgentState.from_json(too_long % (b"secret" * 40))
    assert "secret" not in str(raised.value)


NUMBERS = st.integers(0, 3)


@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), NUMBERS), max_size=12))
def test_no_order_of_changes_breaks_a_rule(steps: list[tuple[str, int]]) -> None:
    """Invariant: revisions only rise, a refusal changes nothing, and each state is one that can be stored."""
    state = begun()
    for name, back in steps:
        before = state
        try:
            state = CHANGES[name][0](state, max(0, state.revision - back))
        except (TaskConflict, TaskRefused, IndexError, AssertionError):
            state = before
            continue
        assert back == 0
        assert state.revision >= before.revision
        whole = AgentState(session_id="s", tasks_context=state)
        assert AgentState.from_json(whole.to_json()) == whole
