"""Over random conversations: no operator of ours, alone or with others in any order, breaks what must hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.compaction.rules import broken_rules
from agentscope_rx.compactions import SUMMARY_VERSION_KEY
from agentscope_rx.condensing import OPAQUE_KEY
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import DataBlock, MetadataKey, Msg, Role, ThinkingBlock
from agentscope_rx.step import Step
from agentscope_rx.testing import a_run, run_virtual
from agentscope_rx.testing.fake_provider import strict_violations
from agentscope_rx.workspace import InMemoryWorkspace
from tests.compaction.support import (
    asked,
    body_of,
    conversations,
    passed,
    said,
    seen,
    small_operators,
    step_of,
    user,
)

NAMES = tuple(small_operators())
BUDGETS = st.sampled_from([300, 600, 1_200, 100_000])
PLANS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=8)


def shortened(history: History, names: Sequence[str], budget: int) -> list[History]:
    """The session's history after each of these operators, each in a step of its own."""
    operators, run = small_operators(budget=budget), a_run(history)
    found: list[History] = []

    async def all_of_them() -> None:
        for name in names:
            await passed(step_of(run), operators[name])
            found.append(run.state.context)

    run_virtual(all_of_them)
    return found


# -- what must hold, in the words of a reader of conversations -----------------------------------------------


def is_summary(message: Msg) -> bool:
    return SUMMARY_VERSION_KEY in message.metadata


def last_words(history: History) -> Msg | None:
    """What the user said last."""
    said = [
        message
        for message in history.messages
        if message.role is Role.USER and not is_summary(message) and not message.metadata.get(MetadataKey.SYNTHETIC)
    ]
    return said[-1] if said else None


def is_signed(message: Msg) -> bool:
    thoughts = any(block.metadata for block in message.blocks(ThinkingBlock))
    calls = any(OPAQUE_KEY in call.metadata for call in message.tool_calls)
    return thoughts or calls or MetadataKey.OPAQUE in message.metadata


def picture(message: Msg) -> object:
    """All of a message but the text of its result, the arguments of its calls, and marks that say that they changed."""
    result, calls = message.tool_result, message.tool_calls
    if result is not None:
        media = [block for block in result.output if isinstance(block, DataBlock)]
        own = {key: value for key, value in result.metadata.items() if not key.startswith("agentscope.")}
        return message.name, message.metadata, message.timestamp, result.id, result.name, result.state, media, own
    if calls:
        wanted = [(call.id, call.name, sorted(call.input), call.state) for call in calls]
        return message.text, message.metadata, message.blocks(ThinkingBlock), wanted
    return message


def hold(before: History, after: History) -> None:
    """Everything that a shortening has to leave alone."""
    known, kept = {each.id: each for each in before}, list(after)
    places = {id: at for at, id in enumerate(known)}
    assert kept
    assert (last := last_words(before)) is None or last in list(after.messages)
    assert after.open_calls == before.open_calls
    old = [exchange for exchange in kept if exchange.id in known]
    assert [places[each.id] for each in old] == sorted(places[each.id] for each in old)
    for exchange in old:
        same(known[exchange.id], exchange)
    for exchange in kept:
        answered = [message.tool_result.id for message in exchange.messages[1:] if message.tool_result]
        assert answered == [call.id for call in exchange.messages[0].tool_calls if call.id in answered]
    new = [exchange for exchange in kept if exchange.id not in known]
    assert [each.id for each in kept[: len(new)]] == [each.id for each in new]
    assert all(is_summary(each.messages[0]) for each in new)
    assert len([each for each in kept if is_summary(each.messages[0])]) <= 1
    assert new or len(kept) == len(known)
    assert broken_rules(before, after) == ()


def same(before: Exchange, after: Exchange) -> None:
    """What may become of an exchange that stays."""
    assert [picture(message) for message in before.messages] == [picture(message) for message in after.messages]
    if is_signed(before.messages[0]):
        assert before.messages[0] == after.messages[0]


# -- the properties -----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(conversations(), PLANS, BUDGETS)
def test_any_order_of_operators_breaks_no_rule(history: History, names: list[str], budget: int) -> None:
    """After each operator everything that must hold does, and a strict provider takes the request."""
    before = history
    for after in shortened(history, names, budget):
        hold(before, after)
        assert strict_violations(body_of(step_of(after))) == []
        before = after


@settings(max_examples=40)
@given(conversations(pending=True), st.sampled_from(NAMES), BUDGETS)
def test_calls_that_wait_stay(history: History, name: str, budget: int) -> None:
    """With open calls too: each stays where it is, and is not answered."""
    (after,) = shortened(history, [name], budget)
    hold(history, after)
    assert after.open_calls == history.open_calls
    assert [each.id for each in after if each.open_calls] == [each.id for each in history if each.open_calls]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(history=conversations(), budget=BUDGETS)
def test_a_second_time_changes_nothing(name: str, history: History, budget: int) -> None:
    """Where nothing new came every operator leaves the very history that it made."""
    once, twice = shortened(history, [name, name], budget)
    assert once is twice


@settings(max_examples=40)
@given(conversations(), st.sampled_from(NAMES))
def test_it_costs_less_afterwards(history: History, name: str) -> None:
    """What an operator has shortened costs no more than before, in characters sent."""
    (after,) = shortened(history, [name], 600)
    if after is not history and name in ("offload_to_fit", "compact_history"):
        assert len(str(body_of(step_of(after)))) < len(str(body_of(step_of(history))))


@settings(max_examples=30)
@given(conversations(), st.permutations(NAMES))
def test_in_one_request_as_in_several(history: History, names: Sequence[str]) -> None:
    """All operators in one preparation keep the rules as well, and what is shown is what is kept."""
    workspace, run = InMemoryWorkspace(), a_run(history)
    operators = small_operators(budget=700, workspace=workspace)
    found: list[Step] = []

    async def prepared() -> None:
        found.append(await passed(step_of(run), *(operators[name] for name in names)))

    run_virtual(prepared)
    (step,) = found
    hold(history, run.state.context)
    assert step.draft.conversation == run.state.context
    assert strict_violations(body_of(step)) == []


def test_the_limits_of_these_tests_are_reached() -> None:
    """Each operator does something to a usual conversation: otherwise the properties would hold of nothing."""
    history = History.of(
        user("u1"), said("a1"), *(
            message
            for at in range(6)
            for message in (asked(f"b{at}", f"c{at}", path="p" * 100), seen(f"r{at}", f"c{at}", "x" * 500))
        ),
        said("a2"), said("a3"),
    )  # fmt: skip
    did = {name: shortened(history, [name], 600)[0] is not history for name in NAMES}
    assert did == dict.fromkeys(NAMES, True)
