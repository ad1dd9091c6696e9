"""The state of a session: what records make of it, one after the other.

A session changes only by records. Each is a fact that has happened; `AgentState.apply` is the one place that says
what it means for the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cache
from typing import ClassVar, Final, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agentscope_rx.errors import InvalidToolPairs, StateUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Edit, Exchange, History, Measure, apply_edits
from agentscope_rx.messages import Msg
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
        tool_context: The state of the toolkit.
    """

    session_id: str = ""
    user_id: str | None = None
    context: History = field(default_factory=History)
    tool_context: ToolContextState = field(default_factory=ToolContextState)

    def apply(self, record: Record) -> AgentState:
        """The state after one more record."""
        return record.apply(self)

    def to_json(self) -> bytes:
        """Write the state; what was written of an exchange before is used again."""
        messages = [part for leaf in self.context.leaves if (part := leaf.measure(_JSON))]
        return b"".join(
            (
                b'{"session_id":', to_json(self.session_id),
                b',"user_id":', to_json(self.user_id),
                b',"context":[', b",".join(messages),
                b'],"tool_context":', to_json(self.tool_context),
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
        except (ValidationError, InvalidToolPairs) as error:
            # Not `from error`: pydantic's own words quote what was said in the session.
            raise StateUnreadable(f"the stored state cannot be read, and was left as it is: {_why(error)}") from None
        return cls(
            session_id=stored.session_id,
            user_id=stored.user_id,
            context=history,
            tool_context=stored.tool_context,
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
        after = _appended(state, self.messages)
        if self.activated_groups is None:
            return after
        return replace(after, tool_context=ToolContextState(activated_groups=self.activated_groups))


@frozen(kw_only=False)
class HistoryEdited:
    """The working history was shortened or rewritten, and the request that needed it passed its checks."""

    edits: tuple[Edit, ...]

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, context=apply_edits(self.edits, state.context))


def _appended(state: AgentState, messages: Sequence[Msg]) -> AgentState:
    return replace(state, context=state.context.append(*messages)) if messages else state


# -- JSON ---------------------------------------------------------------------------------------------------


class _MessagesAsJson:
    """The messages as JSON, joined by commas, as a measure."""

    def of(self, exchange: Exchange, /) -> bytes:
        return b",".join(message.to_json() for message in exchange.messages)

    def join(self, parts: Sequence[bytes], /) -> bytes:
        return b",".join(parts)


_JSON: Final[Measure[bytes]] = _MessagesAsJson()


@frozen
class _StoredState:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    session_id: str
    user_id: str | None = None
    context: tuple[Msg, ...] = ()
    tool_context: ToolContextState = field(default_factory=ToolContextState)


def _why(error: ValidationError | InvalidToolPairs) -> str:
    if isinstance(error, InvalidToolPairs):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


@cache
def _stored_adapter() -> TypeAdapter[_StoredState]:
    return TypeAdapter(_StoredState)
