"""The state that a run found, as a recording holds it: only where the run before has not left it so."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.inbox import InboxState
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.state import AgentState
from agentscope_rx.wire import from_json


def state_data(found: AgentState, known: AgentState | None, redaction: Redaction) -> object:
    """A state as plain data, without what the session was told: a run gets that from outside.

    Args:
        found: The state that the run found.
        known: The state that the run before has left; None = there was none.
        redaction: What is left out.

    Returns:
        The state; None where it is known.
    """
    if found is known:
        return None
    found = replace(found, inbox=InboxState())
    before = known or AgentState(session_id=found.session_id, user_id=found.user_id)
    before = replace(before, inbox=InboxState())
    if before.to_json(with_replaced=False) == found.to_json(with_replaced=False):
        return None
    return redaction.data(from_json(found.to_json()))
