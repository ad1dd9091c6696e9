"""What is noted about a tool call, so that its result can be evidence: which version of the work it was about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cache
from itertools import chain

from pydantic import TypeAdapter, ValidationError

from agentscope_rx.events import ToolResultEnd
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import MetadataKey, ToolResultBlock, ToolResultState
from agentscope_rx.state import AgentState
from agentscope_rx.task_state import EvidenceBinding
from agentscope_rx.tools.execution import ToolOutcome
from agentscope_rx.tools.execution_details import EXECUTION_DETAILS, ExecutionDetails
from agentscope_rx.wire import from_json, to_json


class ActionStatus(StrEnum):
    """How an action ended. RETURNED is no verdict: the tool gave a result, good or bad."""

    RETURNED = "RETURNED"
    FAILED = "FAILED"
    DENIED = "DENIED"


@frozen
class Observation:
    """What is noted about one action.

    Args:
        action_id: The action; a call that is made again is another one.
        started_at: When it began, in the form of `Msg.timestamp`.
        ended_at: When it ended.
        status: How.
        evidence_binding: What its result is evidence about: what was asked for, and what was there, when it began.
        output_digest: The SHA-256 of its output, so that a shortened one is no evidence.
        error_type: The class of what it raised; None where it raised nothing.
    """

    action_id: str
    started_at: str
    ended_at: str
    status: ActionStatus
    evidence_binding: EvidenceBinding
    output_digest: str
    error_type: str | None = None


@frozen
class Evidence:
    """A settled action: what was noted about it, and its result."""

    observation: Observation
    result: ToolResultBlock

    @property
    def details(self) -> ExecutionDetails | None:
        """How what the tool ran has ended; None where it does not say, or says what nobody understands."""
        given = self.result.metadata.get(EXECUTION_DETAILS)
        try:
            return None if given is None else _details_adapter().validate_python(given)
        except ValidationError:
            return None


def observed(
    outcome: ToolOutcome, *, action_id: str, binding: EvidenceBinding, started: str, ended: str
) -> ToolOutcome:
    """An outcome whose result tells what it is evidence about.

    Args:
        outcome: The outcome of a settled call.
        action_id: The action.
        binding: What was asked for, and what was there, when it began.
        started: When it began.
        ended: When it ended.
    """
    observation = Observation(
        action_id=action_id,
        started_at=started,
        ended_at=ended,
        status=_status(outcome),
        evidence_binding=binding,
        output_digest=_digest(outcome.result),
        error_type=None if outcome.error is None else type(outcome.error).__name__,
    )
    metadata: Mapping[str, object] = {
        **outcome.result.metadata,
        MetadataKey.OBSERVATION: from_json(to_json(observation)),
    }
    return replace(outcome, result=replace(outcome.result, metadata=metadata))


def evidence_of(state: AgentState, action_id: str) -> Evidence | None:
    """The evidence that a session holds of an action, be it in what a compaction has replaced; None where it has none.

    A result that was shortened since is none.
    """
    replaced = (compaction.replaced for compaction in reversed(state.compactions))
    for exchange in chain.from_iterable((state.context, *replaced)):
        for message in exchange.messages[1:]:
            result = message.tool_result
            observation = None if result is None else observation_of(result)
            if result is None or observation is None or observation.action_id != action_id:
                continue
            if observation.output_digest == _digest(result):
                return Evidence(observation=observation, result=result)
    return None


def observation_of(source: ToolResultBlock | ToolResultEnd) -> Observation | None:
    """What was noted about the action behind a result, or behind the event that ends it; None where nothing was."""
    given = (source.metadata or {}).get(MetadataKey.OBSERVATION)
    try:
        return None if given is None else _observation_adapter().validate_python(given)
    except ValidationError:
        return None


def _status(outcome: ToolOutcome) -> ActionStatus:
    if outcome.result.state is ToolResultState.DENIED:
        return ActionStatus.DENIED
    failed = outcome.error is not None or outcome.result.state is not ToolResultState.SUCCESS
    return ActionStatus.FAILED if failed else ActionStatus.RETURNED


def _digest(result: ToolResultBlock) -> str:
    return hashlib.sha256(to_json(result.output)).hexdigest()


@cache
def _observation_adapter() -> TypeAdapter[Observation]:
    return TypeAdapter(Observation)


@cache
def _details_adapter() -> TypeAdapter[ExecutionDetails]:
    return TypeAdapter(ExecutionDetails)
