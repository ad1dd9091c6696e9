"""Whether a history has to be shorter, and whether making it shorter now would pay."""

from __future__ import annotations

from typing import Final

from agentscope_rx.compaction.config import CompactionConfig
from agentscope_rx.compaction.cutting import Cut
from agentscope_rx.compactions import CompactionState
from agentscope_rx.frozen import frozen

_DEFAULT_MESSAGES: Final = 50
_DEFAULT_SUMMARY: Final = 2_000
#: What a token costs that the provider has in its cache, by what one costs that it has not: the dearest of the usual.
CACHED_PRICE: Final = 0.25
OVERFLOW: Final = "overflow"
OVER_BUDGET: Final = "over_budget"


@frozen
class Situation:
    """What a decision about a compaction goes by.

    Args:
        messages: Messages of the history.
        replies: Replies in it, which is how many steps it remembers.
        tokens: What the conversation costs.
        budget: What it may cost.
        newest_tokens: What its newest exchange costs.
        pressed: Whether the provider has refused this step's request as too long.
        cached: Whether the provider keeps the beginning of requests in a cache.
        state: What the last compaction left behind.
    """

    messages: int
    replies: int
    tokens: int
    budget: int
    newest_tokens: int
    pressed: bool
    cached: bool
    state: CompactionState

    @property
    def steps_since(self) -> int:
        """Steps since the last compaction."""
        return max(0, self.replies - self.state.replies)

    @property
    def just_compacted(self) -> bool:
        """Whether the step before made a compaction that freed more than has come since."""
        return 0 < self.state.freed >= self.newest_tokens and self.steps_since <= 1


def trigger_of(config: CompactionConfig, now: Situation) -> str:
    """What asks for a compaction: `overflow`, `over_budget`, `tokens`, `messages`, or nothing."""
    if now.pressed:
        return OVERFLOW
    if now.tokens > now.budget:
        return OVER_BUDGET
    limit = min(config.trigger_tokens or now.budget, now.budget)
    still_over = now.state.tokens + config.min_gain_tokens if now.state.tokens >= limit else limit
    if now.tokens >= max(limit, still_over):
        return "tokens"
    since = now.messages - now.state.messages
    if config.trigger_messages is None:
        filled = now.tokens >= config.min_fill * now.budget
        return "messages" if since >= _DEFAULT_MESSAGES and filled else ""
    return "messages" if 0 < config.trigger_messages <= since else ""


def is_default(config: CompactionConfig, trigger: str) -> bool:
    """Whether it is a default that asks, and nothing that the user has set."""
    return config.trigger_messages is None if trigger == "messages" else not config.trigger_tokens


def objection_to(config: CompactionConfig, now: Situation, trigger: str, planned: Cut) -> str:
    """Why a compaction would not pay now, as a short code; empty where it would, or where there is no choice.

    Args:
        config: The config.
        now: The situation.
        trigger: What asks for it.
        planned: Where the history would be cut.
    """
    if not planned.new_tokens:
        return "nothing_new"
    if trigger in (OVERFLOW, OVER_BUDGET):
        return ""
    if now.replies < now.state.cooldown_until:
        return "cooldown"
    if now.just_compacted:
        return "just_compacted"
    if not is_default(config, trigger):
        return ""
    if planned.new_tokens < least_gain(config, trigger, planned.tokens):
        return "too_little_to_gain"
    if now.cached and break_even_steps(now, planned) > now.steps_since:
        return "cached_prefix"
    return ""


def break_even_steps(now: Situation, planned: Cut) -> float:
    """After how many steps a compaction has saved what it costs.

    It costs reading what gives way once more, and reading what stays behind it as if it were new, since the provider's
    cache ends where the history changes. Each later step saves what gave way, at the price of a cached token.

    Args:
        now: The situation.
        planned: Where the history would be cut.
    """
    price = CACHED_PRICE if now.cached else 1.0
    cost = planned.tokens + planned.tail_tokens * (1 - price)
    saved = max(1, planned.tokens - planned.tokens // 4) * price  # a summary is taken to be a quarter
    return round(cost / saved, 1)


def summary_limit(config: CompactionConfig, budget: int, replaced: int) -> int:
    """How long a summary may be, in tokens.

    Args:
        config: The config.
        budget: What the conversation may cost.
        replaced: What gives way costs.
    """
    wanted = config.summary_max_tokens or min(_DEFAULT_SUMMARY, max(1, budget // 4))
    return max(1, min(wanted, replaced // 2))


def least_gain(config: CompactionConfig, trigger: str, replaced: int) -> int:
    """What a compaction has to make free, in tokens.

    Args:
        config: The config.
        trigger: What asks for it.
        replaced: What gives way costs.
    """
    if trigger in (OVERFLOW, OVER_BUDGET) or not is_default(config, trigger):
        return 1
    return max(config.min_gain_tokens, int(config.min_gain_ratio * replaced))
