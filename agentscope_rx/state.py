"""The state of a session: what records make of it, one after the other.

A session changes only by records. Each is a fact that has happened; `AgentState.apply` is the one place that says
what it means for the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import ClassVar, Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentscope_rx.compactions import (
    MESSAGES,
    REPLIES,
    Compaction,
    CompactionDecision,
    CompactionOutcome,
    CompactionState,
)
from agentscope_rx.errors import InvalidToolPairs, StateUnreadable, UndoRefused
from agentscope_rx.events import ConfirmResult
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Edit, Exchange, History, Measure, apply_edits
from agentscope_rx.interactions import open_exchanges, with_calls
from agentscope_rx.messages import NOTHING, Msg, ToolUseBlock
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.task_state import PlanModeContextState, TaskContextState, Verification
from agentscope_rx.wire import to_json


class Record(Protocol):
    """Something that has happened to a session."""

    def apply(self, state: AgentState, /) -> AgentState:
        """The state after it."""
        ...


@frozen
class ToolContextState:
    """Which groups of tools are switched on; None = those that the toolkit switches on by itself."""

    activated_groups: tuple[str, ...] | None = None


@frozen
class AgentState:
    """Everything that a session keeps between two calls.

    Args:
        session_id: The session.
        user_id: Whose it is; None = nobody's in particular.
        context: The working history.
        permission_context: What the session may do, beside what the agent's policy says.
        tool_context: The state of the toolkit.
        tasks_context: The task: to-do list, requirements, verifications.
        plan_mode_context: Whether the session is planning.
        compaction: What the next decision about a compaction goes by.
        compactions: All compactions so far, oldest first, with what gave way to them.
        active_run: The run that is at work on the session; after a crash, the one that was.
        dispatched: The tool calls that have begun and whose results are not recorded yet.
    """

    session_id: str = ""
    user_id: str | None = None
    context: History = field(default_factory=History)
    permission_context: PermissionContextState = field(default_factory=PermissionContextState)
    tool_context: ToolContextState = field(default_factory=ToolContextState)
    tasks_context: TaskContextState = field(default_factory=TaskContextState)
    plan_mode_context: PlanModeContextState = field(default_factory=PlanModeContextState)
    compaction: CompactionState = field(default_factory=CompactionState)
    compactions: tuple[Compaction, ...] = ()
    active_run: str = ""
    dispatched: tuple[str, ...] = ()

    def apply(self, record: Record) -> AgentState:
        """The state after one more record."""
        return record.apply(self)

    def to_json(self, *, with_replaced: bool = True) -> bytes:
        """Write the state; what was written of an exchange before is used again.

        Args:
            with_replaced: Whether what compactions have replaced is written too; not where a log holds it.
        """
        compactions = (_compaction_json(each, with_replaced) for each in self.compactions)
        return b"".join(
            (
                b'{"session_id":', to_json(self.session_id),
                b',"user_id":', to_json(self.user_id),
                b',"context":', _history_json(self.context),
                b',"permission_context":', to_json(self.permission_context),
                b',"tool_context":', to_json(self.tool_context),
                b',"tasks_context":', to_json(self.tasks_context),
                b',"plan_mode_context":', to_json(self.plan_mode_context),
                b',"compaction":', to_json(self.compaction),
                b',"compactions":[', b",".join(compactions),
                b'],"active_run":', to_json(self.active_run),
                b',"dispatched":', to_json(self.dispatched),
                b"}",
            )
        )  # fmt: skip

    @classmethod
    def from_json(cls, data: bytes) -> AgentState:
        """Read a state; unknown properties are ignored.

        Raises:
            StateUnreadable: The data are no state, or hold a history that cannot be.
        """
        try:
            stored = _stored_adapter().validate_json(data)
            history = History.of(*stored.context)
            compactions = tuple(each.as_compaction() for each in stored.compactions)
        except (ValidationError, InvalidToolPairs) as error:
            # Not `from error`: pydantic's own words quote what was said in the session.
            raise StateUnreadable(f"the stored state cannot be read, and was left as it is: {_why(error)}") from None
        return cls(
            session_id=stored.session_id,
            user_id=stored.user_id,
            context=history,
            permission_context=stored.permission_context,
            tool_context=stored.tool_context,
            tasks_context=stored.tasks_context,
            plan_mode_context=stored.plan_mode_context,
            compaction=stored.compaction,
            compactions=compactions,
            active_run=stored.active_run,
            dispatched=stored.dispatched,
        )


# -- records ------------------------------------------------------------------------------------------------


@frozen(kw_only=False)
class InputAccepted:
    """Messages came from outside: from the user, or from an observed agent."""

    messages: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return _appended(state, self.messages)


@frozen(kw_only=False)
class CallsClosed:
    """Open tool calls that nobody can answer any more got a result that says so."""

    results: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return _appended(state, self.results)


@frozen(kw_only=False)
class ReplyRecorded:
    """The model answered, or the agent spoke in its own name."""

    message: Msg

    def apply(self, state: AgentState) -> AgentState:
        return _appended(state, (self.message,))


@frozen(kw_only=False)
class ReplyBroken:
    """A model call ended in the middle of its answer.

    Args:
        fragment: Everything that had arrived, with half-written tool calls.
        kept: The part that stays in the history: the visible text of an answer that the user stopped.
    """

    fragment: Msg
    kept: Msg | None = None

    def apply(self, state: AgentState) -> AgentState:
        return state if self.kept is None else _appended(state, (self.kept,))


@frozen(kw_only=False)
class ResultsRecorded:
    """Tool calls have their results, with the groups of tools that the tools switched."""

    messages: tuple[Msg, ...]
    activated_groups: tuple[str, ...] | None = None

    def apply(self, state: AgentState) -> AgentState:
        after = replace(_appended(state, self.messages), dispatched=())  # what has no result now waits for one
        if self.activated_groups is None:
            return after
        return replace(after, tool_context=ToolContextState(activated_groups=self.activated_groups))


@frozen(kw_only=False)
class HistoryEdited:
    """The working history was shortened or rewritten, and the request that needed it passed its checks.

    Args:
        edits: What was changed.
        compaction: What was decided about a compaction.
        at: When, in the form of `Msg.timestamp`.
    """

    edits: tuple[Edit, ...] = ()
    compaction: CompactionDecision | None = None
    at: str = ""

    def apply(self, state: AgentState) -> AgentState:
        after = replace(state, context=apply_edits(self.edits, state.context))
        decision = self.compaction
        if decision is None:
            return after
        if decision.outcome is CompactionOutcome.DONE:
            return _compacted(after, _compaction(decision, self.at, state.context, after.context))
        cooldown = state.context.measure(REPLIES) + decision.cooldown_steps
        return replace(after, compaction=replace(state.compaction, cooldown_until=cooldown))


@frozen(kw_only=False)
class CompactionUndone:
    """What a compaction had replaced is in the working history again.

    Args:
        id: The compaction.
        cooldown_steps: For how many steps no optional compaction is tried.

    Raises:
        UndoRefused: When it is applied: there is no such compaction, or a later one lies over it.
    """

    id: str
    cooldown_steps: int

    def apply(self, state: AgentState) -> AgentState:
        undone = next((each for each in state.compactions if each.id == self.id), None)
        if undone is None:
            known = ", ".join(each.id for each in state.compactions) or "none"
            raise UndoRefused(f"the session has no compaction {self.id!r}; it has {known}")
        if undone is not state.compactions[-1] or not undone.begins(state.context):
            raise UndoRefused(f"the compaction {self.id!r} lies below a later one: undo that first")
        if not undone.replaced.leaves:
            raise UndoRefused(f"what the compaction {self.id!r} has replaced is in the session's log: read that first")
        kept = state.context.replace_first(len(undone.by))
        context = History(leaves=(*undone.replaced.leaves, *kept.leaves))
        cooldown = context.measure(REPLIES) + self.cooldown_steps
        compaction = replace(state.compaction, messages=context.measure(MESSAGES), freed=0, cooldown_until=cooldown)
        compactions = tuple(each for each in state.compactions if each is not undone)
        return replace(state, context=context, compaction=compaction, compactions=compactions)


@frozen(kw_only=False)
class LimitLearned:
    """A provider has refused a request that was thought to fit.

    Args:
        model: Which model.
        tokens: How many tokens a request to it may have from now on, by our own count.
    """

    model: str
    tokens: int

    def apply(self, state: AgentState) -> AgentState:
        limits = {**state.compaction.limits, self.model: self.tokens}
        return replace(state, compaction=replace(state.compaction, limits=limits))


@frozen(kw_only=False)
class TasksChanged:
    """The task is another one: to-do list, requirements or verifications."""

    tasks_context: TaskContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, tasks_context=self.tasks_context)


@frozen(kw_only=False)
class PlanModeChanged:
    """Planning has begun or ended, or a plan was written."""

    plan_mode_context: PlanModeContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, plan_mode_context=self.plan_mode_context)


@frozen(kw_only=False)
class VerificationRecorded:
    """A criterion was checked; the report is this record.

    Raises:
        TaskConflict: When it is applied: the report is about something else than what is there.
        TaskRefused: When it is applied: it is about no confirmed criterion.
    """

    verification: Verification

    def apply(self, state: AgentState) -> AgentState:
        tasks = state.tasks_context
        return replace(state, tasks_context=tasks.record_verification(self.verification, tasks.revision))


@frozen(kw_only=False)
class CallsPaused:
    """Tool calls of one message wait for somebody outside, and their batch with them.

    Args:
        message_id: The message that holds them.
        calls: All of its calls whose state has changed, as they are now.
        metadata: What the message says of the question from now on.
    """

    message_id: str
    calls: tuple[ToolUseBlock, ...]
    metadata: Mapping[str, object]

    def apply(self, state: AgentState) -> AgentState:
        waiting = {call.id for call in self.calls}
        dispatched = tuple(id for id in state.dispatched if id not in waiting)
        return replace(_with_calls(state, self.message_id, self.calls, self.metadata), dispatched=dispatched)


@frozen(kw_only=False)
class CallsConfirmed:
    """A person has said yes or no to tool calls that waited for it.

    Args:
        message_id: The message that holds them.
        reply_id: The batch that had asked.
        answers: What was said to which call.
        calls: The calls that may run, as they will.
        results: The results of those that may not.
    """

    message_id: str
    reply_id: str
    answers: tuple[ConfirmResult, ...]
    calls: tuple[ToolUseBlock, ...] = ()
    results: tuple[Msg, ...] = ()

    def apply(self, state: AgentState) -> AgentState:
        rules = [rule for answer in self.answers for rule in answer.rules or ()]
        after = _appended(_with_calls(state, self.message_id, self.calls, NOTHING), self.results)
        return replace(after, permission_context=state.permission_context.with_rules(rules))


@frozen(kw_only=False)
class CallsExecuted:
    """Somebody outside has given results of tool calls that waited for them.

    Args:
        reply_id: The batch that had asked.
        results: The results.
    """

    reply_id: str
    results: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return _appended(state, self.results)


@frozen(kw_only=False)
class PermissionModeChanged:
    """The session is in another mode; None = in the one of the agent's policy."""

    mode: PermissionMode | None

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, permission_context=state.permission_context.with_mode(self.mode))


@frozen(kw_only=False)
class PermissionsReplaced:
    """What the session may do was said anew."""

    permission_context: PermissionContextState

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, permission_context=self.permission_context)


def _with_calls(
    state: AgentState, message_id: str, calls: Sequence[ToolUseBlock], metadata: Mapping[str, object]
) -> AgentState:
    if not calls:
        return state
    held = next((each for each in open_exchanges(state.context) if each.id == message_id), None)
    if held is None:
        raise InvalidToolPairs(f"no message {message_id!r} holds tool calls that wait")
    message, *results = held.messages
    changed = Exchange(with_calls(message, calls, metadata), *results)
    return replace(state, context=state.context.with_exchange(held, changed))


def _appended(state: AgentState, messages: Sequence[Msg]) -> AgentState:
    if not messages:
        return state
    dispatched = state.dispatched
    if dispatched:
        answered = {result.id for message in messages if (result := message.tool_result) is not None}
        dispatched = tuple(id for id in dispatched if id not in answered)
    return replace(state, context=state.context.append(*messages), dispatched=dispatched)


@frozen(kw_only=False)
class RunStarted:
    """A run has the session's turn.

    Args:
        run_id: The run: one attempt.
        turn_id: The turn: one command of the user.
    """

    run_id: str
    turn_id: str

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, active_run=self.run_id)


@frozen(kw_only=False)
class RunEnded:
    """A run has given the turn back.

    Args:
        run_id: The run.
        status: `completed`, `suspended`, `interrupted` or `failed`.
        reason: Why its answer ended it; for one that failed, the code of the error.
    """

    run_id: str
    status: str
    reason: str = ""

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, active_run="")


@frozen(kw_only=False)
class ToolsDispatched:
    """Tool calls are about to run: from now on they may have had an effect."""

    call_ids: tuple[str, ...]

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, dispatched=(*state.dispatched, *self.call_ids))


@frozen(kw_only=False)
class RecoveryApplied:
    """A run was found that had ended without saying so.

    Args:
        run_id: The run.
        uncertain: The tool calls of which nobody knows whether they had an effect.
    """

    run_id: str
    uncertain: tuple[str, ...] = ()

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, active_run="")


@frozen(kw_only=False)
class OutcomesReconciled:
    """Somebody has found out what became of uncertain tool calls.

    Args:
        results: Their results.
        reason: How that is known.
    """

    results: tuple[Msg, ...]
    reason: str

    def apply(self, state: AgentState) -> AgentState:
        return _appended(state, self.results)


@frozen(kw_only=False)
class ContextCleared:
    """The working history was emptied; everything else of the state stays."""

    reason: str = ""

    def apply(self, state: AgentState) -> AgentState:
        return replace(
            state, context=History(), compaction=CompactionState(limits=state.compaction.limits), dispatched=()
        )


@frozen(kw_only=False)
class StateReplaced:
    """The state was replaced from outside, or begins with one that was kept without a log.

    Args:
        state: The state, as JSON.
        reason: Why.
    """

    state: str
    reason: str

    def apply(self, state: AgentState) -> AgentState:
        after = AgentState.from_json(self.state.encode())
        known = {each.id: each.replaced for each in state.compactions}
        compactions = tuple(  # one that was read without what it had replaced is still the same
            each if each.replaced.leaves else replace(each, replaced=known.get(each.id, each.replaced))
            for each in after.compactions
        )
        return replace(after, session_id=state.session_id, user_id=state.user_id, compactions=compactions)


def _compaction(decision: CompactionDecision, at: str, before: History, after: History) -> Compaction:
    """What gave way at the beginning of a history, and what took its place: all before the part that both end with."""
    old, new = list(before), list(after)
    while old and len(new) > 1 and old[-1].id == new[-1].id:
        del old[-1], new[-1]
    return Compaction(
        id=decision.id,
        created_at=at,
        model=decision.model,
        trigger=decision.trigger,
        tokens_before=decision.tokens_before,
        tokens_after=decision.tokens_after,
        replaced=History(old),
        by=tuple(exchange.id for exchange in new),
    )


def _compacted(state: AgentState, compaction: Compaction) -> AgentState:
    return replace(
        state,
        compactions=(*state.compactions, compaction),
        compaction=replace(
            state.compaction,
            messages=state.context.measure(MESSAGES),
            replies=state.context.measure(REPLIES),
            tokens=compaction.tokens_after,
            freed=compaction.tokens_before - compaction.tokens_after,
            cooldown_until=0,
        ),
    )


# -- JSON ---------------------------------------------------------------------------------------------------


class _MessagesAsJson:
    """The messages as JSON, joined by commas, as a measure."""

    def of(self, exchange: Exchange, /) -> bytes:
        return b",".join(message.to_json() for message in exchange.messages)

    def join(self, parts: Sequence[bytes], /) -> bytes:
        return b",".join(parts)


_JSON: Final[Measure[bytes]] = _MessagesAsJson()


def _history_json(history: History) -> bytes:
    return b"[" + b",".join([part for leaf in history.leaves if (part := leaf.measure(_JSON))]) + b"]"


def _compaction_json(compaction: Compaction, with_replaced: bool) -> bytes:
    fields = to_json({name: getattr(compaction, name) for name in _COMPACTION_FIELDS})
    if not compaction.replaced.leaves or not with_replaced:
        return fields
    return fields[:-1] + b',"replaced":' + _history_json(compaction.replaced) + b"}"


_COMPACTION_FIELDS: Final = ("id", "created_at", "model", "trigger", "tokens_before", "tokens_after", "by")


@frozen
class _StoredCompaction:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    id: str
    created_at: str = ""
    model: str = ""
    trigger: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    replaced: tuple[Msg, ...] = ()
    by: tuple[str, ...] = ()

    def as_compaction(self) -> Compaction:
        fields = {name: getattr(self, name) for name in _COMPACTION_FIELDS}
        return Compaction(replaced=History.of(*self.replaced), **fields)


@frozen
class _StoredState:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    session_id: str
    user_id: str | None = None
    context: tuple[Msg, ...] = ()
    permission_context: PermissionContextState = field(default_factory=PermissionContextState)
    tool_context: ToolContextState = field(default_factory=ToolContextState)
    tasks_context: TaskContextState = field(default_factory=TaskContextState)
    plan_mode_context: PlanModeContextState = field(default_factory=PlanModeContextState)
    compaction: CompactionState = field(default_factory=CompactionState)
    compactions: tuple[_StoredCompaction, ...] = ()
    active_run: str = ""
    dispatched: tuple[str, ...] = ()


def _why(error: ValidationError | InvalidToolPairs) -> str:
    if isinstance(error, InvalidToolPairs):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


@cache
def _stored_adapter() -> TypeAdapter[_StoredState]:
    return TypeAdapter(_StoredState)
