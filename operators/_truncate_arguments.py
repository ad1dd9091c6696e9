"""`truncate_arguments`: long arguments of old calls, which their results have made superfluous."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.compaction.config import TruncateArgsConfig
from agentscope_rx.compaction.pruning import truncated_arguments
from agentscope_rx.history import History
from agentscope_rx.lifting import Operator, history_operator
from agentscope_rx.step import Step


def truncate_arguments(*, config: TruncateArgsConfig) -> Operator:
    """Cut long arguments of old tool calls; ids, names, results and everything else are kept.

        --s-------|
        truncate_arguments
        --t-------|     t.history holds only short arguments before its newest messages

    A call that its provider has signed is left as it is.

    Args:
        config: Which calls are old, and how long arguments may be.
    """

    @history_operator
    def truncate_arguments(history: History, step: Step) -> History:
        counter = step.card.counter
        if counter is None or step.purpose != "reasoning":
            return history
        return truncated_arguments(history, config, counter)

    note = f"over {config.max_arg_length:,} characters"
    return replace(truncate_arguments, note=note, reason="argument_truncation", for_window=True)
