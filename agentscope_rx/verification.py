"""VerificationService: what was asked for, checked against what tools have shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from agentscope_rx.agent import Agent
from agentscope_rx.errors import TaskConflict, TaskRefused
from agentscope_rx.events import Custom
from agentscope_rx.logs import logger
from agentscope_rx.records import VerificationRecorded
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.task_state import Verification, VerificationOutcome
from agentscope_rx.tasks.observation import Evidence, evidence_of
from agentscope_rx.tasks.verifiers import Verdict, Verifier

_FAILED: Final = Verdict(VerificationOutcome.ERROR, "the verifier failed, and has found nothing out")
_LONGEST_REASON: Final = 2_000
Listener = Callable[[Custom], object]


class VerificationService:
    """Checks acceptance criteria of a session's task; for the application, never for a model.

    A report proves one bounded check of one settled action. Nothing is run again for it. When requirements or subject
    change later, the report stays, and is shown as STALE.

    Args:
        agent: The agent whose sessions are checked.
        listener: Told of each report by a `CUSTOM` event `task_verification`. Default: nobody is.

    Examples:
        service = VerificationService(agent)
        report = await service.verify(ctx, criterion.id, action_id, ShellExitCodeVerifier("execute"))
    """

    def __init__(self, agent: Agent[Any], *, listener: Listener | None = None) -> None:
        self._agent, self._listener = agent, listener

    async def verify(
        self, context: RuntimeContext, requirement_id: str, action_id: str, verifier: Verifier, /
    ) -> Verification:
        """Check a criterion by the result of an action, in the session's turn.

        Args:
            context: The session.
            requirement_id: A confirmed acceptance criterion.
            action_id: The action, as its result's metadata name it: `observation.action_id`.
            verifier: Who looks at the result.

        Returns:
            The report, which is stored by then.

        Raises:
            TaskRefused: There is no such criterion, no subject, or no evidence of this action.
            TaskConflict: The evidence is about something else than what is there now.
            SessionBusy: The session's turn did not come in time.
        """
        # The result may lie in what a compaction has replaced, which only the whole log holds.
        async with self._agent.opened_session(context, whole=True) as session:
            evidence = _checked(session.state, requirement_id, action_id)
            verdict = await self._verdict(verifier, evidence)
            report = self._report(requirement_id, evidence, verifier.id, verdict)
            session.record(VerificationRecorded(report))
            await session.save()
        self._tell(report)
        return report

    async def load(self, context: RuntimeContext, report_id: str, /) -> Verification | None:
        """A report that still stands in a session; None where it is unknown, or a newer one took its place."""
        found = (await self._agent.state(context)).tasks_context.verifications
        return next((report for report in found if report.id == report_id), None)

    async def _verdict(self, verifier: Verifier, evidence: Evidence) -> Verdict:
        threads = self._agent.options.runtime.threads
        try:
            found = await asyncio.get_running_loop().run_in_executor(threads, verifier.verify, evidence)
        except Exception as error:
            logger().warning("verifier_failed", verifier=verifier.id, error=type(error).__name__)
            return _FAILED
        return found if isinstance(found, Verdict) else _FAILED  # type: ignore[reportUnnecessaryIsInstance]

    def _report(self, requirement_id: str, evidence: Evidence, verifier_id: str, verdict: Verdict) -> Verification:
        runtime = self._agent.options.runtime
        return Verification(
            id=runtime.ids.new_id("verification"),
            requirement_id=requirement_id,
            action_id=evidence.observation.action_id,
            verifier_id=verifier_id,
            outcome=verdict.outcome,
            reason=verdict.reason[:_LONGEST_REASON],
            binding=evidence.observation.evidence_binding,
            recorded_at=int(runtime.clock.now().timestamp() * 1000),
        )

    def _tell(self, report: Verification) -> None:
        if self._listener is None:
            return
        value = {
            "verification_id": report.id,
            "requirement_id": report.requirement_id,
            "action_id": report.action_id,
            "verifier_id": report.verifier_id,
            "outcome": report.outcome.value,
            "evidence_binding": report.binding,
        }
        try:
            self._listener(Custom(name="task_verification", value=value))
        except Exception as error:
            logger().warning("verification_listener_failed", error=type(error).__name__)


def _checked(state: AgentState, requirement_id: str, action_id: str) -> Evidence:
    """The evidence, once it may be used."""
    tasks = state.tasks_context
    tasks.criterion(requirement_id)
    if tasks.binding is None:
        raise TaskRefused("evidence is about nothing yet: begin a task and set its subject version first")
    evidence = evidence_of(state, action_id)
    if evidence is None:
        raise TaskRefused(f"the session holds no whole result of the action {action_id!r}")
    if evidence.observation.evidence_binding != tasks.binding:
        raise TaskConflict(
            f"the action {action_id!r} is evidence about {evidence.observation.evidence_binding}, and what is there "
            f"now is {tasks.binding}; run it again"
        )
    return evidence
