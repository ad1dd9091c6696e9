"""`offload_tool_results`: no result larger than the limit stays in the history; `_moved_results` writes the files."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from agentscope_rx.compaction.config import ToolResultEvictionConfig
from agentscope_rx.compaction.offloading import oversized
from agentscope_rx.lifting import Operator
from agentscope_rx.operators._moved_results import OFFLOADED, Found, ResultMover
from agentscope_rx.step import Step
from agentscope_rx.workspace import WorkspaceFS

_NAME: Final = "offload_tool_results"


def offload_tool_results(*, config: ToolResultEvictionConfig, workspace: WorkspaceFS) -> Operator:
    """Move large tool results into files of the workspace; where they are, and what they begin and end with, stays.

        --s---------|
        offload_tool_results
        ------t-----|     no result of t.history is larger than it may be

    A result that cannot be written stays as it is, and the manifest says so. In a dry run nothing is written.

    Args:
        config: Which results are too large, and what stays of them.
        workspace: Where the files go.
    """
    mover = ResultMover(config, workspace, operator=_NAME)

    def offload_tool_results(step: Step) -> Step | Awaitable[Step]:
        if step.purpose != "reasoning":
            return step
        found = [*oversized(step.history, config)]
        return offloaded(step, found) if found or any(oversized(step.draft.conversation, config)) else step

    async def offloaded(step: Step, found: list[Found]) -> Step:
        if found:
            step = await mover.move(step, found, preview_chars=config.preview_chars)
        tried = {id(result) for _, result in found}  # the rest is what this request shows in other words
        shown = [each for each in oversized(step.draft.conversation, config) if id(each[1]) not in tried]
        return await mover.move_shown(step, shown, preview_chars=config.preview_chars) if shown else step

    note = f"over {config.max_result_chars:,} characters"
    return Operator(
        name=_NAME,
        kind="history",
        handle=offload_tool_results,
        function=offload_tool_results,
        note=note,
        reason=OFFLOADED,
    )
