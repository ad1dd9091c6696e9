"""What was done to the working history beside adding to it."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.compactions import (
    MESSAGES,
    REPLIES,
    Compaction,
    CompactionDecision,
    CompactionOutcome,
    CompactionState,
)
from agentscope_rx.edits import Edit, apply_edits
from agentscope_rx.errors import UndoRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class HistoryEdited:
    """The working history was shortened or rewritten, and the request that needed it passed its checks.

    Args:
        edits: What was changed.
        compaction: What was decided about a compaction.
        at: When, in the form of `Msg.timestamp`.
    """

    edits: tuple[Edit, ...] = ()
    compaction: CompactionDecision | None = None
    at: str = ""

    def apply(self, state: AgentState) -> AgentState:
        after = replace(state, context=apply_edits(self.edits, state.context))
        decision = self.compaction
        if decision is None:
            return after
        if decision.outcome is CompactionOutcome.DONE:
            return _compacted(after, _compaction(decision, self.at, state.context, after.context))
        cooldown = state.context.measure(REPLIES) + decision.cooldown_steps
        return replace(after, compaction=replace(state.compaction, cooldown_until=cooldown))


@frozen(kw_only=False)
class CompactionUndone:
    """What a compaction had replaced is in the working history again.

    Args:
        id: The compaction.
        cooldown_steps: For how many steps no optional compaction is tried.

    Raises:
        UndoRefused: When it is applied: there is no such compaction, or a later one lies over it.
    """

    id: str
    cooldown_steps: int

    def apply(self, state: AgentState) -> AgentState:
        undone = next((each for each in state.compactions if each.id == self.id), None)
        if undone is None:
            known = ", ".join(each.id for each in state.compactions) or "none"
            raise UndoRefused(f"the session has no compaction {self.id!r}; it has {known}")
        if undone is not state.compactions[-1] or not undone.begins(state.context):
            raise UndoRefused(f"the compaction {self.id!r} lies below a later one: undo that first")
        if not undone.replaced.leaves:
            raise UndoRefused(f"what the compaction {self.id!r} has replaced is in the session's log: read that first")
        kept = state.context.replace_first(len(undone.by))
        context = History(leaves=(*undone.replaced.leaves, *kept.leaves))
        cooldown = context.measure(REPLIES) + self.cooldown_steps
        compaction = replace(state.compaction, messages=context.measure(MESSAGES), freed=0, cooldown_until=cooldown)
        compactions = tuple(each for each in state.compactions if each is not undone)
        return replace(state, context=context, compaction=compaction, compactions=compactions)


@frozen(kw_only=False)
class LimitLearned:
    """A provider has refused a request that was thought to fit.

    Args:
        model: Which model.
        tokens: How many tokens a request to it may have from now on, by our own count.
    """

    model: str
    tokens: int

    def apply(self, state: AgentState) -> AgentState:
        limits = {**state.compaction.limits, self.model: self.tokens}
        return replace(state, compaction=replace(state.compaction, limits=limits))


@frozen(kw_only=False)
class ContextCleared:
    """The working history was emptied; everything else of the state stays."""

    reason: str = ""

    def apply(self, state: AgentState) -> AgentState:
        return replace(
            state, context=History(), compaction=CompactionState(limits=state.compaction.limits), dispatched=()
        )


def _compaction(decision: CompactionDecision, at: str, before: History, after: History) -> Compaction:
    """What gave way at the beginning of a history, and what took its place: all before the part that both end with."""
    old, new = list(before), list(after)
    while old and len(new) > 1 and old[-1].id == new[-1].id:
        del old[-1], new[-1]
    return Compaction(
        id=decision.id,
        created_at=at,
        model=decision.model,
        trigger=decision.trigger,
        tokens_before=decision.tokens_before,
        tokens_after=decision.tokens_after,
        replaced=History(old),
        by=tuple(exchange.id for exchange in new),
    )


def _compacted(state: AgentState, compaction: Compaction) -> AgentState:
    return replace(
        state,
        compactions=(*state.compactions, compaction),
        compaction=replace(
            state.compaction,
            messages=state.context.measure(MESSAGES),
            replies=state.context.measure(REPLIES),
            tokens=compaction.tokens_after,
            freed=compaction.tokens_before - compaction.tokens_after,
            cooldown_until=0,
        ),
    )
