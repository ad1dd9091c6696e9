"""Steps, histories and runs for the tests of operators: real ones, over a session in memory, equal each time.

run = a_run(a_history(["How much is it?"]))
after = await last(my_operator(reactivex.of(a_step(run=run))))

assert after.draft.references == (...)
assert run.events == [...]              # what the operator emitted
assert run.records == [...]             # what it recorded
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict, Unpack

from agentscope_rx.draft import Change, RequestDraft
from agentscope_rx.emitter import Emitter, RunIdentity
from agentscope_rx.events import AgentEvent
from agentscope_rx.history import History
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.past import RecordedEffect
from agentscope_rx.requests import ModelRequest, Purpose
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState, Record
from agentscope_rx.step import Finish, Mode, ModelCard, RunHandle, Step, Timing
from agentscope_rx.testing.scripted_model import ScriptedModel

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NOBODY: Final = RuntimeContext()


class NumberedIds:
    """Ids that count, kind by kind: `call-1`, `event-1`, `event-2`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def new_id(self, kind: str, /) -> str:
        """The next id of its kind."""
        self._counts[kind] += 1
        return f"{kind}-{self._counts[kind]}"


class LoopClock:
    """A wall clock that shows the first of January 2026 when the loop's time is 0, and goes with it."""

    def now(self) -> datetime:
        """The moment that the loop's time stands for."""
        return BEGINNING + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """The running loop's time; 0 where none runs."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0


def a_runtime() -> Runtime:
    """Make a Runtime whose ids and moments are the same each time, and whose waits have no jitter."""
    return Runtime(clock=LoopClock(), ids=NumberedIds(), jitter=lambda: 1.0)


class MemorySession:
    """A session that is stored nowhere.

    Attributes:
        records: What was recorded, in order, requests to models apart.
        asked: Those, in order.
    """

    def __init__(self, state: AgentState) -> None:
        self._state = state
        self.step_id, self.step_number = "", 0
        self.records: list[Record] = []
        self.asked: list[ModelRequest] = []

    @property
    def state(self) -> AgentState:
        """The newest state."""
        return self._state

    @property
    def durable(self) -> bool:
        """There is no log."""
        return False

    @property
    def pending(self) -> bool:
        """Nothing waits to be written to a log."""
        return False

    async def recorded_result(self, effect: RecordedEffect, /) -> ToolResultBlock | None:
        """There is no other future."""
        return None

    async def barrier(self) -> None:
        """There is no log to write to."""

    def record(self, record: Record, /) -> AgentState:
        """Fold a record into the state."""
        self._state = self._state.apply(record)
        self.records.append(record)
        return self._state

    def note_request(self, request: ModelRequest, model: str, manifest: ContextManifest | None, /) -> None:
        """Keep a request."""
        self.asked.append(request)

    async def save(self) -> None:
        """There is no store."""


class RecordingRun(RunHandle):
    """The run behind a step of a test.

    Attributes:
        identity: Who runs, for whom.
        events: What operators emitted, in order.
        heard_at: When, by the loop's time; 0 where no loop ran.
        records: What they recorded, in order.
    """

    __slots__ = ("events", "heard_at", "identity", "records")

    def __init__(self, session: MemorySession, *, context: RuntimeContext, runtime: Runtime) -> None:
        self.identity = RunIdentity(
            agent_id="agent",
            agent_name="agent",
            user_id=session.state.user_id,
            session_id=session.state.session_id,
            turn_id="turn",
            run_id="run",
            reply_id="reply",
        )
        self.events: list[AgentEvent] = []
        self.heard_at: list[float] = []
        self.records = session.records
        super().__init__(Emitter(self.identity, runtime, self._hear), session, context=context, runtime=runtime)

    def _hear(self, event: AgentEvent) -> None:
        self.events.append(event)
        self.heard_at.append(LoopClock().monotonic())


def a_history(messages: int | Iterable[str | Msg] = 2) -> History:
    """Make a history.

    Args:
        messages: How many: a question, a tool call, its result and an answer, over and over. Or which: texts are
            the user's and the model's by turns; a message without an id gets one by its place.

    Examples:
        >>> [message.text for message in a_history(["Hello", "Hi"]).messages]
        ['Hello', 'Hi']
        >>> len(a_history(5_000))
        3750
    """
    if isinstance(messages, int):
        return History.of(*(_nth(at, whole=at - at % 4 + 4 <= messages) for at in range(messages)))
    return History.of(*(_spoken(at, message) for at, message in enumerate(messages)))


def _nth(at: int, *, whole: bool) -> Msg:
    turn = at // 4
    call = f"call-{turn}"
    match at % 4:
        case 1 if whole:
            message = Msg.assistant(ToolUseBlock(id=call, name="look"))
        case 2 if whole:
            message = Msg.tool(ToolResultBlock(id=call, name="look", output=(TextBlock(text=f"result {turn}"),)))
        case 0 | 2:
            message = Msg.user(f"question {turn}")
        case _:
            message = Msg.assistant(f"answer {turn}")
    return replace(message, id=f"m{at}")


def _spoken(at: int, message: str | Msg) -> Msg:
    if isinstance(message, str):
        message = Msg.assistant(message) if at % 2 else Msg.user(message)
    return message if message.id else replace(message, id=f"m{at}")


def a_run(
    history: History | None = None, *, context: RuntimeContext = _NOBODY, runtime: Runtime | None = None
) -> RecordingRun:
    """Make a run over a session in memory.

    Args:
        history: What the session holds; None = a question and an answer.
        context: What the application hands along.
        runtime: Clock, ids and threads; None = those of `a_runtime`.
    """
    held = a_history() if history is None else history
    session = MemorySession(AgentState(session_id="session", user_id="user", context=held))
    return RecordingRun(session, context=context, runtime=runtime or a_runtime())


class StepFields(TypedDict, total=False):
    """The fields of a step, each with the meaning that it has there."""

    number: int
    identity: RunIdentity
    card: ModelCard
    call_id: str
    purpose: Purpose
    mode: Mode
    state: AgentState
    history: History
    draft: RequestDraft
    changes: tuple[Change, ...]
    timings: tuple[Timing, ...]
    reply: Msg | None
    finished: Finish | None
    run: RunHandle


def a_step(**fields: Unpack[StepFields]) -> Step:
    """Make a step as it is after `begin_request`: the draft holds the conversation of its session and nothing else.

    Args:
        fields: What is to be different. `history` alone makes a session that holds it.

    Examples:
        >>> step = a_step(number=3)
        >>> step.number, step.draft.conversation is step.history
        (3, True)
    """
    run = fields.get("run") or a_run(fields.get("history"))
    history = fields.get("history", run.state.context)
    step = Step(
        number=0,
        identity=run.identity if isinstance(run, RecordingRun) else a_run().identity,
        card=ModelCard.of(ScriptedModel(["Done."])),
        call_id=run.runtime.ids.new_id("call"),
        state=run.state,
        history=history,
        draft=RequestDraft(conversation=history),
        run=run,
    )
    return replace(step, **fields)
