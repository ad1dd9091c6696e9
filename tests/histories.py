"""Histories to play with: short ones by hand, long ones grown in steps."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from agentscope_rx.history import LEAF_SIZE, History
from agentscope_rx.messages import Msg, ToolUseBlock
from tests.strategies import conversations, result_of


def said(id: str, text: str = "") -> Msg:
    return replace(Msg.user(text or id), id=id)


def asked(id: str, *call_ids: str) -> Msg:
    return replace(Msg.assistant(*(ToolUseBlock(id=call_id, name="look") for call_id in call_ids)), id=id)


def seen(id: str, call_id: str) -> Msg:
    return replace(result_of(ToolUseBlock(id=call_id, name="look")), id=id)


def long(count: int, prefix: str = "m") -> History:
    return History.of(*(said(f"{prefix}{at}") for at in range(count)))


#: Lengths around the borders of leaves.
LENGTHS = st.sampled_from([0, 1, 2, LEAF_SIZE - 1, LEAF_SIZE, LEAF_SIZE + 1, 2 * LEAF_SIZE, 3 * LEAF_SIZE + 7])


@st.composite
def histories(draw: st.DrawFn, *, answered: bool = False) -> History:
    """A history of a random conversation behind a long one, which grew in several steps."""
    early = [said(f"e{at}") for at in range(draw(LENGTHS))]
    late = list(draw(conversations(answered=answered)))
    history = History()
    messages = early + late
    edges = sorted(draw(st.lists(st.integers(0, len(messages)), max_size=4)))
    for start, end in zip([0, *edges], [*edges, len(messages)], strict=True):
        history = history.append(*messages[start:end])
    return history


def leaf_ids(history: History) -> set[int]:
    return {id(leaf) for leaf in history.leaves}
