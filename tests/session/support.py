"""What the tests of the log need: a record of every type, open sessions, and agents as other processes have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Unpack

from agentscope_rx.builder import BuilderKeywords
from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.edits import edits_between
from agentscope_rx.events import ConfirmResult
from agentscope_rx.history import History
from agentscope_rx.inbox import Command, CommandKind, QueuedInput, Sender
from agentscope_rx.messages import Msg, ToolCallState, ToolUseBlock
from agentscope_rx.past import PastPoint, RecordedEffect, arguments_digest
from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.records import (
    CallsClosed,
    CallsConfirmed,
    CallsExecuted,
    CallsPaused,
    CommandBegun,
    CommandQueued,
    CommandRejected,
    CompactionUndone,
    ContextCleared,
    EffectsReused,
    EventsEmitted,
    HistoryEdited,
    InputAccepted,
    InputQueued,
    InputsTaken,
    InterruptAsked,
    LimitLearned,
    OutcomesReconciled,
    PermissionModeChanged,
    PermissionsReplaced,
    PlanModeChanged,
    RecoveryApplied,
    ReplyBroken,
    ReplyRecorded,
    RequestPrepared,
    ResultsRecorded,
    RunEnded,
    RunStarted,
    RunTraced,
    SessionForked,
    SessionRewound,
    StateReplaced,
    TasksChanged,
    ToolsDispatched,
    VerificationRecorded,
)
from agentscope_rx.requests import Model
from agentscope_rx.runtime import Runtime
from agentscope_rx.session import FoldCache, Holder, LoggedSession
from agentscope_rx.session.log_record import Origin
from agentscope_rx.state import AgentState, Record, ToolContextState
from agentscope_rx.stores import SessionKey, SessionStore, StateStore
from agentscope_rx.task_state import PlanModeContextState
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing.scripted_model import Scripted
from tests.strategies import result_of
from tests.tasks.support import begun, report

KEY: Final = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
WHEN: Final = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
ORIGIN: Final = Origin(event_id="e1", occurred_at=WHEN, run_id="run1", turn_id="turn1", step_id="call1")
CALLS: Final = (ToolUseBlock(id="c1", name="look", input={"p": 1}), ToolUseBlock(id="c2", name="look"))
RESULTS: Final = tuple(replace(result_of(call), id=f"r-{call.id}") for call in CALLS)
DONE: Final = CompactionDecision(
    outcome=CompactionOutcome.DONE, trigger="messages", id="k1", model="m", tokens_before=90, tokens_after=9
)


def said(id: str, text: str = "") -> Msg:
    """Something that the user said."""
    return replace(Msg.user(text or f"words of {id}"), id=id)


def answered(id: str, text: str = "") -> Msg:
    """Something that the model said."""
    return replace(Msg.assistant(text or f"words of {id}"), id=id)


def input_of(*messages: Msg) -> InputAccepted:
    """The record of an input."""
    return InputAccepted(messages)


ASKED: Final = replace(Msg.assistant(*CALLS), id="asked")
TALK: Final = AgentState(
    session_id="s1", user_id="alice", context=History.of(said("u1"), answered("a1"), said("u2"), ASKED)
)
SHORTER: Final = HistoryEdited(
    edits_between(TALK.context, TALK.context.replace_first(2, said("summary"))), DONE, "2026-01-02 03:04:05.678"
)
WAITING: Final = replace(
    TALK,
    context=History.of(
        said("u1"),
        replace(Msg.assistant(*(replace(call, state=ToolCallState.ASKING) for call in CALLS)), id="asked"),
    ),
)
YES: Final = ConfirmResult(confirmed=True, tool_call=CALLS[0], rules=(PermissionRule.allow("look"),))
NO: Final = ConfirmResult(confirmed=False, tool_call=CALLS[1], reason="not now")

OTHER: Final = AgentState(session_id="s", context=History.of(said("other")))
PAST: Final = PastPoint(agent_id="a1", user_id="alice", session_id="s0", seq=7, mark="f" * 64)
EFFECT: Final = RecordedEffect(call_id="c1", tool="look", arguments=arguments_digest(CALLS[0]), result=PAST)
COMMAND: Final = Command(
    id="k1",
    kind=CommandKind.SUBMIT,
    turn_id="turn1",
    digest="0f1e",
    sender=Sender(user_id="alice", session_id="s1", attributes={"tenant": "acme"}),
    messages=(said("u3"),),
)
TOLD: Final = TALK.apply(CommandQueued(COMMAND)).apply(InputQueued(QueuedInput(id="i1", messages=(said("more"),))))

#: A record of every type, with the state before it.
SAMPLES: Final[Sequence[tuple[AgentState, Record]]] = (
    (
        TALK,
        RequestPrepared(
            call_id="call2",
            purpose="reasoning",
            model="m",
            step=3,
            since="call1",
            tail=[{"value": {"role": "USER"}}, {"hash": "ab12"}],
            conversation=[{"from": "u1", "count": 2}, {"shown": [{"hash": "cd34"}]}],
            digest="0123456789abcdef",
            values={"ab12": {"role": "USER", "content": [{"type": "text", "text": "state"}]}, "cd34": None},
            manifest={"callId": "call2", "items": []},
        ),
    ),
    (TALK, RunStarted("run1", "turn1")),
    (replace(TALK, active_run="run1"), RunEnded("run1", "failed", "state_conflict")),
    (TALK, InputAccepted((said("u3"), said("u4")))),
    (TALK, CallsClosed(RESULTS)),
    (TALK, ReplyRecorded(answered("a2"))),
    (TALK, ReplyBroken(answered("fragment"), answered("kept"))),
    (TALK, ToolsDispatched(("c1", "c2"))),
    (TALK, ResultsRecorded(RESULTS, ("web",))),
    (TALK, SHORTER),
    (TALK.apply(SHORTER), CompactionUndone("k1", 5)),
    (TALK, LimitLearned("m", 4_000)),
    (replace(TALK, active_run="run1", dispatched=("c1",)), RecoveryApplied("run1", ("c1",))),
    (replace(TALK, dispatched=("c1", "c2")), OutcomesReconciled(RESULTS, "looked it up")),
    (TALK, CallsPaused("asked", (replace(CALLS[0], state=ToolCallState.ASKING),), {"asked": True})),
    (WAITING, CallsConfirmed("asked", "batch", (YES, NO), (CALLS[0],), (RESULTS[1],))),
    (TALK, CallsExecuted("batch", RESULTS)),
    (TALK, PermissionModeChanged(PermissionMode.EXPLORE)),
    (TALK, PermissionsReplaced(PermissionContextState().with_rules([PermissionRule.deny("look", "secrets/**")]))),
    (TALK, TasksChanged(begun())),
    (TALK, PlanModeChanged(PlanModeContextState(plan_active=True, current_plan_file="plans/a.md"))),
    (replace(TALK, tasks_context=begun()), VerificationRecorded(report(begun()))),
    (TALK, ContextCleared("a fresh start")),
    (TALK, StateReplaced(OTHER.to_json().decode(), "moved")),
    (AgentState(session_id="s1", user_id="alice"), SessionForked(PAST, OTHER.to_json().decode())),
    (TALK, SessionRewound(PAST, OTHER.to_json().decode())),
    (replace(TALK, tool_context=ToolContextState(effects=(EFFECT,))), EffectsReused((EFFECT,))),
    (TALK, CommandQueued(COMMAND)),
    (TALK, InputQueued(QueuedInput(id="i1", messages=(said("more"),)))),
    (replace(TALK, active_run="run1"), InterruptAsked("run1")),
    (TOLD, CommandBegun("k1", "run1")),
    (TOLD, CommandRejected("k1", "CRASHED")),
    (TOLD, InputsTaken(("i1",), (said("more"),))),
    (TALK, RunTraced([{"type": "reached", "at": 0.25, "name": "source/a", "value": {"blocks": [], "failure": None}}])),
    (TALK, EventsEmitted(({"type": "TEXT_BLOCK_DELTA", "replyId": "r1", "blockId": "text", "delta": "words"},))),
)


async def opened(
    store: SessionStore,
    *,
    key: SessionKey = KEY,
    cache: FoldCache | None = None,
    run_id: str = "run1",
    wait: float = 0.0,
    lease: float = 30.0,
    whole: bool = False,
    runtime: Runtime | None = None,
) -> LoggedSession:
    """The session, in the hands of a run."""
    holder = Holder(name="test", run_id=run_id, turn_id="turn1", wait=wait, lease=lease, whole=whole)
    runtime = runtime or Runtime()
    return await LoggedSession.open(key, store=store, runtime=runtime, cache=cache or FoldCache(), holder=holder)


async def crashed(store: SessionStore, *records: Record, key: SessionKey = KEY) -> None:
    """Leave a session as a process does that dies after its last write, when its lease has run out."""
    session = await opened(store, key=key)
    session.begin()
    for record in records:
        session.record(record)
    await session.barrier()
    await session.close()


def agent_on(
    store: StateStore,
    script: Model | Sequence[Scripted] = (),
    *,
    own: Runtime | None = None,
    **options: Unpack[BuilderKeywords],
) -> ReActAgent:
    """An agent with a log and a Runtime of its own, as another process has one."""
    model = ScriptedModel(script) if isinstance(script, Sequence) else script
    builder = ReActAgent.builder(name="tester", agent_id=KEY.agent_id, model=model, state_store=store, state_only=False)
    return builder.runtime(own or Runtime()).configured(options).build()
