"""A task as the tests of this folder use it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentscope_rx.tasks import (
    Authority,
    Decision,
    RequirementKind,
    RequirementStatus,
    Scope,
    TaskContextState,
    Verification,
    VerificationOutcome,
)

EXPORT = Scope(task_id="t1", objective="Fix the export", source_ref="ticket 42")
BY_USER = Decision(authority=Authority.USER, source_ref="message m1")
CRITERION = RequirementKind.ACCEPTANCE_CRITERION
CONFIRMED = RequirementStatus.CONFIRMED


def begun() -> TaskContextState:
    """A task with a confirmed criterion and a subject."""
    state = TaskContextState().begin_task(EXPORT, 0).propose(CRITERION, "tests pass", "the user")
    state = state.decide(state.requirements[0].id, CONFIRMED, BY_USER, state.revision)
    return state.set_subject_version("v1", state.revision)


def report(state: TaskContextState, id: str = "r1", **changes: Any) -> Verification:
    """A report about its criterion, as things stand."""
    assert state.binding is not None
    made = Verification(
        id=id,
        requirement_id=state.requirements[0].id,
        action_id="a1",
        verifier_id="shell",
        outcome=VerificationOutcome.PASSED,
        reason="exit code 0",
        binding=state.binding,
        recorded_at=1,
    )
    return replace(made, **changes)
