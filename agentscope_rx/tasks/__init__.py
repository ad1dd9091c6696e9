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
from agentscope_rx.tasks.observation import Evidence, observation_of
from agentscope_rx.tasks.verifiers import JsonResultSchemaVerifier, ShellExitCodeVerifier, Verdict, Verifier

__all__ = [
    "Authority",
    "Decision",
    "Evidence",
    "EvidenceBinding",
    "JsonResultSchemaVerifier",
    "PlanModeConfig",
    "PlanModeContextState",
    "Requirement",
    "RequirementKind",
    "RequirementStatus",
    "Scope",
    "ShellExitCodeVerifier",
    "Task",
    "TaskContextOptions",
    "TaskContextState",
    "TaskState",
    "Verdict",
    "Verification",
    "VerificationOutcome",
    "Verifier",
    "observation_of",
]
