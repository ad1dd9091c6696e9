"""Whatever a tool raises, in whichever way it runs, becomes an error result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest

from agentscope_rx.tools import Toolkit, tool
from agentscope_rx.tools.arguments import InvalidArguments
from tests.tools.calls import ERROR, Watch, run, summary


class Unusual(BaseException):
    pass


RAISES: list[tuple[Callable[[], BaseException], str]] = [
    (asyncio.CancelledError, "CancelledError: (no message)"),
    (lambda: ValueError(""), "ValueError: (no message)"),
    (lambda: ValueError("no such city"), "ValueError: no such city"),
    (TimeoutError, "TimeoutError: (no message)"),
    (lambda: SystemExit(3), "SystemExit: 3"),
    (GeneratorExit, "GeneratorExit: (no message)"),
    (Unusual, "Unusual: (no message)"),
    (StopIteration, "StopIteration: (no message)"),
    (StopAsyncIteration, "StopAsyncIteration: (no message)"),
    (RecursionError, "RecursionError: (no message)"),
    (lambda: InvalidArguments("city: not there"), "The arguments of bad are not valid:\n- city: not there"),
]


def raising(kind: str, make: Callable[[], BaseException]) -> Callable[[], object]:
    async def coroutine() -> None:
        raise make()

    async def pieces() -> AsyncIterator[str]:
        raise make()
        yield ""

    def generator() -> Iterator[str]:
        raise make()
        yield ""

    def function() -> None:
        raise make()

    def returned() -> object:
        return make()

    every: Mapping[str, Callable[[], object]] = {
        "coroutine": coroutine,
        "pieces": pieces,
        "generator": generator,
        "function": function,
        "returned": returned,
    }
    return every[kind]


@pytest.mark.parametrize("kind", ["coroutine", "pieces", "generator", "function", "returned"])
@pytest.mark.parametrize(("make", "text"), RAISES)
async def test_whatever_a_tool_raises_is_an_error_result(
    kind: str, make: Callable[[], BaseException], text: str
) -> None:
    """Each kind of tool may raise anything: the model reads class and message, and the run goes on."""
    outcome = await run(Toolkit.of(tool(raising(kind, make), name="bad")), "bad")
    assert summary(outcome) == (ERROR, text)
    assert (outcome.error is None) == text.startswith("The arguments")
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


async def test_a_cancelled_task_of_the_tool_is_the_tools_affair() -> None:
    """A tool that waits for something that was cancelled has failed; nobody cancelled the run."""

    async def wait() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(3600))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    assert summary(await run(Toolkit.of(wait), "wait")) == (ERROR, "CancelledError: (no message)")


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_keyboard_interrupt_leaves_the_run(kind: str) -> None:
    """Ctrl+C is never a tool result."""
    made = tool(raising(kind, KeyboardInterrupt), name="bad")
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(Toolkit.of(made), "bad"))


async def test_closing_the_coroutine_from_outside_ends_it() -> None:
    """A `GeneratorExit` that is not the tool's own is passed on: a closed coroutine may await nothing more."""

    async def sleep() -> None:
        await asyncio.get_running_loop().create_future()

    async def caller() -> None:
        try:
            await run(Toolkit.of(sleep), "sleep", watch)
        except GeneratorExit:
            ended.append("closed")
            raise
        ended.append("result")

    watch, ended = Watch(), list[str]()
    running = caller()
    running.send(None)
    await asyncio.to_thread(running.close)
    assert (ended, watch.token.is_set) == (["closed"], True)
