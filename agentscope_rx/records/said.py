"""What was said: messages that came in, answers, results."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import Msg
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class InputAccepted:
    """Messages came from outside: from the user, or from an observed agent."""

    messages: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return state.with_messages(self.messages)


@frozen(kw_only=False)
class CallsClosed:
    """Open tool calls that nobody can answer any more got a result that says so."""

    results: tuple[Msg, ...]

    def apply(self, state: AgentState) -> AgentState:
        return state.with_messages(self.results)


@frozen(kw_only=False)
class ReplyRecorded:
    """The model answered, or the agent spoke in its own name."""

    message: Msg

    def apply(self, state: AgentState) -> AgentState:
        return state.with_messages((self.message,))


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
        return state if self.kept is None else state.with_messages((self.kept,))


@frozen(kw_only=False)
class ResultsRecorded:
    """Tool calls have their results, with the groups of tools that the tools switched."""

    messages: tuple[Msg, ...]
    activated_groups: tuple[str, ...] | None = None

    def apply(self, state: AgentState) -> AgentState:
        after = replace(state.with_messages(self.messages), dispatched=())  # what has no result now waits for one
        if self.activated_groups is None:
            return after
        return replace(after, tool_context=replace(state.tool_context, activated_groups=self.activated_groups))


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
        return state.with_messages(self.results)
