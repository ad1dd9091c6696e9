"""What becomes of a state whose session somebody else has saved meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from agentscope_rx.errors import InvalidToolPairs, StateConflict
from agentscope_rx.records import CompactionUndone, ContextCleared, HistoryEdited, StateReplaced
from agentscope_rx.state import AgentState, Record

#: Shortens what was said and adds nothing; the next request that needs it shortens again.
_SHORTENS: Final = (HistoryEdited, CompactionUndone)
#: Is about the very state that it was made for.
_REPLACES: Final = (ContextCleared, StateReplaced)


class ConflictPolicy(StrEnum):
    """What becomes of a state whose session somebody else has saved meanwhile; for sessions without a log.

    `fail`: a `StateConflict`; what they saved stays. `overwrite`: what they saved is gone, with a warning each time.
    `append_merge`: what was said here is added behind what they saved, once; a second conflict fails.
    """

    FAIL = "fail"
    OVERWRITE = "overwrite"
    APPEND_MERGE = "append_merge"


def merged(theirs: AgentState, ours: Sequence[Record]) -> AgentState:
    """Their state, with what has happened here behind it.

    Args:
        theirs: The state as somebody else has saved it.
        ours: What has happened here since both had the same state, oldest first.

    Raises:
        StateConflict: It does not fit behind theirs.
    """
    state = theirs
    for record in ours:
        if isinstance(record, _REPLACES):
            raise _refused(theirs, "it replaces the history that it was made for")
        if isinstance(record, _SHORTENS):
            continue
        try:
            state = state.apply(record)
        except InvalidToolPairs as error:
            raise _refused(theirs, str(error)) from None
    return state


def _refused(theirs: AgentState, why: str) -> StateConflict:
    return StateConflict(
        f"session {theirs.session_id!r} was changed by somebody else, and what has happened here cannot be added to "
        f"that: {why}. Nothing was saved: make the call again to go on from the stored state"
    )
