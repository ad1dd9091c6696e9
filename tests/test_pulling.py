"""From an Observable to `async for`, `await`, a plain `for` and a blocking call; and streams that offer all of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import ConnectableObservable, Observable
from reactivex import operators as ops
from reactivex.internal.exceptions import SequenceContainsNoElementsError
from reactivex.subject import Subject

from agentscope_rx.bridge import from_aiter, from_coroutine
from agentscope_rx.errors import BufferOverflow, RunningLoopError
from agentscope_rx.portal import PORTAL
from agentscope_rx.pulling import Overflow, Stream, block, iterate, last
from agentscope_rx.testing import marbles, record, run_virtual
from tests.virtual import virtual

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]


LEFT_OPEN = """
import asyncio
from agentscope_rx.bridge import from_aiter
from agentscope_rx.pulling import Stream

async def numbers():
    try:
        yield 1
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("closed")

left = iter(Stream(from_aiter(numbers)))
ring = [left]
ring.append(ring)
print(next(left))
"""


def test_a_plain_iterator_that_is_left_open_does_not_hold_up_the_exit() -> None:
    """A program that ends in the middle of a stream ends; the stream's source is closed before."""
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["1", "closed"]
    assert ended.stderr == ""


class Ticks:
    """An async generator of numbers that counts how many it has made, and takes two seconds to close."""

    def __init__(self, count: int, *, apart: float = 0.0) -> None:
        self.count, self.apart = count, apart
        self.made: int = 0
        self.open: int = 0

    async def __call__(self) -> AsyncGenerator[int, None]:
        self.open += 1
        try:
            for number in range(self.count):
                await asyncio.sleep(self.apart)
                self.made += 1
                yield number
        finally:
            await asyncio.sleep(2)
            self.open -= 1


async def consume(
    source: Observable[T], got: list[T], *, rest: float = 0.0, maxsize: int = 256, overflow: Overflow = "pause"
) -> list[T]:
    """Pull everything, with a rest after each item."""
    async for item in iterate(source, maxsize=maxsize, overflow=overflow):
        got.append(item)
        await asyncio.sleep(rest)
    return got


# -- iterate --------------------------------------------------------------------------------------------------


@virtual
async def test_iterate_gives_everything_in_order() -> None:
    """Of a bridged source, of a synchronous one, and of none."""
    assert await consume(from_aiter(Ticks(5)), []) == [0, 1, 2, 3, 4]
    assert await consume(reactivex.of(1, 2, 3), []) == [1, 2, 3]
    assert await consume(reactivex.empty(), []) == []


@virtual
async def test_iterate_subscribes_with_the_first_item_and_not_before() -> None:
    """Making the iterator starts nothing."""
    ticks = Ticks(3)
    items = iterate(from_aiter(ticks))
    await asyncio.sleep(5)
    assert ticks.made == 0
    assert await anext(items) == 0
    await items.aclose()


@virtual
async def test_iterate_raises_what_the_source_ends_with_after_its_items() -> None:
    """Items that came before the error are not lost."""
    got: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        await consume(marbles("(ab)-#", error=ValueError("broken")), got, rest=9)
    assert got == ["a", "b"]


@virtual
async def test_pause_holds_up_the_source() -> None:
    """The default: nothing is lost, and the source is never further ahead than the buffer is long."""
    ticks = Ticks(100)
    ahead = 0
    got: list[int] = []
    async for number in iterate(from_aiter(ticks).pipe(ops.map(lambda each: each)), maxsize=8):
        got.append(number)
        ahead = max(ahead, ticks.made - len(got))
        await asyncio.sleep(1)
    assert got == list(range(100))
    assert ahead <= 8


@pytest.mark.slow
@virtual
async def test_pause_with_a_hundred_thousand_items() -> None:
    """A slow consumer gets all of them, and the buffer stays bounded."""
    ticks, count, ahead = Ticks(100_000), 0, 0
    async for number in iterate(from_aiter(ticks)):
        assert number == count
        count += 1
        ahead = max(ahead, ticks.made - count)
        if not count % 64:
            await asyncio.sleep(1)
    assert count == 100_000
    assert ahead <= 256


@virtual
async def test_error_raises_when_the_consumer_falls_behind() -> None:
    """BufferOverflow after what fitted in; the source is stopped, a synchronous one too."""
    ticks = Ticks(1_000)
    got: list[int] = []
    with pytest.raises(BufferOverflow, match="8 items behind"):
        await consume(from_aiter(ticks), got, rest=60, maxsize=8, overflow="error")
    assert (got, ticks.made, ticks.open) == (list(range(len(got))), 10, 0)

    pulled: list[int] = []
    source = reactivex.from_iterable(range(1_000)).pipe(ops.do_action(pulled.append))
    with pytest.raises(BufferOverflow):
        await consume(source, [], maxsize=8, overflow="error")
    assert len(pulled) == 9


@virtual
async def test_drop_oldest_and_drop_newest_lose_items() -> None:
    """The one keeps the newest, the other the oldest that fit."""
    source = reactivex.from_iterable(range(100))
    assert await consume(source, [], maxsize=4, overflow="drop_oldest") == [96, 97, 98, 99]
    assert await consume(source, [], maxsize=4, overflow="drop_newest") == [0, 1, 2, 3]


@settings(deadline=None)
@given(
    count=st.integers(0, 60),
    maxsize=st.integers(1, 9),
    overflow=st.sampled_from(["pause", "drop_oldest", "drop_newest"]),
    rests=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    apart=st.integers(0, 2),
)
def test_what_arrives_is_in_order(count: int, maxsize: int, overflow: Overflow, rests: list[int], apart: int) -> None:
    """Invariant: with every policy items arrive in order and once; with `pause` all of them, and never more wait than
    the buffer holds."""

    async def main() -> None:
        ticks, got = Ticks(count, apart=apart), list[int]()
        async for number in iterate(from_aiter(ticks), maxsize=maxsize, overflow=overflow):
            got.append(number)
            if overflow == "pause":
                assert ticks.made - len(got) <= maxsize
            await asyncio.sleep(rests[len(got) % len(rests)])
        assert got == sorted(set(got))
        assert overflow != "pause" or got == list(range(count))
        assert ticks.open == 0

    run_virtual(main)


@virtual
async def test_aclose_returns_when_everything_below_has_ended() -> None:
    """Leaving disposes; aclose() waits for clean-ups, of a source that waits at its valve too."""
    for rest in (0, 60):
        ticks = Ticks(1_000, apart=1 if rest else 0)
        async with aclosing(iterate(from_aiter(ticks), maxsize=4)) as items:
            async for number in items:
                if number == 2:
                    break
        assert ticks.open == 0


@virtual
async def test_an_iterator_that_is_dropped_ends_its_source() -> None:
    """`break` without aclosing: the collected iterator closes itself, a turn of the loop later."""
    ticks = Ticks(1_000, apart=1)
    async for number in iterate(from_aiter(ticks)):
        if number == 2:
            break
    await asyncio.sleep(0)
    await asyncio.sleep(2)
    gc.collect(1)
    await asyncio.sleep(2)
    assert ticks.open == 0


@virtual
async def test_a_cancelled_consumer_leaves_nothing() -> None:
    """The cancellation goes on when all that was started below has ended."""
    ticks = Ticks(1_000, apart=1)
    task = asyncio.create_task(consume(from_aiter(ticks), []))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ticks.open == 0
    assert asyncio.get_running_loop().time() == 7.0


# -- last -----------------------------------------------------------------------------------------------------


@virtual
async def test_last_gives_the_last_item() -> None:
    """Or the error, or says that there was none."""
    assert await last(from_aiter(Ticks(5))) == 4
    assert await last(reactivex.from_iterable(range(1_000))) == 999
    with pytest.raises(ValueError, match="broken"):
        await last(marbles("a#", error=ValueError("broken")))
    with pytest.raises(SequenceContainsNoElementsError):
        await last(reactivex.empty())


@virtual
async def test_a_cancelled_last_joins() -> None:
    """Dispose at once, and the cancellation goes on when the source has cleaned up: also in a time-out."""
    ticks = Ticks(1_000, apart=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5.5):
            await last(from_aiter(ticks))
    assert ticks.open == 0
    assert asyncio.get_running_loop().time() == 7.5


# -- blocking -------------------------------------------------------------------------------------------------


def test_block_waits_on_a_thread_without_a_loop() -> None:
    """The work is done on the background loop; errors come through."""
    threads: list[int] = []

    async def work() -> int:
        threads.append(threading.get_ident())
        return 7

    assert block(from_coroutine(work)) == 7
    assert threads != [threading.get_ident()]
    with pytest.raises(ZeroDivisionError):
        block(from_coroutine(work).pipe(ops.map(lambda number: number / 0)))


class Instant(Ticks):
    """Ticks for the background loop, whose time is real: it does not wait."""

    async def __call__(self) -> AsyncGenerator[int, None]:
        self.open += 1
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.made += 1
                yield number
        finally:
            self.open -= 1


def test_a_plain_for_pulls() -> None:
    """`for item in stream`: everything, in order, each loop a subscription of its own, with back-pressure."""
    ticks = Instant(2_000)
    stream = Stream(from_aiter(ticks))
    got: list[int] = []
    for number in stream:
        got.append(number)
        assert ticks.made - len(got) <= 512
    assert got == list(stream) == list(range(2_000))
    with pytest.raises(ValueError, match="broken"):
        list(Stream(reactivex.throw(ValueError("broken"))))


def test_leaving_a_plain_for_ends_its_source() -> None:
    """`break` disposes, and waits until everything has ended."""
    ticks = Instant(1_000_000)
    for number in Stream(from_aiter(ticks)):
        if number == 5:
            break
    assert ticks.open == 0


@virtual
async def test_a_plain_iterator_may_be_ended_on_any_thread() -> None:
    """The collector may end it on a thread that runs a loop: its source is left there, too, and nothing raises."""
    closed = threading.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    items = iter(Stream(from_aiter(numbers)))
    assert await asyncio.to_thread(next, items) == 1
    del items
    assert await asyncio.to_thread(closed.wait, 10)


def as_stream(piped: Observable[T]) -> Stream[T]:
    """What `pipe` gives at run time; for the type checker it stays the stock one."""
    assert isinstance(piped, Stream)
    return piped


BLOCKING: dict[str, Callable[[Stream[Any]], Any]] = {
    "block": block,
    "run": lambda stream: stream.run(),
    "run of a piped one": lambda stream: stream.pipe(ops.map(str)).run(),
    "run after fluent operators": lambda stream: stream.map(str).run(),
    "for": list,
    "for over a piped one": lambda stream: list(as_stream(stream.pipe(ops.map(str)))),
}


@pytest.mark.parametrize("form", BLOCKING)
@virtual
async def test_blocking_on_a_running_loop_is_refused(form: str) -> None:
    """Every blocking form says what to write instead, and subscribes nothing."""
    ticks = Ticks(3)
    with pytest.raises(RunningLoopError, match="await"):
        BLOCKING[form](Stream(from_aiter(ticks)))
    await asyncio.sleep(1)
    assert ticks.made == 0


@pytest.mark.parametrize("form", BLOCKING)
def test_blocking_works_where_no_loop_runs(form: str) -> None:
    """The same forms, on a thread without a loop."""
    result = BLOCKING[form](Stream(from_aiter(Instant(3))))
    assert result in (2, "2", [0, 1, 2], ["0", "1", "2"])


def test_an_interrupted_wait_cancels_its_work() -> None:
    """Ctrl-C in a blocking call: the work is cancelled, and has cleaned up when the interrupt goes on."""
    log: list[str] = []
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cleaned up")

    class Interrupting:
        """A future whose waiting is interrupted."""

        def __init__(self, future: Any) -> None:
            self.cancel = future.cancel

        def result(self) -> None:
            assert begun.wait(10)
            raise KeyboardInterrupt

    run_there = asyncio.run_coroutine_threadsafe

    def run_interrupted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Interrupting:
        return Interrupting(run_there(work, loop))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run_coroutine_threadsafe", run_interrupted)
        with pytest.raises(KeyboardInterrupt):
            PORTAL.call(work)
    assert log == ["cleaned up"]


FORKING = """
import os, reactivex
from agentscope_rx import block
assert block(reactivex.of(1)) == 1
child = os.fork()
if child == 0:
    os._exit(block(reactivex.of(7)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_a_background_loop_of_its_own() -> None:
    """Servers fork their workers: a blocking call works there, though one was made before the fork."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")


# -- streams --------------------------------------------------------------------------------------------------


@virtual
async def test_a_stream_can_be_iterated_and_awaited() -> None:
    """`async for` gives all items, `await` the last; asyncio's own functions take it as an awaitable."""
    stream = Stream(marbles("-a-b|"))
    assert [item async for item in stream] == ["a", "b"]
    assert await stream == "b"
    assert await asyncio.gather(stream, stream) == ["b", "b"]
    assert await asyncio.wait_for(stream, 60) == "b"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream, 3.5)


@virtual
async def test_pipe_gives_a_stream_of_a_plain_observable_only() -> None:
    """After stock operators everything still works; publish and share, which are observables of another sort or hold
    one, work as ever."""
    piped = as_stream(Stream(marbles("-a-b|")).pipe(ops.map(str.upper), ops.filter(lambda item: item > "A")))
    assert [item async for item in piped] == ["B"]
    assert await piped == "B"

    published = Stream(marbles("-a|")).pipe(ops.publish())
    assert isinstance(published, ConnectableObservable)
    first, second = record(published), record(published)
    published.connect()
    assert (await first.ended()).values == (await second.ended()).values == ["a"]

    begun: list[int] = []
    shared = Stream(reactivex.defer(lambda _: begun.append(1) or marbles("-a-b|"))).pipe(ops.share())
    first, second = record(shared), record(shared)
    assert (await first.ended()).values == (await second.ended()).values == ["a", "b"]
    assert begun == [1]

    assert Stream(marbles("a|")).pipe(ops.to_future()) is not None


@virtual
async def test_a_stream_is_itself_an_observable() -> None:
    """It can be merged, zipped, and subscribed with an observer, with callbacks, or with nothing."""
    assert (await record(reactivex.merge(Stream(marbles("-a|")), Stream(marbles("--b|")))).ended()).values == ["a", "b"]
    subject, seen = Subject[str](), list[str]()
    subject.subscribe(seen.append)
    Stream(marbles("-a|")).subscribe(subject)
    Stream(marbles("-b|")).subscribe()
    await asyncio.sleep(5)
    assert seen == ["a"]


# -- nothing is silent ----------------------------------------------------------------------------------------


@virtual
async def test_an_error_that_nobody_handles_is_logged_and_reaches_the_loops_handler() -> None:
    """subscribe() without on_error: after operators too, once each; with on_error only that one hears."""
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(repr(context["exception"])))
    logged: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    handler, logger = Keep(), logging.getLogger("agentscope_rx")
    logger.addHandler(handler)
    try:
        stream = Stream(marbles("-#", error=ValueError("broken")))
        stream.subscribe()
        stream.subscribe(lambda _: None)
        stream.pipe(ops.map(str)).subscribe(lambda _: None)
        stream.subscribe(lambda _: None, heard.append)
        await asyncio.sleep(5)
    finally:
        logger.removeHandler(handler)
    assert heard.count("ValueError('broken')") == 3
    assert len(heard) == 4
    assert logged == ["unhandled_stream_error"] * 3


def unused(label: str = "stream_events(...)") -> Stream[str]:
    return Stream(reactivex.of("a"), label=label)


USES: dict[str, Callable[[Stream[str]], Any]] = {
    "subscribed": lambda stream: stream.subscribe(),
    "iterated": list,
    "run": lambda stream: stream.run(),
    "piped": lambda stream: stream.pipe(ops.map(str)),
}


@pytest.mark.parametrize("use", USES)
def test_a_stream_that_is_used_does_not_warn(use: str) -> None:
    """Subscribing is using, in every form; so is building on it."""
    stream = unused()
    with warnings.catch_warnings(record=True) as seen:  # one from a finaliser is raised nowhere
        warnings.simplefilter("always")
        USES[use](stream)
        del stream
        gc.collect(1)
    assert seen == []


def test_a_stream_that_is_never_used_warns_once() -> None:
    """The warning names what was made and says that nothing has run; a stream without a label is nobody's business."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made: list[Stream[str]] = [unused(), unused("call(...)"), unused("")]
        made.clear()
        gc.collect(1)
    assert sorted(str(warning.message) for warning in seen) == [
        "call(...) was made but never subscribed, awaited or iterated: nothing has run",
        "stream_events(...) was made but never subscribed, awaited or iterated: nothing has run",
    ]
    assert {warning.category for warning in seen} == {RuntimeWarning}


def test_iterators_of_threads_are_independent() -> None:
    """Several threads may pull from one stream: each has a subscription of its own."""
    stream = Stream(from_aiter(Instant(200)))
    results: list[list[int]] = []

    def pull(items: Iterator[int]) -> None:
        results.append(list(items))

    threads = [threading.Thread(target=pull, args=(iter(stream),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [list(range(200))] * 4
