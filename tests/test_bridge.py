"""Coroutines and async iterators as Observables: how they end, where they run, and that nothing is left."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar, copy_context
from datetime import datetime
from typing import Any

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops
from reactivex.scheduler import CurrentThreadScheduler, TimeoutScheduler
from reactivex.testing import TestScheduler

from agentscope_rx.bridge import (
    LoopScheduler,
    Scope,
    SourceTask,
    Valve,
    current_scope,
    from_aiter,
    from_awaitable,
    from_coroutine,
    leave,
    run_scheduler,
)
from agentscope_rx.errors import SourceCancelled
from agentscope_rx.testing import record, run_virtual
from tests.virtual import virtual

where: ContextVar[str] = ContextVar("where", default="nowhere")


class Ticks:
    """An async generator of numbers, a second apart, that writes down what happens to it."""

    def __init__(self, count: int = 9, *, fails_at: int | None = None, release: float = 1) -> None:
        self.count, self.fails_at, self.release = count, fails_at, release
        self.log: list[str] = []
        self.tasks: list[asyncio.Task[Any] | None] = []

    async def __call__(self) -> AsyncGenerator[int, None]:
        self.log.append("open")
        self.tasks.append(asyncio.current_task())
        token = where.set("inside")
        try:
            for number in range(self.count):
                await asyncio.sleep(1)
                if number == self.fails_at:
                    raise ValueError("broken wire")
                yield number
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise
        except GeneratorExit:
            self.log.append("closed")
            raise
        finally:
            if self.release:
                await asyncio.sleep(self.release)  # a dispose must not cut this short
            where.reset(token)  # raises in any other context than that of the set
            self.tasks.append(asyncio.current_task())
            self.log.append("released")


# -- async iterators ----------------------------------------------------------------------------------------


@virtual
async def test_nothing_runs_before_a_subscription_and_each_runs_anew() -> None:
    """The source is cold: building starts nothing, and two subscriptions are two generators."""
    ticks = Ticks(2)
    source = from_aiter(ticks)
    await asyncio.sleep(5)
    assert ticks.log == []
    for _ in range(2):
        recorded = await record(source).ended()
        assert recorded.signals == [(1.0, "next", 0), (2.0, "next", 1), (3.0, "completed", None)]
    assert ticks.log == ["open", "released"] * 2


@virtual
async def test_an_error_of_the_generator_is_on_error() -> None:
    """What the generator raises arrives as on_error, once, after its clean-up."""
    ticks = Ticks(fails_at=1)
    recorded = await record(from_aiter(ticks)).ended()
    assert recorded.signals == [(1.0, "next", 0), (3.0, "error", ValueError("broken wire"))]
    assert ticks.log == ["open", "released"]


@virtual
async def test_an_error_of_the_factory_is_on_error() -> None:
    """A factory that raises fails its subscription, not the subscriber."""

    def factory() -> AsyncIterator[int]:
        raise LookupError("no such stream")

    assert (await record(from_aiter(factory)).ended()).signals == [(0.0, "error", LookupError("no such stream"))]


@virtual
async def test_an_iterator_that_cannot_be_closed_will_do() -> None:
    """A plain async iterator, which has no aclose(), is a source too."""

    class Plain:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    assert (await record(from_aiter(Plain)).ended()).values == [1, 0]


# -- dispose ------------------------------------------------------------------------------------------------


@virtual
async def test_dispose_before_the_task_has_begun() -> None:
    """A subscription that is left at once never opens its source."""
    ticks = Ticks()
    recorded = record(from_aiter(ticks))
    recorded.dispose()
    await asyncio.sleep(9)
    assert (ticks.log, recorded.signals) == ([], [])


@virtual
async def test_dispose_from_outside_cancels() -> None:
    """Dispose while the generator waits: it is cancelled, cleans up to the end, and nothing arrives."""
    ticks = Ticks()
    recorded = record(from_aiter(ticks))
    await asyncio.sleep(1.5)
    recorded.dispose()
    recorded.dispose()
    await asyncio.sleep(9)
    assert recorded.values == [0]
    assert recorded.kinds == ["next"]
    assert ticks.log == ["open", "cancelled", "released"]


@virtual
async def test_dispose_from_inside_its_own_on_next_closes() -> None:
    """`take(2)` disposes inside on_next: the generator is closed at its yield, not cancelled in its clean-up."""
    ticks = Ticks()
    recorded = await record(from_aiter(ticks).pipe(ops.map(str), ops.take(2))).ended()
    assert recorded.signals == [(1.0, "next", "0"), (2.0, "next", "1"), (2.0, "completed", None)]
    await asyncio.sleep(9)
    assert ticks.log == ["open", "closed", "released"]


@virtual
async def test_dispose_from_another_thread() -> None:
    """Dispose from a thread is marshalled: the generator ends on its own loop, in its own task."""
    ticks = Ticks()
    recorded = record(from_aiter(ticks))
    await asyncio.sleep(1.5)
    await asyncio.to_thread(recorded.dispose)
    await asyncio.sleep(9)
    assert ticks.log == ["open", "cancelled", "released"]
    assert recorded.values == [0]


@virtual
async def test_dispose_during_the_clean_up_does_not_cut_it_short() -> None:
    """A clean-up that has begun is never cancelled, however often and from wherever the subscription is disposed."""
    ticks = Ticks()
    recorded = record(from_aiter(ticks).pipe(ops.take(1)))
    await asyncio.sleep(1.5)  # the generator awaits in its finally
    recorded.dispose()
    await asyncio.sleep(9)
    assert ticks.log == ["open", "closed", "released"]


@pytest.mark.parametrize("from_a_thread", [False, True])
@virtual
async def test_dispose_during_the_clean_up_after_an_error_does_not_cut_it_short(from_a_thread: bool) -> None:
    """The same where the clean-up has begun because the subscriber raised, and nobody has disposed yet. The error
    then has no subscriber any more, and goes to the loop's handler."""
    ticks, errors, heard = Ticks(), list[Exception](), list[str]()

    def hear(_: object, context: dict[str, Any]) -> None:
        assert "task" not in context  # from 3.12 on it would be run in that task's context, which is entered already
        heard.append(repr(context["exception"]))

    asyncio.get_running_loop().set_exception_handler(hear)

    def bad(number: int) -> None:
        raise KeyError(number)

    subscription = from_aiter(ticks).subscribe(bad, errors.append)
    await asyncio.sleep(1.5)
    assert ticks.log == ["open", "closed"]
    if from_a_thread:
        await asyncio.to_thread(subscription.dispose)
    else:
        subscription.dispose()
    await asyncio.sleep(5)
    assert ticks.log == ["open", "closed", "released"]
    assert (errors, heard) == ([], ["KeyError(0)"])


@virtual
async def test_a_generator_is_closed_in_the_task_in_which_it_ran() -> None:
    """One task pulls and closes, so that context variables and spans set inside can be reset there."""
    ticks = Ticks(1)
    await record(from_aiter(ticks)).ended()
    first, second = ticks.tasks
    assert first is second is not asyncio.current_task()


@settings(deadline=None)
@given(leave_at=st.floats(min_value=0, max_value=12), count=st.integers(min_value=0, max_value=8))
def test_whenever_a_subscriber_leaves_the_source_is_released(leave_at: float, count: int) -> None:
    """Invariant: what was opened is released, exactly once, and nothing arrives after the dispose."""
    ticks = Ticks(count, release=0)  # one that ends by itself may be cancelled in its own clean-up, as by asyncio

    async def main() -> None:
        recorded = record(from_aiter(ticks))
        await asyncio.sleep(leave_at)
        recorded.dispose()
        seen = len(recorded.signals)
        await asyncio.sleep(20)
        assert len(recorded.signals) == seen

    run_virtual(main)
    assert ticks.log.count("open") == ticks.log.count("released") <= 1


# -- errors of subscribers, foreign cancels, late errors ------------------------------------------------------


@virtual
async def test_a_subscriber_that_raises_closes_its_source() -> None:
    """An exception in on_next comes back as on_error of the same subscription, and the generator is closed."""
    ticks = Ticks()
    errors: list[Exception] = []

    def bad(number: int) -> None:
        raise KeyError(number)

    from_aiter(ticks).subscribe(bad, errors.append)
    await asyncio.sleep(9)
    assert [repr(error) for error in errors] == ["KeyError(0)"]
    assert ticks.log == ["open", "closed", "released"]


@virtual
async def test_a_cancel_that_nobody_asked_for_is_an_error_downstream() -> None:
    """A task that somebody else cancels gives SourceCancelled; CancelledError itself is never passed to on_error."""
    ticks = Ticks()
    async with Scope() as scope:
        recorded = record(from_aiter(ticks))
        await asyncio.sleep(0.5)
        (task,) = scope.tasks
        task.cancel()
        await recorded.ended()
        assert isinstance(recorded.error, SourceCancelled)
        assert task.cancelling()
    assert task.cancelled()
    assert ticks.log == ["open", "cancelled", "released"]


@virtual
async def test_a_coroutine_that_raises_cancelled_error_is_an_error_downstream() -> None:
    """The same for a coroutine that lets a CancelledError of something else escape."""

    async def work() -> int:
        raise asyncio.CancelledError

    recorded = await record(from_coroutine(work)).ended()
    assert recorded.kinds == ["error"]
    assert isinstance(recorded.error, SourceCancelled)


async def heard_by_the_loop(subscribe: Any) -> list[dict[str, Any]]:
    """What reaches the loop's exception handler meanwhile."""
    heard: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    try:
        await subscribe()
    finally:
        loop.set_exception_handler(usual)
    return heard


@virtual
async def test_an_error_while_closing_after_dispose_goes_to_the_loops_handler() -> None:
    """Nobody listens any more, and still the error is not lost: the loop's handler gets it, once."""

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.sleep(9)
        finally:
            raise OSError("the socket is gone")

    async def leave_it() -> None:
        recorded = record(from_aiter(numbers))
        await asyncio.sleep(1)
        recorded.dispose()
        await asyncio.sleep(1)
        assert recorded.kinds == ["next"]

    (context,) = await heard_by_the_loop(leave_it)
    assert repr(context["exception"]) == "OSError('the socket is gone')"


@pytest.mark.parametrize("fails", [True, False])
@virtual
async def test_an_error_of_on_error_and_of_on_completed_goes_to_the_loops_handler(fails: bool) -> None:
    """A subscriber that raises at the end is reported once; its task still ends well."""

    def bad(*_: object) -> None:
        raise KeyError("at the end")

    async def work() -> None:
        async with Scope():
            from_aiter(Ticks(1, fails_at=0 if fails else None)).subscribe(lambda _: None, bad, bad)

    (context,) = await heard_by_the_loop(work)
    assert repr(context["exception"]) == "KeyError('at the end')"


# -- coroutines -------------------------------------------------------------------------------------------


@virtual
async def test_a_coroutine_gives_its_one_value() -> None:
    """The factory is called once per subscription, and the value is followed by the end."""

    async def work() -> str:
        await asyncio.sleep(60)
        return "done"

    for _ in range(2):
        recorded = await record(from_coroutine(work)).ended()
        assert recorded.signals == [(60.0, "next", "done"), (60.0, "completed", None)]


@virtual
async def test_a_coroutine_that_disposes_itself_is_cancelled_at_its_next_await() -> None:
    """Dispose from inside the coroutine, but not from inside on_next: there is no later moment, so it is cancelled."""
    log: list[str] = []

    async def work() -> None:
        recorded.dispose()
        try:
            await asyncio.sleep(9)
        finally:
            log.append("stopped")

    recorded = record(from_coroutine(work))
    await asyncio.sleep(1)
    assert log == ["stopped"]
    assert recorded.signals == []


@pytest.mark.filterwarnings("error")
@virtual
async def test_an_awaitable_that_is_left_at_once_is_closed() -> None:
    """A coroutine that exists before its task has begun is closed with it: no `was never awaited`."""
    begun: list[int] = []

    async def work() -> int:
        begun.append(1)
        return 7

    recorded = record(from_awaitable(work(), str))
    recorded.dispose()
    await asyncio.sleep(1)
    gc.collect(1)
    assert begun == []
    assert (await record(from_awaitable(work(), str)).ended()).values == ["7"]


@virtual
async def test_disposing_an_awaited_task_cancels_it() -> None:
    """An awaitable may be a task: leaving its Observable cancels it."""
    task = asyncio.create_task(asyncio.sleep(60))
    recorded = record(from_awaitable(task, str))
    await asyncio.sleep(1)
    recorded.dispose()
    await asyncio.sleep(1)
    assert task.cancelled()


# -- context ------------------------------------------------------------------------------------------------


@virtual
async def test_a_source_runs_in_its_subscribers_context() -> None:
    """The context is that of the moment of subscribing; what the source sets does not reach the subscriber."""
    seen: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        seen.append(where.get())
        where.set("inside")
        yield 1

    where.set("subscriber")
    recorded = record(from_aiter(numbers))
    where.set("later")
    await recorded.ended()
    assert seen == ["subscriber"]
    assert where.get() == "later"


@virtual
async def test_nobody_needs_to_hold_a_subscription() -> None:
    """The loop holds tasks weakly; a bare subscribe() is kept alive all the same."""
    seen: list[int] = []
    from_aiter(Ticks(1)).subscribe(seen.append)
    gc.collect()
    await asyncio.sleep(5)
    assert seen == [0]


# -- scope --------------------------------------------------------------------------------------------------


@virtual
async def test_a_scope_waits_for_everything_that_was_started_in_it() -> None:
    """Leaving the block joins all tasks, those started by such tasks too, whatever becomes of them."""
    log: list[str] = []

    async def child() -> None:
        await asyncio.sleep(2)
        log.append("child")
        raise ValueError("its own business")

    async def parent() -> None:
        record(from_coroutine(child))
        await asyncio.sleep(1)
        log.append("parent")

    async with Scope() as scope:
        record(from_coroutine(parent))
    assert log == ["parent", "child"]
    assert not scope.tasks


@virtual
async def test_a_scope_ends_with_its_block() -> None:
    """What is subscribed after the block belongs to the outer scope again."""
    async with Scope() as outer:
        async with Scope() as inner:
            assert current_scope() is inner
        assert current_scope() is outer
        assert current_scope() is not inner


@virtual
async def test_a_scope_does_not_wait_for_its_own_task() -> None:
    """Joining from a task of the scope itself waits for the others and does not hang."""
    scope, log = Scope(), list[str]()

    async def other() -> None:
        await asyncio.sleep(1)
        log.append("other")

    async def joining() -> None:
        await scope.join()
        log.append("joined")

    scope.start(other())
    await scope.start(joining())
    assert log == ["other", "joined"]


class CountingScope(Scope):
    """A scope that counts what is added to it."""

    added = 0

    def add(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self.added += 1
        return super().add(task)


async def _answer() -> int:
    return 1


def _on_a_loop_of_its_own() -> object:
    async def main() -> object:
        return (await record(from_coroutine(_answer)).ended()).values

    return asyncio.run(main())


@virtual
async def test_a_scope_holds_no_task_of_another_loop() -> None:
    """A thread inherits the context of a run, and with it the scope; what it starts on a loop of its own does not
    join the run's tasks, which only the run's loop could wait for."""
    async with CountingScope() as scope:
        assert await asyncio.to_thread(_on_a_loop_of_its_own) == [1]
        assert scope.added == 0
        await record(from_coroutine(_answer)).ended()
        assert scope.added == 1


# -- valve --------------------------------------------------------------------------------------------------


@virtual
async def test_a_closed_valve_holds_up_sources_at_any_depth() -> None:
    """Sources look the valve up when subscribed, inner ones too; they wait at it after each item while it is closed."""
    made: list[tuple[int, int]] = []

    def numbers(k: int) -> Observable[tuple[int, int]]:
        async def generate() -> AsyncGenerator[tuple[int, int], None]:
            for i in range(3):
                made.append((k, i))
                yield (k, i)

        return from_aiter(generate)

    valve = Valve()

    def close(_: object) -> None:
        valve.closed = True

    token = valve.enter()
    recorded = record(reactivex.of(0, 1).pipe(ops.concat_map(numbers), ops.do_action(close)))
    leave(token)
    for count in range(1, 7):
        await asyncio.sleep(1)
        assert len(made) == len(recorded.values) == count
        valve.open()
    await recorded.ended()
    assert recorded.values == [(k, i) for k in range(2) for i in range(3)]


@virtual
async def test_dispose_at_a_closed_valve() -> None:
    """A source that waits at a valve can be left like any other."""
    ticks, valve = Ticks(), Valve()
    valve.closed = True
    token = valve.enter()
    recorded = record(from_aiter(ticks))
    leave(token)
    await asyncio.sleep(5)
    assert recorded.values == [0]
    recorded.dispose()
    await asyncio.sleep(5)
    assert ticks.log == ["open", "closed", "released"]


# -- scheduler ----------------------------------------------------------------------------------------------


@virtual
async def test_immediate_work_takes_no_turn_of_the_loop() -> None:
    """of, concat, repeat run on the trampoline: everything is there when subscribe returns."""
    recorded = record(reactivex.concat(reactivex.of(1, 2), reactivex.of(3)).pipe(ops.repeat(2)))
    assert recorded.kinds == [*["next"] * 6, "completed"]


@virtual
async def test_time_is_the_loops() -> None:
    """delay, timer and interval go by the loop's clock, and take no real time here."""
    day = 86_400.0
    recorded = await record(reactivex.of("a").pipe(ops.delay(day))).ended()
    assert recorded.signals == [(day, "next", "a"), (day, "completed", None)]
    ticks = await record(reactivex.interval(0.5).pipe(ops.take(3))).ended()
    assert [(each.time, each.value) for each in ticks.signals[:3]] == [(0.5, 0), (1.0, 1), (1.5, 2)]
    scheduler = LoopScheduler(asyncio.get_running_loop())
    assert scheduler.to_seconds(scheduler.now) == asyncio.get_running_loop().time() == day + 1.5


@virtual
async def test_stock_and_asyncio_time_outs_agree() -> None:
    """ops.timeout and asyncio.timeout are on one clock."""
    recorded = await record(reactivex.never().pipe(ops.timeout(60))).ended()
    assert (recorded.kinds, recorded.signals[0].time) == (["error"], 60.0)
    started = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await record(reactivex.never()).ended()
    assert asyncio.get_running_loop().time() - started == 60.0


@virtual
async def test_an_absolute_time_is_a_moment_of_the_loop() -> None:
    """schedule_absolute counts from the same zero; a moment that is over comes at once, through the loop."""
    scheduler, seen = LoopScheduler(asyncio.get_running_loop()), list[tuple[str, float]]()

    def note(_: object, name: Any = None) -> None:
        seen.append((name, asyncio.get_running_loop().time()))

    await asyncio.sleep(10)
    scheduler.schedule_absolute(datetime.fromtimestamp(12, tz=scheduler.now.tzinfo), note, "later")
    scheduler.schedule_absolute(datetime.fromtimestamp(1, tz=scheduler.now.tzinfo), note, "over")
    assert seen == []
    await asyncio.sleep(5)
    assert seen == [("over", 10.0), ("later", 12.0)]


@virtual
async def test_the_trampoline_keeps_the_context() -> None:
    """Work that a nested subscribe leaves on the trampoline runs in the context in which it was left there."""
    seen: list[str] = []
    scheduler = LoopScheduler(asyncio.get_running_loop())

    async def look() -> None:
        seen.append(where.get())

    def subscribe_inside() -> None:
        where.set("inside")
        source = reactivex.of(1).pipe(ops.concat_map(lambda _: from_coroutine(look)))
        source.subscribe(scheduler=scheduler)
        seen.append("subscribed")  # and nothing has run yet: the trampoline is busy with what is outside

    reactivex.of(1).subscribe(lambda _: copy_context().run(subscribe_inside), scheduler=scheduler)
    await asyncio.sleep(1)
    assert seen == ["subscribed", "inside"]


@virtual
async def test_a_run_takes_only_schedulers_that_follow_its_time() -> None:
    """Ours and virtual ones are kept; a scheduler of threads or of the wall clock is replaced."""
    ours, tests = LoopScheduler(asyncio.get_running_loop()), TestScheduler()
    assert run_scheduler(ours) is ours
    assert run_scheduler(tests) is tests
    for other in (None, TimeoutScheduler.singleton(), CurrentThreadScheduler.singleton()):
        assert isinstance(run_scheduler(other), LoopScheduler)


# -- the task itself ----------------------------------------------------------------------------------------


@virtual
async def test_when_done_is_told_however_a_task_ends() -> None:
    """Well, with an error, disposed before its begin, disposed later: each is told once."""
    told: list[str] = []

    def source(name: str, seconds: float, *, fails: bool = False) -> Observable[None]:
        async def body(_: SourceTask[None]) -> None:
            await asyncio.sleep(seconds)
            if fails:
                raise ValueError(name)

        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            task = SourceTask(body, observer)
            task.when_done(lambda: told.append(name))
            return task

        return Observable(subscribe)

    record(source("well", 1))
    record(source("with an error", 2, fails=True))
    record(source("at once", 3)).dispose()
    later = record(source("later", 9))
    await asyncio.sleep(3)
    later.dispose()
    await asyncio.sleep(9)
    assert told == ["at once", "well", "with an error", "later"]


def test_no_thread_is_started() -> None:
    """Sources and timers live on the loop's thread alone."""
    before = threading.active_count()

    async def main() -> None:
        await record(from_aiter(Ticks(3)).pipe(ops.timeout(60), ops.delay(1))).ended()
        await asyncio.sleep(2)
        assert threading.active_count() == before

    run_virtual(main)
