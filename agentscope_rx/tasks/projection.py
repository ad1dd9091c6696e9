"""How a session's task is shown in a request: as blocks beside the conversation, which no history ever holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain
from typing import Final

from agentscope_rx.blocks import REQUIREMENTS, TODO_STATE, VERIFICATION, ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock
from agentscope_rx.task_state import Requirement, TaskContextState, Verification
from agentscope_rx.tasks.config import TaskContextOptions
from agentscope_rx.tasks.todo import (
    FULL,
    RECEIPT,
    REPRESENTATION,
    STATE_KEY,
    STATE_REVISION,
    TASKS_CONTEXT,
    TODO_TOOL,
    rendered,
)

TODO_ID: Final = "harness:todo_state"
_REQUIREMENTS_ID: Final = "harness:requirements"
_VERIFICATION_ID: Final = "harness:verification"
RECEIPT_VISIBLE: Final = "receipt_visible"
_IDS: Final = frozenset({TODO_ID, _REQUIREMENTS_ID, _VERIFICATION_ID})
_HEADING: Final = "The to-do list, as the agent keeps it itself; it verifies nothing."
_POINTER: Final = "The to-do list is in the newest result of todo_write above."
_STATUSES: Final = (
    "CONFIRMED ones bind you, REJECTED ones do not count, CANDIDATE ones are not decided. A proposed source is what "
    "the proposer says, and was not checked."
)
_CHECKS: Final = "Each is one bounded check, and no judgement of the whole task. Do not rely on what is STALE."
_SHORTENED: Final = "(An update of the to-do list was recorded here, as revision {}. Only the current list counts.)"


@frozen
class TaskProjection:
    """Shows tasks.

    Args:
        options: What is shown beside the to-do list.
    """

    options: TaskContextOptions = field(default_factory=TaskContextOptions)

    def blocks(self, state: TaskContextState, *, receipt_visible: bool = False) -> tuple[ContextBlock, ...]:
        """The task of a session as blocks; nothing where there is nothing to show.

        Args:
            state: The task.
            receipt_visible: Whether the conversation shows the newest list already. Default False.
        """
        options = self.options
        scope = state.scope if options.shows_scope else None
        requirements = state.requirements if options.requirements else ()
        verifications = state.verifications if options.verification else ()
        listed = not receipt_visible and bool(state.tasks or state.revision)
        if not (listed or scope or requirements or verifications):
            return ()
        lines: list[str] = []
        if scope is not None:
            lines += [
                f"Task: {scope.task_id}",
                f"Objective: {scope.objective}",
                f"Objective source: {scope.source_ref}",
            ]
        lines += [_POINTER] if receipt_visible else [_HEADING, rendered(state.tasks)]
        made = [_block(TODO_ID, TODO_STATE, lines, state)]
        if requirements:
            texts = chain.from_iterable(map(_requirement, requirements))
            made.append(_block(_REQUIREMENTS_ID, REQUIREMENTS, [_STATUSES, *texts], state))
        if verifications:
            texts = chain.from_iterable(_verification(each, state) for each in verifications)
            made.append(_block(_VERIFICATION_ID, VERIFICATION, [_CHECKS, *texts], state))
        return tuple(made)

    def onto(self, draft: RequestDraft, state: TaskContextState) -> RequestDraft:
        """A request that shows the whole task, whatever its conversation shows."""
        return replace(draft, transient=(*draft.transient, *self.blocks(state)))

    def fitted(self, draft: RequestDraft, state: TaskContextState) -> RequestDraft:
        """The same request without what its conversation shows of the task, and without lists that are outdated."""
        receipt = current_receipt(draft.conversation, state)
        conversation = without_stale_receipts(draft.conversation, receipt)
        blocks = self.blocks(state, receipt_visible=receipt is not None)
        transient = (*(block for block in draft.transient if block.id not in _IDS), *blocks)
        if conversation is draft.conversation and transient == draft.transient:
            return draft
        gone = {TODO_ID: RECEIPT_VISIBLE} if receipt is not None and not blocks else {}
        return replace(draft, conversation=conversation, transient=transient, reasons={**draft.reasons, **gone})


def _block(id: str, kind: str, lines: Sequence[str], state: TaskContextState) -> ContextBlock:
    return ContextBlock(id=id, kind=kind, text="\n".join(lines), required=True, revision=str(state.revision))


def _requirement(requirement: Requirement) -> Iterator[str]:
    yield f"{requirement.id} | {requirement.kind} | {requirement.status} | {requirement.text}"
    yield f"Proposed source: {requirement.proposed_source_ref}"
    if (decision := requirement.decision) is not None:
        yield f"Decision: {decision.authority} | {decision.source_ref}"


def _verification(report: Verification, state: TaskContextState) -> Iterator[str]:
    outcome = "STALE" if state.is_stale(report) else report.outcome.value
    yield (
        f"{report.requirement_id} | {outcome} | verifier={report.verifier_id} | evidence=verification_{report.id} | "
        f"action={report.action_id}"
    )
    yield f"Checked version: {report.binding.subject_version}"
    yield f"Reason: {report.reason}"


# -- receipts -----------------------------------------------------------------------------------------------


class _Receipts:
    """The results that hold a whole to-do list, as a measure."""

    def of(self, exchange: Exchange, /) -> tuple[Msg, ...]:
        if len(exchange.messages) == 1:
            return ()
        return tuple(message for message in exchange.messages[1:] if _is_full(message.tool_result))

    def join(self, parts: Sequence[tuple[Msg, ...]], /) -> tuple[Msg, ...]:
        return tuple(chain.from_iterable(parts)) if any(parts) else ()


_RECEIPTS: Final[Measure[tuple[Msg, ...]]] = _Receipts()


def current_receipt(conversation: History, state: TaskContextState) -> Msg | None:
    """The last result of the conversation that shows the newest list, word for word; None where none does."""
    found = conversation.measure(_RECEIPTS)
    if not found:
        return None
    text = rendered(state.tasks)
    return next((message for message in reversed(found) if _shows(message.tool_result, text, state.revision)), None)


def without_stale_receipts(conversation: History, current: Msg | None) -> History:
    """The conversation, in which each result with another list than the current one is a single line.

    Args:
        conversation: The conversation, as a request shows it.
        current: The result that stays.
    """
    if not conversation.measure(_RECEIPTS):
        return conversation
    # Leaf by leaf, and remembered there: only the leaf of the current one has to be told which that is.
    leaves = tuple(
        leaf.map(partial(_shortened, kept=kept), key=(_shortened, kept))
        for leaf in conversation.leaves
        for kept in [next((each.id for each in leaf.measure(_RECEIPTS) if each is current), None)]
    )
    same = all(new is old for new, old in zip(leaves, conversation.leaves, strict=True))
    return conversation if same else History(leaves=leaves)


def _shortened(exchange: Exchange, kept: str | None) -> Exchange:
    def as_line(message: Msg) -> Msg:
        result = message.tool_result
        if result is None or message.id == kept or not _is_full(result):
            return message
        line = TextBlock(text=_SHORTENED.format(result.metadata.get(STATE_REVISION)))
        metadata = {**result.metadata, REPRESENTATION: RECEIPT}
        return replace(message, content=(replace(result, output=(line,), metadata=metadata),))

    return exchange.map(as_line)


def _is_full(result: ToolResultBlock | None) -> bool:
    return (
        result is not None
        and result.name == TODO_TOOL
        and result.metadata.get(STATE_KEY) == TASKS_CONTEXT
        and result.metadata.get(REPRESENTATION) == FULL
    )


def _shows(result: ToolResultBlock | None, text: str, revision: int) -> bool:
    return (
        result is not None
        and result.metadata.get(STATE_REVISION) == revision
        and len(result.output) == 1
        and isinstance(result.output[0], TextBlock)
        and result.output[0].text == text
    )
