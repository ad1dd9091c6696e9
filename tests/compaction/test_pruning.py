"""Old results lose their middle, old calls the end of long arguments: which, how much, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from agentscope_rx.compaction import PruneConfig, TruncateArgsConfig
from agentscope_rx.compaction.pruning import PRUNED_KEY, TRUNCATED_KEY, pruned, truncated_arguments
from agentscope_rx.condensing import OPAQUE_KEY
from agentscope_rx.history import LEAF_SIZE, History
from agentscope_rx.messages import DataBlock, Msg, TextBlock, ToolResultState, ToolUseBlock
from agentscope_rx.wire import from_json
from tests.compaction.support import COUNTER, PICTURE, asked, calls_of, said, seen, steps, user

NONE: set[str] = set()

# -- results ------------------------------------------------------------------------------------------------


def cut(history: History, **config: Any) -> set[str]:
    """The results that lost their middle."""
    after = pruned(history, PruneConfig(**config), COUNTER)
    return {new.id for old, new in zip(history.messages, after.messages, strict=True) if old != new}


def results(*sizes: int) -> History:
    """Results that cost so many tokens, oldest first."""
    return History.of(*(each for at, size in enumerate(sizes) for each in _result(at, size)))


def _result(at: int, size: int) -> tuple[Msg, Msg]:
    return asked(f"a{at}", f"c{at}"), seen(f"r{at}", f"c{at}", "x" * (size - 3))


@pytest.mark.parametrize(
    ("sizes", "config", "old"),
    [
        # newest to oldest: what is protected is counted whole, the one that reaches the limit included
        ([1_000, 1_000, 1_000], {"protect_tokens": 1_000}, {"r0", "r1"}),
        ([1_000, 1_000, 1_000], {"protect_tokens": 1_001}, {"r0"}),
        ([1_000, 1_000, 1_000], {"protect_tokens": 2_000}, {"r0"}),
        ([1_000, 1_000, 1_000], {"protect_tokens": 2_001}, NONE),
        ([1_000, 1_000], {"protect_tokens": 0}, {"r0", "r1"}),
        # nothing is done for too little
        ([1_000, 1_000, 1_000], {"protect_tokens": 1_000, "min_prune_tokens": 2_000}, {"r0", "r1"}),
        ([1_000, 1_000, 1_000], {"protect_tokens": 1_000, "min_prune_tokens": 2_001}, NONE),
        # only long texts lose anything, and only they count for the least
        ([103, 104, 1_000], {"protect_tokens": 1_000}, {"r1"}),
        ([103, 104, 1_000], {"protect_tokens": 1_000, "min_prune_tokens": 105}, NONE),
    ],
)
def test_which_results_lose_their_middle(sizes: list[int], config: dict[str, Any], old: set[str]) -> None:
    """By the tokens of results beyond the newest."""
    assert cut(results(*sizes), **{"min_prune_tokens": 1, "max_output_chars": 100, **config}) == old


def test_the_defaults_of_pruning() -> None:
    """40,000 tokens are protected; 20,000 are worth it; texts keep 2,000 characters."""
    assert cut(results(19_999, 40_000)) == NONE
    assert cut(results(20_000, 40_000)) == {"r0"}
    (after, *_) = [m for m in pruned(results(20_000, 40_000), PruneConfig(), COUNTER).messages if m.id == "r0"]
    assert after.tool_result is not None
    assert after.tool_result.text == "x" * 1_000 + "\n[... 17,997 characters left out ...]\n" + "x" * 1_000


def test_excluded_tools_neither_count_nor_lose() -> None:
    """What can be read again cheaply is left alone, and protects nothing."""
    history = History.of(
        asked("a0", "c0"), seen("r0", "c0", "x" * 900), asked("a1", "c1", name="read_file"),
        seen("r1", "c1", "x" * 900, name="read_file"), asked("a2", "c2"), seen("r2", "c2", "x" * 900),
    )  # fmt: skip
    config = {"protect_tokens": 1_000, "min_prune_tokens": 1, "max_output_chars": 100}
    assert cut(history, **config) == NONE
    assert cut(history, **config, excluded_tool_names={"look"}) == NONE
    assert cut(history, **config, excluded_tool_names=set[str]()) == {"r0"}


def test_only_the_middle_of_a_result_is_lost() -> None:
    """Id, name, state, media, and metadata of message and block stay; no second look cuts it again."""
    result = seen("r", "c", "ab" * 50, PICTURE, "cd" * 50, state=ToolResultState.ERROR, metadata={"own": 1})
    result = result.with_metadata(of="message")
    history = History.of(asked("a", "c"), result, *results(1_000).messages)
    config = PruneConfig(protect_tokens=10, min_prune_tokens=1, max_output_chars=11)
    after = pruned(history, config, COUNTER)
    (message,) = [each for each in after.messages if each.id == "r"]
    block = message.tool_result
    assert block is not None
    assert (block.id, block.name, block.state) == ("c", "look", ToolResultState.ERROR)
    assert block.metadata == {"own": 1, PRUNED_KEY: True}
    assert message.metadata == {"of": "message"}
    assert block.output == (TextBlock(text="ababa\n[... 191 characters left out ...]\ndcdcd"), PICTURE)
    assert pruned(after, config, COUNTER) is after


def test_pruning_shares_what_it_leaves_alone() -> None:
    """Leaves without an old long result are the same objects."""
    history = History(leaves=(*steps(80, size=500).leaves, *steps(100, size=10, at=90).leaves))
    after = pruned(history, PruneConfig(protect_tokens=1_100, min_prune_tokens=1, max_output_chars=50), COUNTER)
    assert after is not history
    assert after.leaves[-1] is history.leaves[-1]
    assert len(history.leaves[0].exchanges) == LEAF_SIZE


# -- arguments ----------------------------------------------------------------------------------------------


def truncated(history: History, **config: Any) -> set[str]:
    """The messages whose arguments were cut."""
    after = truncated_arguments(history, TruncateArgsConfig(**config), COUNTER)
    return {new.id for old, new in zip(history.messages, after.messages, strict=True) if old != new}


def calls(count: int, size: int = 100) -> History:
    """So many calls with a long argument: two messages each."""
    return History.of(*calls_of(count, text="x" * size))


@pytest.mark.parametrize(
    ("config", "old"),
    [
        ({"trigger_messages": 10}, {"a0", "a1", "a2"}),
        ({"trigger_messages": 11}, NONE),
        ({"trigger_messages": 0}, NONE),
        ({"trigger_messages": 0, "trigger_tokens": 1}, {"a0", "a1", "a2"}),
        ({"trigger_messages": 0, "trigger_tokens": 100_000}, NONE),
        ({"trigger_messages": 1, "keep_messages": 3}, {"a0", "a1", "a2"}),
        ({"trigger_messages": 1, "keep_messages": 5}, {"a0", "a1"}),
        ({"trigger_messages": 1, "keep_messages": 0}, {"a0", "a1", "a2", "a3", "a4"}),
        ({"trigger_messages": 1, "keep_messages": 100}, NONE),
        ({"trigger_messages": 1, "keep_tokens": 1}, {"a0", "a1", "a2", "a3"}),
        ({"trigger_messages": 1, "max_arg_length": 100}, NONE),
        ({"trigger_messages": 1, "max_arg_length": 99}, {"a0", "a1", "a2"}),
    ],
)
def test_which_arguments_are_cut(config: dict[str, Any], old: set[str]) -> None:
    """Of calls before the newest messages, once there are many messages or many tokens."""
    usual = {"trigger_tokens": 0, "keep_messages": 4, "max_arg_length": 50}
    assert truncated(calls(5), **{**usual, **config}) == old


def test_the_defaults_of_truncation() -> None:
    """25 messages or 40,000 tokens; the last 20 messages and 2,000 characters are left alone."""
    config = TruncateArgsConfig()
    assert (config.trigger_messages, config.trigger_tokens, config.keep_messages) == (25, 40_000, 20)
    assert (config.max_arg_length, config.truncation_text) == (2_000, "...(argument truncated)")
    assert truncated(calls(13, 2_001)) == {"a0", "a1", "a2"}
    assert truncated(calls(12, 2_001)) == NONE
    assert truncated(calls(13, 2_000)) == NONE


def test_only_top_level_texts_of_a_call_are_cut() -> None:
    """The first 20 characters stay; ids, names, other values and what was remembered of the call too."""
    arguments = {"text": "0123456789" * 10, "deep": {"text": "x" * 100}, "list": ["x" * 100], "n": 1, "short": "y" * 30}
    head = Msg.assistant(
        "Well.", ToolUseBlock(id="c", name="write", input=arguments, metadata={"own": 1}), name="helper"
    )
    history = History.of(user("u"), head.with_metadata(m=1), seen("r", "c", name="write"), said("b"))
    config = TruncateArgsConfig(trigger_messages=1, keep_messages=1, max_arg_length=30, truncation_text="[cut]")
    after = truncated_arguments(history, config, COUNTER)
    message = list(after.messages)[1]
    (call,) = message.tool_calls
    assert call.input == {**arguments, "text": "01234567890123456789[cut]"}
    assert from_json((call.content or "").encode()) == call.input
    assert (call.id, call.name, call.metadata) == ("c", "write", {"own": 1, TRUNCATED_KEY: True})
    assert (message.text, message.name, message.metadata) == ("Well.", "helper", {"m": 1})
    assert truncated_arguments(after, config, COUNTER) is after


@pytest.mark.parametrize(
    "head",
    [
        Msg.assistant(ToolUseBlock(id="c", name="look", input={"p": "x" * 100}, metadata={OPAQUE_KEY: {"s": "1"}})),
        asked("a", "c", p="x" * 100).with_metadata(agentscope_opaque={"t": 1}),
    ],
)
def test_a_signed_call_is_left_as_it_is(head: Msg) -> None:
    """The signature may be over its arguments."""
    history = History.of(head, seen("r", "c", "ok"), said("b"))
    assert truncated(history, trigger_messages=1, keep_messages=1, max_arg_length=30) == NONE


def test_a_call_that_waits_is_left_as_it_is() -> None:
    """It will be made with its arguments, once somebody has allowed it."""
    history = History.of(asked("a", "c", "d", p="x" * 100), seen("r", "c", "ok"), said("b"))
    config = {"trigger_messages": 1, "keep_messages": 1, "max_arg_length": 30}
    assert truncated(history, **config) == NONE
    assert truncated(history.append(seen("s", "d", "ok")), **config) == {"a"}


def test_media_of_a_result_are_no_text() -> None:
    """A picture is not cut, and a result of pictures alone has no text to lose."""
    history = History.of(asked("a", "c"), seen("r", "c", PICTURE), *results(1_000).messages)
    assert cut(history, protect_tokens=1, min_prune_tokens=0, max_output_chars=2) == NONE
    assert isinstance(PICTURE, DataBlock)
