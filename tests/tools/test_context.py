"""What a tool is told, and how a thread learns that nobody waits for it any more."""

from __future__ import annotations

import threading

import pytest

from agentscope_rx.errors import RunError
from agentscope_rx.messages import DataBlock, ToolUseBlock
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools import CancelToken, ToolContext
from agentscope_rx.tools.context import ToolCancelled

CALL = ToolUseBlock(id="c1", name="t")


def test_a_token_is_set_once_and_for_all() -> None:
    """It counts as false before and as true after, and then stops whoever asks it to."""
    token = CancelToken()
    token.raise_if_set()
    assert (token.is_set, bool(token), token.wait(0)) == (False, False, False)
    token.set()
    assert (token.is_set, bool(token), token.wait()) == (True, True, True)
    with pytest.raises(ToolCancelled) as raised:
        token.raise_if_set()
    assert isinstance(raised.value, RunError)


def test_a_thread_that_waits_is_woken() -> None:
    """`wait` is a sleep that a cancel ends."""
    token = CancelToken()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(token.wait(30)))
    thread.start()
    token.set()
    thread.join(30)
    assert woken == [True]


def test_a_child_follows_its_parent_and_not_the_other_way() -> None:
    """Children made before and after are set with it; a child alone leaves parent and siblings as they are."""
    parent = CancelToken()
    one, other = parent.child(), parent.child()
    one.set()
    assert (one.is_set, other.is_set, parent.is_set) == (True, False, False)
    parent.set()
    assert (other.is_set, other.child().is_set, parent.child().is_set) == (True, True, True)


def test_what_is_reported_after_the_end_goes_nowhere() -> None:
    """A thread that goes on after a time-out does not disturb the next attempt."""
    reported: list[str | DataBlock] = []
    context = ToolContext(call=CALL, on_report=reported.append)
    context.report("before")
    context.cancelled.set()
    context.report("after")
    assert reported == ["before"]


def test_a_context_for_tests_needs_only_a_call() -> None:
    """Everything else has a default: reports go nowhere, and nothing was handed along."""
    context = ToolContext(call=CALL)
    context.report("to nobody")
    assert (context.user_id, context.session_id, context.agent_id) == (None, None, "")
    assert (context.get("tenant"), context.get(float)) == (None, None)


def test_get_asks_the_runtime_context() -> None:
    """By name and by type, as there."""
    context = ToolContext(call=CALL, runtime_context=RuntimeContext(attributes={"tenant": "acme"}, values=(2.5,)))
    assert (context.get("tenant"), context.get(float)) == ("acme", 2.5)


async def test_a_function_in_a_thread_gives_what_it_returns_or_raises() -> None:
    """Even what a future cannot hold comes back."""
    context = ToolContext(call=CALL)

    def fail(error: BaseException) -> None:
        raise error

    assert await context.in_thread(int, "ff", base=16) == 255
    with pytest.raises(SystemExit):
        await context.in_thread(fail, SystemExit(1))
    with pytest.raises(RuntimeError) as raised:
        await context.in_thread(fail, StopIteration(1))
    assert isinstance(raised.value.__cause__, StopIteration)
