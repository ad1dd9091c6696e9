"""Every operator that shortens keeps the rules of operators, and looks at what is new only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentscope_rx.compaction import CompactionConfig, PruneConfig, ToolResultEvictionConfig, TruncateArgsConfig
from agentscope_rx.compaction.pruning import pruned
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.history import History
from agentscope_rx.lifting import Operator
from agentscope_rx.operators import offload_to_fit, offload_tool_results, prune_tool_results, truncate_arguments
from agentscope_rx.step import Step
from agentscope_rx.testing import a_history, check_operator
from agentscope_rx.workspace import InMemoryWorkspace
from tests.compaction.support import COUNTER, calls_of, card, compaction, small_operators, step_of
from tests.virtual import virtual

NAMES = tuple(small_operators())
WIDE = 10_000_000


def idle(name: str) -> Operator:
    """The operator with the limits of the defaults, and room for everything."""
    policy, workspace = ContextPolicy(max_input_tokens=WIDE), InMemoryWorkspace()
    eviction = ToolResultEvictionConfig()
    made: dict[str, Any] = {
        "offload_tool_results": lambda: offload_tool_results(config=eviction, workspace=workspace),
        "truncate_arguments": lambda: truncate_arguments(config=TruncateArgsConfig()),
        "prune_tool_results": lambda: prune_tool_results(config=PruneConfig()),
        "compact_history": lambda: compaction("notes", config=CompactionConfig(), policy=policy),
        "offload_to_fit": lambda: offload_to_fit(config=eviction, policy=policy, workspace=workspace),
    }
    return made[name]()


def counted(history: History) -> Step:
    """A step whose tokens are counted."""
    return step_of(history, card=card(window=WIDE))


@pytest.mark.parametrize("name", NAMES)
def test_each_keeps_the_rules_of_operators(name: str) -> None:
    """Where there is nothing to do: over 5,000 messages a step looks at the new ones and two more."""

    @virtual
    async def checked() -> None:
        await check_operator(lambda: idle(name), step=counted)

    checked()


@pytest.mark.parametrize("name", NAMES)
def test_each_keeps_them_at_work(name: str) -> None:
    """Where it shortens: one step out, nothing left behind by a dispose at any moment, an error that arrives."""
    history = History.of(*a_history(4).messages, *calls_of(6, 500, text="t" * 100))

    def at_work(given: History) -> Step:
        later = [replace(message, id=f"later.{message.id}") for message in given.messages]
        return step_of(history.append(*later), card=card(window=WIDE))

    @virtual
    async def checked() -> None:
        await check_operator(lambda: small_operators(budget=1_200)[name], step=at_work, old_messages=0)

    checked()


@pytest.mark.parametrize("old", [100, 5_000])
def test_pruning_looks_at_what_is_new(old: int) -> None:
    """Also where results are pruned in most steps: each result is looked at once, and once more when it gets old."""
    looked: list[object] = []

    class Watched(PruneConfig):
        pass

    config = Watched(protect_tokens=2_000, min_prune_tokens=1, max_output_chars=50)
    history = pruned(History.of(*calls_of(old // 2, 100)), config, COUNTER)
    for at in range(5):
        leaves = {id(leaf) for leaf in history.leaves}
        messages = [replace(each, id=f"n{at}.{each.id}") for each in calls_of(1, 100)]
        history = pruned(history.append(*messages), config, COUNTER)
        new = [leaf for leaf in history.leaves if id(leaf) not in leaves]
        looked.extend(new)
        assert len(new) <= 3
    assert looked
