"""The rules that no shortening breaks: each with what breaks it, and none that a good shortening breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentscope_rx.compaction.prompt import Summary
from agentscope_rx.compaction.rules import RULES, broken_rules, latest_user_input, must_stay, pending_calls
from agentscope_rx.condensing import OPAQUE_KEY
from agentscope_rx.history import History
from agentscope_rx.messages import MetadataKey, Msg, ThinkingBlock, ToolResultState, ToolUseBlock
from tests.compaction.support import asked, said, seen, user

SIGNED = replace(
    Msg.assistant(ThinkingBlock(thinking="hm", metadata={"signature": "s"}), ToolUseBlock(id="x", name="look")), id="s"
)
SIGNED_CALL = replace(
    Msg.assistant(ToolUseBlock(id="y", name="look", input={"p": "long"}, metadata={OPAQUE_KEY: {"signature": "s"}})),
    id="t",
)
SIGNED_MESSAGE = said("v").with_metadata(**{MetadataKey.OPAQUE: {"token": "t"}})
BEFORE = (
    user("u1"), asked("a", "c1", "c2"), seen("r1", "c1", "one"), seen("r2", "c2", "two"),
    SIGNED, seen("r3", "x", "three"), SIGNED_CALL, seen("r4", "y", "four"), SIGNED_MESSAGE,
    user("u2"), said("b"), asked("p", "w1", "w2"), seen("r5", "w1", "five"),
)  # fmt: skip
OTHERS = {message.id: message for message in BEFORE}
SUMMARY = Summary(text="notes", model="m", covered=("u1", "a")).message()


def after(**changed: Msg | None) -> History:
    """The history with messages in other words, or without them."""
    found = {**OTHERS, **changed}
    return History.of(*(message for message in found.values() if message is not None))


def rewritten(message: Msg, **fields: object) -> Msg:
    """A message whose first block has other fields."""
    first, *others = message.content
    return replace(message, content=(replace(first, **fields), *others))


BREAKS = {
    "something_is_left": [History()],
    "calls_keep_their_results": [
        after(r2=None),
        after(r1=None, r2=None),
        after(a=asked("a", "c1"), r2=None),
        after(a=asked("a", "c1", "c2", name="find")),
        after(r1=seen("r1", "c1", "one", name="find")),
        after(r1=seen("r1", "c1", "one", state=ToolResultState.ERROR)),
        after(a=asked("a", "c2", "c1"), r1=OTHERS["r2"], r2=OTHERS["r1"]),
        after(a=said("a"), r1=None, r2=None),
    ],
    "signed_reasoning_is_untouched": [
        after(s=rewritten(SIGNED, thinking="h")),
        after(s=replace(SIGNED, content=SIGNED.content[1:])),
        after(s=rewritten(SIGNED, metadata={})),
        after(t=rewritten(SIGNED_CALL, input={"p": "l"})),
        after(t=rewritten(SIGNED_CALL, content="{}")),
        after(v=SIGNED_MESSAGE.with_metadata(**{MetadataKey.OPAQUE: {"token": "other"}})),
    ],
    "pending_calls_stay": [
        after(p=None, r5=None),
        after(p=asked("p", "w1", "w2", path="other")),
        History.of(*BEFORE, seen("r6", "w2", "given up")),
    ],
    "latest_user_input_stays": [
        after(u2=None),
        after(u2=user("u2", "other words")),
        after(u2=replace(OTHERS["u2"], id="other")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_what_breaks_a_rule_is_named(rule: str) -> None:
    """Every rule has examples that break it, and says so by its name and with what it found."""
    before = History.of(*BEFORE)
    for changed in BREAKS[rule]:
        found = [each for each in broken_rules(before, changed) if each.startswith(f"{rule}: ")]
        assert len(found) == 1, (rule, list(changed))


def test_what_was_said_last_is_broken_by_its_rule_alone() -> None:
    """A rule says nothing of what is another one's matter."""
    before = History.of(*BEFORE)
    assert [each.split(":")[0] for each in broken_rules(before, BREAKS["latest_user_input_stays"][0])] == [
        "latest_user_input_stays"
    ]
    assert [each.split(":")[0] for each in broken_rules(before, BREAKS["signed_reasoning_is_untouched"][0])] == [
        "signed_reasoning_is_untouched"
    ]


@pytest.mark.parametrize(
    "good",
    [
        after(),
        after(r1=seen("r1", "c1", "o")),
        after(b=said("b", "short")),
        after(u1=None, a=None, r1=None, r2=None),
        after(s=None, r3=None, t=None, r4=None, v=None),
        History.of(SUMMARY, OTHERS["u2"], OTHERS["p"], OTHERS["r5"]),
        History.of(SUMMARY, OTHERS["u2"], OTHERS["b"], OTHERS["p"], OTHERS["r5"]),
    ],
)  # fmt: skip
def test_a_good_shortening_breaks_none(good: History) -> None:
    """Texts may get shorter and whole exchanges may go, with a summary in their place or without."""
    assert broken_rules(History.of(*BEFORE), good) == ()


def test_nothing_is_asked_of_an_empty_history() -> None:
    """Where nothing was, nothing can be lost."""
    assert broken_rules(History(), History()) == ()
    assert must_stay(History()) == frozenset()


def test_what_a_cut_may_not_take_out() -> None:
    """Calls that wait, and what the user said last: neither a summary nor what the library said in the user's name."""
    reminder = replace(Msg.user("go on").with_metadata(**{MetadataKey.SYNTHETIC: True}), id="n")
    history = History.of(user("u"), asked("w", "c"), SUMMARY, reminder, said("b"))
    assert list(pending_calls(history)) == ["w"]
    assert list(latest_user_input(history)) == ["u"]
    assert must_stay(history) == {"u", "w"}
    assert list(latest_user_input(History.of(SUMMARY, reminder))) == []
