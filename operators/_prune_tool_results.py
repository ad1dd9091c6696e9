"""`prune_tool_results`: the middle of old results goes; which ones are old is in `compaction.pruning`."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.compaction.config import PruneConfig
from agentscope_rx.compaction.pruning import pruned
from agentscope_rx.history import History
from agentscope_rx.lifting import Operator, history_operator
from agentscope_rx.step import Step


def prune_tool_results(*, config: PruneConfig) -> Operator:
    """Leave out the middle of long tool results that are old; ids, states, media and everything else are kept.

        --s-------|
        prune_tool_results
        --t-------|     t.history holds only short results before its newest ones

    Args:
        config: Which results are old, and how long they may be.
    """

    @history_operator
    def prune_tool_results(history: History, step: Step) -> History:
        counter = step.card.counter
        return history if counter is None or step.purpose != "reasoning" else pruned(history, config, counter)

    note = f"beyond the newest {config.protect_tokens:,} tokens of results"
    return replace(prune_tool_results, note=note, reason="tool_result_pruning", for_window=True)
