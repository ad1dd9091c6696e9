"""What a tool does and what is done to the run are told apart: cancels, time-outs, retries."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.tools import CancelToken, ToolContext, Toolkit, tool
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.context import ToolCancelled
from agentscope_rx.tools.execution import run_call
from tests.tools.calls import ERROR, SUCCESS, Watch, run, summary


class Unusual(BaseException):
    pass


# -- cancelling ---------------------------------------------------------------------------------------------


async def obedient(started: asyncio.Event) -> None:
    started.set()
    await asyncio.sleep(3600)


async def returning(started: asyncio.Event) -> str:
    try:
        await obedient(started)
    except asyncio.CancelledError:
        pass
    return "finished all the same"


async def translating(started: asyncio.Event) -> None:
    try:
        await obedient(started)
    except asyncio.CancelledError:
        raise ValueError("aborted") from None


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("behaviour", [obedient, returning, translating])
def test_a_real_cancel_goes_through_every_tool(behaviour: Callable[..., Any], attempts: int) -> None:
    """Whether a tool passes a cancel on, swallows or renames it: the run is cancelled, and threads are told."""

    async def main() -> None:
        started, watch = asyncio.Event(), Watch()

        @tool(name="work", max_attempts=attempts)
        async def work() -> object:
            return await behaviour(started)

        running = asyncio.ensure_future(run(Toolkit.of(work), "work", watch))
        await started.wait()
        running.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await running
        assert running.cancelled()
        assert watch.token.is_set

    run_virtual(main)


def test_a_cancel_between_two_attempts_is_real() -> None:
    """While it waits to try again a call can be cancelled too."""

    async def main() -> None:
        watch = Watch()
        work, _ = failing(9, ValueError("x"))
        running = asyncio.ensure_future(run(Toolkit.of(tool(work, max_attempts=9)), "work", watch))
        await asyncio.sleep(1.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert watch.token.is_set

    run_virtual(main)


async def test_a_cancelled_call_stops_its_thread() -> None:
    """The thread of a cancelled call learns it from the token; what it reports then goes nowhere."""
    started, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[object] = []

    @tool
    def work(context: ToolContext) -> None:
        loop.call_soon_threadsafe(started.set)
        seen.append(context.cancelled.wait(30))
        context.report("too late")
        try:
            context.cancelled.raise_if_set()
        except ToolCancelled as error:
            seen.append(error.code)
        ended.set()

    watch = Watch()
    running = asyncio.ensure_future(run(Toolkit.of(work), "work", watch))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.to_thread(ended.wait, 30)
    assert (seen, watch.reported) == ([True, "tool_cancelled"], [])


# -- time ---------------------------------------------------------------------------------------------------


@tool
async def forever() -> None:
    """Wait."""
    await asyncio.sleep(1e6)


@pytest.mark.parametrize(
    ("toolkit", "seconds"),
    [
        (Toolkit.of(forever), 300),
        (Toolkit.of(forever, default_timeout=7.5), 7.5),
        (Toolkit.of(tool(forever, timeout=2)), 2),
        (Toolkit.of(tool(forever, timeout=math.inf)), None),
        (Toolkit.of(forever, default_timeout=None), None),
    ],
)
def test_a_call_takes_no_longer_than_allowed(toolkit: Toolkit, seconds: float | None) -> None:
    """The tool's own limit counts before the toolkit's; the time-out is an error result."""

    async def main() -> None:
        outcome = await run(toolkit, "forever")
        now = asyncio.get_running_loop().time()
        if seconds is None:
            assert (summary(outcome), now) == ((SUCCESS, "(no output)"), 1e6)
        else:
            assert summary(outcome) == (ERROR, f"TimeoutError: no result within {seconds} s")
            assert (now, type(outcome.error)) == (seconds, TimeoutError)

    run_virtual(main)


def test_a_tool_that_uses_the_last_moment_keeps_its_result() -> None:
    """A tool may catch the time-out's cancel and return what it has."""

    async def main() -> None:
        async def partly() -> str:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return "half of it"
            return "all"

        assert summary(await run(Toolkit.of(partly, default_timeout=1), "partly")) == (SUCCESS, "half of it")

    run_virtual(main)


def test_a_tool_that_renames_the_time_out_has_still_timed_out() -> None:
    """What it raised in its place is kept as the cause, for the log."""

    async def main() -> None:
        @tool(timeout=1)
        async def work() -> object:
            return await translating(asyncio.Event())

        outcome = await run(Toolkit.of(work), "work")
        assert summary(outcome) == (ERROR, "TimeoutError: no result within 1 s")
        assert isinstance(outcome.error, TimeoutError)
        assert isinstance(outcome.error.__cause__, ValueError)

    run_virtual(main)


# -- retries ------------------------------------------------------------------------------------------------


def failing(times: int, error: BaseException) -> tuple[Callable[[], Any], list[float]]:
    """A tool that fails so many times, and the moments at which it was called."""
    moments: list[float] = []

    async def work() -> str:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) <= times:
            raise error
        return f"attempt {len(moments)}"

    return work, moments


@pytest.mark.parametrize(
    ("jitter", "moments"), [(0.5, [0, 1, 3, 7, 12]), (0.0, [0, 0.5, 1.5, 3.5, 6]), (1.0, [0, 1.5, 4.5, 10.5, 18])]
)
def test_a_failed_call_is_tried_again_with_growing_waits(jitter: float, moments: list[float]) -> None:
    """Each wait is twice as long, up to the limit, times one half to one and a half."""

    async def main() -> None:
        work, seen = failing(4, ValueError("x"))
        toolkit = Toolkit.of(tool(work, max_attempts=5, initial_backoff=1, max_backoff=5))
        call = ToolUseBlock(id="c1", name="work")
        outcome = await run_call(toolkit, call, ToolContext(call=call), jitter=lambda: jitter)
        assert summary(outcome) == (SUCCESS, "attempt 5")
        assert seen == moments

    run_virtual(main)


def test_the_last_failure_is_the_result() -> None:
    """After the last attempt its error is told; without `max_attempts` there is only one."""

    async def main() -> None:
        for options, attempts in (({}, 1), ({"max_attempts": 3}, 3)):
            work, seen = failing(9, ValueError("x"))
            made = tool(work, **options)  # type: ignore[arg-type]
            assert summary(await run(Toolkit.of(made), "work")) == (ERROR, "ValueError: x")
            assert len(seen) == attempts

    run_virtual(main)


def test_what_no_retry_can_help_is_not_tried_again() -> None:
    """Wrong arguments, and what is no `Exception`, end the call at once."""

    async def main() -> None:
        for error in (InvalidArguments("x: no"), SystemExit(1), asyncio.CancelledError(), Unusual()):
            work, seen = failing(9, error)
            assert (await run(Toolkit.of(tool(work, max_attempts=5)), "work")).result.state is ERROR
            assert seen == [0]

    run_virtual(main)


def test_an_attempt_that_took_too_long_leaves_the_next_one_alone() -> None:
    """Each attempt has a token of its own, by which its threads learn that it is over."""

    async def main() -> None:
        watch = Watch()
        tokens: list[CancelToken] = []

        @tool(timeout=1, max_attempts=2)
        async def work(context: ToolContext) -> str:
            tokens.append(context.cancelled)
            if len(tokens) == 1:
                await asyncio.sleep(5)
            return "done"

        assert summary(await run(Toolkit.of(work), "work", watch)) == (SUCCESS, "done")
        assert ([token.is_set for token in tokens], watch.token.is_set) == ([True, False], False)

    run_virtual(main)


def test_a_failure_leaves_the_other_calls_of_its_step_alone() -> None:
    """Calls that run side by side may share a token; one that fails or times out does not set it."""

    async def main() -> None:
        watch = Watch()
        work, _ = failing(9, ValueError("x"))
        for made in (tool(work, name="bad"), tool(forever, name="bad", timeout=1)):
            assert (await run(Toolkit.of(made), "bad", watch)).result.state is ERROR
            assert not watch.token.is_set

    run_virtual(main)
