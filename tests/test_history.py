"""The conversation as a value: sharing, measures, edits and late results, against naive lists."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentscope_rx.errors import InvalidToolPairs
from agentscope_rx.history import LEAF_SIZE, Exchange, History
from agentscope_rx.messages import Msg, Role, ToolUseBlock
from tests.histories import LENGTHS, asked, histories, leaf_ids, long, said, seen
from tests.strategies import conversations


def shouted(message: Msg) -> Msg:
    text = message.text.upper()
    return message if text == message.text else message.with_text(text)


def loud(exchange: Exchange) -> Exchange:
    return exchange.map(shouted)


def same(exchange: Exchange) -> Exchange:
    return exchange


class Counting:
    """A measure that joins ids, and counts how often it is asked about an exchange."""

    def __init__(self) -> None:
        self.asked: list[Exchange] = []

    def of(self, exchange: Exchange, /) -> tuple[str, ...]:
        self.asked.append(exchange)
        return tuple(message.id for message in exchange.messages)

    def join(self, parts: Sequence[tuple[str, ...]], /) -> tuple[str, ...]:
        return tuple(id for part in parts for id in part)


# -- growing ------------------------------------------------------------------------------------------------


@given(LENGTHS, conversations(), st.lists(st.integers(0, 40), max_size=4))
def test_growing_in_steps_or_at_once_is_the_same(count: int, late: tuple[Msg, ...], edges: list[int]) -> None:
    """However messages come in, the history holds the same exchanges in the same order."""
    messages = [*(said(f"e{at}") for at in range(count)), *late]
    grown = History()
    bounds = sorted(min(edge, len(messages)) for edge in edges)
    for start, end in zip([0, *bounds], [*bounds, len(messages)], strict=True):
        grown = grown.append(*messages[start:end])
    assert grown == History.of(*messages)
    assert len(grown) == sum(message.role is not Role.TOOL for message in messages)
    assert {message.id for message in grown.messages} == {message.id for message in messages}
    firsts = [message.id for message in messages if message.role is not Role.TOOL]
    assert [exchange.id for exchange in grown] == firsts
    assert grown.last is None if not firsts else grown.last is not None and grown.last.id == firsts[-1]


@given(histories())
def test_leaves_are_full_but_the_last(history: History) -> None:
    """A history that only grew has full leaves, so their number is bounded by its length."""
    sizes = [len(leaf.exchanges) for leaf in history.leaves]
    assert all(size == LEAF_SIZE for size in sizes[:-1])
    assert not sizes or 1 <= sizes[-1] <= LEAF_SIZE


@given(histories())
def test_growing_shares_all_leaves_but_the_last(history: History) -> None:
    """Appending leaves the old history as it was, and shares every leaf but the one that grows."""
    before = list(history)
    after = history.append(said("new"))
    assert list(history) == before
    assert leaf_ids(history) - leaf_ids(after) <= {id(leaf) for leaf in history.leaves[-1:]}
    assert history.append() == history


def test_an_exchange_is_a_message_with_its_results() -> None:
    """Results join the exchange of their call, in the order of the calls and not of their arrival."""
    history = History.of(said("m0"), asked("m1", "a", "b", "c"), seen("m2", "c"), seen("m3", "a"), said("m4"))
    assert [[m.id for m in exchange.messages] for exchange in history] == [["m0"], ["m1", "m3", "m2"], ["m4"]]
    assert [call.id for call in history.open_calls] == ["b"]


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 4))
def test_results_stand_in_the_order_of_their_calls(order: list[str], count: int) -> None:
    """Whatever the order and number of the results that have come, they stand in call order."""
    history = History.of(asked("m0", "a", "b", "c", "d")).append(*(seen(f"r{id}", id) for id in order[:count]))
    (exchange,) = history
    assert [m.id for m in exchange.messages[1:]] == [f"r{id}" for id in "abcd" if id in order[:count]]
    assert [call.id for call in exchange.open_calls] == [id for id in "abcd" if id not in order[:count]]


@given(LENGTHS, LENGTHS)
def test_a_late_result_finds_its_call(before: int, after: int) -> None:
    """However long ago the call was, its result goes there; what follows in the same batch goes to the end."""
    history = long(before, "b").append(asked("call", "x")).append(*long(after, "a").messages)
    answered = history.append(seen("late", "x"), said("next"))
    assert [[m.id for m in exchange.messages] for exchange in answered if len(exchange.messages) > 1] == [
        ["call", "late"]
    ]
    assert answered.last == Exchange(said("next"))
    assert answered.open_calls == ()
    assert [exchange.id for exchange in answered] == [*(exchange.id for exchange in history), "next"]
    assert len(leaf_ids(history) - leaf_ids(answered)) <= 2


def test_the_newest_call_of_an_id_is_answered_first() -> None:
    """Some models begin their ids anew with each answer: a result belongs to the newest call that waits."""
    history = History.of(asked("m0", "x"), said("m1"), asked("m2", "x"), seen("r1", "x"), seen("r2", "x"))
    assert [[m.id for m in exchange.messages] for exchange in history] == [["m0", "r2"], ["m1"], ["m2", "r1"]]


@pytest.mark.parametrize(
    "messages",
    [
        [seen("r", "x")],
        [said("m"), seen("r", "x")],
        [asked("m", "x"), seen("r", "y")],
        [asked("m", "x"), seen("r1", "x"), seen("r2", "x")],
    ],
)
def test_a_result_without_an_open_call_is_refused(messages: list[Msg]) -> None:
    """A result that answers no open call of the history, or one twice, is an error."""
    with pytest.raises(InvalidToolPairs):
        History.of(*messages)


@pytest.mark.parametrize(
    "message",
    [Msg(id="r", role=Role.TOOL), Msg(id="r", role=Role.TOOL, content=seen("r", "a").content + seen("r", "b").content)],
)
def test_a_tool_message_holds_one_result(message: Msg) -> None:
    """A TOOL message without a result, or with two, would leave a call without its own."""
    with pytest.raises(InvalidToolPairs, match=r"holds [02] tool results"):
        History.of(asked("m", "a", "b"), message)


@pytest.mark.parametrize(
    "messages",
    [
        [seen("r", "x")],
        [said("m"), seen("r", "x")],
        [asked("m", "x"), seen("r", "y")],
        [asked("m", "x"), seen("r", "x"), seen("s", "x")],
        [said("m"), said("n")],
    ],
)
def test_an_exchange_of_other_messages_is_refused(messages: list[Msg]) -> None:
    """An exchange holds one message and results of its calls, each once."""
    with pytest.raises(InvalidToolPairs):
        Exchange(*messages)


@given(histories())
def test_open_calls_are_those_without_a_result(history: History) -> None:
    """The open calls of the whole are those of its exchanges, in order."""
    expected: list[ToolUseBlock] = []
    for exchange in history:
        answered = {m.tool_result.id for m in exchange.messages[1:] if m.tool_result is not None}
        expected.extend(call for call in exchange.messages[0].tool_calls if call.id not in answered)
    assert list(history.open_calls) == expected


# -- measures -----------------------------------------------------------------------------------------------


@given(histories())
def test_a_measure_is_the_fold_over_all_exchanges(history: History) -> None:
    """Measuring gives what a naive fold gives."""
    assert history.measure(Counting()) == tuple(message.id for message in history.messages)


@given(LENGTHS, conversations(answered=True), st.lists(st.integers(0, 40), max_size=5))
def test_each_exchange_is_measured_once(count: int, late: tuple[Msg, ...], edges: list[int]) -> None:
    """A history that is measured as it grows asks once about each exchange, however often it is measured."""
    measure = Counting()
    history = long(count)
    messages = [message for message in late if message.role is not Role.TOOL]
    bounds = sorted(min(edge, len(messages)) for edge in edges)
    for start, end in zip([0, *bounds], [*bounds, len(messages)], strict=True):
        history = history.append(*messages[start:end])
        assert history.measure(measure) == tuple(message.id for message in history.messages)
    assert len(measure.asked) == len(history)
    assert {id(exchange) for exchange in measure.asked} == {id(exchange) for exchange in history}


@given(histories(answered=True), st.data())
def test_edits_measure_only_what_is_new(history: History, data: st.DataObject) -> None:
    """Rewriting, leaving out and replacing ask about new exchanges alone."""
    measure = Counting()
    history.measure(measure)
    old = {id(exchange) for exchange in history}
    gone = frozenset(data.draw(st.lists(st.sampled_from([m.id for m in history.messages] or ["none"]), max_size=3)))
    derived = [
        history.without(gone),
        history.replace_first(data.draw(st.integers(0, len(history))), said("summary")),
        history.map(same),
    ]
    measure.asked.clear()
    for after in derived:
        assert after.measure(measure) == tuple(message.id for message in after.messages)
    assert {exchange.id for exchange in measure.asked} <= {"summary"}
    assert not old & {id(exchange) for exchange in measure.asked}


# -- rewriting ----------------------------------------------------------------------------------------------


@given(histories())
def test_map_rewrites_exchange_by_exchange(history: History) -> None:
    """Mapping is what it is for lists; what does not change stays the same object, up to the whole history."""
    after = history.map(loud)
    assert list(after) == [loud(exchange) for exchange in history]
    assert history.map(same) is history
    assert after.map(loud) is after
    assert [exchange.id for exchange in after] == [exchange.id for exchange in history]


@given(histories())
def test_map_is_remembered_for_each_exchange(history: History) -> None:
    """A named function is called once for each exchange, also when the history has grown; a key stands for it."""
    calls: list[Exchange] = []

    def noted(exchange: Exchange) -> Exchange:
        calls.append(exchange)
        return loud(exchange)

    first = history.map(noted)
    assert list(history.append(said("new")).map(noted)) == [*first, Exchange(said("new", "NEW"))]
    assert len(calls) == len(history) + 1
    again = history.map(lambda exchange: loud(exchange), key="loud")  # noqa: PLW0108
    assert history.map(noted, key="loud") == again == first
    assert len(calls) == len(history) + 1


def test_functions_made_anew_do_not_pile_up() -> None:
    """Of a hundred functions used once each, a few are remembered, in leaves and in exchanges."""
    history = long(LEAF_SIZE + 3)
    alive: list[weakref.ref[Callable[[Exchange], Exchange]]] = []
    for _ in range(100):

        def fresh(exchange: Exchange) -> Exchange:
            return exchange.map(shouted)

        alive.append(weakref.ref(fresh))
        assert next(history.map(fresh).messages).text == "M0"
        del fresh
    gc.collect()
    assert sum(ref() is not None for ref in alive) <= 16


@given(histories(), st.data())
def test_without_leaves_out_whole_exchanges(history: History, data: st.DataObject) -> None:
    """A message id takes its whole exchange along; leaves without it stay the same objects."""
    ids = [message.id for message in history.messages]
    gone = frozenset(data.draw(st.lists(st.sampled_from([*ids, "unknown"]), max_size=4)))
    after = history.without(gone)
    assert list(after) == [x for x in history if not gone & {message.id for message in x.messages}]
    untouched = [leaf for leaf in history.leaves if not any(m.id in gone for x in leaf.exchanges for m in x.messages)]
    assert {id(leaf) for leaf in untouched} <= leaf_ids(after)
    assert all(leaf.exchanges for leaf in after.leaves)
    assert history.without(frozenset({"unknown"})) is history


@given(histories(), st.data())
def test_replace_first_replaces_a_beginning(history: History, data: st.DataObject) -> None:
    """The first exchanges give way to messages; later leaves stay the same objects."""
    count = data.draw(st.integers(0, len(history)))
    by = [said(f"s{at}") for at in range(data.draw(st.integers(0, 2)))]
    after = history.replace_first(count, *by)
    assert list(after) == [*(Exchange(message) for message in by), *list(history)[count:]]
    kept, passed = set[int](), 0
    for leaf in history.leaves:
        if passed >= count:
            kept.add(id(leaf))
        passed += len(leaf.exchanges)
    assert kept <= leaf_ids(after)


@given(histories(), st.data())
def test_with_message_replaces_one_message(history: History, data: st.DataObject) -> None:
    """The message with this id gives way, also a result in the middle of its exchange; other leaves are shared."""
    messages = list(history.messages)
    assume(messages)
    old = data.draw(st.sampled_from(messages))
    new = replace(old, metadata={"k": 1})
    after = history.with_messages(new)
    assert list(after.messages) == [new if message.id == old.id else message for message in messages]
    assert len(leaf_ids(history) - leaf_ids(after)) == 1


def test_with_message_needs_its_message() -> None:
    """There is no message to replace, or the new one would part a call from its result."""
    history = History.of(said("m0"), asked("m1", "x"), seen("m2", "x"))
    with pytest.raises(ValueError, match="no message 'm9'"):
        history.with_messages(said("m9"))
    with pytest.raises(InvalidToolPairs):
        history.with_messages(asked("m1", "other"))


# -- as values ----------------------------------------------------------------------------------------------


def test_histories_are_equal_by_their_exchanges() -> None:
    """How a history came to be, and how its leaves are cut, is no part of its value."""
    one = long(LEAF_SIZE + 5)
    other = History(leaves=(*long(5).leaves, *History(list(one)[5:]).leaves))
    assert one == other
    assert one != one.append(said("new"))
    assert one != list(one)
    assert Exchange(said("a")) == Exchange(said("a")) != Exchange(said("b"))
    for value in (one, Exchange(said("a"))):
        with pytest.raises(TypeError, match="unhashable"):
            hash(value)


def test_histories_say_what_they_are() -> None:
    """A history shows its length and an exchange its beginning: they stand in error messages and debuggers."""
    assert repr(long(3)) == "History(3 exchanges)"
    assert repr(Exchange(said("m", "hello"))) == "Exchange(USER:'hello')"


def test_an_exchange_takes_anothers_place() -> None:
    """The other leaves are shared; one that the history does not hold has no place."""
    history = History.of(*(Msg.user(f"q{n}") for n in range(150)))
    old, new = list(history)[70], Exchange(Msg.user("new"))
    changed = history.with_exchange(old, new)
    assert [x for x, y in zip(changed, history, strict=True) if x is not y] == [new]
    assert [x is y for x, y in zip(changed.leaves, history.leaves, strict=True)] == [True, False, True]
    with pytest.raises(ValueError, match="does not hold"):
        changed.with_exchange(old, new)
