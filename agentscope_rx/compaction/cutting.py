"""Where a history is cut: what is summarised, what stays word for word, and how long the tail is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from agentscope_rx.compaction.config import CompactionConfig
from agentscope_rx.compaction.rules import latest_user_input, must_stay
from agentscope_rx.compactions import MESSAGES, SUMMARIES
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Measure


@frozen
class Cut:
    """A history in three parts.

    Args:
        at: How many exchanges lie before the tail.
        summarised: Those of them that give way, an earlier summary included.
        kept: Those of them that stay, word for word.
        tokens: What gives way costs.
        new_tokens: What gives way and no summary holds yet.
        kept_tokens: What stays before the tail costs.
        tail_tokens: What the tail costs.
    """

    at: int
    summarised: tuple[Exchange, ...]
    kept: tuple[Exchange, ...]
    tokens: int
    new_tokens: int
    kept_tokens: int
    tail_tokens: int

    @property
    def earlier(self) -> Exchange | None:
        """The earlier summary, where one gives way."""
        return next((exchange for exchange in self.summarised if exchange.measure(SUMMARIES)), None)


def cut(history: History, counter: Measure[int], *, tail_from: int) -> Cut:
    """Cut a history before an exchange.

    Args:
        history: The history.
        counter: Counts tokens.
        tail_from: Which exchange the tail begins with.
    """
    stays = must_stay(history)
    before = tuple(islice(history, tail_from))
    summarised = tuple(exchange for exchange in before if exchange.id not in stays)
    tokens = sum(exchange.measure(counter) for exchange in summarised)
    known = sum(exchange.measure(counter) for exchange in summarised if exchange.measure(SUMMARIES))
    kept = tuple(exchange for exchange in before if exchange.id in stays)
    kept_tokens = sum(exchange.measure(counter) for exchange in kept)
    return Cut(
        at=tail_from,
        summarised=summarised,
        kept=kept,
        tokens=tokens,
        new_tokens=tokens - known,
        kept_tokens=kept_tokens,
        tail_tokens=history.measure(counter) - tokens - kept_tokens,
    )


def cut_for(
    config: CompactionConfig, history: History, counter: Measure[int], *, budget: int, summary_tokens: int
) -> Cut:
    """Cut a history so that the tail is as long as the config says.

    Args:
        config: How long the tail is.
        history: The history.
        counter: Counts tokens.
        budget: What the conversation may cost.
        summary_tokens: How long the summary may be.
    """
    keep = _tail_room(config, budget)
    if not keep:
        return cut(history, counter, tail_from=_by_messages(history, config.keep_messages))
    tail_from = _by_tokens(history, counter, keep)
    # What the user said last stays outside of the tail too, and then the tail may have only half of what that leaves.
    pinned = _pinned_tokens(history, counter, tail_from)
    if pinned:
        room = max(1, (budget - pinned - summary_tokens) // 2)
        tail_from = max(tail_from, _by_tokens(history, counter, min(keep, room)))
    return cut(history, counter, tail_from=tail_from)


def last_exchange_only(history: History, counter: Measure[int]) -> Cut:
    """Cut a history before its newest exchange."""
    return cut(history, counter, tail_from=max(0, len(history) - 1))


def _tail_room(config: CompactionConfig, budget: int) -> int:
    keep = config.keep_tokens
    if keep < 0:
        keep = min(config.keep_tokens_max, max(config.keep_tokens_min, int(budget * config.keep_tokens_ratio)))
    return min(keep, max(0, budget // 2))


def _by_tokens(history: History, counter: Measure[int], keep: int) -> int:
    """The first exchange of the longest tail that costs at most `keep`; the newest exchange, whatever it costs."""
    at, left = len(history), keep
    for exchange in _from_the_end(history):
        left -= exchange.measure(counter)
        if left < 0 and at < len(history):
            break
        at -= 1
        if left < 0:
            break
    return at


def _by_messages(history: History, keep: int) -> int:
    """The first exchange of the shortest tail with at least so many messages."""
    at = len(history)
    for exchange in _from_the_end(history):
        if keep <= 0:
            break
        keep -= exchange.measure(MESSAGES)
        at -= 1
    return at


def _pinned_tokens(history: History, counter: Measure[int], tail_from: int) -> int:
    said = frozenset(latest_user_input(history))
    return sum(each.measure(counter) for each in islice(history, tail_from) if each.id in said)


def _from_the_end(history: History) -> Iterator[Exchange]:
    return (exchange for leaf in reversed(history.leaves) for exchange in reversed(leaf.exchanges))
