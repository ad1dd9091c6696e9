"""What is done with the sessions of an agent between their calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, TypeVar

from agentscope_rx.call import Call, OpenSession
from agentscope_rx.errors import InvalidOption, ReentrantCall, StateConflict, UncertainToolCalls
from agentscope_rx.interactions import PendingCall, pending_calls
from agentscope_rx.live import Interruptible, LiveRuns
from agentscope_rx.messages import Msg, ToolResultBlock
from agentscope_rx.options import AgentOptions, mode_of
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.records import (
    CallsClosed,
    ContextCleared,
    OutcomesReconciled,
    PermissionModeChanged,
    PermissionsReplaced,
    StateReplaced,
    TasksChanged,
)
from agentscope_rx.requests import Purpose
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import NOT_RUN_TEXT, Branch, FoldCache, LoggedSession, SessionLog, uncertain_calls
from agentscope_rx.shutdown import Shutdown
from agentscope_rx.state import AgentState, Record
from agentscope_rx.task_state import TaskContextState
from agentscope_rx.tools.outputs import OutputType
from agentscope_rx.tools.proposals import changed

OptionsT = TypeVar("OptionsT", bound=AgentOptions)
NOBODY: Final = RuntimeContext()


class AgentSessions(ABC, Generic[OptionsT]):
    """The sessions of an agent: what they hold, and what changes them between two calls."""

    options: OptionsT

    @abstractmethod
    def prepared_call(
        self,
        input: str | Msg | Sequence[Msg] | None,
        context: RuntimeContext,
        *,
        purposes: Sequence[Purpose] = ("reasoning",),
        output: OutputType | None = None,
    ) -> Call:
        """A call of this agent, checked: an id or a role that cannot be is refused here and not in the stream."""

    # -- calls that wait ------------------------------------------------------------------------------------

    async def pending(self, context: RuntimeContext = NOBODY, /) -> tuple[PendingCall, ...]:
        """The tool calls of a session that wait: for a person, or for a result from outside."""
        return pending_calls((await self.state(context)).context)

    async def cancel_pending(self, context: RuntimeContext = NOBODY, /) -> tuple[PendingCall, ...]:
        """Give up the calls that wait; the model will be told that they were interrupted.

        Returns:
            What had waited.

        Raises:
            UncertainToolCalls: Nobody knows whether some calls had an effect: reconcile them first.
            SessionBusy: The session's turn did not come in time.
        """
        call = self.prepared_call(None, context)
        async with self._opened(call) as session:
            if uncertain := uncertain_calls(session.state):
                raise UncertainToolCalls(tuple(each.id for each in uncertain))
            history, intake = session.state.context, call.intake()
            if waiting := pending_calls(history):
                closed = (intake.closing(each, text=NOT_RUN_TEXT) for each in history.open_calls)
                session.record(CallsClosed(tuple(closed)))
                await session.save()
            return waiting

    # -- permissions ----------------------------------------------------------------------------------------

    async def set_permission_mode(self, context: RuntimeContext, mode: PermissionMode | str | None, /) -> None:
        """Put a session into another mode, from its next call on; its rules stay.

        Args:
            context: The session.
            mode: The mode, or its name; None = the one of the agent's policy.

        Raises:
            InvalidOption: There is no such mode.
            SessionBusy: The session's turn did not come in time.
        """
        await self.record(PermissionModeChanged(None if mode is None else mode_of("mode", mode)), context)

    async def replace_permissions(self, context: RuntimeContext, permissions: PermissionContextState, /) -> None:
        """Say anew what a session may do beside what the agent's policy says, from its next call on.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        await self.record(PermissionsReplaced(permissions), context)

    async def observe(self, messages: Msg | Sequence[Msg], context: RuntimeContext = NOBODY, /) -> None:
        """Add messages to a session without an answer.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        call = self.prepared_call(messages, context)
        async with self._opened(call) as session:
            call.take_in(session)
            await session.save()

    async def record(self, record: Record, context: RuntimeContext = NOBODY, /, *, whole: bool = False) -> AgentState:
        """Change a session between two calls, in its turn.

        Args:
            record: What has happened to it.
            context: The session.
            whole: Whether the record needs what compactions have replaced.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        async with self.opened_session(context, whole=whole) as session:
            session.record(record)
            await session.save()
            return session.state

    async def update_tasks(
        self, context: RuntimeContext, change: Callable[[TaskContextState], TaskContextState], /
    ) -> TaskContextState:
        """Change a session's task: requirements, decisions, to-do list, subject.

        Between two calls it happens in the session's turn. Made from inside a tool of the session, it is part of the
        running step.

        Args:
            context: The session.
            change: Gets the task as it is, gives another value of it.

        Returns:
            The new task.

        Raises:
            TaskConflict: The change was decided on another revision than the newest; nothing was changed.
            TaskRefused: It breaks a rule; nothing was changed.
            SessionBusy: The session's turn did not come in time.

        Examples:
            await agent.update_tasks(ctx, lambda state: state.set_subject_version("3f2c1d", state.revision))
        """
        try:
            async with self.opened_session(context) as session:
                before = session.state.tasks_context
                after = changed(before, change)
                if after is not before:
                    session.record(TasksChanged(after))
                    await session.save()
                return after
        except ReentrantCall:
            run = self._live_run(context)
            inside = None if run is None else run.update_tasks(change)
            if inside is None:
                raise
            return inside

    def opened_session(
        self, context: RuntimeContext, /, *, whole: bool = False
    ) -> AbstractAsyncContextManager[OpenSession]:
        """A session in its turn, between two calls: for those who change it and save it.

        Args:
            context: The session.
            whole: Whether all is read that compactions have replaced.

        Raises:
            SessionBusy: Inside: the session's turn did not come in time.
        """
        return self._opened(self.prepared_call(None, context), whole=whole)

    @asynccontextmanager
    async def _opened(self, call: Call, *, whole: bool = False) -> AsyncGenerator[OpenSession]:
        options = self.options
        gate = options.runtime.gate((options.store, options.key_of(call.context)))
        with options.runtime.single(Shutdown).changing():
            async with gate.enter(wait_timeout=options.wait_timeout):
                session = await call.open_session(whole=whole)
                try:
                    yield session
                finally:
                    await session.close()

    # -- sessions -------------------------------------------------------------------------------------------

    async def state(self, context: RuntimeContext = NOBODY, /) -> AgentState:
        """The stored state of a session, as the last finished run left it."""
        return await self.prepared_call(None, context).read_state()

    def session_log(self, context: RuntimeContext = NOBODY, /) -> SessionLog:
        """The log of a session: all that was ever said and done in it. Reading it waits for nobody.

        Raises:
            InvalidOption: The agent keeps only states.
        """
        store = self.options.log_store
        if store is None:
            raise InvalidOption("state_only", True, "there are no logs; build the agent with state_only(False)")
        return SessionLog(store, self.options.key_of(context))

    async def replace_state(
        self, context: RuntimeContext, state: AgentState, /, *, expected: AgentState, reason: str = "replaced"
    ) -> AgentState:
        """Put another state in the place of a session's; user and session stay.

        Args:
            context: The session.
            state: The new state.
            expected: The state that it is made from; another one since is a conflict.
            reason: Why, for the log.

        Raises:
            StateConflict: The session's state is no longer the expected one; nothing was changed.
            SessionBusy: The session's turn did not come in time.
        """
        options = self.options
        async with self._opened(self.prepared_call(None, context)) as session:
            # Where only the log holds what compactions have replaced, one of the two may be without it.
            if session.state.to_json(with_replaced=False) != expected.to_json(with_replaced=False):
                raise StateConflict(
                    f"the state of session {session.state.session_id!r} is no longer the one that its replacement was "
                    "made from: read it again"
                )
            named = replace(state, context=state.context.identified(lambda: options.runtime.ids.new_id("message")))
            session.record(StateReplaced(named.to_json().decode(), reason))
            await session.save()
            return session.state

    async def fork(
        self,
        context: RuntimeContext,
        /,
        *,
        to: RuntimeContext,
        at: int | str | None = None,
        reuse_tool_effects: bool = True,
    ) -> AgentState:
        """Begin another session as this one is, or was at an earlier point; this one stays as it is.

        The past is shared, not copied: the new session knows up to where the log of this one is its own, and holds the
        state at that point. It goes on when this one is deleted; then only what had been summarised before the fork
        is gone with it. Files of the workspace are not forked.

        Args:
            context: The session.
            to: The new session.
            at: The id of a step (the `reply_id` of its `MODEL_CALL_START`, and the `id` of its reply): the fork begins
                before that step. A number: behind that record of the log. None = now.
            reuse_tool_effects: What a call gets that this session has made behind the point, with the same arguments:
                True = the result that was recorded, and it does not run a second time; tools that only read do run.
                False = it runs as if it had never run.

        Returns:
            The state that the new session begins with.

        Raises:
            InvalidOption: The session has no such step or record, or the agent keeps only states.
            StateConflict: The new session is there already; it was left as it is.
            SessionBusy: The turn of the new session did not come in time.

        Examples:
            what_if = RuntimeContext(user_id="alice", session_id="what-if")
            await agent.fork(ctx, to=what_if, at=reply.id)
            await agent.call(None, what_if)  # asks the model for that reply once more
        """
        branch = await self._branch(context, at, reuse_tool_effects)
        async with self.opened_session(to) as session:
            assert isinstance(session, LoggedSession)  # there is a log to branch from
            return await session.begin_from(branch)

    async def rewind(self, context: RuntimeContext, /, *, to: int | str, reuse_tool_effects: bool = True) -> AgentState:
        """Take a session back to an earlier point, from which it goes on; its log keeps what came after.

        Args:
            context: The session.
            to: The point, as `at` of `fork`.
            reuse_tool_effects: As for `fork`.

        Returns:
            The state.

        Raises:
            InvalidOption: The session has no such step or record, or the agent keeps only states.
            SessionBusy: The session's turn did not come in time.
        """
        async with self.opened_session(context) as session:
            branch = await self._branch(context, to, reuse_tool_effects)
            assert isinstance(session, LoggedSession)  # there is a log to branch from
            return await session.return_to(branch)

    async def _branch(self, context: RuntimeContext, at: int | str | None, reuse_tool_effects: bool) -> Branch:
        log = self.session_log(context)
        cache = self.options.runtime.single(FoldCache)
        return await log.branch(at, reuse_tool_effects=reuse_tool_effects, cache=cache)

    async def clear_context(self, context: RuntimeContext = NOBODY, /) -> None:
        """Empty the working history of a session; everything else of its state, and its log, stay.

        Raises:
            SessionBusy: The session's turn did not come in time.
        """
        await self.record(ContextCleared(), context)

    async def reconcile(
        self, context: RuntimeContext, outcomes: Mapping[str, str | ToolResultBlock], /, *, reason: str
    ) -> None:
        """Say what became of the tool calls of a process that died while they ran.

        Args:
            context: The session.
            outcomes: A result for each of the uncertain calls, by the call's id.
            reason: How that is known, for the log.

        Raises:
            InvalidOption: The ids are not exactly those of the uncertain calls, or the reason is blank.
            SessionBusy: A run is at work on the session.
        """
        if not reason.strip():
            raise InvalidOption("reason", reason, "say how the outcomes are known")
        call = self.prepared_call(None, context)
        async with self._opened(call) as session:
            uncertain = {each.id: each for each in uncertain_calls(session.state)}
            if set(outcomes) != set(uncertain):
                rule = f"a result for each uncertain call, which are {sorted(uncertain) or 'none'}"
                raise InvalidOption("outcomes", sorted(outcomes), rule)
            intake = call.intake()
            results = tuple(intake.answering(each, outcomes[id]) for id, each in uncertain.items())
            session.record(OutcomesReconciled(results, reason))
            await session.save()

    def _live_run(self, context: RuntimeContext) -> Interruptible | None:
        options = self.options
        return options.runtime.single(LiveRuns).find(options.store, options.key_of(context))
