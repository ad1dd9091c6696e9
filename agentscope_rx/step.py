"""Step: what travels through the pipe, and the run that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, Protocol

from agentscope_rx.background_work import BackgroundWork
from agentscope_rx.compactions import CompactionDecision
from agentscope_rx.draft import Change, RequestDraft, TextFunction
from agentscope_rx.emitter import E, Emitter, RunIdentity
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import GenerateReason, Msg, ToolResultBlock
from agentscope_rx.past import RecordedEffect
from agentscope_rx.requests import Model, ModelRequest, Purpose
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState, Record
from agentscope_rx.task_state import TaskContextState
from agentscope_rx.token_counter import TokenCounter

_NONE_YET: Final = -1


@frozen
class ModelCard:
    """What a request must know of the model that it is prepared for.

    Args:
        name: The model's name.
        window: Tokens of request and answer together; None = not known.
        max_output: Tokens of an answer; None = not known.
        window_origin: Where the window comes from: `given` by the model, or `unknown`.
        own: Whether it is the agent's own model, and none that stands in for it.
        json_schema: Whether its provider holds it to a JSON schema.
        model: The model itself.
        counter: Counts the tokens of its requests; None = nobody needs to know.
    """

    name: str
    window: int | None = None
    max_output: int | None = None
    window_origin: str = "unknown"
    own: bool = True
    json_schema: bool = False
    model: Model = field(compare=False, repr=False)
    counter: TokenCounter | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, model: Model, counter: TokenCounter | None = None, *, own: bool = True) -> ModelCard:
        """The card of a model."""
        window = model.context_window
        return cls(
            name=model.name,
            window=window,
            max_output=model.max_output_tokens,
            window_origin="unknown" if window is None else "given",
            own=own,
            json_schema=bool(getattr(model, "json_schema", False)),
            model=model,
            counter=counter,
        )


class Session(Protocol):
    """The owner and only writer of a session's state."""

    @property
    def state(self) -> AgentState:
        """The newest state."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what is recorded is written to a log."""
        ...

    @property
    def pending(self) -> bool:
        """Whether something is recorded that is not written yet."""
        ...

    step_id: str
    """The request that records belong to."""

    step_number: int
    """Which reasoning step of the run that is of."""

    async def recorded_result(self, effect: RecordedEffect, /) -> ToolResultBlock | None:
        """The result of a call that has run in another future of the session."""
        ...

    def record(self, record: Record, /) -> AgentState:
        """Fold a record into the state, at once."""
        ...

    def note_request(self, request: ModelRequest, model: str, manifest: ContextManifest | None, /) -> None:
        """Record a request that goes to a model, where requests are kept."""
        ...

    async def barrier(self) -> None:
        """Write what was recorded."""
        ...

    async def save(self) -> None:
        """Store what was recorded."""
        ...


class TaskProposals(Protocol):
    """What the tools of one step change of the session's task."""

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState], /) -> TaskContextState:
        """Change the task; gives the new one."""
        ...


class RunHandle:
    """The run behind a step: its way out, its session, and how far it has come.

    Attributes:
        materials: What was loaded once for the whole call, by name.
        acted: The newest step whose tools have begun.
        running: The operator at work.
        furthest: The newest step that left an operator.
        previous_request: The session's newest request that passed preparation.
        estimated_tokens: What that request was estimated at; None = nobody counted.
        manifest: Its account; None = nobody gave one.
        pressure_level: How near to its limit that request was, as it was last told.
        answer_begun: Whether anything of the newest answer had arrived when it failed.
        retry_told: Whether a guard has told already why the request begins again.
        proposals: What the tools that are at work have changed of the session's task; None while none is.
        stopping: Whether the run is to end before its tools begin, or before its next step.
        background: What is done when the work has ended that was begun for this run and may outlive it.

    Args:
        emit: Publishes an event.
        session: The session's state.
        context: What the application handed along.
        runtime: Clock, ids and threads.
        wording: How requests of this run word their texts: the text operators of the pipeline, in order.
        owner: Whose work in the background is: who closes it waits for that. Default None: nobody does.
    """

    __slots__ = (
        "_begun",
        "_beside",
        "_notes",
        "_session",
        "acted",
        "answer_begun",
        "background",
        "context",
        "emit",
        "estimated_tokens",
        "furthest",
        "manifest",
        "materials",
        "owner",
        "pressure_level",
        "previous_request",
        "proposals",
        "retry_told",
        "running",
        "runtime",
        "stopping",
        "wording",
    )

    def __init__(
        self,
        emit: Emitter,
        session: Session,
        *,
        context: RuntimeContext,
        runtime: Runtime,
        wording: tuple[TextFunction, ...] = (),
        owner: object = None,
    ) -> None:
        self.emit, self._session = emit, session
        self.context, self.runtime, self.wording, self.owner = context, runtime, wording, owner
        self.background: list[Future[None]] = []
        self._begun = self.acted = _NONE_YET
        self._notes: list[tuple[ModelRequest, str, ContextManifest | None]] = []
        self._beside = False
        self.materials: dict[str, object] = {}
        self.running = ""
        self.furthest: Step | None = None
        self.previous_request: RequestDraft | None = None
        self.estimated_tokens: int | None = None
        self.manifest: ContextManifest | None = None
        self.pressure_level = 0
        self.retry_told = self.answer_begun = self.stopping = False
        self.proposals: TaskProposals | None = None

    def aside(self) -> RunHandle:
        """The same run for a model call beside the conversation, whose progress is its own."""
        other = RunHandle(
            self.emit,
            self._session,
            context=self.context,
            runtime=self.runtime,
            wording=self.wording,
            owner=self.owner,
        )
        other.materials, other.running, other.background = self.materials, self.running, self.background
        other._notes, other._beside = self._notes, True
        return other

    def apart(self) -> RunHandle | None:
        """The run for work beside it that no recording holds and that is not repeated; None where none may be done.

        Such work draws no id and no moment from the run: how long it takes must not change what the run does.
        """
        runtime = self.runtime.apart
        if runtime is None:
            return None
        other = RunHandle(
            self.emit.apart(runtime),
            self._session,
            context=self.context,
            runtime=runtime,
            wording=self.wording,
            owner=self.owner,
        )
        other.background, other._beside = self.background, True
        return other

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that nobody of this run waits for, and that may outlive it.

        Args:
            work: What it raises is logged. It has this run's way out as long as somebody listens there.
        """
        self.background.append(self.runtime.single(BackgroundWork).start(work, owner=self.owner))

    @property
    def state(self) -> AgentState:
        """The session's newest state."""
        return self._session.state

    def record(self, record: Record) -> AgentState:
        """Change the session; gives the new state."""
        return self._session.record(record)

    def note_request(self, request: ModelRequest, model: str) -> None:
        """Keep a request that goes to a model; of one beside the conversation it is noted until the next commit."""
        manifest = self.manifest
        note = request, model, manifest if manifest is not None and manifest.call_id == request.call_id else None
        if self._beside:
            self._notes.append(note)
        else:
            self._session.note_request(*note)

    def keep_notes(self) -> None:
        """Record the requests that were noted beside the conversation."""
        for note in self._notes:
            self._session.note_request(*note)
        self._notes.clear()

    @property
    def durable(self) -> bool:
        """Whether what is recorded is written to a log."""
        return self._session.durable

    @property
    def pending(self) -> bool:
        """Whether something is recorded that is not written yet."""
        return self._session.pending

    async def recorded_result(self, effect: RecordedEffect) -> ToolResultBlock | None:
        """The result of a call that has run in another future of the session; None where nobody knows it."""
        return await self._session.recorded_result(effect)

    async def barrier(self) -> None:
        """Write what was recorded, before something happens that must not be forgotten."""
        await self.runtime.outside.keep(self._session.barrier)

    async def save(self) -> None:
        """Store what was recorded, before the world outside is told of it."""
        await self.runtime.outside.keep(self._session.save)

    def begins(self, number: int, call_id: str) -> bool:
        """Note that the request of step `number` begins, under this id; whether it had begun before."""
        again, self._begun = self._begun == number, number
        self._session.step_id, self._session.step_number = call_id, number
        return again


@frozen(kw_only=False)
class Timing:
    """How long an operator took, in seconds of the run's clock."""

    operator: str
    seconds: float


@frozen(kw_only=False)
class Finish:
    """An operator wants the run to end here.

    Args:
        message: The answer; None = the reply that the model gave.
        reason: Why.
    """

    message: Msg | None
    reason: GenerateReason


@frozen
class Pressed:
    """The provider has refused the request of this step as too long: it has to be shorter than it was.

    Args:
        tokens: What the refused request was estimated at; None = nobody counted.
        learned: How many tokens it may have, so far as the refusal tells; None = it tells nothing.
    """

    tokens: int | None
    learned: int | None = None


class Mode(StrEnum):
    """What a step is for.

    `ask_again` follows an empty reply: the request says so. `conclude` is the one call after the limit of steps:
    no tools, and a request to sum up. `resume` goes on with the tool calls of an earlier reply: it asks no model.
    """

    NORMAL = "normal"
    ASK_AGAIN = "ask_again"
    CONCLUDE = "conclude"
    RESUME = "resume"


@frozen
class Step:
    """One reasoning step, as data. Operators never change it; they return another one.

    Args:
        number: Which step of the run, from 0.
        identity: Who runs, for whom.
        card: The model of this attempt.
        call_id: One id of the request: of its events, its manifest and its log records. Set by `begin_request`.
        purpose: What the model is called for.
        mode: What the step is for.
        correction: What was wrong with the form of the answer before, which is asked for again; empty = nothing.
        max_output: How long an answer may be asked for, where the provider has refused a longer one; None = as long
            as the options say.
        pressed: Set where the provider has refused this step's request as too long.
        state: The session's state when the request began.
        history: The working history that this step proposes.
        lasting: What of it `commit_history` keeps, where the step's model only stands in for the agent's: all but
            what was shortened for that model's window. None = all of it.
        compaction: What was decided about a compaction.
        draft: The request in the making.
        changes: What operators changed so far.
        timings: How long they took.
        reply: The model's answer, once it is there.
        finished: Set by `finish`.
        dry_run: Whether the request is only prepared: nothing is written, and no model is called.
        run: The run behind the step; no part of its value.
    """

    number: int
    identity: RunIdentity
    card: ModelCard
    call_id: str = ""
    purpose: Purpose = "reasoning"
    mode: Mode = Mode.NORMAL
    correction: str = ""
    max_output: int | None = None
    pressed: Pressed | None = None
    state: AgentState = field(default_factory=AgentState)
    history: History = field(default_factory=History)
    lasting: History | None = None
    compaction: CompactionDecision | None = None
    draft: RequestDraft = field(default_factory=RequestDraft)
    changes: tuple[Change, ...] = ()
    timings: tuple[Timing, ...] = ()
    reply: Msg | None = None
    finished: Finish | None = None
    dry_run: bool = False
    run: RunHandle = field(compare=False, repr=False)

    def emit(self, event: E) -> E:
        """Publish an event of this run; gives it back with its id and moment."""
        if self.purpose != "reasoning":
            return self.run.emit.aside(event, self.purpose)
        return self.run.emit(event)

    def finish(self, message: str | Msg | None, reason: GenerateReason) -> Step:
        """The same step, which ends the run: no later operator sees it.

        Args:
            message: The answer of the call; None = the model's reply.
            reason: Why, for those who read the answer.

        Raises:
            ValueError: There is no message and no reply.
        """
        if message is None and self.reply is None:
            raise ValueError("finish(None, ...) needs a reply; before call_model give it a message")
        answer = Msg.assistant(message) if isinstance(message, str) else message
        return replace(self, finished=Finish(answer, reason))
