"""Marble diagrams and the recorder: what they draw, what they compare, and what they refuse."""

from __future__ import annotations

import asyncio

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.testing import TestScheduler

from agentscope_rx.testing import Signal, assert_marbles, marbles, record, run_virtual
from agentscope_rx.testing.marbles import MarbleError
from tests.virtual import virtual


@virtual
async def test_one_character_is_one_second() -> None:
    """Items, brackets, the end; spaces do not count."""
    recorded = await record(marbles("--a -(bc)-|")).ended()
    assert recorded.signals == [
        (2.0, "next", "a"),
        (4.0, "next", "b"),
        (4.0, "next", "c"),
        (9.0, "completed", None),
    ]
    assert recorded.values == ["a", "b", "c"]
    assert recorded.kinds == ["next", "next", "next", "completed"]


@virtual
async def test_values_and_errors_can_be_given() -> None:
    """A character stands for its value; `#` for the error."""
    recorded = await record(marbles("a-b#", {"a": 1, "b": [2]}, error=KeyError("x"))).ended()
    assert recorded.signals == [(0.0, "next", 1), (2.0, "next", [2]), (3.0, "error", KeyError("x"))]
    assert isinstance((await record(marbles("#")).ended()).error, MarbleError)


@virtual
async def test_it_is_cold_and_can_be_left() -> None:
    """Each subscription starts at its own beginning; after dispose no timer goes off."""
    source = marbles("-a-b|")
    await asyncio.sleep(9)
    first = record(source)
    await asyncio.sleep(2)
    first.dispose()
    assert (await record(source).ended()).signals == [(1.0, "next", "a"), (3.0, "next", "b"), (4.0, "completed", None)]
    await asyncio.sleep(9)
    assert first.values == ["a"]


def test_it_follows_the_scheduler_of_its_subscriber() -> None:
    """In stock virtual time, too."""
    scheduler, seen = TestScheduler(), list[str]()
    marbles("-a-b|").subscribe(seen.append, scheduler=scheduler)
    scheduler.advance_to(2.0)
    assert seen == ["a"]
    scheduler.start()
    assert seen == ["a", "b"]


@pytest.mark.parametrize("diagram", ["a|b", "#a", "(a", "a)", "((a))", "|#"])
def test_what_cannot_be_read_is_refused(diagram: str) -> None:
    """At once, with the diagram."""
    with pytest.raises(ValueError, match="nothing comes after the end|brackets do not match"):
        marbles(diagram)


@virtual
async def test_assert_marbles_compares_order_and_kind() -> None:
    """Without ticks only what comes counts."""
    await assert_marbles(reactivex.of("a", "b"), "--a--b-|")
    await assert_marbles(reactivex.of(1, 2).pipe(ops.delay(60)), "ab|", {"a": 1, "b": 2})
    await assert_marbles(reactivex.throw(KeyError("x")), "-#", error=KeyError("x"))
    for wrong in ("ba|", "a|", "abc|", "ab#"):
        with pytest.raises(AssertionError, match="the stream is not"):
            await assert_marbles(reactivex.of("a", "b"), wrong)
    with pytest.raises(AssertionError, match="KeyError"):
        await assert_marbles(reactivex.throw(KeyError("x")), "-#", error=KeyError("y"))


@virtual
async def test_assert_marbles_compares_ticks_when_asked() -> None:
    """Then each signal has its second, and the failure shows both."""
    await assert_marbles(marbles("-a-b|"), "-a-b|", ticks=True)
    await assert_marbles(marbles("-a-b|").pipe(ops.delay(2)), "---a-b|", ticks=True)
    with pytest.raises(AssertionError) as caught:
        await assert_marbles(marbles("-a-b|"), "-ab-|", ticks=True)
    assert "2 s  'b'" in str(caught.value)
    assert "3 s  'b'" in str(caught.value)


@virtual
async def test_a_diagram_without_an_end_is_watched_for_as_long_as_it_is() -> None:
    """A stream that goes on can be compared as well."""
    await assert_marbles(reactivex.interval(1).pipe(ops.map(str)), "-01", ticks=True)
    await assert_marbles(reactivex.never(), "-----")
    with pytest.raises(AssertionError):
        await assert_marbles(reactivex.empty(), "-----")


@settings(deadline=None)
@given(st.text(alphabet="ab-", max_size=9), st.sampled_from(["|", "#", ""]))
def test_a_diagram_is_what_it_draws(middle: str, end: str) -> None:
    """Invariant: what is made of a diagram compares equal to it, second by second."""

    kinds = {"|": "completed", "#": "error"}
    drawn = [(float(at), kinds.get(mark, "next")) for at, mark in enumerate(middle + end) if mark != "-"]

    async def main() -> None:
        await assert_marbles(marbles(middle + end), middle + end, ticks=True)
        recorded = record(marbles(middle + end))
        await asyncio.sleep(20)
        assert [(signal.time, signal.kind) for signal in recorded.signals] == drawn
        assert recorded.values == [mark for mark in middle if mark != "-"]

    run_virtual(main)


def test_signals_compare_errors_by_type_and_text() -> None:
    """And time, kind and value; with a tuple as with each other."""
    signal = Signal(1.0, "error", KeyError("x"))
    assert signal == Signal(1.0, "error", KeyError("x"))
    assert signal == (1.0, "error", KeyError("x"))
    for other in (
        (2.0, "error", KeyError("x")),
        (1.0, "next", KeyError("x")),
        (1.0, "error", KeyError("y")),
        (1.0, "error", ValueError("x")),
        (1.0, "error"),
        "error",
    ):
        assert signal != other


@virtual
async def test_a_recorder_can_leave() -> None:
    """What came until then stays."""
    recorded = record(reactivex.interval(1))
    await asyncio.sleep(2.5)
    recorded.dispose()
    await asyncio.sleep(9)
    assert recorded.signals == [(1.0, "next", 0), (2.0, "next", 1)]
    assert recorded.error is None
