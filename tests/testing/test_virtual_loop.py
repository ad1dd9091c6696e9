"""The event loop in virtual time: its clock, threads beside it, and what it reports."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from agentscope_rx.testing.virtual_loop import VirtualLoop, VirtualLoopError, run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 3600.0, 30 * 86400.0, 1e9])
def test_sleeping_takes_no_real_time(seconds: float):
    """A sleep of any length ends at once, and the clock shows exactly its length."""

    async def main() -> float:
        await asyncio.sleep(seconds)
        return now()

    started = time.monotonic()
    assert seconds == run_virtual(main)
    assert time.monotonic() - started < 5


def test_timers_fire_in_the_order_of_their_time():
    """Whatever the order in which tasks start, they wake by the clock, and each sees its own time."""

    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, now()))

        await asyncio.gather(wait("c", 60), wait("a", 0.1), wait("b", 2), wait("again", 60))
        return seen

    first = run_virtual(main)
    assert first[:2] == [("a", 0.1), ("b", 2.0)]
    assert first[2:] == [("c", 60.0), ("again", 60.0)]
    assert first == run_virtual(main)


def test_timeouts_run_on_the_virtual_clock():
    """A time-out fires at its virtual second, and not when the work is done before."""

    async def main() -> tuple[str, float]:
        async with asyncio.timeout(10):
            await asyncio.sleep(9.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=50.5)
        return "timed out", now()

    assert run_virtual(main) == ("timed out", 60.0)


def test_clock_stands_still_while_a_thread_works():
    """Work in a thread takes no virtual time, however long it really takes, and no timer fires meanwhile."""

    async def main() -> tuple[int, float, list[str]]:
        fired: list[str] = []
        asyncio.get_running_loop().call_later(0.001, fired.append, "timer")
        total = await asyncio.to_thread(sum, range(500_000))
        return total, now(), fired

    assert run_virtual(main) == (sum(range(500_000)), 0.0, [])


def test_thread_that_nobody_awaits_any_more_does_not_stop_the_clock():
    """After a cancellation the clock goes on; the end of the run waits for the thread all the same."""
    release = threading.Event()
    ended: list[bool] = []

    def work() -> None:
        ended.append(release.wait(10))

    async def main() -> float:
        task = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(60)
        release.set()
        return now()

    assert run_virtual(main) == 60.0
    assert ended == [True]


def test_unknown_thread_may_wake_the_loop():
    """A thread that the loop does not know of may still call back while no timer is set."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, "called back"))
        thread.start()
        try:
            return await future
        finally:
            thread.join()

    assert run_virtual(main, grace=30) == "called back"


def test_deadlock_raises_and_says_where():
    """When every task waits and no timer is set the run fails, naming the tasks and their places."""

    async def wait_forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(5)
        await asyncio.create_task(wait_forever(), name="reader")

    with pytest.raises(VirtualLoopError, match="stuck at 5.0 s: every task waits and no timer is set") as stuck:
        run_virtual(main, grace=0.01)
    assert "reader (test_deadlock_raises_and_says_where.<locals>.wait_forever) at " in str(stuck.value)
    assert "locks.py:" in str(stuck.value)


def test_thread_that_never_ends_raises():
    """A thread that takes longer than the limit fails the run instead of stopping the clock for good."""
    release = threading.Event()

    async def main() -> None:
        try:
            await asyncio.gather(asyncio.to_thread(release.wait, 10), asyncio.sleep(1))
        finally:
            release.set()

    with pytest.raises(VirtualLoopError, match="work in a thread has not ended in 0.05 s"):
        run_virtual(main, thread_limit=0.05)


def test_leaked_task_is_reported():
    """A task that is alive at the end fails the run, by name and place, and is cancelled."""
    seen: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(linger(), name="lingering")
        await asyncio.sleep(0)
        return task

    with pytest.raises(VirtualLoopError, match="left trouble behind\n  still alive: lingering .*linger"):
        run_virtual(main)
    assert seen == ["cancelled"]


def raise_lookup_error() -> NoReturn:
    raise LookupError("nobody hears this")


async def callback_that_raises() -> None:
    asyncio.get_running_loop().call_soon(raise_lookup_error)
    await asyncio.sleep(0)


async def task_that_nobody_asks() -> None:
    async def fail() -> None:
        raise_lookup_error()

    task = asyncio.create_task(fail())
    await asyncio.wait([task])


@pytest.mark.parametrize("main", [callback_that_raises, task_that_nobody_asks])
def test_error_that_reaches_only_the_loop_is_reported(main: Callable[[], Coroutine[Any, Any, None]]):
    """An exception in a callback, or in a task that nobody asks for its result, fails the run."""
    with pytest.raises(VirtualLoopError, match="LookupError\\('nobody hears this'\\)"):
        run_virtual(main)


def test_own_error_of_the_coroutine_is_passed_on():
    """What the coroutine raises comes out as it is; a task left behind is a note on it."""

    async def main() -> None:
        task = asyncio.create_task(asyncio.sleep(60), name="lingering")
        await asyncio.sleep(0)
        raise KeyError(task.get_name())

    with pytest.raises(KeyError, match="lingering") as caught:
        run_virtual(main)
    assert "still alive: lingering (sleep)" in caught.value.__notes__[0]


def test_sockets_are_refused():
    """Waiting for a real socket is an error: nobody knows how much virtual time it would take."""

    async def main(end: socket.socket) -> None:
        with pytest.raises(VirtualLoopError, match="real sockets"):
            await asyncio.get_running_loop().sock_recv(end, 1)

    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    with ends[0], ends[1]:
        run_virtual(lambda: main(ends[0]))
    assert ends[0].fileno() == -1


def test_loop_can_be_used_by_itself():
    """`VirtualLoop` is an ordinary loop for whoever runs it by hand; its clock goes on from run to run."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(2))
        runner.run(asyncio.sleep(3))
        assert runner.get_loop().time() == 5.0
