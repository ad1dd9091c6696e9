"""Where a history is cut: how long the tail is, in tokens or messages, and what stays before it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compaction.cutting import Cut, cut, cut_for, last_exchange_only
from agentscope_rx.compaction.prompt import Summary
from agentscope_rx.compactions import is_summary
from agentscope_rx.history import History
from agentscope_rx.messages import Role
from tests.compaction.support import COUNTER, asked, conversations, said, seen, steps, user

#: Each question costs 100 tokens.
QUESTION = "q" * 97


def questions(count: int) -> History:
    """So many messages of the user's, of 100 tokens each."""
    return History.of(*(user(f"m{at}", QUESTION) for at in range(count)))


def cut_by(history: History, *, budget: int = 100_000, summary: int = 0, **config: Any) -> Cut:
    """The cut by a config."""
    return cut_for(CompactionConfig(**config), history, COUNTER, budget=budget, summary_tokens=summary)


@pytest.mark.parametrize(
    ("budget", "config", "tail"),
    [
        # a quarter of the room, 2,000 to 8,000, and never more than half of the room
        (100_000, {}, 8_000),
        (32_000, {}, 8_000),
        (31_600, {}, 7_900),
        (12_000, {}, 3_000),
        (8_000, {}, 2_000),
        (5_000, {}, 2_000),
        (3_000, {}, 1_500),
        (1_000, {}, 500),
        (12_000, {"keep_tokens_ratio": 0.5}, 6_000),
        (100_000, {"keep_tokens_max": 20_000}, 20_000),
        (4_000, {"keep_tokens_min": 500}, 1_000),
        # a number of tokens
        (100_000, {"keep_tokens": 700}, 700),
        (1_000, {"keep_tokens": 700}, 500),
        # a number of messages
        (100_000, {"keep_tokens": 0}, 2_000),
        (1_000, {"keep_tokens": 0}, 2_000),
        (100_000, {"keep_tokens": 0, "keep_messages": 3}, 300),
        # no room at all: by messages
        (1, {"keep_messages": 2}, 200),
    ],
)
def test_how_long_the_tail_is(budget: int, config: dict[str, Any], tail: int) -> None:
    """By the numbers of the config and of the room."""
    assert questions(300).measure(COUNTER) == 30_000
    assert cut_by(questions(300), budget=budget, **config).tail_tokens == tail


@pytest.mark.parametrize(("keep", "tail"), [(99, 100), (100, 100), (199, 100), (200, 200), (201, 200), (1, 100)])
def test_a_tail_of_tokens_holds_what_fits_and_the_newest_always(keep: int, tail: int) -> None:
    """Whole exchanges that fit; the newest one also where it does not."""
    assert cut_by(questions(9), keep_tokens=keep).tail_tokens == tail


@pytest.mark.parametrize(
    ("keep", "at"), [(1, 5), (2, 5), (3, 5), (4, 4), (5, 3), (6, 2), (7, 1), (8, 1), (9, 1), (10, 0), (99, 0)]
)
def test_a_tail_of_messages_grows_to_whole_exchanges(keep: int, at: int) -> None:
    """A batch and its results are cut before their call, never between."""
    history = History.of(
        user("m0"), asked("m1", "a", "b"), seen("r1", "a"), seen("r2", "b"), said("m2"), said("m3"), user("m4"),
        asked("m5", "c", "d"), seen("r3", "c"), seen("r4", "d"),
    )  # fmt: skip
    assert cut_by(history, keep_tokens=0, keep_messages=keep).at == at


def test_where_all_fits_into_the_tail_nothing_gives_way() -> None:
    """Nothing to cut."""
    found = cut_by(questions(5), keep_tokens=500)
    assert (found.at, found.summarised, found.tokens) == (0, (), 0)


def test_what_the_user_said_last_stays_before_the_tail() -> None:
    """In the prefix it is kept, word for word, and everything around it gives way."""
    history = History.of(user("old"), said("b"), user("last"), *steps(9, at=1).messages)
    found = cut_by(history, keep_tokens=0, keep_messages=2)
    assert [each.id for each in found.kept] == ["last"]
    assert [each.id for each in found.summarised] == ["old", "b", *(f"a{at}" for at in range(1, 9))]
    assert found.tokens + found.kept_tokens + found.tail_tokens == history.measure(COUNTER)


def test_calls_that_wait_stay_before_the_tail() -> None:
    """Open calls in the prefix are kept with the results that their batch has."""
    history = History.of(asked("w", "x", "y"), seen("r", "x"), *questions(5).messages)
    found = cut_by(history, keep_tokens=0, keep_messages=1)
    assert [each.id for each in found.kept] == ["w"]


def test_a_long_last_message_leaves_half_of_the_rest_to_the_tail() -> None:
    """What stays before the tail takes its room, and so does the summary; the tail is shorter by that."""
    history = History.of(user("u", "x" * 4_997), *(said(f"b{at}", QUESTION) for at in range(60)))
    free = cut_by(history, budget=10_000, summary=1_000, keep_tokens=4_000)
    assert (free.kept_tokens, free.tail_tokens) == (5_000, 2_000)  # (10,000 - 5,000 - 1,000) / 2
    roomy = cut_by(history, budget=20_000, summary=1_000, keep_tokens=4_000)
    assert (roomy.kept_tokens, roomy.tail_tokens) == (5_000, 4_000)
    none = cut_by(history, budget=5_000, summary=1_000, keep_tokens=2_000)
    assert none.tail_tokens == 100  # the newest exchange alone


def test_an_earlier_summary_gives_way_and_is_nothing_new() -> None:
    """It is part of what is summarised, and does not count as new."""
    summary = Summary(text="notes", model="m", covered=("x",)).message()
    history = History.of(summary, *questions(4).messages)
    whole, alone = cut(history, COUNTER, tail_from=3), cut(history, COUNTER, tail_from=1)
    assert whole.earlier is not None
    assert is_summary(whole.earlier.messages[0])
    assert whole.new_tokens == 200
    assert whole.tokens == 200 + whole.earlier.measure(COUNTER)
    assert (alone.new_tokens, alone.tokens) == (0, whole.earlier.measure(COUNTER))
    assert cut(questions(4), COUNTER, tail_from=2).earlier is None


def test_the_shortest_cut_leaves_the_newest_exchange() -> None:
    """All but it, and what must stay, gives way."""
    found = last_exchange_only(steps(4), COUNTER)
    assert (found.at, [each.id for each in found.kept]) == (4, ["u"])
    assert last_exchange_only(History(), COUNTER).at == 0


@settings(max_examples=80)
@given(
    conversations(most=30, pending=True),
    st.integers(1, 10_000),
    st.integers(-1, 2_000),
    st.integers(1, 30),
    st.integers(0, 500),
)
def test_every_cut_is_whole(history: History, budget: int, tokens: int, messages: int, summary: int) -> None:
    """The three parts make up the history; what must stay is in none that gives way; the tail keeps its measure."""
    found = cut_by(history, budget=budget, summary=summary, keep_tokens=tokens, keep_messages=messages)
    exchanges = list(history)
    tail = exchanges[found.at :]
    assert sorted(map(id, [*found.summarised, *found.kept, *tail])) == sorted(map(id, exchanges))
    assert found.tokens + found.kept_tokens + found.tail_tokens == history.measure(COUNTER)
    assert not any(each.open_calls for each in found.summarised)
    said_last = [each for each in exchanges if each.messages[0].role is Role.USER and each.id.startswith("m")]
    real = [each for each in said_last if not each.messages[0].metadata]
    assert not real or real[-1] not in found.summarised
    assert tail or not exchanges
    room = min(tokens if tokens >= 0 else min(8_000, max(2_000, budget // 4)), budget // 2)
    if room:
        assert len(tail) <= 1 or found.tail_tokens <= room
    else:
        assert sum(len(each.messages) for each in tail[1:]) < messages
