"""validate_request: what no provider would take is refused before money is spent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextError, InvalidToolPairs
from agentscope_rx.history import History
from agentscope_rx.lifting import chain
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.operators import validate_request
from agentscope_rx.step import Step
from agentscope_rx.testing import a_history, a_step, check_operator, record, run_virtual
from agentscope_rx.testing.recorder import Recorded
from tests.virtual import virtual

OPEN = replace(Msg.assistant(ToolUseBlock(id="c1", name="look"), ToolUseBlock(id="c2", name="read")), id="asking")


def answer(id: str) -> Msg:
    return replace(Msg.tool(ToolResultBlock(id=id, name="look", output=(TextBlock(text="x"),))), id=f"answer {id}")


async def validated(step: Step) -> Recorded[Step]:
    return await record(chain((validate_request(),), step)).ended()


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator."""
    await check_operator(validate_request)


@virtual
async def test_a_sound_request_passes_unchanged() -> None:
    """The very same draft."""
    step = a_step(history=a_history(9))
    (after,) = (await validated(step)).values
    assert after.draft is step.draft
    assert after.changes == ()


@virtual
async def test_open_tool_calls_are_refused() -> None:
    """The error names the tools and ids that have no result, wherever they are; the rest is not named."""
    history = a_history(["hi"]).append(OPEN, answer("c1"), Msg.user("and?"))
    recorded = await validated(a_step(history=history))
    assert isinstance(recorded.error, InvalidToolPairs)
    assert "read (c2)" in str(recorded.error)
    assert "c1" not in str(recorded.error)


@virtual
async def test_what_the_draft_leaves_out_does_not_count() -> None:
    """It is the request that is checked, not the history."""
    step = a_step(history=a_history(["hi"]).append(OPEN))
    draft = step.draft.without(["asking"], reason="test")
    assert (await validated(replace(step, draft=draft))).kinds == ["next", "completed"]


BLOCK = ContextBlock.runtime("x", "y")
DRAFTS = {
    "nothing": (RequestDraft(), False),
    "a system prompt": (RequestDraft(system=(BLOCK,)), False),
    "a message": (RequestDraft(conversation=History.of(Msg.user("hi"))), True),
    "current state": (RequestDraft(transient=(BLOCK,)), True),
    "a reference": (RequestDraft(references=(BLOCK,)), True),
}


@pytest.mark.parametrize("held", DRAFTS)
@virtual
async def test_a_request_needs_something_to_answer(held: str) -> None:
    """A prompt alone is no question; the error says what to give."""
    draft, sound = DRAFTS[held]
    recorded = await validated(a_step(draft=draft))
    assert (recorded.error is None) == sound
    if not sound:
        assert isinstance(recorded.error, ContextError)
        assert "give the call an input" in str(recorded.error)


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=6))
def test_a_request_passes_when_every_call_has_its_result(answered: list[bool]) -> None:
    """Invariant: it is refused exactly when a call has none, and then all such calls are named."""
    calls = [ToolUseBlock(id=f"c{at}", name="look") for at in range(len(answered))]
    history = History.of(Msg.user("hi"), Msg.assistant("x", *calls))
    history = history.append(*(answer(f"c{at}") for at, given in enumerate(answered) if given))
    recorded = run_virtual(lambda: validated(a_step(history=history)))
    assert (recorded.error is None) == all(answered)
    for at, given_one in enumerate(answered):
        assert (f"(c{at})" in str(recorded.error)) == (not given_one)
