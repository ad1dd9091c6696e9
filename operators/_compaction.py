"""One compaction: planned, carried out, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from agentscope_rx.compaction.config import CompactionConfig, CompactionRequest
from agentscope_rx.compaction.cutting import Cut, cut_for, last_exchange_only
from agentscope_rx.compaction.prompt import (
    HEADINGS,
    HISTORY_TOOL,
    SUMMARY_PROMPT,
    Summary,
    missing_headings,
    pointer_to,
)
from agentscope_rx.compaction.rules import broken_rules
from agentscope_rx.compaction.triggers import Situation, break_even_steps, least_gain, summary_limit
from agentscope_rx.compactions import MESSAGES, CompactionDecision, CompactionOutcome, is_summary
from agentscope_rx.errors import AgentScopeError
from agentscope_rx.events import Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.lifting import proposed
from agentscope_rx.logs import logger
from agentscope_rx.messages import Msg
from agentscope_rx.operators._aside_call import AnswerRefused
from agentscope_rx.operators._memory_call import MemoryKeeper
from agentscope_rx.operators._summary_call import Notes, Summariser
from agentscope_rx.request_tokens import text_tokens
from agentscope_rx.step import Step

NAME: Final = "compact_history"
_REMEMBERED: Final = "summary for {}"
_STRATEGY: Final = "strategy"
_PLACEHOLDER: Final = "summary "


class Attempt:
    """One look at one history: what was planned, and what came of it."""

    def __init__(
        self,
        step: Step,
        config: CompactionConfig,
        *,
        now: Situation,
        trigger: str,
        memory: MemoryKeeper | None = None,
    ) -> None:
        self.step, self.config, self.now, self.trigger, self.memory = step, config, now, trigger, memory
        assert step.card.counter is not None  # its caller has seen to it
        self.counter = step.card.counter
        self.id = ""

    @cached_property
    def plan(self) -> Cut:
        """Where the history is cut."""
        history, counter, now = self.step.history, self.counter, self.now
        if now.pressed:
            return last_exchange_only(history, counter)
        summary = summary_limit(self.config, now.budget, now.tokens)
        found = cut_for(self.config, history, counter, budget=now.budget, summary_tokens=summary)
        if found.kept_tokens + found.tail_tokens + summary > now.budget:
            return last_exchange_only(history, counter)
        return found

    @property
    def summary_limit(self) -> int:
        return summary_limit(self.config, self.now.budget, self.plan.tokens)

    def left(self, outcome: CompactionOutcome, **figures: Any) -> Step:
        """The step as it was, with what was decided."""
        return replace(self.step, compaction=self._decision(outcome, **figures))

    def planned(self) -> Step:
        """The step as it would be, with a summary of the greatest length that says nothing."""
        tokens = self.summary_limit
        unit = max(1, text_tokens(_PLACEHOLDER * 8, self.counter) // 8)
        history, summary = self._with_summary(_PLACEHOLDER * (tokens // unit), "")
        cost = summary.measure(self.counter)
        return self._done(history, CompactionOutcome.PLANNED, summary_tokens=cost, replaced_tokens=self.plan.tokens)

    async def run(self, summariser: Summariser) -> Step:
        """Do it; whatever fails leaves the step as it was."""
        self.id = self.step.run.runtime.ids.new_id("compaction")
        model = summariser.model_for(self.step)
        self._emit("start", trigger=self.trigger, model=model, **self._before)
        try:
            await self._tell_before()
            return await self._by_strategy() or await self._by_summary(summariser)
        except AnswerRefused as refusal:
            return self._given_up(CompactionOutcome.REFUSED, str(refusal), refusal)
        except Exception as error:
            code = error.code if isinstance(error, AgentScopeError) else type(error).__name__
            return self._given_up(CompactionOutcome.FAILED, code, error)

    @property
    def _before(self) -> dict[str, object]:
        return {"messages_before": self.now.messages, "tokens_before": self.now.tokens}

    async def _tell_before(self) -> None:
        if self.memory is not None:
            self.memory.before_compaction(self.step, self.plan.summarised, self.trigger)
        if self.config.before is None:
            return
        fresh = [each for each in self.plan.summarised if not is_summary(each.messages[0])]
        try:
            await self.config.before(self._request(), [message for each in fresh for message in each.messages])
        except Exception as error:
            logger().warning("before_compaction_failed", error=type(error).__name__)
            self._emit("before_failed", error_type=type(error).__name__)

    def _request(self) -> CompactionRequest:
        who = self.step.identity
        return CompactionRequest(
            history=self.step.history,
            agent_id=who.agent_id,
            user_id=who.user_id,
            session_id=who.session_id,
            trigger=self.trigger,
            budget=self.now.budget,
        )

    async def _by_strategy(self) -> Step | None:
        if self.config.strategy is None:
            return None
        messages = await self.config.strategy(self._request())
        if not messages:
            return None
        history = _of_known(self.step.history, messages)
        gain = self.step.history.measure(self.counter) - history.measure(self.counter)
        self._check_gain(gain, self.now.tokens)
        return self._done(history, CompactionOutcome.DONE, model=_STRATEGY, replaced_tokens=gain)

    async def _by_summary(self, summariser: Summariser) -> Step:
        most = summariser.longest_of(self.summary_limit, self.step)
        notes = await summariser.notes_on(self.step, self._shown(), max_tokens=most)
        tokens = text_tokens(notes.text, self.counter)
        self._check_gain(self.plan.tokens - tokens, self.plan.tokens)
        required = missing_headings(notes.text, self.config.required_headings)
        if required:
            raise AnswerRefused(f"missing_heading:{required[0]}")
        history, _ = self._with_summary(notes.text, model := summariser.model_for(self.step))
        figures = {"model": model, "summary_tokens": tokens, "replaced_tokens": self.plan.tokens}
        step = self._done(history, CompactionOutcome.DONE, notes=notes, **figures)
        self._remember(step)
        return step

    def _check_gain(self, gain: int, replaced: int) -> None:
        if gain < least_gain(self.config, self.trigger, replaced):
            raise AnswerRefused("no_gain")

    def _shown(self) -> Sequence[Exchange]:
        """What is summarised, in the words in which this request shows it."""
        conversation = self.step.draft.conversation
        if conversation is self.step.history:
            return self.plan.summarised
        shown = {exchange.id: exchange for exchange in conversation}
        return [shown.get(exchange.id, exchange) for exchange in self.plan.summarised]

    def _with_summary(self, text: str, model: str) -> tuple[History, Exchange]:
        plan = self.plan
        covered = tuple(message.id for each in plan.summarised for message in each.messages)
        identity, offered = self.step.identity, (tool.name for tool in self.step.draft.tools)
        pointer = pointer_to(identity.agent_id, identity.session_id) if HISTORY_TOOL in offered else ""
        summary = Exchange(Summary(text=text, model=model, covered=covered, pointer=pointer).message())
        return _beginning_with((summary, *plan.kept), self.step.history, plan.at), summary

    def _done(
        self, history: History, outcome: CompactionOutcome, *, notes: Notes | None = None, **figures: Any
    ) -> Step:
        """The step with the shorter history, once no rule is broken."""
        before = self.step.history
        if broken := broken_rules(before, history):
            raise AnswerRefused(f"breaks_rule:{broken[0]}")
        step = proposed(self.step, history, NAME)
        decision = replace(
            self._decision(outcome, **figures),
            messages_after=step.history.measure(MESSAGES),
            tokens_after=step.draft.conversation.measure(self.counter),
        )
        if outcome is CompactionOutcome.DONE:
            self._emit("end", **_figures(decision, notes, self.config))
        return replace(step, compaction=decision)

    def _given_up(self, outcome: CompactionOutcome, reason: str, error: Exception) -> Step:
        logger().warning("compaction_failed", reason=reason, error=type(error).__name__)
        self._emit("failed", reason=reason, error_type=type(error).__name__, trigger=self.trigger)
        return self.left(outcome, reason=reason, failure=error, cooldown_steps=self.config.cooldown_steps)

    def _decision(self, outcome: CompactionOutcome, **figures: Any) -> CompactionDecision:
        now, weighed = self.now, bool(self.trigger)
        return CompactionDecision(
            outcome=outcome,
            trigger=self.trigger,
            id=self.id,
            tokens_before=now.tokens,
            messages_before=now.messages,
            budget=now.budget,
            tail_tokens=self.plan.tail_tokens if weighed else 0,
            break_even_steps=break_even_steps(now, self.plan) if weighed else None,
            steps_since=now.steps_since if weighed else None,
            **figures,
        )

    def _remember(self, step: Step) -> None:
        """Of a model that stands in for the agent's, so that its next step need not pay for the same summary."""
        if not step.card.own:
            ids = tuple(exchange.id for exchange in islice(self.step.history, self.plan.at))
            head = tuple(islice(step.history, 1 + len(self.plan.kept)))
            known = _remembered(step)
            if known is not None and self.plan.earlier is known.head[0]:
                # No session holds that summary: what it stands for does.
                ids = (*known.covered, *ids[len(known.head) :])
            step.run.materials[_REMEMBERED.format(step.card.name)] = _Remembered(ids, head)

    def _emit(self, what: str, **value: object) -> None:
        self.step.emit(Custom(name=f"compaction_{what}", value={"compaction_id": self.id, **value}))


def with_remembered(step: Step) -> Step:
    """The step with the summary in its history that an earlier step has made for the same standing-in model."""
    known = _remembered(step)
    if step.card.own or known is None:
        return step
    if tuple(exchange.id for exchange in islice(step.history, len(known.covered))) != known.covered:
        return step
    return proposed(step, _beginning_with(known.head, step.history, len(known.covered)), NAME)


def _remembered(step: Step) -> _Remembered | None:
    known = step.run.materials.get(_REMEMBERED.format(step.card.name))
    return known if isinstance(known, _Remembered) else None


@frozen(kw_only=False)
class _Remembered:
    """The exchanges that a summary stands for, and what takes their place."""

    covered: tuple[str, ...]
    head: tuple[Exchange, ...]


def _beginning_with(head: Sequence[Exchange], history: History, count: int) -> History:
    """A history with exchanges in the place of its first; those that stay are the same objects, and so no change."""
    return History(leaves=(*History(head).leaves, *history.replace_first(count).leaves))


def _of_known(before: History, messages: Sequence[Msg]) -> History:
    """A history of messages, with the exchanges that are there already."""
    known = {exchange.id: exchange for exchange in before}
    made = History.of(*messages)
    return History(known[each.id] if known.get(each.id) == each else each for each in made)


def _figures(decision: CompactionDecision, notes: Notes | None, config: CompactionConfig) -> dict[str, object]:
    value: dict[str, object] = {
        "status": "completed",
        "trigger": decision.trigger,
        "model": decision.model,
        "messages_before": decision.messages_before,
        "messages_after": decision.messages_after,
        "tokens_before": decision.tokens_before,
        "tokens_after": decision.tokens_after,
        "replaced_tokens": decision.replaced_tokens,
        "summary_tokens": decision.summary_tokens,
    }
    if notes is None:
        return value
    expected = HEADINGS if config.summary_prompt == SUMMARY_PROMPT else ()
    return {
        **value,
        "calls": notes.calls,
        "usage": notes.usage,
        "missing_headings": list(missing_headings(notes.text, expected)),
    }
