"""What a run got from outside and told, so that it can be run again from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentscope_rx.frozen import frozen
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class RunTraced:
    """What has come into a run, and out of it, since the record of this kind before; the state is the same.

    Args:
        lines: One for each thing, as plain data, with its moment: the lines of a recording without what the log holds
            in other records.
    """

    lines: Sequence[Mapping[str, Any]]

    def apply(self, state: AgentState) -> AgentState:
        return state
