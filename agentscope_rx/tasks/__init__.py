"""The task of a session: to-do list, requirements, verification, plan."""

from agentscope_rx.task_state import (
    Authority,
    Decision,
    EvidenceBinding,
    PlanModeContextState,
    Requirement,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    TaskContextState,
    TaskState,
    Verification,
    VerificationOutcome,
)
from agentscope_rx.tasks.config import PlanModeConfig, TaskContextOptions

__all__ = [
    "Authority",
    "Decision",
    "EvidenceBinding",
    "PlanModeConfig",
    "PlanModeContextState",
    "Requirement",
    "RequirementKind",
    "RequirementStatus",
    "Scope",
    "Task",
    "TaskContextOptions",
    "TaskContextState",
    "TaskState",
    "Verification",
    "VerificationOutcome",
]
