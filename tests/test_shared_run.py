"""The hot form of a run: watchers come and go, and the run goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.bridge import from_aiter
from agentscope_rx.errors import SourceCancelled
from agentscope_rx.event_stream import EventStream
from agentscope_rx.events import Custom, Event
from agentscope_rx.pulling import iterate
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.shared_run import SharedRun
from agentscope_rx.testing import ScriptedModel, record, run_virtual, text
from tests.virtual import virtual


class Work:
    """A run that emits an event a second, and takes two seconds to clean up."""

    def __init__(self, count: int, *, fails: bool = False) -> None:
        self.count, self.fails = count, fails
        self.log: list[str] = []

    def source(self) -> Observable[Event]:
        return from_aiter(self._events)

    async def _events(self) -> AsyncGenerator[Event, None]:
        self.log.append("begun")
        try:
            for number in range(self.count):
                await asyncio.sleep(1)
                yield Custom(name=str(number))
            if self.fails:
                raise ValueError("broken")
        finally:
            await asyncio.sleep(2)
            self.log.append("released")


def names(recorded: Any) -> str:
    """The names of the events that came."""
    return "".join(event.name for event in recorded.values)


@virtual
async def test_one_run_for_all_watchers() -> None:
    """It begins with the first watcher, once; each gets everything from when it came, and the end."""
    work = Work(4)
    shared = SharedRun(work.source(), history=0)
    await asyncio.sleep(5)
    assert work.log == []
    first, second = record(shared), record(shared)
    await asyncio.sleep(2.5)
    late = record(shared)
    for recorded in (first, second, late):
        await recorded.ended()
        assert recorded.kinds[-1] == "completed"
    assert [names(first), names(second), names(late)] == ["0123", "0123", "23"]
    assert work.log == ["begun", "released"]


@pytest.mark.parametrize(("history", "missed"), [(0, ""), (1, "1"), (2, "01"), (None, "01")])
@virtual
async def test_history_is_for_those_who_come_late(history: int | None, missed: str) -> None:
    """They get what is kept at once, then what comes; after the end what is kept, and the end."""
    shared = SharedRun(Work(4).source(), history=history).start()
    await asyncio.sleep(2.5)
    late = record(shared)
    assert names(late) == missed
    await late.ended()
    assert names(late) == missed + "23"
    afterwards = await record(shared).ended()
    assert afterwards.kinds[-1] == "completed"
    assert names(afterwards) == "0123"[-history if history is not None else 0 :] * (history != 0)


@settings(deadline=None)
@given(
    comings=st.lists(st.integers(0, 12), max_size=5),
    history=st.one_of(st.none(), st.integers(0, 9)),
    count=st.integers(0, 8),
)
def test_every_watcher_sees_the_end_of_one_and_the_same_run(
    comings: list[int], history: int | None, count: int
) -> None:
    """Invariant: a watcher gets a gapless run of events up to the last, no more than `history` from before it came,
    and the end."""
    work = Work(count)

    async def main() -> None:
        shared = SharedRun(work.source(), history=history).start()

        async def watch(coming: int) -> None:
            await asyncio.sleep(coming + 0.5)
            recorded = await record(shared).ended()
            seen = [int(event.name) for event in recorded.values if isinstance(event, Custom)]
            first = 0 if history is None else max(0, min(coming, count) - history)
            assert seen == list(range(first, count))
            assert recorded.kinds[-1] == "completed"

        await asyncio.gather(*map(watch, comings))
        await shared.wait_closed()

    run_virtual(main)
    assert work.log == ["begun", "released"]


@virtual
async def test_a_watcher_that_raises_is_dropped_and_the_others_go_on() -> None:
    """O45: it is logged and told to the loop's handler, once; the run and the other watchers notice nothing."""
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(repr(context["exception"])))
    logged: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    seen: list[str] = []

    def bad(event: Event) -> None:
        assert isinstance(event, Custom)
        seen.append(event.name)
        if event.name == "1":
            raise KeyError(event.name)

    handler, logger = Keep(), logging.getLogger("agentscope_rx")
    logger.addHandler(handler)
    try:
        shared = SharedRun(Work(4).source(), history=None)
        shared.subscribe(bad, lambda error: seen.append("told"))
        good = await record(shared).ended()
        assert names(good) == "0123"
        assert seen == ["0", "1"]
        shared.subscribe(bad, lambda error: seen.append("told"))  # the same while what was kept is told
        assert seen == ["0", "1"] * 2
        assert names(await record(shared).ended()) == "0123"
    finally:
        logger.removeHandler(handler)
    assert heard == ["KeyError('1')"] * 2
    assert logged == ["watcher_failed"] * 2


@virtual
async def test_leaving_does_not_stop_the_run() -> None:
    """Not even when all have left."""
    work = Work(4)
    shared = SharedRun(work.source(), history=0)
    first = record(shared)
    second = record(shared.pipe(ops.take(1)))
    await asyncio.sleep(1.5)
    first.dispose()
    assert (names(first), names(second)) == ("0", "0")
    await asyncio.sleep(2)
    assert names(await record(shared).ended()) == "3"
    assert work.log == ["begun", "released"]


@virtual
async def test_the_run_belongs_to_no_watcher() -> None:
    """A watcher that iterates may leave and need not wait for the end of the run."""
    work = Work(9)
    shared = SharedRun(work.source(), history=0)
    async with aclosing(iterate(shared)) as events:
        await anext(events)
    assert asyncio.get_running_loop().time() == 1.0
    assert work.log == ["begun"]
    await shared.wait_closed()
    assert work.log == ["begun", "released"]


@virtual
async def test_a_slow_watcher_holds_up_neither_the_run_nor_the_others() -> None:
    """Even the one with whom the run began: its buffer may fill, the run goes on."""
    work = Work(20)
    shared = SharedRun(work.source(), history=0)
    async with aclosing(iterate(shared, maxsize=2)) as slow:
        await anext(slow)
        other = await record(shared).ended()
        assert len(other.values) == 19
    assert asyncio.get_running_loop().time() == 22.0


@virtual
async def test_cancel_stops_the_run_and_tells_everybody() -> None:
    """Each watcher gets SourceCancelled, those who come later too; wait_closed() returns after the clean-up."""
    work = Work(9)
    shared = SharedRun(work.source(), history=None)
    first = record(shared)
    await asyncio.sleep(2.5)
    shared.cancel()
    shared.cancel()
    assert isinstance(first.error, SourceCancelled)
    assert names(first) == "01"
    await shared.wait_closed()
    assert work.log == ["begun", "released"]
    late = await record(shared).ended()
    assert names(late) == "01"
    assert isinstance(late.error, SourceCancelled)


@virtual
async def test_cancel_before_the_start_starts_nothing() -> None:
    """A run that nobody has begun is simply over."""
    work, begun = Work(3), list[int]()
    shared = SharedRun(reactivex.defer(lambda _: begun.append(1) or work.source()), history=None)
    shared.cancel()
    shared.start()
    assert isinstance((await record(shared).ended()).error, SourceCancelled)
    await asyncio.sleep(9)
    assert begun == []


@virtual
async def test_an_error_of_the_run_is_everybodys() -> None:
    """Also of those who come after it."""
    shared = SharedRun(Work(2, fails=True).source(), history=1)
    first, second = record(shared), record(shared)
    await first.ended()
    late = await record(shared).ended()
    assert names(late) == "1"
    for recorded in (first, second, late):
        assert repr(recorded.error) == "ValueError('broken')"


@virtual
async def test_start_begins_the_run_once() -> None:
    """start() needs no watcher, and a second one does nothing."""
    work = Work(2)
    shared = SharedRun(work.source(), history=None)
    assert shared.start() is shared.start() is shared
    await shared.wait_closed()
    assert work.log == ["begun", "released"]
    assert names(await record(shared).ended()) == "01"


@virtual
async def test_a_run_of_an_agent_shared() -> None:
    """share_run(): two watchers of one run of an agent, one model call, the same events in the same order."""
    model = ScriptedModel([text("a", "b", "c")])
    stream = ReActAgent.builder(name="a", model=model).build().stream_events("hi")
    assert isinstance(stream, EventStream)
    shared = stream.share_run(history=None)
    first = record(shared)
    assert [event async for event in shared] == first.values
    assert (await shared) == first.values[-1]
    assert model.asked == 1
