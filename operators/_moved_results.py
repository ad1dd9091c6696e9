"""How tool results get into files, for the operators that move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from agentscope_rx.compaction.config import ToolResultEvictionConfig
from agentscope_rx.compaction.offloading import ResultFolder, mentioned_files, pointing_to, text_of
from agentscope_rx.draft import Change
from agentscope_rx.lifting import proposed
from agentscope_rx.logs import logger
from agentscope_rx.messages import Msg, ToolResultBlock
from agentscope_rx.step import Step
from agentscope_rx.workspace import WorkspaceFS

OFFLOADED: Final = "tool_result_offload"
FAILED: Final = "tool_result_offload_failed"
Found: TypeAlias = tuple[Msg, ToolResultBlock]


class ResultMover:
    """Writes results to files and puts notices in their place.

    Args:
        config: Where files go and how long they are kept.
        workspace: The workspace.
        operator: Whose work this is.
    """

    def __init__(self, config: ToolResultEvictionConfig, workspace: WorkspaceFS, *, operator: str) -> None:
        self._config, self._workspace, self._operator = config, workspace, operator

    async def move(self, step: Step, found: Sequence[Found], *, preview_chars: int) -> Step:
        """The step whose history, and so its request, points to files.

        Args:
            step: The step.
            found: The results that move; those that cannot be written stay.
            preview_chars: How much of the beginning and of the end stays.
        """
        step, changed = await self._written(step, found, preview_chars)
        if not changed:
            return step
        step = proposed(step, step.history.with_messages(*changed), self._operator)
        if self._config.retention is not None and not step.dry_run:
            await self._drop_old(step)
        return step

    async def move_shown(self, step: Step, found: Sequence[Found], *, preview_chars: int) -> Step:
        """The same for results that only this request shows in these words; the history is left alone."""
        step, changed = await self._written(step, found, preview_chars)
        conversation = step.draft.conversation.with_messages(*changed)
        return replace(step, draft=replace(step.draft, conversation=conversation))

    async def _written(self, step: Step, found: Sequence[Found], preview_chars: int) -> tuple[Step, list[Msg]]:
        folder, changed = self._folder(step), list[Msg]()
        failed: list[Change] = []
        for message, result in found:
            path = folder.file_for(result)
            try:
                if not step.dry_run:
                    keep = partial(folder.keep, path, text_of(result))
                    await step.run.runtime.outside.reach(f"file/{path}", keep)
            except OSError as error:
                logger().warning(FAILED, path=path, error=type(error).__name__)
                failed.append(self._failure(message, error))
            else:
                changed.append(pointing_to(message, result, path, preview_chars=preview_chars))
        return (replace(step, changes=(*step.changes, *failed)) if failed else step), changed

    def _folder(self, step: Step) -> ResultFolder:
        who = step.identity
        return ResultFolder.of(
            self._workspace, self._config, agent=who.agent_name, user_id=who.user_id, session_id=who.session_id
        )

    def _failure(self, message: Msg, error: OSError) -> Change:
        reason = f"{FAILED}:{type(error).__name__}"
        return Change(operator=self._operator, zone="conversation", action="kept", item_id=message.id, reason=reason)

    async def _drop_old(self, step: Step) -> None:
        assert self._config.retention is not None  # its caller has seen to it
        moment = step.run.runtime.clock.now() - self._config.retention
        try:
            drop = partial(self._folder(step).drop_older_than, moment, mentioned=mentioned_files(step.history))
            await step.run.runtime.outside.reach("old files", drop)
        except OSError as error:
            logger().warning("old_tool_results_not_deleted", error=type(error).__name__)
