"""Other futures: a session that begins as another one was, or is again as it was itself."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.past import PastPoint, RecordedEffect
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class SessionForked:
    """The session began as another one was at some point; always the first record of its log.

    Args:
        past: Up to where the log of the other is the past of this one.
        state: The state at that point, as JSON, so that this session does not need the other one.
    """

    past: PastPoint
    state: str

    def apply(self, state: AgentState) -> AgentState:
        return state.replaced_by(self.state)


@frozen(kw_only=False)
class SessionRewound:
    """The session is again as it was at an earlier point of its past.

    Args:
        past: That point.
        state: The state at it, as JSON.
    """

    past: PastPoint
    state: str

    def apply(self, state: AgentState) -> AgentState:
        return state.replaced_by(self.state)


@frozen(kw_only=False)
class EffectsReused:
    """Tool calls are given the results of calls that have run already in another future of the session.

    Args:
        effects: Which; each is used once.
    """

    effects: tuple[RecordedEffect, ...]

    def apply(self, state: AgentState) -> AgentState:
        left = tuple(each for each in state.tool_context.effects if each not in self.effects)
        return replace(state, tool_context=replace(state.tool_context, effects=left))
