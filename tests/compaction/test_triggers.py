"""When a compaction is asked for, when it would not pay, how long a summary may be and what it must gain."""

from __future__ import annotations

from typing import Any

import pytest

from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compaction.cutting import Cut
from agentscope_rx.compaction.triggers import (
    Situation,
    break_even_steps,
    least_gain,
    objection_to,
    summary_limit,
    trigger_of,
)
from agentscope_rx.compactions import CompactionState


def now(state: dict[str, Any] | None = None, **fields: Any) -> Situation:
    """A half-empty conversation of which nothing is known."""
    usual: dict[str, Any] = {
        "messages": 10,
        "replies": 100,
        "tokens": 4_000,
        "budget": 10_000,
        "newest_tokens": 100,
        "pressed": False,
        "cached": False,
    }
    return Situation(**{**usual, **fields}, state=CompactionState(**(state or {})))


def planned(tokens: int = 3_000, *, new: int | None = None, tail: int = 1_000, kept: int = 0) -> Cut:
    """A cut that takes out so many tokens."""
    fresh = tokens if new is None else new
    return Cut(at=1, summarised=(), kept=(), tokens=tokens, new_tokens=fresh, kept_tokens=kept, tail_tokens=tail)


@pytest.mark.parametrize(
    ("config", "situation", "trigger"),
    [
        # nothing asks
        ({}, now(), ""),
        ({}, now(tokens=9_999), ""),
        # the room: `over_budget` only above it, and `tokens` at it
        ({}, now(tokens=10_000), "tokens"),
        ({}, now(tokens=10_001), "over_budget"),
        ({"trigger_messages": 0}, now(tokens=10_001, messages=1), "over_budget"),
        # a number of tokens: from it on, and never more than the room
        ({"trigger_tokens": 3_999}, now(), "tokens"),
        ({"trigger_tokens": 4_000}, now(), "tokens"),
        ({"trigger_tokens": 4_001}, now(), ""),
        ({"trigger_tokens": 50_000}, now(tokens=9_999), ""),
        ({"trigger_tokens": 50_000}, now(tokens=10_000), "tokens"),
        # what is still over it after a compaction has to grow by the least gain
        ({"trigger_tokens": 4_000}, now({"tokens": 4_000}, tokens=4_499), ""),
        ({"trigger_tokens": 4_000}, now({"tokens": 4_000}, tokens=4_500), "tokens"),
        ({"trigger_tokens": 4_000, "min_gain_tokens": 10}, now({"tokens": 4_000}, tokens=4_010), "tokens"),
        ({"trigger_tokens": 4_000}, now({"tokens": 3_999}, tokens=4_000), "tokens"),
        # messages: 50 since the last compaction, and half full
        ({}, now(messages=50, tokens=5_000), "messages"),
        ({}, now(messages=49, tokens=5_000), ""),
        ({}, now(messages=50, tokens=4_999), ""),
        ({"min_fill": 0.4}, now(messages=50), "messages"),
        ({"min_fill": 0}, now(messages=50, tokens=1), "messages"),
        ({}, now({"messages": 21}, messages=70, tokens=5_000), ""),
        ({}, now({"messages": 21}, messages=71, tokens=5_000), "messages"),
        # a number that was given is obeyed, however empty the room is
        ({"trigger_messages": 10}, now(tokens=1), "messages"),
        ({"trigger_messages": 11}, now(tokens=1), ""),
        ({"trigger_messages": 1}, now({"messages": 10}), ""),
        ({"trigger_messages": 1}, now({"messages": 9}), "messages"),
        ({"trigger_messages": 0}, now(messages=500, tokens=9_000), ""),
        # the provider has refused it: whatever its size
        ({}, now(pressed=True, tokens=1), "overflow"),
        ({}, now(pressed=True, tokens=20_000), "overflow"),
    ],
)  # fmt: skip
def test_what_asks_for_a_compaction(config: dict[str, Any], situation: Situation, trigger: str) -> None:
    """The strongest reason is named."""
    assert trigger_of(CompactionConfig(**config), situation) == trigger


@pytest.mark.parametrize(
    ("trigger", "config", "situation", "cut", "objection"),
    [
        ("messages", {}, now(), planned(), ""),
        # a summary alone is not summarised again, whatever asks
        ("messages", {}, now(), planned(new=0), "nothing_new"),
        ("over_budget", {}, now(), planned(new=0), "nothing_new"),
        ("overflow", {}, now(pressed=True), planned(new=0), "nothing_new"),
        # after a failure it waits, unless there is no room
        ("messages", {}, now({"cooldown_until": 101}), planned(), "cooldown"),
        ("messages", {}, now({"cooldown_until": 100}), planned(), ""),
        ("tokens", {"trigger_tokens": 1}, now({"cooldown_until": 101}), planned(), "cooldown"),
        ("over_budget", {}, now({"cooldown_until": 101}), planned(), ""),
        ("overflow", {}, now({"cooldown_until": 101}, pressed=True), planned(), ""),
        # not two in a row, unless what came is more than what was freed
        ("messages", {}, now({"replies": 99, "freed": 100}), planned(), "just_compacted"),
        ("messages", {}, now({"replies": 100, "freed": 100}), planned(), "just_compacted"),
        ("messages", {}, now({"replies": 98, "freed": 100}), planned(), ""),
        ("messages", {}, now({"replies": 99, "freed": 99}), planned(), ""),
        ("messages", {"trigger_messages": 1}, now({"replies": 99, "freed": 100}), planned(), "just_compacted"),
        ("over_budget", {}, now({"replies": 99, "freed": 100}), planned(), ""),
        # a default has to gain: 500 tokens, and a fifth of what gives way
        ("messages", {}, now(), planned(500), ""),
        ("messages", {}, now(), planned(499), "too_little_to_gain"),
        ("messages", {}, now(), planned(5_000, new=999), "too_little_to_gain"),
        ("messages", {}, now(), planned(5_000, new=1_000), ""),
        ("tokens", {}, now(), planned(499), "too_little_to_gain"),
        ("messages", {"min_gain_tokens": 100}, now(), planned(100), ""),
        ("messages", {"min_gain_ratio": 0.5}, now(), planned(5_000, new=2_499), "too_little_to_gain"),
        # what the user has set need only gain
        ("messages", {"trigger_messages": 4}, now(), planned(10), ""),
        ("tokens", {"trigger_tokens": 4}, now(), planned(10), ""),
        # each trigger is a default or not by itself
        ("messages", {"trigger_tokens": 4}, now(), planned(10), "too_little_to_gain"),
        ("tokens", {"trigger_messages": 4}, now(), planned(10), "too_little_to_gain"),
        # the provider's cache ends where the history changes: not before it has paid
        ("messages", {}, now({"replies": 94}, cached=True), planned(3_000, tail=1_000), "cached_prefix"),
        ("messages", {}, now({"replies": 93}, cached=True), planned(3_000, tail=1_000), ""),
        ("messages", {}, now({"replies": 94}), planned(3_000, tail=1_000), ""),
        ("messages", {"trigger_messages": 4}, now({"replies": 94}, cached=True), planned(), ""),
        ("over_budget", {}, now({"replies": 99}, cached=True), planned(), ""),
    ],
)  # fmt: skip
def test_why_a_compaction_waits(
    trigger: str, config: dict[str, Any], situation: Situation, cut: Cut, objection: str
) -> None:
    """The first objection is given; where there is no room there is none but that nothing is new."""
    assert objection_to(CompactionConfig(**config), situation, trigger, cut) == objection


def test_after_how_many_steps_it_has_paid() -> None:
    """It costs what gives way, and the tail anew; it saves three quarters of what gives way, at a cached price."""
    assert break_even_steps(now(cached=False), planned(4_000, tail=1_000)) == round(4_000 / 3_000, 1)
    assert break_even_steps(now(cached=True), planned(4_000, tail=1_000)) == round(4_750 / 750, 1)
    # a longer tail has to be read again, and that is why it takes longer
    assert break_even_steps(now(cached=True), planned(4_000, tail=9_000)) == round(10_750 / 750, 1)


@pytest.mark.parametrize(
    ("config", "budget", "replaced", "limit"),
    [
        ({}, 100_000, 50_000, 2_000),
        ({}, 8_000, 50_000, 2_000),
        ({}, 7_999, 50_000, 1_999),
        ({}, 1_000, 50_000, 250),
        ({}, 100_000, 1_000, 500),
        ({"summary_max_tokens": 5_000}, 100_000, 50_000, 5_000),
        ({"summary_max_tokens": 5_000}, 100_000, 1_000, 500),
        ({}, 1, 1, 1),
    ],
)
def test_how_long_a_summary_may_be(config: dict[str, Any], budget: int, replaced: int, limit: int) -> None:
    """2,000 tokens or a quarter of the room, and half of what it stands for."""
    assert summary_limit(CompactionConfig(**config), budget, replaced) == limit


@pytest.mark.parametrize(
    ("config", "trigger", "replaced", "gain"),
    [
        ({}, "messages", 1_000, 500),
        ({}, "messages", 10_000, 2_000),
        ({}, "tokens", 10_000, 2_000),
        ({}, "over_budget", 10_000, 1),
        ({}, "overflow", 10_000, 1),
        ({"trigger_messages": 4}, "messages", 10_000, 1),
        ({"trigger_tokens": 4}, "tokens", 10_000, 1),
        ({"min_gain_tokens": 3_000}, "messages", 10_000, 3_000),
        ({"min_gain_ratio": 0.5}, "messages", 10_000, 5_000),
    ],
)
def test_what_it_must_gain(config: dict[str, Any], trigger: str, replaced: int, gain: int) -> None:
    """A default guards itself; what was set, or cannot be helped, need only gain at all."""
    assert least_gain(CompactionConfig(**config), trigger, replaced) == gain


def test_the_defaults() -> None:
    """The numbers that the documentation names."""
    config = CompactionConfig()
    assert (config.trigger_messages, config.trigger_tokens, config.min_fill) == (None, 0, 0.5)
    assert (config.keep_tokens, config.keep_messages) == (-1, 20)
    assert (config.keep_tokens_ratio, config.keep_tokens_min, config.keep_tokens_max) == (0.25, 2_000, 8_000)
    assert (config.min_gain_tokens, config.min_gain_ratio, config.cooldown_steps) == (500, 0.2, 8)
    assert (config.truncate_args, config.required_headings, config.model, config.strategy) == (None, (), None, None)
    prune = config.prune
    assert prune is not None
    assert (prune.protect_tokens, prune.min_prune_tokens, prune.max_output_chars) == (40_000, 20_000, 2_000)
    assert prune.excluded_tool_names == {"read_file", "memory_search", "memory_get", "session_search"}
