"""Whose turn it is in a session: order, time-outs, cancellation, threads and loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import ReentrantCall, SessionBusy
from agentscope_rx.gates import SessionGate
from agentscope_rx.runtime import Runtime
from agentscope_rx.testing.virtual_loop import run_virtual

LONG = 300.0


@asynccontextmanager
async def turn(runtime: Runtime, key: str = "s", wait_timeout: float = LONG) -> AsyncGenerator[None]:
    """One turn of a session."""
    async with runtime.gate(key).enter(wait_timeout=wait_timeout):
        yield


async def queued(work: Awaitable[None], *, inside: bool = False) -> asyncio.Task[None]:
    """Start a task, and let it come as far as it can.

    Args:
        work: What it does.
        inside: Whether it is a child of the running call, as a tool's task is; else it comes from outside.
    """

    async def run() -> None:
        await work

    task = asyncio.create_task(run(), context=None if inside else Context())
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)  # after the first step of the task
    await done.wait()
    return task


# -- order --------------------------------------------------------------------------------------------------


def test_first_in_first_out() -> None:
    """Calls on one session go in one at a time, in the order in which they came."""
    order: list[tuple[str, int]] = []
    runtime = Runtime()

    async def call(number: int) -> None:
        async with turn(runtime):
            order.append(("in", number))
            await asyncio.sleep(1)
            order.append(("out", number))

    async def main() -> float:
        tasks = [await queued(call(number)) for number in range(20)]
        await asyncio.gather(*tasks)
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 20.0
    assert order == [(edge, number) for number in range(20) for edge in ("in", "out")]


def test_sessions_do_not_wait_for_each_other() -> None:
    """Calls on different sessions run side by side, also inside of one another."""
    runtime = Runtime()

    async def call(number: int) -> None:
        async with turn(runtime, f"s{number}"), turn(runtime, f"t{number}"):
            await asyncio.sleep(1)

    async def main() -> float:
        await asyncio.gather(*(call(number) for number in range(20)))
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 1.0


def test_an_error_inside_passes_the_turn_on() -> None:
    """However a call ends, the next one goes in; the error stays its own."""
    runtime = Runtime()

    async def main() -> None:
        async def failing() -> None:
            async with turn(runtime):
                await asyncio.sleep(1)
                raise ZeroDivisionError

        async def next_one() -> None:
            async with turn(runtime):
                pass

        first, second = await queued(failing()), await queued(next_one())
        await second
        with pytest.raises(ZeroDivisionError):
            await first

    run_virtual(main)


@dataclass(frozen=True)
class Visit:
    """A call of the property test: when it comes, how long it stays, when it is cancelled, how long it waits."""

    comes: int
    stays: int
    cancelled: int | None
    waits: int


VISITS = st.lists(
    st.builds(
        Visit,
        comes=st.integers(0, 6),
        stays=st.integers(0, 3),
        cancelled=st.none() | st.integers(0, 8),
        waits=st.sampled_from([0, 1, 2, 5, 300]),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(VISITS)
def test_whatever_happens_turns_are_taken_in_order(visits: list[Visit]) -> None:
    """With time-outs and cancellations at any moment there is one inside at most, the order holds, and nobody is
    forgotten: in the end the session is free."""
    runtime = Runtime()
    inside: set[int] = set()
    came: list[int] = []
    entered: list[int] = []
    busy: list[int] = []

    async def call(number: int, visit: Visit) -> None:
        await asyncio.sleep(visit.comes)
        came.append(number)
        try:
            async with turn(runtime, wait_timeout=visit.waits):
                assert not inside
                inside.add(number)
                entered.append(number)
                try:
                    await asyncio.sleep(visit.stays)
                finally:
                    inside.remove(number)
        except SessionBusy:
            busy.append(number)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(call(number, visit)) for number, visit in enumerate(visits)]
        for task, visit in zip(tasks, visits, strict=True):
            if visit.cancelled is not None:
                loop.call_at(visit.cancelled, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        failed = [task.exception() for task in tasks if not task.cancelled() and task.exception()]
        assert failed == []
        async with turn(runtime, wait_timeout=0):
            pass

    run_virtual(main)
    assert entered == [number for number in came if number in entered]
    patient = [n for n, visit in enumerate(visits) if visit.cancelled is None and visit.waits == 300]
    assert set(patient) <= set(entered)
    assert not set(busy) & set(entered)


# -- waiting ------------------------------------------------------------------------------------------------


def test_waiting_ends_with_session_busy() -> None:
    """A call that waited for its `wait_timeout` is refused at that second; those behind it move up."""
    runtime = Runtime()

    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def patient(name: str) -> None:
            async with turn(runtime):
                seen.append((name, loop.time()))
                await asyncio.sleep(10)

        async def hasty() -> None:
            with pytest.raises(SessionBusy, match=r"session 's' was held by other calls for 2\.5 s"):
                async with turn(runtime, wait_timeout=2.5):
                    pass
            seen.append(("busy", loop.time()))

        tasks = [await queued(patient("first")), await queued(hasty()), await queued(patient("last"))]
        await asyncio.gather(*tasks)
        return seen

    assert run_virtual(main) == [("first", 0.0), ("busy", 2.5), ("last", 10.0)]


def test_zero_does_not_wait() -> None:
    """With `wait_timeout=0` a call goes in where the session is free, and is refused at once where it is not."""
    runtime = Runtime()

    async def main() -> float:
        async with turn(runtime, wait_timeout=0):
            task = await queued(refused())
            assert task.done()
            await task
        async with turn(runtime, wait_timeout=0):
            pass
        return asyncio.get_running_loop().time()

    async def refused() -> None:
        with pytest.raises(SessionBusy, match="wait_timeout=0 does not wait"):
            async with turn(runtime, wait_timeout=0):
                pass

    assert run_virtual(main) == 0.0


def test_an_error_of_time_inside_is_the_callers_own() -> None:
    """A `TimeoutError` that is raised inside of the turn is no `SessionBusy`."""
    runtime = Runtime()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with turn(runtime), asyncio.timeout(1):
                await asyncio.sleep(2)
        async with turn(runtime, wait_timeout=0):
            pass

    run_virtual(main)


# -- cancellation -------------------------------------------------------------------------------------------


def test_a_cancelled_call_leaves_the_queue() -> None:
    """Cancelling one that waits takes it out; the holder is not disturbed, and those behind it move up."""
    runtime = Runtime()
    entered: list[str] = []

    async def call(name: str) -> None:
        async with turn(runtime):
            entered.append(name)
            await asyncio.sleep(1)

    async def main() -> None:
        first, second, third = [await queued(call(name)) for name in ("first", "second", "third")]
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await asyncio.gather(first, third)

    run_virtual(main)
    assert entered == ["first", "third"]


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_giving_up_in_the_moment_of_ones_turn_passes_it_on(how: str) -> None:
    """A call that gives up after the turn was passed to it, but before it went in, passes it on."""
    runtime = Runtime()
    entered: list[str] = []

    async def main() -> None:
        release = asyncio.Event()

        async def call(name: str, wait_timeout: float = LONG) -> None:
            async with turn(runtime, wait_timeout=wait_timeout):
                entered.append(name)
                await release.wait()

        first = await queued(call("first"))
        asyncio.get_running_loop().call_at(5.0, release.set)
        second = await queued(call("second", 5.0 if how == "timed out" else LONG))
        third = await queued(call("third"))
        if how == "cancelled":
            first.add_done_callback(lambda _: second.cancel())  # the turn is on its way to the second by then
        results = await asyncio.gather(first, second, third, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError if how == "cancelled" else SessionBusy)

    run_virtual(main)
    assert entered == ["first", "third"]


def test_a_cancelled_holder_passes_the_turn_on() -> None:
    """Cancelling the call that is in ends it, and the next one goes in."""
    runtime = Runtime()

    async def main() -> float:
        async def call(seconds: float) -> None:
            async with turn(runtime):
                await asyncio.sleep(seconds)

        first, second = await queued(call(1_000)), await queued(call(1))
        first.cancel()
        await asyncio.wait([first, second])
        assert first.cancelled()
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 1.0


# -- a call inside of a call --------------------------------------------------------------------------------


async def go_in(runtime: Runtime) -> None:
    async with turn(runtime):
        pass


async def be_refused(runtime: Runtime) -> None:
    with pytest.raises(ReentrantCall, match="a call was made from inside a call that holds the same session"):
        await go_in(runtime)


def test_a_call_inside_of_a_call_is_refused() -> None:
    """A call on a session that its own task holds would wait for ever: it is refused, the outer call goes on."""
    runtime = Runtime()

    async def main() -> float:
        async with turn(runtime):
            await be_refused(runtime)
            async with turn(runtime, "another"):
                await be_refused(runtime)
            await be_refused(runtime)
        await go_in(runtime)
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 0.0  # nobody has waited


def test_a_call_of_a_child_task_is_refused() -> None:
    """A tool's task, and a thread that was given the context, are inside of the call that started them."""
    runtime = Runtime()

    async def main() -> None:
        async with turn(runtime):
            await asyncio.create_task(be_refused(runtime))
            await asyncio.gather(*(asyncio.create_task(be_refused(runtime)) for _ in range(3)))
            await asyncio.to_thread(asyncio.run, be_refused(runtime))

    run_virtual(main)


def test_others_wait_and_are_not_refused() -> None:
    """A task that was started outside waits for its turn, whoever is in."""
    runtime = Runtime()

    async def main() -> None:
        begin = asyncio.Event()

        async def other() -> None:
            await begin.wait()
            await go_in(runtime)

        task = await queued(other())
        async with turn(runtime):
            begin.set()
            await asyncio.sleep(1)
            assert not task.done()
        await task

    run_virtual(main)


def test_a_child_that_outlives_the_call_may_go_in() -> None:
    """After its call has ended, a task that was started inside is like any other, also when another call is in."""
    runtime = Runtime()

    async def main() -> None:
        begin = asyncio.Event()

        async def child() -> None:
            await begin.wait()
            await go_in(runtime)

        async with turn(runtime):
            task = await queued(child(), inside=True)
        async with turn(runtime):
            begin.set()
            await asyncio.sleep(1)
            assert not task.done()
        await task

    run_virtual(main)


# -- threads and loops --------------------------------------------------------------------------------------


def test_threads_with_loops_of_their_own_take_turns() -> None:
    """Calls on the loops of several threads go in one at a time, in the order in which they came."""
    runtime = Runtime()
    entered: list[int] = []
    inside = threading.Lock()

    def in_a_thread(number: int, came: threading.Event) -> None:
        async def call() -> None:
            async with turn(runtime):
                assert inside.acquire(blocking=False)
                entered.append(number)
                inside.release()

        async def main() -> None:
            task = await queued(call())
            came.set()
            await task

        asyncio.run(main())

    async def holder() -> None:
        async with turn(runtime):
            for number in range(8):
                came = threading.Event()
                works.append(pool.submit(in_a_thread, number, came))
                assert came.wait(timeout=30)

    works: list[object] = []
    with ThreadPoolExecutor(8) as pool:
        asyncio.run(holder())
    for work in works:
        getattr(work, "result")()  # noqa: B009
    assert entered == list(range(8))


def test_many_threads_at_once_exclude_each_other() -> None:
    """Without any order among them, hundreds of calls from several threads never meet inside."""
    runtime = Runtime()
    inside = threading.Lock()
    visits: list[int] = []
    start = threading.Barrier(6)

    def in_a_thread(number: int) -> None:
        async def call() -> None:
            async with turn(runtime):
                assert inside.acquire(blocking=False)
                await asyncio.sleep(0)
                visits.append(number)
                inside.release()

        async def main() -> None:
            await asyncio.gather(*(call() for _ in range(40)))

        start.wait(timeout=30)
        asyncio.run(main())

    with ThreadPoolExecutor(6) as pool:
        for work in [pool.submit(in_a_thread, number) for number in range(6)]:
            work.result()
    assert sorted(visits) == sorted(list(range(6)) * 40)


def test_a_loop_that_was_closed_loses_its_place() -> None:
    """A call whose loop was closed while it waited is passed over; that it is thrown away later gives nobody's turn
    to anybody else."""
    runtime = Runtime()
    entered: list[str] = []
    dead = asyncio.new_event_loop()
    dead.set_exception_handler(lambda _, __: None)  # it complains about the task that was never finished

    async def call(name: str, stay: asyncio.Event | None = None) -> None:
        async with turn(runtime):
            entered.append(name)
            if stay is not None:
                await stay.wait()

    async def main() -> None:
        abandoned: list[asyncio.Task[None]] = []
        stay = asyncio.Event()

        def begin_and_close() -> None:
            abandoned.append(dead.create_task(call("abandoned")))
            dead.call_soon(dead.stop)
            dead.run_forever()
            dead.close()

        async with turn(runtime):
            await asyncio.get_running_loop().run_in_executor(None, begin_and_close)
            second, third = await queued(call("second", stay)), await queued(call("third"))
        await asyncio.wait([second], timeout=1)
        assert entered == ["second"]
        abandoned.clear()
        gc.collect()
        await asyncio.wait([third], timeout=1)
        assert entered == ["second"], "the third went in while the second was inside"
        stay.set()
        await asyncio.gather(second, third)

    run_virtual(main)
    assert entered == ["second", "third"]


# -- what is kept -------------------------------------------------------------------------------------------


async def leave_by_the_door(runtime: Runtime) -> None:
    await go_in(runtime)


async def leave_by_an_error(runtime: Runtime) -> None:
    with suppress(ZeroDivisionError):
        async with turn(runtime):
            raise ZeroDivisionError


async def leave_while_others_wait(runtime: Runtime) -> None:
    async with turn(runtime):
        waiting = [await queued(go_in(runtime)) for _ in range(3)]
        waiting[0].cancel()
        hasty = await queued(_in_vain(runtime, 5.0))
        await hasty
    await asyncio.wait(waiting)


async def leave_without_having_waited(runtime: Runtime) -> None:
    async with turn(runtime):
        await be_refused(runtime)
        await (await queued(_in_vain(runtime, 0)))


async def _in_vain(runtime: Runtime, wait_timeout: float) -> None:
    with pytest.raises(SessionBusy):
        async with turn(runtime, wait_timeout=wait_timeout):
            pass


@pytest.mark.parametrize(
    "visit", [leave_by_the_door, leave_by_an_error, leave_while_others_wait, leave_without_having_waited]
)
def test_idle_gates_are_forgotten(visit: Callable[[Runtime], Awaitable[None]]) -> None:
    """A Runtime that saw a million sessions keeps the gates of those that are in use."""
    runtime = Runtime()
    gates: list[weakref.ref[SessionGate]] = []
    find = runtime.gate

    def noted(key: str) -> SessionGate:
        gate = find(key)
        gates.append(weakref.ref(gate))
        return gate

    runtime.gate = noted  # type: ignore[method-assign]

    async def main() -> None:
        await visit(runtime)

    run_virtual(main)
    gc.collect()
    assert gates
    assert [gate for gate in gates if gate() is not None] == []


def test_a_gate_in_use_is_kept() -> None:
    """Whoever asks for a session that is in use gets the same gate; a new one only after everybody has left."""
    runtime = Runtime()

    async def main() -> None:
        gate = runtime.gate("s")
        async with gate.enter(wait_timeout=0):
            async with asyncio.timeout(None):
                other = runtime.gate("s")
                assert other is gate
                with pytest.raises(ReentrantCall):
                    await other.enter(wait_timeout=0).__aenter__()
            assert not gate.unclaimed
        assert gate.unclaimed
        later = runtime.gate("s")
        assert later is not gate
        async with later.enter(wait_timeout=0):
            pass

    run_virtual(main)
