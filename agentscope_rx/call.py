"""A call: which agent is called, with what, for whom; and how it opens its session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import getpid
from typing import TypeAlias

from agentscope_rx.emitter import Emitter, RunIdentity
from agentscope_rx.errors import CommandGone, UncertainToolCalls
from agentscope_rx.frozen import frozen
from agentscope_rx.inbox import MOST_ATTEMPTS, Claimed, Command
from agentscope_rx.interactions import Answer, pending_calls
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.options import AgentOptions
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.records import CommandBegun, CommandRejected
from agentscope_rx.requests import Purpose
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import (
    CLOSED_TEXT,
    NOT_RUN_TEXT,
    FoldCache,
    Holder,
    Intake,
    LoggedSession,
    RequestCache,
    StateCache,
    StoredSession,
    UncertainCalls,
    fold,
    take_in,
    uncertain_calls,
)
from agentscope_rx.state import AgentState, Record
from agentscope_rx.step import ModelCard, RunHandle, Session
from agentscope_rx.tools.outputs import OutputType

#: A session that somebody changes: with a log, or without one.
OpenSession: TypeAlias = LoggedSession | StoredSession


@frozen
class Call:
    """What is called: an agent, with an input, for somebody.

    Args:
        options: What the agent is made of.
        pipeline: What a step does.
        card: The agent's model.
        messages: The input.
        context: For whom.
        purposes: Which model calls its events tell of.
        output: The form of the answer; None = a text.
        answers: Answers to tool calls that wait, by their ids.
        owner: Whose is what goes on in the background when the run has ended.
        command: What the session was told to do, and now does; None = the input is all there is to do.
        continues: Whether a run at that command has ended without an end of it.
    """

    options: AgentOptions
    pipeline: Pipeline
    card: ModelCard
    messages: tuple[Msg, ...]
    context: RuntimeContext
    purposes: tuple[Purpose, ...] = ("reasoning",)
    output: OutputType | None = None
    answers: Mapping[str, Answer] | None = None
    owner: object = None
    command: Command | None = None
    continues: bool = False

    @property
    def keeps_events(self) -> bool:
        """Whether its events are written to the log."""
        return self.command is not None or self.options.record_events

    def through(self, runtime: Runtime) -> Call:
        """The same call, whose time, identity and world outside are another Runtime's."""
        return replace(self, options=replace(self.options, runtime=runtime))

    def identity(self) -> RunIdentity:
        """A new run's identity."""
        key, ids = self.options.key_of(self.context), self.options.runtime.ids
        return RunIdentity(
            agent_id=key.agent_id,
            agent_name=self.options.name,
            user_id=key.user_id,
            session_id=key.session_id,
            turn_id=ids.new_id("turn") if self.command is None else self.command.turn_id,
            run_id=ids.new_id("run"),
            reply_id=ids.new_id("reply"),
        )

    async def open_session(self, identity: RunIdentity | None = None, *, whole: bool = False) -> OpenSession:
        """The session, for who changes it; close it afterwards.

        Args:
            identity: The run; None = something else changes it.
            whole: Whether all is read that compactions have replaced.

        Raises:
            SessionBusy: Another process has it.
        """
        options, key = self.options, self.options.key_of(self.context)
        store = options.log_store
        if store is None:
            cache = options.runtime.single(StateCache)
            return await StoredSession.open(key, store=options.store, cache=cache, policy=options.conflict_policy)
        holder = Holder(
            name=f"{options.name} in process {getpid()}",
            run_id="" if identity is None else identity.run_id,
            turn_id="" if identity is None else identity.turn_id,
            wait=options.wait_timeout,
            lease=options.lease_seconds,
            whole=whole,
            requests=options.log_requests,
        )
        folds = options.runtime.single(FoldCache)
        return await LoggedSession.open(key, store=store, runtime=options.runtime, cache=folds, holder=holder)

    async def read_state(self) -> AgentState:
        """The session's state, for who only reads it."""
        options, key = self.options, self.options.key_of(self.context)
        store = options.log_store
        if store is not None:
            return (await fold(store, key, options.runtime.single(FoldCache))).state
        cache = options.runtime.single(StateCache)
        return (await StoredSession.open(key, store=options.store, cache=cache)).state

    async def claimed(self, session: OpenSession) -> Call:
        """The call with the input that its command has now, if that is still the next thing to do.

        Raises:
            CommandGone: It is not: nothing was changed, or it was given up, as its process died too often.
        """
        command = self.command
        if command is None:
            return self
        claimed = await self.options.runtime.outside.reach("command", lambda: _claim(session, command.id))
        return replace(self, command=claimed.command, messages=claimed.command.messages, continues=claimed.continues)

    def begin(self, session: OpenSession, run_id: str) -> None:
        """Note that a run begins, and at what."""
        session.begin()
        if self.command is not None:
            session.record(CommandBegun(self.command.id, run_id))

    def take_in(self, session: OpenSession) -> list[Record]:
        """Put the input into the session, and close what it leaves open; gives what was recorded.

        Raises:
            UncertainToolCalls: Nobody knows whether tool calls had an effect, and no run may begin until that is known.
        """
        state = session.state
        uncertain = uncertain_calls(state)
        if uncertain and self.options.uncertain_calls is UncertainCalls.REFUSE:
            raise UncertainToolCalls(tuple(call.id for call in uncertain))
        may_have_run = set(state.dispatched) if session.durable else None

        def closing(call: ToolUseBlock) -> str:
            return CLOSED_TEXT if may_have_run is None or call.id in may_have_run else NOT_RUN_TEXT

        records = take_in(state.context, self.messages, self.intake(), self.answers, closing=closing)
        for record in records:
            session.record(record)
        return records

    def intake(self) -> Intake:
        """How messages get their identity, from now on."""
        runtime = self.options.runtime
        return Intake(new_id=lambda: runtime.ids.new_id("message"), now=runtime.clock.now())

    def handle(self, emit: Emitter, session: Session) -> RunHandle:
        """What the steps of a run hold on to."""
        options = self.options
        handle = RunHandle(
            emit,
            session,
            context=self.context,
            runtime=options.runtime,
            wording=self.pipeline.wording,
            owner=self.owner,
        )
        known = options.runtime.single(RequestCache).find(options.store, options.key_of(self.context))
        if known is not None:
            handle.previous_request, handle.pressure_level = known
        return handle


async def _claim(session: OpenSession, id: str) -> Claimed:
    """The command, if it is still the next thing to do; else `CommandGone`."""
    inbox = session.state.inbox
    found = inbox.next(waiting=bool(pending_calls(session.state.context)))
    if found is None or found.id != id:
        raise CommandGone(f"the command {id!r} is not the next thing to do in session {session.state.session_id!r}")
    if inbox.begun is not None and inbox.begun.attempts >= MOST_ATTEMPTS:
        session.record(CommandRejected(id, "CRASHED"))
        await session.save()
        raise CommandGone(f"the command {id!r} was given up: its process died {MOST_ATTEMPTS} times")
    return Claimed(command=found, continues=inbox.begun is not None)
