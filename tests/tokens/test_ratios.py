"""MeasuredRatio: what providers count for what was estimated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentscope_rx.tokens import MeasuredRatio


def test_a_ratio_is_kept_for_each_model() -> None:
    """Models do not mix, and one that was never noted has none."""
    measured = MeasuredRatio()
    measured.note("a", 1000, 1100)
    measured.note("b", 1000, 500)
    assert (measured.ratio("a"), measured.ratio("b"), measured.ratio("c")) == (1.1, 0.5, None)


def test_new_calls_weigh_more_than_old_ones() -> None:
    """After the provider changes its tokenizer the ratio follows."""
    measured = MeasuredRatio()
    for _ in range(100):
        measured.note("a", 1000, 1000)
    for _ in range(50):
        measured.note("a", 1000, 2000)
    assert measured.ratio("a") == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(("estimated", "actual"), [(-1, 100), (0, 100), (100, 0), (100, -1)])
def test_figures_that_are_not_known_are_ignored(estimated: int, actual: int) -> None:
    """-1 of a request that was not counted, or 0 of a provider that reports no usage, says nothing."""
    measured = MeasuredRatio()
    measured.note("a", estimated, actual)
    assert measured.ratio("a") is None


def test_it_stays_small() -> None:
    """Of more than 256 models the one noted longest ago is forgotten."""
    measured = MeasuredRatio()
    for i in range(256):
        measured.note(f"m{i}", 1, 1)
    measured.note("m0", 1, 1)
    measured.note("new", 1, 1)
    assert (measured.ratio("m0"), measured.ratio("m1"), measured.ratio("new")) == (1.0, None, 1.0)


def test_threads_lose_nothing() -> None:
    """Calls that end in several threads at once are all taken in."""
    measured = MeasuredRatio()
    with ThreadPoolExecutor(8) as pool:
        notes = [pool.submit(measured.note, f"m{i % 4}", 100, 150) for i in range(4000)]
    assert [note.result() for note in notes] == [None] * 4000
    assert [measured.ratio(f"m{i}") for i in range(4)] == [pytest.approx(1.5)] * 4
