"""The way out of a run (Sink), a run as an Observable, and the loop that a run is."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.observer import Observer
from reactivex.scheduler import NewThreadScheduler, TimeoutScheduler

from agentscope_rx.bridge import LoopScheduler, Scope, from_coroutine
from agentscope_rx.errors import AgentClosed, ConsumerFailed, RunningLoopError
from agentscope_rx.portal import PORTAL
from agentscope_rx.streams import Sink, loop, run_with_sink
from agentscope_rx.testing import marbles, record, run_virtual
from tests.virtual import virtual

where: ContextVar[str] = ContextVar("where", default="nowhere")


class Consumer:
    """A subscriber that keeps what it gets, and may be told to do something with it."""

    def __init__(self, react: Callable[[Any], None] = lambda _: None) -> None:
        self.got: list[Any] = []
        self.react = react
        self.observer: abc.ObserverBase[Any] = Observer(self._next, self._error, lambda: self.got.append("end"))
        self.stopped = 0

    def _next(self, value: Any) -> None:
        self.got.append(value)
        self.react(value)

    def _error(self, error: Exception) -> None:
        self.got.append(error)

    def stop(self) -> None:
        self.stopped += 1

    def sink(self) -> Sink[Any]:
        return Sink(self.observer, self.stop)


# -- sink ---------------------------------------------------------------------------------------------------


@virtual
async def test_a_sink_hands_on_and_ends() -> None:
    """Events in order, then the end, then the run is stopped; nothing comes after it."""
    consumer = Consumer()
    sink = consumer.sink()
    sink.emit(1)
    sink.emit(2)
    sink.complete()
    sink.emit(3)
    sink.error(ValueError("late"))
    sink.complete()
    assert (consumer.got, consumer.stopped) == ([1, 2, "end"], 1)


@virtual
async def test_nothing_leaves_after_dispose() -> None:
    """The subscriber left: neither events nor an end reach it."""
    consumer = Consumer()
    sink = consumer.sink()
    sink.emit(1)
    sink.dispose()
    sink.emit(2)
    sink.complete()
    sink.error(ValueError("late"))
    assert (consumer.got, consumer.stopped) == ([1], 1)


@virtual
async def test_what_a_subscriber_makes_the_run_emit_comes_after_its_event() -> None:
    """Re-entrancy: an event that is emitted inside on_next waits its turn, so that order is the same for all."""
    depth = [0, 0]

    def react(value: int) -> None:
        depth[0] += 1
        depth[1] = max(depth)
        if value < 3:
            sink.emit(value + 10)
            sink.emit(value + 1)
        depth[0] -= 1

    consumer = Consumer(react)
    sink = consumer.sink()
    sink.emit(1)
    assert consumer.got == [1, 11, 2, 12, 3]
    assert depth[1] == 1


@virtual
async def test_a_subscriber_that_leaves_inside_an_event_gets_nothing_more() -> None:
    """Dispose inside on_next: what waits is dropped."""

    def react(value: int) -> None:
        sink.emit(value + 1)
        sink.dispose()

    consumer = Consumer(react)
    sink = consumer.sink()
    sink.emit(1)
    assert consumer.got == [1]


@virtual
async def test_a_subscriber_that_raises_has_ended_its_run() -> None:
    """One ConsumerFailed with the cause, the run is stopped, and the one who emits notices nothing."""

    def react(value: int) -> None:
        sink.emit(value + 1)
        raise KeyError(value)

    consumer = Consumer(react)
    sink = consumer.sink()
    sink.emit(1)
    sink.emit(5)
    first, error = consumer.got
    assert first == 1
    assert isinstance(error, ConsumerFailed)
    assert "KeyError" in str(error)
    assert isinstance(error.__cause__, KeyError)
    assert consumer.stopped == 1


@virtual
async def test_a_subscriber_that_raises_at_the_end_is_reported_and_its_run_stopped() -> None:
    """on_completed and on_error may raise: the loop's handler hears of it, and the run is stopped all the same."""
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))

    def bad(*_: object) -> None:
        raise KeyError("at the end")

    well, badly = Consumer(), Consumer()
    Sink(Observer(well.got.append, bad, bad), well.stop).complete()
    Sink(Observer(badly.got.append, bad, bad), badly.stop).error(ValueError("x"))
    assert (well.stopped, badly.stopped) == (1, 1)
    assert list(map(repr, heard)) == ["KeyError('at the end')"] * 2


@virtual
async def test_events_from_threads_arrive_on_the_runs_thread_in_their_order() -> None:
    """A tool in a thread may emit: its events come in the order in which it emitted them, on the run's thread."""
    threads: set[int] = set()
    consumer = Consumer(lambda _: threads.add(threading.get_ident()))
    sink = consumer.sink()

    def work(name: str) -> None:
        for number in range(100):
            sink.emit((name, number))

    with ThreadPoolExecutor(4) as pool:
        await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, work, name) for name in "abcd"))
    await asyncio.sleep(0)
    assert threads == {threading.get_ident()}
    for name in "abcd":
        assert [number for who, number in consumer.got if who == name] == list(range(100))


@virtual
async def test_an_event_from_a_thread_that_comes_too_late_is_dropped() -> None:
    """A thread that runs on after the end of its run may still emit; nobody gets it and nothing raises."""
    consumer = Consumer()
    sink = consumer.sink()
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait()
        sink.emit("late")

    working = asyncio.ensure_future(asyncio.to_thread(work))
    await asyncio.to_thread(begun.wait)
    sink.complete()
    go.set()
    await working
    await asyncio.sleep(0)
    assert consumer.got == ["end"]


@virtual
async def test_events_arrive_in_the_subscribers_context() -> None:
    """Whoever emits, the subscriber sees its own context variables; what it sets stays from event to event."""
    seen: list[str] = []

    def react(_: object) -> None:
        seen.append(where.get())
        where.set(f"event {len(seen)}")

    where.set("subscriber")
    sink = Consumer(react).sink()

    async def emit() -> None:
        where.set("source")
        sink.emit(1)
        await asyncio.to_thread(sink.emit, 2)
        await asyncio.sleep(0)
        sink.emit(3)

    await asyncio.create_task(emit())
    assert seen == ["subscriber", "event 1", "event 2"]
    assert where.get() == "subscriber"


@settings(deadline=None)
@given(st.recursive(st.lists(st.just(0), max_size=2), lambda inner: st.lists(inner, max_size=3), max_leaves=12))
def test_every_event_arrives_once_and_none_inside_another(tree: list[Any]) -> None:
    """Invariant: however events make further events, each arrives once, one at a time, in the order of emission."""
    emitted: list[int] = []
    inside = [0]

    async def main() -> list[int]:
        def emit(node: list[Any]) -> None:
            emitted.append(len(emitted))
            sink.emit((emitted[-1], node))

        def react(event: tuple[int, list[Any]]) -> None:
            inside[0] += 1
            assert inside[0] == 1
            for child in event[1]:
                emit(child or [])
            inside[0] -= 1

        consumer = Consumer(react)
        sink = consumer.sink()
        emit(tree)
        return [number for number, _ in consumer.got]

    assert run_virtual(main) == emitted


# -- a run as an Observable ---------------------------------------------------------------------------------


def counting(upto: int, *, sinks: list[Sink[int]] | None = None) -> Observable[int]:
    """A run that counts, a second each."""

    def work(sink: Sink[int]) -> Observable[None]:
        if sinks is not None:
            sinks.append(sink)

        async def count() -> None:
            for number in range(upto):
                await asyncio.sleep(1)
                sink.emit(number)

        return from_coroutine(count)

    return run_with_sink(work)


@virtual
async def test_each_subscription_is_a_run() -> None:
    """Cold: nothing before subscribing, and two subscriptions have two sinks."""
    sinks: list[Sink[int]] = []
    source = counting(2, sinks=sinks)
    assert sinks == []
    first, second = record(source), record(source)
    assert (await first.ended()).signals == (await second.ended()).signals
    assert first.signals == [(1.0, "next", 0), (2.0, "next", 1), (2.0, "completed", None)]
    assert len(set(map(id, sinks))) == 2


@virtual
async def test_an_error_of_the_work_is_the_runs() -> None:
    """The end of the work is the end of the run."""

    def work(_: Sink[int]) -> Observable[None]:
        return marbles("--#", error=ValueError("broken"))

    assert (await record(run_with_sink(work)).ended()).signals == [(2.0, "error", ValueError("broken"))]


@virtual
async def test_work_that_cannot_begin_is_on_error() -> None:
    """An exception of `work` itself arrives as on_error."""

    def work(_: Sink[int]) -> Observable[None]:
        raise AgentClosed("closed")

    assert (await record(run_with_sink(work)).ended()).signals == [(0.0, "error", AgentClosed("closed"))]


def test_work_that_cannot_begin_is_on_error_in_the_background_too() -> None:
    """The same for a subscriber on a thread without a loop, where nothing else would ever hear of it."""

    def work(_: Sink[int]) -> Observable[None]:
        raise AgentClosed("closed")

    errors: list[Exception] = []
    told = threading.Event()

    def on_error(error: Exception) -> None:
        errors.append(error)
        told.set()

    run_with_sink(work).subscribe(lambda _: None, on_error)
    assert told.wait(10)
    assert [str(error) for error in errors] == ["closed"]


def test_a_subscriber_without_a_loop_is_served_by_the_background_loop() -> None:
    """subscribe() works on any thread; events then come on the portal's thread, and dispose works from here."""
    ended = threading.Event()
    threads: set[int] = set()
    got: list[int] = []

    def work(sink: Sink[int]) -> Observable[None]:
        async def emit() -> None:
            for number in range(3):
                sink.emit(number)
                await asyncio.sleep(0)

        return from_coroutine(emit)

    def on_next(number: int) -> None:
        threads.add(threading.get_ident())
        got.append(number)

    run_with_sink(work).subscribe(on_next, None, ended.set)
    assert ended.wait(10)
    assert got == [0, 1, 2]
    assert threading.get_ident() not in threads

    closed = threading.Event()

    def endless(_: Sink[int]) -> Observable[None]:
        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                closed.set()

        return from_coroutine(wait)

    begun = threading.Event()
    subscription = run_with_sink(endless).subscribe()
    assert begun.wait(10)
    subscription.dispose()
    assert closed.wait(10)


def test_a_run_that_is_left_before_the_background_loop_begins_it() -> None:
    """dispose may come before the portal has come round to subscribing: then nothing is started."""
    started: list[int] = []

    def work(_: Sink[int]) -> Observable[None]:
        started.append(1)
        return reactivex.empty()

    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go.wait()

    PORTAL.loop.call_soon_threadsafe(hold)
    assert held.wait(10)
    run_with_sink(work).subscribe().dispose()
    go.set()

    async def turn() -> None:
        await asyncio.sleep(0)

    PORTAL.call(turn)
    assert started == []


@virtual
async def test_an_operator_below_does_not_take_a_subscribers_failure_for_its_own() -> None:
    """O45: a retry in the run does not begin again because a subscriber raised; the work is cancelled."""
    begun: list[int] = []
    ended: list[str] = []

    def work(sink: Sink[int]) -> Observable[None]:
        async def emit() -> None:
            begun.append(1)
            try:
                for number in range(9):
                    await asyncio.sleep(1)
                    sink.emit(number)
            finally:
                ended.append("released")

        return from_coroutine(emit).pipe(ops.retry(3))

    got: list[Any] = []

    def bad(number: int) -> None:
        got.append(number)
        if number == 1:
            raise KeyError(number)

    async with Scope():
        run_with_sink(work).subscribe(bad, got.append)
    assert got[:2] == [0, 1]
    assert isinstance(got[2], ConsumerFailed)
    assert (len(got), begun, ended) == (3, [1], ["released"])


@virtual
async def test_a_foreign_scheduler_is_replaced() -> None:
    """Time in a run is the loop's, whichever scheduler the subscriber brings."""
    schedulers: list[object] = []

    def work(_: Sink[int]) -> Observable[None]:
        def subscribe(observer: abc.ObserverBase[None], scheduler: abc.SchedulerBase | None = None) -> Any:
            schedulers.append(scheduler)
            return reactivex.timer(60).subscribe(on_completed=observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    ended = asyncio.Event()
    run_with_sink(work).subscribe(on_completed=ended.set, scheduler=TimeoutScheduler.singleton())
    await ended.wait()
    assert asyncio.get_running_loop().time() == 60
    assert isinstance(schedulers[0], LoopScheduler)


@virtual
async def test_the_stock_run_on_a_loops_thread_is_refused() -> None:
    """Stock run() would block the loop for ever; it raises instead, after stock operators too."""
    for source in (counting(2), counting(2).pipe(ops.map(str))):
        with pytest.raises(RunningLoopError, match="await"):
            source.run()


def test_the_stock_run_works_where_no_loop_runs() -> None:
    """And gives the last event of a run in the background."""

    def work(sink: Sink[int]) -> Observable[None]:
        async def emit() -> None:
            sink.emit(7)

        return from_coroutine(emit)

    assert run_with_sink(work).run(NewThreadScheduler()) == 7


# -- loop ---------------------------------------------------------------------------------------------------


def upto(count: int) -> Callable[[int], int | None]:
    """One more, until there are `count`."""
    return lambda number: number + 1 if number + 1 < count else None


def depth() -> int:
    """How many frames are on the stack."""
    frame, count = inspect.currentframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


async def at_once(number: int) -> int:
    return number


async def after_a_turn_of_the_loop(number: int) -> int:
    await asyncio.sleep(0)
    return number


TURNS: dict[str, Callable[[int], Observable[int]]] = {
    "on the trampoline": reactivex.return_value,
    "synchronous": lambda number: Observable(lambda observer, _: _at_once(observer, number)),
    "asynchronous": lambda number: from_coroutine(lambda: at_once(number)),
    "asynchronous, later": lambda number: from_coroutine(lambda: after_a_turn_of_the_loop(number)),
    "now this, now that": lambda number: TURNS["asynchronous" if number % 3 else "synchronous"](number),
}


def _at_once(observer: abc.ObserverBase[int], number: int) -> abc.DisposableBase:
    observer.on_next(number)
    observer.on_completed()
    return Disposable()


@pytest.mark.slow
@pytest.mark.parametrize("kind", TURNS)
@virtual
async def test_ten_thousand_turns(kind: str) -> None:
    """O46: the stack is as deep, and as many Rx objects live, at turn 9,990 as at turn 12; all items come in order."""
    depths: dict[int, int] = {}
    alive: dict[int, int] = {}

    def look(number: int) -> None:
        if number in (12, 9_990):  # of one kind, where turns are mixed
            depths[number] = depth()
            gc.collect()
            alive[number] = sum(isinstance(each, Observable | abc.DisposableBase) for each in gc.get_objects())

    turns = loop(TURNS[kind], 0, upto(10_000)).pipe(ops.do_action(look))
    recorded = await record(turns).ended()
    assert recorded.values == list(range(10_000))
    assert recorded.kinds[-1] == "completed"
    assert depths[9_990] == depths[12]
    assert alive[9_990] - alive[12] <= 2


@pytest.mark.parametrize("kind", TURNS)
@virtual
async def test_a_loop_can_be_subscribed_again(kind: str) -> None:
    """Each subscription starts from the seed, one after the other and side by side."""
    source = loop(TURNS[kind], 3, upto(6))
    first, second = record(source), record(source)
    third = record(source.pipe(ops.repeat(2)))
    assert (await first.ended()).values == (await second.ended()).values == [3, 4, 5]
    assert (await third.ended()).values == [3, 4, 5] * 2


@pytest.mark.parametrize("kind", TURNS)
@virtual
async def test_leaving_a_loop_begins_no_further_turn(kind: str) -> None:
    """Dispose inside a turn's item (`take`): an endless loop ends there, and no turn begins after it."""
    begun: list[int] = []

    def turn(number: int) -> Observable[int]:
        begun.append(number)
        return TURNS[kind](number)

    recorded = await record(loop(turn, 0, lambda number: number + 1).pipe(ops.take(3))).ended()
    assert recorded.values == [0, 1, 2]
    await asyncio.sleep(1)
    assert begun == [0, 1, 2]


@virtual
async def test_leaving_a_loop_disposes_the_turn() -> None:
    """Dispose in the middle of a turn cancels that turn."""
    log: list[str] = []

    async def work() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            log.append("cancelled")
        return 0

    recorded = record(loop(lambda _: from_coroutine(work), 0, lambda number: number))
    await asyncio.sleep(30)
    recorded.dispose()
    await asyncio.sleep(0)
    assert (log, recorded.signals) == (["cancelled"], [])


@pytest.mark.parametrize("kind", TURNS)
@virtual
async def test_an_error_of_a_turn_is_the_loops(kind: str) -> None:
    """What a turn ends with ends the loop; so does an exception of `turn` itself."""

    def turn(number: int) -> Observable[int]:
        if number == 2:
            raise LookupError("no such turn")
        return TURNS[kind](number)

    recorded = await record(loop(turn, 0, lambda number: number + 1)).ended()
    assert recorded.values == [0, 1]
    assert repr(recorded.error) == "LookupError('no such turn')"
    failing = loop(lambda number: TURNS[kind](number).pipe(ops.map(lambda each: 1 // each)), 0, upto(3))
    assert isinstance((await record(failing).ended()).error, ZeroDivisionError)


@pytest.mark.parametrize("kind", TURNS)
@virtual
async def test_an_error_of_follow_is_the_loops(kind: str) -> None:
    """An exception of `follow` arrives as on_error, also where a task has ended the turn."""

    def follow(number: int) -> int:
        raise LookupError("what now?")

    recorded = await record(loop(TURNS[kind], 0, follow)).ended()
    assert recorded.values == [0]
    assert repr(recorded.error) == "LookupError('what now?')"


@virtual
async def test_a_turn_without_an_item_ends_the_loop() -> None:
    """There is nothing to follow then."""
    recorded = await record(loop(lambda _: reactivex.empty(), 0, lambda number: number)).ended()
    assert recorded.kinds == ["completed"]


@virtual
async def test_the_last_item_of_a_turn_is_followed() -> None:
    """All items of a turn are handed on; the next turn begins from the last."""
    recorded = await record(loop(lambda number: reactivex.of(number, number + 10), 0, upto(12))).ended()
    assert recorded.values == [0, 10, 11, 21]


@virtual
async def test_one_turn_is_alive_at_a_time() -> None:
    """A turn begins when the one before it has ended."""
    following = iter(["a", None])
    recorded = await record(loop(lambda _: marbles("-a-|"), "a", lambda _: next(following))).ended()
    assert recorded.signals == [(1.0, "next", "a"), (4.0, "next", "a"), (6.0, "completed", None)]
