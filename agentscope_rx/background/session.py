"""AgentSession: one session as those see it who tell it what to do and watch it, and do not wait for it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentscope_rx.background.runner import SessionRunner
from agentscope_rx.background.tasks import SessionTask, TaskReport, report_of, reports_of, settled_in
from agentscope_rx.background.telling import answer_messages, checked_key, command, sender_of
from agentscope_rx.background.watching import SessionEvent, checked_cursor, events_of
from agentscope_rx.bridge import from_aiter
from agentscope_rx.errors import AgentClosed, InvalidOption, NothingRunning, TaskNotResumable
from agentscope_rx.inbox import Command, CommandKind, QueuedInput, Settled, TaskStatus
from agentscope_rx.interactions import Answer, PendingCall, pending_calls
from agentscope_rx.messages import Msg
from agentscope_rx.pulling import Stream
from agentscope_rx.records import CommandQueued, InputQueued, InterruptAsked
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import Projection, SessionLog, messages_of, uncertain_calls
from agentscope_rx.state import AgentState
from agentscope_rx.stores.growing import grown


class AgentSession:
    """A session that works in the background; made by a runner, `runner.session(context)`. It starts nothing by itself.

    What it is told is in the session's log when the call returns: it is done even if this process dies, by the runner
    of the next one. All of it may be used from several processes at once.

    Args:
        runner: What does the work.
        context: For whom.

    Examples:
        async with InProcessRunner(builder) as runner:
            session = runner.session(RuntimeContext(user_id="alice", session_id="change-42"))
            task = await session.submit("Fix the report export failure.", key="request-17")
            async for each in session.events():
                print(each.cursor, each.event.type)
    """

    def __init__(self, runner: SessionRunner, context: RuntimeContext) -> None:
        self._runner, self._context = runner, context
        options = runner.worker.options
        self.key = options.key_of(context)
        self._teller = runner.worker.teller(self.key)
        self._ids = options.runtime.ids
        self._closed = False

    def __repr__(self) -> str:
        return f"AgentSession({self.key.session_id!r}, user={self.key.user_id!r})"

    @property
    def session_id(self) -> str:
        """Its id."""
        return self.key.session_id

    # -- telling it something -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Let the runner look whether there is something to do; for sessions of a process that has died."""
        self._check_open()
        await self._runner.wake(self.key)

    async def submit(self, input: str | Msg | Sequence[Msg], *, key: str | None = None) -> SessionTask:
        """Let it answer new input, after all that it was told before.

        Args:
            input: What the user says.
            key: Under which the task is known, for whoever may submit it twice: the same key with the same input is
                the same task. Default None: a new one.

        Raises:
            InvalidOption: There is no input, the key is blank or longer than 200 characters, or was used for another
                input.
            AgentClosed: This session was closed.
        """
        messages = messages_of(input)
        if not messages:
            raise InvalidOption("input", input, "nothing to answer; `resume` goes on with what was left")
        id = self._ids.new_id("task") if key is None else checked_key(key)
        turn = self._ids.new_id("turn")
        given = command(CommandKind.SUBMIT, id, turn_id=turn, sender=sender_of(self._context), messages=messages)
        if key is not None and (old := await self._old_task(id)) is not None:
            return self._same(old, given)
        return await self._queue(lambda state: given)

    async def respond(self, answers: Mapping[str, Answer]) -> SessionTask:
        """Answer tool calls that wait, and let it go on.

        Args:
            answers: By the ids of calls, as for `Agent.respond`.

        Raises:
            InvalidOption: There is no answer.
            InteractionMismatch: An answer fits no call that waits.
            AgentClosed: This session was closed.
        """
        if not answers:
            raise InvalidOption("answers", answers, "at least one answer, by the id of its call")
        named = hashlib.sha256("\n".join(sorted(answers)).encode()).hexdigest()[:32]
        intake = self._teller.intake()

        def about(state: AgentState) -> Command:
            tried = sum(each.id.startswith(f"answer-{named}-") for each in state.inbox.settled)
            asked = _newest(state, TaskStatus.SUSPENDED)
            return command(
                CommandKind.RESPOND,
                f"answer-{named}-{tried}",
                turn_id=asked.turn_id if asked is not None else self._ids.new_id("turn"),
                sender=sender_of(self._context),
                messages=answer_messages(answers, state, intake),
            )

        return await self._queue(about)

    async def resume(self, turn_id: str | None = None) -> SessionTask:
        """Go on with a turn that has failed or was interrupted; nothing is run twice.

        Args:
            turn_id: The turn; it must be the newest. Default None: that.

        Raises:
            TaskNotResumable: The newest turn is not that, has not ended so, or other work has been given since; or
                calls wait for somebody, or nobody knows whether some had an effect.
            AgentClosed: This session was closed.
        """

        def about(state: AgentState) -> Command:
            newest = state.inbox.settled[-1] if state.inbox.settled else None
            _check_resumable(state, newest, turn_id)
            assert newest is not None
            tried = sum(each.turn_id == newest.turn_id for each in state.inbox.settled)
            return command(
                CommandKind.RESUME,
                f"resume-{newest.turn_id}-{tried}",
                turn_id=newest.turn_id,
                sender=sender_of(self._context),
            )

        return await self._queue(about)

    async def steer(self, input: str | Msg | Sequence[Msg]) -> str:
        """Tell the run at work something: its next step takes it in, and one more step follows where it had ended.

        Returns:
            The id under which the `inputs_taken` event names it.

        Raises:
            NothingRunning: No run is at work.
            InvalidOption: There is no input.
            AgentClosed: This session was closed.
        """
        return await self._put_in(input, running=True)

    async def inject(self, input: str | Msg | Sequence[Msg]) -> str:
        """As `steer`, but it may also wait for the next run; it starts none."""
        return await self._put_in(input, running=False)

    async def interrupt(self) -> bool:
        """End the run at work with what it has, wherever that is; what else was submitted is done afterwards.

        Returns:
            Whether a run was there.
        """
        asked = False

        def about(state: AgentState) -> InterruptAsked | None:
            nonlocal asked
            asked = bool(state.active_run)
            return InterruptAsked(state.active_run) if asked else None

        self._check_open()
        await self._teller.tell(about)
        return asked

    async def fork(
        self, to: RuntimeContext, *, at: int | str | None = None, reuse_tool_effects: bool = True
    ) -> AgentSession:
        """Begin another session as this one is, or was at an earlier point; nothing that was queued comes along.

        Args:
            to: The new session.
            at: As for `Agent.fork`. Default None: now.
            reuse_tool_effects: As for `Agent.fork`.

        Returns:
            The new session; errors as for `Agent.fork`.
        """
        agent = self._runner.worker.agent
        await agent.fork(self._context, to=to, at=at, reuse_tool_effects=reuse_tool_effects)
        return AgentSession(self._runner, to)

    async def close(self) -> None:
        """Let go of the session: its run stops where it suits, and is gone on with at the next `start`. What it is
        told from now on is refused; what it is asked is answered."""
        self._closed = True
        await self._runner.stop(self.key)

    # -- asking it ------------------------------------------------------------------------------------------

    async def inspect(self) -> Projection:
        """The session as it is now."""
        return await self.log.project()

    async def pending(self) -> tuple[PendingCall, ...]:
        """The tool calls that wait: for a person, or for a result from outside."""
        return pending_calls((await self._teller.read()).state.context)

    async def tasks(self) -> tuple[TaskReport, ...]:
        """What it was told, oldest first, and what became of it; the newest 200 of those that are settled."""
        return reports_of((await self._teller.read()).state.inbox)

    async def transcript(self) -> Sequence[Msg]:
        """All that was ever said in it, word for word."""
        return await self.log.transcript()

    @property
    def log(self) -> SessionLog:
        """Its log."""
        return SessionLog(self._teller.store, self.key)

    def events(self, *, after: int | str = 0, follow: bool = True) -> Stream[SessionEvent]:
        """What happens in it, from its log and on as it comes, whichever process is at work.

        Events of background work are there, and those of calls of agents with `record_events`. One that is slow gets
        the deltas of a block as one; it misses nothing.

        Args:
            after: Behind which event to begin: its `cursor`, or the number of a record of the log. Default 0: from the
                beginning.
            follow: Whether to wait for more at the end. Default True.

        Raises:
            InvalidOption: The cursor is none.
            LogUnreadable: In the stream: a record cannot be read.
        """
        place, store, key = checked_cursor(after), self._teller.store, self.key
        return Stream(from_aiter(lambda: events_of(store, key, place, follow=follow)), label="events(...)")

    async def report(self, task: SessionTask | str) -> TaskReport:
        """What has become of a task so far.

        Raises:
            InvalidOption: There is no such task.
        """
        id = task if isinstance(task, str) else task.id
        state = (await self._teller.read()).state
        found = state.inbox.find(id) or (await settled_in(self.log, id) if state.inbox.forgotten else None)
        if found is None:
            raise InvalidOption("task", id, f"the session {self.key.session_id!r} has no such task")
        reply = await self._reply_of(found, state) if isinstance(found, Settled) else None
        return replace(report_of(found), reply=reply)

    async def wait(self, task: SessionTask | str, *, timeout: float | None = None) -> TaskReport:
        """Wait until a task is settled; whatever becomes of it, this is no error.

        Args:
            task: The task, or its id.
            timeout: Seconds. Default None: for ever.

        Raises:
            InvalidOption: There is no such task.
            TimeoutError: It was not settled in time; it goes on.
        """
        async with asyncio.timeout(timeout):
            while True:
                seq = (await self._teller.read()).seq
                report = await self.report(task)
                if report.status.is_settled:
                    return report
                await grown(self._teller.store, self.key, seq)

    # -- inside ---------------------------------------------------------------------------------------------

    async def _queue(self, about: Callable[[AgentState], Command]) -> SessionTask:
        given: Command | None = None

        def record(state: AgentState) -> CommandQueued | None:
            nonlocal given
            given = about(state)
            return None if state.inbox.find(given.id) is not None else CommandQueued(given)

        self._check_open()
        state = await self._teller.tell(record)
        assert given is not None
        found = state.inbox.find(given.id)
        assert found is not None  # it is there since before, or since now
        task = self._same(found if isinstance(found, Command | Settled) else found.command, given)
        await self._runner.wake(self.key)
        return task

    async def _old_task(self, id: str) -> Settled | None:
        """A task that the state does not remember any more."""
        inbox = (await self._teller.read()).state.inbox
        return await settled_in(self.log, id) if inbox.forgotten and inbox.find(id) is None else None

    def _same(self, known: Command | Settled, given: Command) -> SessionTask:
        if known.digest != given.digest:
            raise InvalidOption("key", given.id, "was used for another input; give a key of its own")
        return SessionTask(self, known.id, known.turn_id)

    async def _put_in(self, input: str | Msg | Sequence[Msg], *, running: bool) -> str:
        messages, intake = messages_of(input), self._teller.intake()
        if not messages:
            raise InvalidOption("input", input, "something to say")
        inputs = QueuedInput(id=self._ids.new_id("input"), messages=tuple(map(intake.accept, messages)))

        def about(state: AgentState) -> InputQueued:
            if running and not state.active_run:
                raise NothingRunning(
                    f"no run is at work in session {self.key.session_id!r}: `inject` waits for the next one, `submit` "
                    "starts one"
                )
            return InputQueued(inputs)

        self._check_open()
        await self._teller.tell(about)
        return inputs.id

    def _check_open(self) -> None:
        if self._closed:
            raise AgentClosed(f"the session {self.key.session_id!r} was closed here; ask the runner for it again")
        self._runner.check_open()

    async def _reply_of(self, task: Settled, state: AgentState) -> Msg | None:
        if not task.reply_id:
            return None
        there = next((each for each in state.context.messages if each.id == task.reply_id), None)
        if there is not None:
            return there
        said = await self.log.transcript()  # it has given way to a summary since
        return next((each for each in said if each.id == task.reply_id), None)


def _newest(state: AgentState, status: TaskStatus) -> Settled | None:
    return next((each for each in reversed(state.inbox.settled) if each.status is status), None)


def _check_resumable(state: AgentState, newest: Settled | None, turn_id: str | None) -> None:
    if newest is None or turn_id not in (None, newest.turn_id):
        raise TaskNotResumable(f"the turn {turn_id!r} is not the newest of the session's background work")
    if newest.status not in (TaskStatus.FAILED, TaskStatus.INTERRUPTED, TaskStatus.REJECTED):
        raise TaskNotResumable(f"the newest turn has ended as {newest.status.value}: there is nothing to go on with")
    if state.inbox.begun is not None or state.inbox.queued:
        raise TaskNotResumable("other work was submitted since: that goes on with the session")
    if waiting := pending_calls(state.context):
        raise TaskNotResumable(f"the call {waiting[0].id!r} waits for an answer: `respond` to it")
    if uncertain := uncertain_calls(state):
        raise TaskNotResumable(f"nobody knows whether the call {uncertain[0].id!r} had an effect: `reconcile` it")
