"""HarnessAgent: a ReActAgent whose every request is prepared, budgeted and accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from agentscope_rx.agent import NOBODY, Agent
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compactions import Compaction, expanded
from agentscope_rx.harness_builder import HarnessBuilder, HarnessKeywords
from agentscope_rx.harness_options import HarnessOptions
from agentscope_rx.messages import Msg
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.pipelines import harness_pipeline
from agentscope_rx.preparation import PreparedRequest, prepare
from agentscope_rx.records import CompactionUndone, PlanModeChanged
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.workspace import WorkspaceFS


class HarnessAgent(Agent[HarnessOptions]):
    """An agent for long work: each request is assembled from instructions, workspace material, sources and history,
    kept within the model's window, checked, and accounted for in a `context_build` event.

    Made by a builder, at start-up configured, shared by everybody:

    Examples:
        >>> from agentscope_rx.testing import ScriptedModel
        >>> from agentscope_rx.workspace import InMemoryWorkspace
        >>> builder = HarnessAgent.builder(name="helper", model=ScriptedModel(["Done."]), workspace=InMemoryWorkspace())
        >>> builder.instruction("tone", "Be brief.").call("Go.").run().text
        'Done.'
    """

    @staticmethod
    def builder(**options: Unpack[HarnessKeywords]) -> HarnessBuilder:
        """Begin to configure an agent; every option is also a method of the builder."""
        return HarnessBuilder(HarnessAgent, HarnessOptions()).configured(options)

    @staticmethod
    def builder_from(agent: HarnessAgent) -> HarnessBuilder:
        """A builder with all that an agent was made of; policy, sources and selection are the same objects."""
        return HarnessBuilder(HarnessAgent, agent.options)

    def _make_pipeline(self, options: HarnessOptions) -> Pipeline:
        return harness_pipeline(options)

    async def prepare(
        self, input: str | Msg | Sequence[Msg] | None = None, context: RuntimeContext = NOBODY, /
    ) -> PreparedRequest:
        """The request that a call would send first, and its manifest; nothing is changed and no model is called.

        Sources and files are read. A `PreparedRequest` comes also for a request that would be refused: its
        `error` says why.

        Args:
            input: What the user would say.
            context: For whom.
        """
        return await prepare(self.prepared_call(input, context))

    # -- files ----------------------------------------------------------------------------------------------

    def files(self, context: RuntimeContext = NOBODY, /) -> WorkspaceFS:
        """The workspace as a session sees it, to read and to write; what it holds of others is not there.

        Args:
            context: The session.

        Raises:
            InvalidIdentifier: An id of the context cannot be one.

        Examples:
            await agent.files(RuntimeContext(user_id="alice")).write("AGENTS.md", b"Answer in French.")
        """
        return self.options.agent_files.of(self.options.key_of(context))

    # -- planning -------------------------------------------------------------------------------------------

    async def enter_plan_mode(self, context: RuntimeContext = NOBODY, /) -> None:
        """Let a session plan from now on: nothing can be changed by tools until it ends.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        await self._set_planning(context, planning=True)

    async def exit_plan_mode(self, context: RuntimeContext = NOBODY, /) -> None:
        """End the planning of a session, without asking anybody; errors as for `enter_plan_mode`."""
        await self._set_planning(context, planning=False)

    async def is_plan_mode_active(self, context: RuntimeContext = NOBODY, /) -> bool:
        """Whether a session plans."""
        return (await self.state(context)).plan_mode_context.plan_active

    async def _set_planning(self, context: RuntimeContext, *, planning: bool) -> None:
        async with self.opened_session(context) as session:
            plan = session.state.plan_mode_context
            if plan.plan_active is not planning:
                session.record(PlanModeChanged(replace(plan, plan_active=planning)))
                await session.save()

    # -- what was shortened ---------------------------------------------------------------------------------

    async def compactions(self, context: RuntimeContext = NOBODY, /) -> tuple[Compaction, ...]:
        """The compactions of a session that were not undone, oldest first, with everything that gave way to them."""
        if self.options.log_store is not None:
            return tuple(await self.session_log(context).compactions())
        return (await self.state(context)).compactions

    async def undo_compaction(self, context: RuntimeContext, id: str, /) -> None:
        """Put back what a compaction has replaced; the newest first.

        Args:
            context: The session.
            id: The compaction.

        Raises:
            UndoRefused: There is no such compaction, or a later one lies over it.
            SessionBusy: The session's turn did not come in time.
        """
        config = self.options.compaction or CompactionConfig()
        await self.record(CompactionUndone(id, config.cooldown_steps), context, whole=True)

    async def expand(self, context: RuntimeContext, id: str, span: slice | None = None, /) -> tuple[Msg, ...]:
        """The messages that a compaction has replaced, word for word; nothing is changed.

        What it replaced an earlier summary for is there in its place.

        Args:
            context: The session.
            id: The compaction.
            span: Which of the messages, counted from 0; None = all.

        Raises:
            UndoRefused: There is no such compaction.
        """
        messages = expanded(await self.compactions(context), id)
        return messages if span is None else messages[span]
