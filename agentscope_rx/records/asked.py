"""What a model was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from agentscope_rx.frozen import frozen
from agentscope_rx.requests import Purpose
from agentscope_rx.state import AgentState

#: A value of a request: `{"value": ...}`, or `{"hash": ...}` of one that the log holds.
Part: TypeAlias = Mapping[str, Any]


@frozen
class RequestPrepared:
    """A request goes to a model. It is told by what the log holds already, so that it can be made again, word for word.

    Args:
        call_id: The request, as events and manifest have it.
        purpose: What the model is called for.
        model: The model's name.
        step: Which reasoning step of the run it is of, from 0; None = of none, or nobody said.
        since: The request before it, whose parts are its own where None is said of them; empty = all is said.
        system: The text of the System message; None = as in the request before.
        tools: The tools on offer, one by one.
        options: How the model is to answer; without headers and parameters of the URL, which may hold keys.
        tail: The messages behind the conversation.
        conversation: What comes behind the conversation of the request before: `{"from": id, "count": n}` for so many
            exchanges of the working history as it is now, `{"shown": parts}` for the messages of an exchange that
            only this request shows so.
        digest: A hash of the whole conversation, by which it is known whether it was made again as it was.
        values: What the parts here name by a hash and no record before holds, by hash.
        manifest: The account of the request; None = nobody gave one.
    """

    call_id: str
    purpose: Purpose
    model: str
    step: int | None = None
    since: str = ""
    system: Part | None = None
    tools: Sequence[Part] | None = None
    options: Part | None = None
    tail: Sequence[Part] | None = None
    conversation: Sequence[Mapping[str, Any]] = ()
    digest: str = ""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    manifest: Mapping[str, Any] | None = None

    def apply(self, state: AgentState) -> AgentState:
        return state
