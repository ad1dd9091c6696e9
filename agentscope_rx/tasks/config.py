"""What of a session's task is shown to the model, and what the model may do to it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator


class TaskContextOptions(BaseModel):
    """What of a task the model sees beside its to-do list.

    Args:
        requirements: Requirements with what was decided about them. Default False.
        verification: Reports of checks; one about something else than what is there now is shown as STALE. Default
            False.
        proposals: Whether the model may propose requirements, which needs `requirements`. Default False.

    Raises:
        ValueError: Proposals without requirements.

    Examples:
        >>> TaskContextOptions(requirements=True).shows_scope
        True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    requirements: bool = False
    verification: bool = False
    proposals: bool = False

    @model_validator(mode="after")
    def _proposals_are_seen(self) -> TaskContextOptions:
        if self.proposals and not self.requirements:
            raise ValueError("a model may only propose requirements that it is shown: set requirements=True too")
        return self

    @property
    def shows_scope(self) -> bool:
        """Whether the model is told which task it is."""
        return self.requirements or self.verification


class PlanModeConfig(BaseModel):
    """How an agent plans.

    Args:
        directory: Where the plan lies, relative to the workspace. Default `plans`.
        allow_shell: Whether `execute` may be called while planning. Default False.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    directory: str = "plans"
    allow_shell: bool = False

    @property
    def file(self) -> str:
        """The plan's file."""
        return f"{self.directory.rstrip('/')}/PLAN.md"
