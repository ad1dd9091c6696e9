"""What a session knows of its task: the to-do list, what was asked for, what was checked, and whether it is planned.

All are values. A change gives a new value with the next revision, and is refused as a whole where it was decided on
another revision than the newest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Final

from agentscope_rx.errors import TaskConflict, TaskRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import NOTHING

#: How many requirements, and how many verifications, a session may have.
MOST_REQUIREMENTS: Final = 64
_ID: Final = 200
_TEXT: Final = 2_000
_OBJECTIVE: Final = 4_000


class TaskState(StrEnum):
    """How far an item of the to-do list has come."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class RequirementKind(StrEnum):
    """What a requirement demands: a limit to keep to, or something that can be checked when the work is done."""

    CONSTRAINT = "CONSTRAINT"
    ACCEPTANCE_CRITERION = "ACCEPTANCE_CRITERION"


class RequirementStatus(StrEnum):
    """What was decided about a requirement."""

    CANDIDATE = "CANDIDATE"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"


class Authority(StrEnum):
    """Who decided: the user, or the application that calls the agent."""

    USER = "USER"
    CALLER = "CALLER"


class VerificationOutcome(StrEnum):
    """What a check has found."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    ERROR = "ERROR"


@frozen
class Task:
    """An item of the to-do list.

    Args:
        subject: What is to be done, in short.
        description: The same at length.
        metadata: Facts about it; `priority` is shown to the model.
        created_at: When it came into the list, in the form of `Msg.timestamp`.
        state: How far it has come.
        id: Its id, which stays when the list is replaced by one that holds it too.
        owner: Who does it; None = nobody in particular.
        blocks: The ids of tasks that wait for it.
        blocked_by: The ids of tasks that it waits for.
    """

    subject: str
    description: str = ""
    metadata: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    created_at: str = ""
    state: TaskState = TaskState.PENDING
    id: str = ""
    owner: str | None = None
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()


@frozen
class Scope:
    """Which task it is.

    Args:
        task_id: Its id, up to 200 characters.
        objective: What is to be reached, up to 4,000.
        source_ref: Where that was said, up to 2,000.

    Raises:
        TaskRefused: A text is blank or too long.
    """

    task_id: str
    objective: str
    source_ref: str

    def __post_init__(self) -> None:
        check_text("task_id", self.task_id, _ID)
        check_text("objective", self.objective, _OBJECTIVE)
        check_text("source_ref", self.source_ref, _TEXT)


@frozen
class Decision:
    """Who decided about a requirement, and where that was said (up to 2,000 characters)."""

    authority: Authority
    source_ref: str

    def __post_init__(self) -> None:
        check_text("source_ref", self.source_ref, _TEXT)


@frozen
class Requirement:
    """Something that the work must keep to, or must reach.

    Args:
        id: Its id.
        kind: A constraint, or a criterion of acceptance.
        text: What is required, up to 2,000 characters.
        proposed_source_ref: Where it comes from, as whoever proposed it says; up to 2,000 characters.
        status: What was decided about it.
        decision: Who decided; None exactly while it is a candidate.

    Raises:
        TaskRefused: A text is blank or too long, or status and decision contradict each other.
    """

    id: str
    kind: RequirementKind
    text: str
    proposed_source_ref: str
    status: RequirementStatus = RequirementStatus.CANDIDATE
    decision: Decision | None = None

    def __post_init__(self) -> None:
        check_text("requirement id", self.id, _ID)
        check_text("text", self.text, _TEXT)
        check_text("proposed_source_ref", self.proposed_source_ref, _TEXT)
        if (self.decision is None) is not (self.status is RequirementStatus.CANDIDATE):
            raise TaskRefused(f"requirement {self.id!r} is {self.status}: a decision belongs to it once it is decided")


@frozen
class EvidenceBinding:
    """What evidence is about: which version of what is asked for, and of what was made.

    Args:
        task_id: The task.
        contract_version: The version of scope, requirements and subject together.
        subject_version: The version of what was made, such as a commit.
    """

    task_id: str
    contract_version: int
    subject_version: str


@frozen
class Verification:
    """What one check of one acceptance criterion has found.

    Args:
        id: The report.
        requirement_id: The criterion.
        action_id: The action whose settled result was looked at.
        verifier_id: Who looked.
        outcome: What was found.
        reason: Why, up to 2,000 characters.
        binding: What the evidence is about; where that has changed since, the report is stale.
        recorded_at: When, in milliseconds since 1970.

    Raises:
        TaskRefused: A text is blank or too long.
    """

    id: str
    requirement_id: str
    action_id: str
    verifier_id: str
    outcome: VerificationOutcome
    reason: str
    binding: EvidenceBinding
    recorded_at: int

    def __post_init__(self) -> None:
        for name in ("id", "requirement_id", "action_id", "verifier_id"):
            check_text(name, getattr(self, name), _ID)
        check_text("reason", self.reason, _TEXT)


@frozen
class TaskContextState:
    """The task of a session, as one value.

    Every method gives another value and leaves this one as it is. `expected_revision` is the revision that the change
    was decided on.

    Args:
        tasks: The to-do list.
        requirements: What was asked for, up to 64.
        revision: Counts all changes.
        scope: Which task it is; None = none was begun.
        contract_version: Counts the changes of what evidence is about.
        subject_version: The version of what was made; None = not known.
        verifications: The newest report about each criterion.

    Raises:
        TaskRefused: A number is negative, there are too many requirements, or two have one id.

    Examples:
        >>> state = TaskContextState().replace_tasks((Task(subject="fix"),), 0)
        >>> state.revision, state.tasks[0].state.value
        (1, 'pending')
    """

    tasks: tuple[Task, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    revision: int = 0
    scope: Scope | None = None
    contract_version: int = 0
    subject_version: str | None = None
    verifications: tuple[Verification, ...] = ()

    def __post_init__(self) -> None:
        if self.revision < 0 or self.contract_version < 0:
            raise TaskRefused("revision and contract_version count changes, and cannot be negative")
        _check_unique("requirements", [each.id for each in self.requirements])
        _check_unique("verifications", [each.requirement_id for each in self.verifications])

    @property
    def binding(self) -> EvidenceBinding | None:
        """What evidence is about now; None while no task was begun or no subject is known."""
        if self.scope is None or self.subject_version is None:
            return None
        return EvidenceBinding(
            task_id=self.scope.task_id,
            contract_version=self.contract_version,
            subject_version=self.subject_version,
        )

    def requirement(self, id: str) -> Requirement:
        """The requirement of this id.

        Raises:
            TaskRefused: There is none.
        """
        found = next((each for each in self.requirements if each.id == id), None)
        if found is None:
            known = ", ".join(each.id for each in self.requirements) or "none"
            raise TaskRefused(f"there is no requirement {id!r}; there are: {known}")
        return found

    def begin_task(self, scope: Scope, expected_revision: int) -> TaskContextState:
        """Begin another task: list, requirements, verifications and subject of the one before are gone.

        Raises:
            TaskConflict: The state has another revision.
            TaskRefused: The scope has the id of this task and says something else.
        """
        self._expect(expected_revision)
        if scope == self.scope:
            return self
        if self.scope is not None and scope.task_id == self.scope.task_id:
            raise TaskRefused(f"the task {scope.task_id!r} has begun with another scope; give the new task another id")
        return TaskContextState(scope=scope, revision=self.revision + 1, contract_version=self.contract_version + 1)

    def replace_tasks(self, tasks: Sequence[Task], expected_revision: int) -> TaskContextState:
        """Put another to-do list in the place of this one; an equal one counts as a change too.

        Raises:
            TaskConflict: The state has another revision.
        """
        self._expect(expected_revision)
        return replace(self, tasks=tuple(tasks), revision=self.revision + 1)

    def propose(self, kind: RequirementKind, text: str, source_ref: str) -> TaskContextState:
        """Add a candidate; where one of the same words is there, nothing changes, whatever was decided about it.

        Raises:
            TaskRefused: A text is blank or too long, or there are 64 requirements already.
        """
        return (
            self if self.proposed(kind, text, source_ref) is not None else self._with_candidate(kind, text, source_ref)
        )

    def proposed(self, kind: RequirementKind, text: str, source_ref: str) -> Requirement | None:
        """The requirement that was proposed in these words; None where none was."""
        wanted = kind, text, source_ref
        return next((r for r in self.requirements if (r.kind, r.text, r.proposed_source_ref) == wanted), None)

    def _with_candidate(self, kind: RequirementKind, text: str, source_ref: str) -> TaskContextState:
        if len(self.requirements) >= MOST_REQUIREMENTS:
            raise TaskRefused(f"there are {MOST_REQUIREMENTS} requirements already, which is as many as there may be")
        task = "" if self.scope is None else self.scope.task_id
        candidate = Requirement(
            id=_id_of(task, kind, text, source_ref), kind=kind, text=text, proposed_source_ref=source_ref
        )
        return replace(self, requirements=(*self.requirements, candidate), revision=self.revision + 1)

    def decide(
        self, id: str, status: RequirementStatus, decision: Decision, expected_revision: int
    ) -> TaskContextState:
        """Confirm or reject a requirement; what was decided may be decided again.

        Raises:
            TaskConflict: The state has another revision.
            TaskRefused: There is no such requirement, or the status is CANDIDATE.
        """
        self._expect(expected_revision)
        if status is RequirementStatus.CANDIDATE:
            raise TaskRefused("decide on CONFIRMED or REJECTED; a requirement cannot become a candidate again")
        decided = replace(self.requirement(id), status=status, decision=decision)
        requirements = tuple(decided if each.id == id else each for each in self.requirements)
        if requirements == self.requirements:
            return self
        return replace(self._next_contract(), requirements=requirements)

    def set_subject_version(self, version: str, expected_revision: int) -> TaskContextState:
        """Say which version of what was made evidence is about from now on.

        Raises:
            TaskConflict: The state has another revision.
            TaskRefused: The version is blank or longer than 2,000 characters, or no task was begun.
        """
        self._expect(expected_revision)
        check_text("subject_version", version, _TEXT)
        if self.scope is None:
            raise TaskRefused("no task was begun, so that there is no subject; call begin_task first")
        return self if version == self.subject_version else replace(self._next_contract(), subject_version=version)

    def invalidate_subject(self, expected_revision: int) -> TaskContextState:
        """Say that it is not known any more what was made; counts even where it was not known before.

        Raises:
            TaskConflict: The state has another revision.
        """
        self._expect(expected_revision)
        return replace(self._next_contract(), subject_version=None)

    def record_verification(self, report: Verification, expected_revision: int) -> TaskContextState:
        """Add a report, in the place of an older one about the same criterion.

        Raises:
            TaskConflict: The state has another revision, or the report is about something else than what is there now.
            TaskRefused: It is about no confirmed acceptance criterion.
        """
        self._expect(expected_revision)
        if report.binding != self.binding:
            raise TaskConflict(
                f"the report {report.id!r} is about {report.binding}, and what is there now is {self.binding}"
            )
        self.criterion(report.requirement_id)
        others = tuple(each for each in self.verifications if each.requirement_id != report.requirement_id)
        return replace(self, verifications=(*others, report), revision=self.revision + 1)

    def criterion(self, id: str) -> Requirement:
        """The acceptance criterion of this id.

        Raises:
            TaskRefused: There is no such requirement, it is none of acceptance, or it was not confirmed.
        """
        found = self.requirement(id)
        if (found.kind, found.status) != (RequirementKind.ACCEPTANCE_CRITERION, RequirementStatus.CONFIRMED):
            raise TaskRefused(
                f"requirement {id!r} is a {found.kind} that is {found.status}; only a CONFIRMED "
                "ACCEPTANCE_CRITERION can be verified"
            )
        return found

    def is_stale(self, report: Verification) -> bool:
        """Whether a report is about something else than what is there now."""
        return report.binding != self.binding

    def _expect(self, revision: int) -> None:
        if revision != self.revision:
            raise TaskConflict(
                f"the change was decided on revision {revision} and the task state has revision {self.revision}; "
                "read it again"
            )

    def _next_contract(self) -> TaskContextState:
        return replace(self, revision=self.revision + 1, contract_version=self.contract_version + 1)


@frozen
class PlanModeContextState:
    """Whether the session is planning.

    Args:
        plan_active: Whether it is: only what reads may then be done.
        current_plan_file: Where its plan lies, relative to the workspace; it stays after planning. None = nowhere.
    """

    plan_active: bool = False
    current_plan_file: str | None = None


def check_text(name: str, text: str, most: int) -> None:
    """Refuse a text that is blank or too long with a `TaskRefused`."""
    if not text.strip():
        raise TaskRefused(f"{name} may not be blank")
    if len(text) > most:
        raise TaskRefused(f"{name} has {len(text):,} characters and may have {most:,}")


def _check_unique(name: str, ids: Sequence[str]) -> None:
    if len(ids) > MOST_REQUIREMENTS:
        raise TaskRefused(f"there may be {MOST_REQUIREMENTS} {name}, and these are {len(ids)}")
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise TaskRefused(f"two of the {name} are about {twice!r}")


def _id_of(*parts: str) -> str:
    """An id in the form of a UUID that depends on nothing but the words, so that a run can be played again."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
