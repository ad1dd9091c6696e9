"""The past of a session that has more than one future: places in it, and what has run behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from agentscope_rx.digests import digest_of
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import INVALID_ARGUMENTS, ToolUseBlock
from agentscope_rx.wire import to_json

#: The key of a result's metadata that says whose recorded result it is.
REUSED_KEY: Final = "agentscope_reused"


@frozen
class PastPoint:
    """A record in the log of a session, and the place behind it.

    Args:
        agent_id: The agent of the session.
        user_id: Its user.
        session_id: The session.
        seq: The number of the record.
        mark: A hash of the record, by which it is known again.
    """

    agent_id: str
    user_id: str | None = None
    session_id: str
    seq: int
    mark: str


@frozen
class RecordedEffect:
    """A tool call that has run behind the point at which a session was forked, or to which it was rewound.

    Args:
        call_id: The call.
        tool: The tool.
        arguments: A hash of what it was given.
        result: The record that holds its result; None = nobody knows what became of the call.
    """

    call_id: str
    tool: str
    arguments: str
    result: PastPoint | None = None

    def is_of(self, call: ToolUseBlock) -> bool:
        """Whether a call asks for the same once more."""
        return self.tool == call.name and self.arguments == arguments_digest(call)


def arguments_digest(call: ToolUseBlock) -> str:
    """A hash of what a call gives to its tool, whatever the order of the names."""
    return digest_of(to_json([_ordered(call.input), call.metadata.get(INVALID_ARGUMENTS)]))


def _ordered(value: object) -> object:
    if isinstance(value, Mapping):
        named = cast("Mapping[str, object]", value)
        return {name: _ordered(named[name]) for name in sorted(named)}
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in cast("Sequence[object]", value)]
    return value
