"""`compact_history`: whether a summary is due, and whether it would pay; `_compaction` writes and checks it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from agentscope_rx.compaction.config import CompactionConfig
from agentscope_rx.compaction.cutting import Cut
from agentscope_rx.compaction.triggers import OVER_BUDGET, Situation, objection_to, trigger_of
from agentscope_rx.compactions import MESSAGES, REPLIES, CompactionOutcome
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.lifting import Operator
from agentscope_rx.operators._compaction import NAME, Attempt, with_remembered
from agentscope_rx.operators._memory_call import MemoryKeeper
from agentscope_rx.operators._summary_call import Summariser
from agentscope_rx.request_tokens import fixed_tokens, text_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter

_REASON: Final = "history_compaction"
_RESULT_OVERHEAD: Final = 128  # what a result that has moved to a file still costs


def compact_history(
    *,
    config: CompactionConfig,
    policy: ContextPolicy,
    summariser: Summariser,
    can_offload: bool = True,
    memory: MemoryKeeper | None = None,
) -> Operator:
    """Let older messages give way to a summary where there is no room for them, or where it pays.

        --s---------------|
        compact_history
        ---------t--------|     t.history is [summary][what the user said last][the newest messages]
        ---------(n|)           model
        --S------E              events: S compaction_start, E compaction_end

        --s---------------|
        compact_history     there is room for all
        --t---------------|     t.history is s.history

        --s---------------|
        compact_history     the summary is empty
        ---------t--------|     t.history is s.history
        ---------|              model
        --S------F              events: S compaction_start, F compaction_failed

    A summary that is empty or unfinished or frees too little, a model that fails, and a strategy that breaks a rule
    leave the history as it is; the step and its manifest say what was decided and why. What a later compaction
    replaces holds the earlier summary.

    Args:
        config: When, and how.
        policy: How large a request may be.
        summariser: Who writes summaries.
        can_offload: Whether results that leave no room can still move into files.
        memory: Who writes down the facts of what gives way; None = nobody. No step waits for that.

    Emits:
        `CUSTOM compaction_start`, then `compaction_end` with figures before and after, or `compaction_failed` with a
        `reason`; all with the `compaction_id`.
    """

    def compact_history(step: Step) -> Step | Awaitable[Step]:
        counter = step.card.counter
        if counter is None or step.purpose != "reasoning":
            return step
        step = with_remembered(step)
        now = _situation(step, counter, policy)
        trigger = trigger_of(config, now)
        attempt = Attempt(step, config, now=now, trigger=trigger, memory=memory)
        if not trigger:
            return attempt.left(CompactionOutcome.NOT_NEEDED)
        objection = objection_to(config, now, trigger, attempt.plan)
        if not objection and trigger == OVER_BUDGET:
            objection = _futile(attempt.plan, now, _movable(step.history, counter) if can_offload else 0)
        if objection:
            return attempt.left(CompactionOutcome.POSTPONED, reason=objection)
        return attempt.planned() if step.dry_run else attempt.run(summariser)

    note = f"{_messages_note(config)}, or over budget; {_tail_note(config)}"
    return Operator(
        name=NAME,
        kind="history",
        handle=compact_history,
        function=compact_history,
        note=note,
        reason=_REASON,
        for_window=True,
    )


def _situation(step: Step, counter: TokenCounter, policy: ContextPolicy) -> Situation:
    history, newest = step.history, step.history.last
    budget = request_limit(step, policy).limit - fixed_tokens(step.draft, counter)
    return Situation(
        messages=history.measure(MESSAGES),
        replies=history.measure(REPLIES),
        tokens=step.draft.conversation.measure(counter),
        budget=max(1, budget),
        newest_tokens=newest.measure(counter) if newest is not None else 0,
        pressed=step.pressed is not None,
        cached=bool(history.measure(_CACHED)),
        state=step.state.compaction,
    )


class _Cached:
    """Whether the last reply that tells its usage had the request's beginning from a cache, as a measure."""

    def of(self, exchange: Exchange, /) -> bool | None:
        usage = exchange.messages[0].usage
        return None if usage is None else usage.cached_tokens > 0

    def join(self, parts: Sequence[bool | None], /) -> bool | None:
        return next((part for part in reversed(parts) if part is not None), None)


_CACHED: Final[Measure[bool | None]] = _Cached()


def _futile(plan: Cut, now: Situation, movable: int) -> str:
    """Why a compaction would not bring the conversation down to its budget, or is not what should."""
    if plan.kept_tokens + plan.tail_tokens - movable > now.budget:
        return "cannot_fit"
    return "just_compacted" if now.just_compacted and now.tokens - movable <= now.budget else ""


def _movable(history: History, counter: TokenCounter) -> int:
    """What the newest exchange would cost less, were the texts of its results in files."""
    results = (message.tool_result for message in (history.last.messages if history.last else ()))
    costs = (text_tokens(result.text, counter) for result in results if result is not None)
    return sum(max(0, cost - _RESULT_OVERHEAD) for cost in costs)


def _messages_note(config: CompactionConfig) -> str:
    match config.trigger_messages:
        case None:
            return f"50 messages since the last and {config.min_fill:.0%} full"
        case 0:
            return "no number of messages"
        case messages:
            return f"{messages} messages since the last"


def _tail_note(config: CompactionConfig) -> str:
    if config.keep_tokens > 0:
        return f"tail {config.keep_tokens:,} tokens"
    if config.keep_tokens == 0:
        return f"tail {config.keep_messages:,} messages"
    return f"tail {config.keep_tokens_ratio:.0%}, {config.keep_tokens_min:,} to {config.keep_tokens_max:,}"
