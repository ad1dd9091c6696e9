"""The state of a session: what records make of it, one after the other.

A session changes only by records (`agentscope_rx.records`). Each is a fact that has happened, and says itself what
it means for the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cache
from typing import ClassVar, Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentscope_rx.compactions import (
    Compaction,
    CompactionState,
)
from agentscope_rx.errors import InvalidToolPairs, StateUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.inbox import InboxState
from agentscope_rx.messages import Msg
from agentscope_rx.past import RecordedEffect
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.task_state import PlanModeContextState, TaskContextState
from agentscope_rx.wire import to_json, write


class Record(Protocol):
    """Something that has happened to a session."""

    def apply(self, state: AgentState, /) -> AgentState:
        """The state after it."""
        ...


@frozen
class ToolContextState:
    """What a session keeps of its tools.

    Args:
        activated_groups: Which groups are switched on; None = those that the toolkit switches on by itself.
        effects: What has run already in another future of the session, and is not to run again.
    """

    activated_groups: tuple[str, ...] | None = None
    effects: tuple[RecordedEffect, ...] = ()


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
        inbox: What the session was told to do, and what became of it.
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
    inbox: InboxState = field(default_factory=InboxState)

    def apply(self, record: Record) -> AgentState:
        """The state after one more record."""
        return record.apply(self)

    def replaced_by(self, written: str) -> AgentState:
        """A state that was written as JSON, in the place of this one; user, session and inbox stay.

        Raises:
            StateUnreadable: It is none.
        """
        after = AgentState.from_json(written.encode())
        known = {each.id: each.replaced for each in self.compactions}
        compactions = tuple(  # one that was read without what it had replaced is still the same
            each if each.replaced.leaves else replace(each, replaced=known.get(each.id, each.replaced))
            for each in after.compactions
        )
        own = {"session_id": self.session_id, "user_id": self.user_id, "inbox": self.inbox}
        return replace(after, compactions=compactions, **own)

    def with_messages(self, messages: Sequence[Msg]) -> AgentState:
        """The state with more messages; a call whose result is among them is no longer at work."""
        if not messages:
            return self
        dispatched = self.dispatched
        if dispatched:
            answered = {result.id for message in messages if (result := message.tool_result) is not None}
            dispatched = tuple(id for id in dispatched if id not in answered)
        return replace(self, context=self.context.append(*messages), dispatched=dispatched)

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
                b',"inbox":', write(_inbox_adapter(), self.inbox),
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
            inbox=stored.inbox,
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
    inbox: InboxState = field(default_factory=InboxState)


def _why(error: ValidationError | InvalidToolPairs) -> str:
    if isinstance(error, InvalidToolPairs):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


@cache
def _inbox_adapter() -> TypeAdapter[InboxState]:
    return TypeAdapter(InboxState)


@cache
def _stored_adapter() -> TypeAdapter[_StoredState]:
    return TypeAdapter(_StoredState)
