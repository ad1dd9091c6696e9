"""What a tool gives piece by piece is shown at once and joined to its result."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from agentscope_rx.messages import DataBlock, TextBlock, ToolResultBlock, URLSource
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.tools import ToolContext, Toolkit, tool
from agentscope_rx.tools import pieces as pieces_module
from tests.tools.calls import ERROR, SUCCESS, Watch, run, summary

IMAGE = DataBlock(source=URLSource(url="https://example.org/x.png"))


def giving(*pieces: object) -> list[Callable[[], object]]:
    """Tools that give the same pieces in each possible way."""

    async def coroutines() -> AsyncIterator[object]:
        for piece in pieces:
            yield piece

    def generator() -> Iterator[object]:
        yield from pieces

    async def returned() -> object:
        return iter(pieces)

    def nested() -> Awaitable[object]:
        async def inner() -> object:
            return coroutines()

        return inner()

    return [coroutines, generator, returned, nested]


async def outcomes(*pieces: object) -> list[tuple[Watch, ToolResultBlock, bool]]:
    found: list[tuple[Watch, ToolResultBlock, bool]] = []
    for function in giving(*pieces):
        watch = Watch()
        outcome = await run(Toolkit.of(tool(function, name="t")), "t", watch)
        found.append((watch, outcome.result, outcome.streamed))
    return found


# -- joining ------------------------------------------------------------------------------------------------


async def test_text_pieces_are_shown_and_joined() -> None:
    """Each piece is one report; the result is their text, and is not to be shown again."""
    for watch, result, streamed in await outcomes("one ", "", None, TextBlock(text="two "), "three"):
        assert watch.reported == ["one ", "two ", "three"]
        assert (result.output, streamed) == ((TextBlock(text="one two three"),), True)


async def test_other_pieces_take_a_line_each_and_media_keep_their_place() -> None:
    """Numbers and dicts are lines of JSON; a data block stands between the texts around it."""
    for watch, result, _ in await outcomes(1, {"é": 2}, IMAGE, "end"):
        assert watch.reported == ["1\n", '{"é":2}\n', IMAGE, "end"]
        assert result.output == (TextBlock(text='1\n{"é":2}\n'), IMAGE, TextBlock(text="end"))


async def test_no_piece_is_no_output() -> None:
    """An empty iterator is a tool without output, of which nothing was shown."""
    for watch, result, streamed in await outcomes():
        assert (result.text, result.state, streamed, watch.reported) == ("(no output)", SUCCESS, False, [])


async def test_a_result_block_ends_the_pieces() -> None:
    """With output it is the result; without, the pieces are, in its state; what would follow is not asked for."""
    full = ToolResultBlock(id="", name="", output=(TextBlock(text="42"),), metadata={"n": 1})
    for watch, result, _ in await outcomes("working", full, "too late"):
        assert (watch.reported, result.text, result.metadata) == (["working"], "42", {"n": 1})
    for watch, result, _ in await outcomes("half", ToolResultBlock(id="", name="", state=ERROR)):
        assert (watch.reported, result.text, result.state) == (["half"], "half", ERROR)


async def test_what_came_before_a_failure_is_kept() -> None:
    """The result holds the partial output and then the error; those who watch see both too."""
    for watch, result, streamed in await outcomes("line 1", ValueError("disk full"), "more"):
        assert (result.state, result.text, streamed) == (ERROR, "line 1\nValueError: disk full", True)
        assert watch.text == result.text


async def test_an_escape_sequence_over_two_pieces_is_removed() -> None:
    """Reports and result are the same clean text, wherever the pieces were cut."""
    for watch, result, _ in await outcomes("a\x1b[3", "1mred\x1b", "[0m b\0", "\x1b]8;;x", "\x1b\\end\x1b["):
        assert watch.text == result.text == "ared b\ufffdend["


async def test_long_output_keeps_its_two_ends_only() -> None:
    """An iterator runs to its end, however much it gives; memory and result hold head and tail."""

    async def build() -> AsyncIterator[str]:
        for n in range(20_000):
            yield f"line {n}\n"

    watch = Watch()
    outcome = await run(Toolkit.of(build, max_result_chars=2000), "build", watch)
    assert len(watch.reported) == 20_000
    assert len(outcome.result.text) <= 2000
    assert outcome.result.text.startswith("line 0\n")
    assert outcome.result.text.endswith("line 19999\n")
    cut = int(outcome.result.text.split("[... ")[1].split(" ")[0].replace(",", ""))
    shown = outcome.result.text.split("\n\n[... ")[0] + outcome.result.text.split(" ...]\n\n")[1]
    assert cut + len(shown) == len(watch.text)


# -- ending -------------------------------------------------------------------------------------------------


async def test_an_iterator_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed, and what it was is told as a failure."""
    monkeypatch.setattr(pieces_module, "MAX_PIECES", 1000)
    closed: list[str] = []

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "x"
        finally:
            closed.append("async")

    async def counting() -> object:
        return itertools.count()

    for function in (endless, counting):
        state, text = summary(await run(Toolkit.of(function), function.__name__))
        assert state is ERROR
        assert text.endswith("EndlessResult: the tool gave more than 1,000 pieces and was stopped")
    assert closed == ["async"]


def test_an_iterator_that_never_waits_can_time_out() -> None:
    """Between its pieces other tasks run."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def busy(context: ToolContext) -> AsyncIterator[str]:
            for n in itertools.count():
                if n == 250:
                    others.set()
                if n > 250 and context.cancelled.is_set:
                    return
                yield ""

        others = asyncio.Event()
        running = asyncio.ensure_future(run(Toolkit.of(busy), "busy"))
        await others.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert loop.time() == 0

    run_virtual(main)


async def test_a_cancelled_generator_stops_at_its_next_piece() -> None:
    """The thread that takes the pieces looks at the token, and closes the generator."""
    started, closed = asyncio.Event(), threading.Event()
    go_on, taken = threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    @tool
    def slow() -> Iterator[str]:
        try:
            loop.call_soon_threadsafe(started.set)
            yield "first"
            go_on.wait(30)
            yield "second"
            taken.append("second")
        finally:
            closed.set()

    watch = Watch()
    running = asyncio.ensure_future(run(Toolkit.of(slow), "slow", watch))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go_on.set()
    assert await asyncio.to_thread(closed.wait, 30)
    assert (taken, "second" in watch.reported) == ([], False)


# -- reports ------------------------------------------------------------------------------------------------


async def test_reports_are_shown_and_are_no_result() -> None:
    """A tool may report from any thread how far it is; the model gets what it returns."""

    @tool
    def work(context: ToolContext) -> str:
        for shown in ("10 %\n", TextBlock(text="\x1b[1m20 %\n"), IMAGE, ""):
            context.report(shown)
        return "done"

    watch = Watch()
    outcome = await run(Toolkit.of(work), "work", watch)
    assert watch.reported == ["10 %\n", "20 %\n", IMAGE]
    assert (summary(outcome), outcome.streamed) == ((SUCCESS, "done"), True)


async def test_nothing_is_reported_after_the_end() -> None:
    """What a forgotten task or thread of a tool says later goes nowhere."""
    kept: list[ToolContext] = []

    @tool
    async def work(context: ToolContext) -> str:
        kept.append(context)
        return "done"

    watch = Watch()
    outcome = await run(Toolkit.of(work), "work", watch)
    kept[0].report("late")
    assert (watch.reported, outcome.streamed, watch.token.is_set) == ([], False, False)


async def test_only_text_and_blocks_can_be_reported() -> None:
    """Anything else is a mistake of the tool, and told as one."""

    @tool
    async def work(context: ToolContext) -> str:
        context.report(7)  # type: ignore[arg-type]
        return "done"

    state, text = summary(await run(Toolkit.of(work), "work"))
    assert (state, text) == (ERROR, "TypeError: report() takes text, a TextBlock or a DataBlock, not int")
