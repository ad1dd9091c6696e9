"""The one retry layer and the one set of time-outs around every model call, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.attempts import attempts
from agentscope_rx.bridge import from_aiter
from agentscope_rx.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    ServerFailed,
    StreamFailed,
)
from agentscope_rx.pulling import iterate
from agentscope_rx.requests import ExecutionConfig, ModelChunk, ModelRequest
from agentscope_rx.testing import ScriptedModel, run_virtual, text
from tests.virtual import virtual

REQUEST = ModelRequest(call_id="call-1")
Answer = Sequence[float | str | Exception]
"""What a model does: waits so many seconds, gives a piece, or fails."""


@dataclass
class Model:
    """A model that answers attempt after attempt, and says how often it was asked and left."""

    answers: list[Answer]
    name: str = "m"
    context_window: int | None = None
    max_output_tokens: int | None = None
    asked_at: list[float] = field(default_factory=list[float])
    open: int = 0

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        self.asked_at.append(asyncio.get_running_loop().time())
        self.open += 1
        try:
            for part in self.answers[len(self.asked_at) - 1]:
                if isinstance(part, Exception):
                    raise part
                if isinstance(part, str):
                    yield ModelChunk(text=part)
                else:
                    await asyncio.sleep(part)
        finally:
            self.open -= 1


@dataclass
class Asked:
    """What came of it."""

    got: list[str] = field(default_factory=list[str])
    error: BaseException | None = None
    retries: list[tuple[int, float, str]] = field(default_factory=list[tuple[int, float, str]])
    ended: float = 0.0


async def ask(
    *answers: Answer, jitter: float = 1.0, rest: float = 0.0, model: Any = None, **config: Any
) -> tuple[Asked, Model]:
    """Ask until the end, with a rest after each piece."""
    asked, model = Asked(), model or Model(list(answers))

    def on_retry(attempt: int, wait: float, error: ProviderError) -> None:
        asked.retries.append((attempt, wait, error.kind))

    stream = attempts(model, REQUEST, ExecutionConfig(**config), jitter=lambda: jitter, on_retry=on_retry)
    try:
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                asked.got.append(chunk.text)
                await asyncio.sleep(rest)
    except ProviderError as error:
        asked.error = error
    asked.ended = asyncio.get_running_loop().time()
    return asked, model


# -- retry ------------------------------------------------------------------------------------------------------


@virtual
async def test_an_attempt_that_may_help_is_made() -> None:
    """Failures that pass are repeated, with waits that double: 2 s, 4 s, at most `max_backoff`; each is told before."""
    asked, model = await ask(
        [ServerFailed("1")], [RateLimited("2")], [ServerFailed("3")], ["a", "b"], max_attempts=4, max_backoff=3
    )
    assert (asked.got, asked.error) == (["a", "b"], None)
    assert asked.retries == [(2, 2.0, "server"), (3, 3.0, "rate_limit"), (4, 3.0, "server")]
    assert model.asked_at == [0.0, 2.0, 5.0, 8.0]


@virtual
async def test_attempts_are_counted() -> None:
    """After `max_attempts` the last error is raised; one attempt is no retry."""
    for count in (1, 3):
        asked, model = await ask(*[[ServerFailed(str(number))] for number in range(9)], max_attempts=count)
        assert str(asked.error) == str(count - 1)
        assert len(model.asked_at) == count
        assert len(asked.retries) == count - 1


@pytest.mark.parametrize("error", [AuthenticationFailed("x"), BadRequest("x"), ContextOverflow("x")])
@virtual
async def test_what_cannot_be_mended_is_not_repeated(error: ProviderError) -> None:
    """A wrong key, a refused request, a request that is too long: at once, and asked once."""
    asked, model = await ask([error], ["never"])
    assert asked.error is error
    assert (model.asked_at, asked.retries) == ([0.0], [])


@virtual
async def test_a_foreign_error_is_not_repeated() -> None:
    """Only failures of the provider are its own business."""
    with pytest.raises(KeyError):
        await ask([KeyError("bug")], ["never"])


@virtual
async def test_an_answer_that_has_begun_is_not_repeated() -> None:
    """What was shown cannot be taken back, even where the failure might pass."""
    asked, model = await ask(["a", StreamFailed("broken")], ["never"])
    assert asked.got == ["a"]
    assert isinstance(asked.error, StreamFailed)
    assert len(model.asked_at) == 1


@virtual
async def test_retry_after_wins() -> None:
    """The provider's own wish is followed, above `max_backoff` and without jitter."""
    asked, model = await ask([RateLimited("x", retry_after=77.5)], ["a"], jitter=0.0, max_backoff=10)
    assert asked.retries == [(2, 77.5, "rate_limit")]
    assert model.asked_at == [0.0, 77.5]


@virtual
async def test_no_call_waits_for_a_day() -> None:
    """A wait longer than a whole call may take would hold the session's turn: the caller is told instead."""
    asked, model = await ask([RateLimited("x", retry_after=86_400.0)], ["never"])
    assert isinstance(asked.error, RateLimited)
    assert asked.error.retry_after == 86_400.0
    assert model.asked_at == [0.0]


@settings(deadline=None)
@given(
    jitter=st.floats(0, 1),
    initial=st.floats(0, 50),
    most=st.floats(0, 50),
    multiplier=st.floats(1, 4),
    count=st.integers(2, 5),
)
def test_waits_are_between_half_and_all_of_the_backoff(
    jitter: float, initial: float, most: float, multiplier: float, count: int
) -> None:
    """Invariant: each wait is 50 to 100 % of the backoff, and none is longer than `max_backoff`."""

    async def main() -> list[float]:
        asked, _ = await ask(
            *[[ServerFailed("x")]] * count,
            jitter=jitter,
            max_attempts=count,
            initial_backoff=initial,
            max_backoff=most,
            backoff_multiplier=multiplier,
        )
        return [wait for _, wait, _ in asked.retries]

    waits = run_virtual(main)
    assert len(waits) == count - 1
    for at, wait in enumerate(waits):
        full = min(initial * multiplier**at, most)
        assert full * 0.5 - 1e-9 <= wait <= full + 1e-9


@virtual
async def test_an_empty_answer_is_an_answer() -> None:
    """A stream that ends well without a piece is not repeated here."""
    asked, model = await ask([], ["never"])
    assert (asked.got, asked.error, len(model.asked_at)) == ([], None, 1)


# -- time-outs --------------------------------------------------------------------------------------------------


@virtual
async def test_the_first_piece_has_a_time_of_its_own() -> None:
    """Nothing after `first_chunk_timeout`: a ProviderTimeout that says so, the stream is closed, and it is repeated."""
    asked, model = await ask([9.9, "a"], first_chunk_timeout=10)
    assert asked.got == ["a"]
    asked, model = await ask([60.0, "a"], [1.0, "b"], first_chunk_timeout=10)
    assert asked.got == ["b"]
    assert asked.retries == [(2, 2.0, "timeout")]
    asked, model = await ask([60.0, "a"], first_chunk_timeout=10, max_attempts=1)
    assert isinstance(asked.error, ProviderTimeout)
    assert str(asked.error) == "the model did not begin its answer within first_chunk_timeout=10.0 s"
    assert model.open == 0


@virtual
async def test_a_silence_in_the_middle_ends_the_call() -> None:
    """Nothing for `chunk_timeout` after a piece: an error that says so; an answer that has begun is not repeated."""
    asked, model = await ask([1.0, "a", 9.0, "b", 60.0, "c"], ["never"], chunk_timeout=10)
    assert asked.got == ["a", "b"]
    assert isinstance(asked.error, ProviderTimeout)
    assert str(asked.error) == "the model was silent for chunk_timeout=10.0 s in the middle of its answer"
    assert (asked.ended, model.open) == (20.0, 0)


@virtual
async def test_a_silence_after_an_early_first_piece_is_noticed_in_time() -> None:
    """The time between pieces counts from the last piece, also where the first might have taken much longer."""
    asked, _ = await ask([1.0, "a", 600.0, "b"])
    assert isinstance(asked.error, ProviderTimeout)
    assert asked.ended == 61.0


@virtual
async def test_the_whole_call_has_a_time() -> None:
    """A stream that trickles on for longer than `timeout` ends."""
    asked, model = await ask([part for _ in range(99) for part in (5.0, "a")], timeout=52, max_attempts=1)
    assert len(asked.got) == 10
    assert str(asked.error) == "the model did not finish within timeout=52.0 s"
    assert (asked.ended, model.open) == (52.0, 0)


@virtual
async def test_each_attempt_has_its_own_time() -> None:
    """`timeout` is that of an attempt: neither waits nor earlier attempts count."""
    asked, model = await ask([60.0], [60.0], [9.0, "a"], timeout=10, first_chunk_timeout=10)
    assert (asked.got, model.asked_at) == (["a"], [0.0, 12.0, 26.0])


@virtual
async def test_what_the_consumer_holds_up_does_not_count() -> None:
    """Neither time of the whole call nor between pieces passes while the consumer rests, from the first moment on."""
    asked, _ = await ask(["a", 4.0, "b", 4.0, "c"], rest=1_000, timeout=10, chunk_timeout=5)
    assert (asked.got, asked.error) == (["a", "b", "c"], None)
    assert asked.ended == 3_008.0
    asked, _ = await ask(["a", 4.0, "b", 4.0, "c", 4.0, "d"], rest=1_000, timeout=10, chunk_timeout=5)
    assert str(asked.error) == "the model did not finish within timeout=10.0 s"
    assert asked.got == ["a", "b", "c"]


@virtual
async def test_after_a_rest_the_time_is_noticed_to_the_second() -> None:
    """However long the consumer rested, what is left of the time is what the model gets."""
    asked, _ = await ask([9.0, "a", 60.0], rest=100, timeout=10, chunk_timeout=50)
    assert str(asked.error) == "the model did not finish within timeout=10.0 s"
    assert asked.ended == 110.0


@settings(deadline=None)
@given(
    pieces=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    rests=st.integers(0, 40),
    timeout=st.integers(1, 30),
    first=st.integers(1, 12),
    between=st.integers(1, 12),
)
def test_time_outs_fall_where_they_must(pieces: list[int], rests: int, timeout: int, first: int, between: int) -> None:
    """Invariant: the call fails at the first moment at which a piece is later than allowed, rests apart; ties aside."""
    total, rested, expected = 0.0, 0.0, None
    for at, wait in enumerate(pieces):
        allowed = min(first if at == 0 else between, timeout - total)
        if wait == allowed:
            return  # at the very same moment either may win
        if wait > allowed:
            expected = total + rested + allowed
            break
        total, rested = total + wait, rested + rests

    async def main() -> None:
        answer = [part for wait in pieces for part in (float(wait), "a")]
        asked, model = await ask(
            answer,
            rest=float(rests),
            timeout=timeout,
            first_chunk_timeout=first,
            chunk_timeout=between,
            max_attempts=1,
        )
        assert (asked.error is None) == (expected is None)
        assert asked.ended == (total + rested if expected is None else expected)
        assert model.open == 0

    run_virtual(main)


@virtual
async def test_no_timer_per_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 pieces: the loop is asked for a handful of timers, not for one each."""
    loop = asyncio.get_running_loop()
    made = [0]
    call_at: Callable[..., asyncio.TimerHandle] = loop.call_at

    def counted(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        made[0] += 1
        return call_at(*args, **kwargs)

    monkeypatch.setattr(loop, "call_at", counted)
    asked, _ = await ask(["a"] * 1_000)
    assert (len(asked.got), asked.error) == (1_000, None)
    assert made[0] <= 3


@virtual
async def test_a_tie_is_never_taken_for_a_foreign_cancel() -> None:
    """A piece that comes in the very moment in which the time is over, to a consumer that rests: the piece is
    delivered, and what ends the call, if anything does, is a time-out."""
    model = Model([["a", 10.0, "b", 5.0, "c"]])

    def stream() -> AsyncGenerator[ModelChunk, None]:
        config = ExecutionConfig(chunk_timeout=10, max_attempts=1)
        return attempts(model, REQUEST, config, jitter=lambda: 1.0, on_retry=lambda number, wait, error: None)

    got: list[str] = []
    try:
        async for chunk in iterate(from_aiter(stream), maxsize=1):
            got.append(chunk.text)
            await asyncio.sleep(3)
    except ProviderTimeout:
        assert got in (["a"], ["a", "b"])
    else:
        assert got == ["a", "b", "c"]
    assert model.open == 0


# -- leaving ----------------------------------------------------------------------------------------------------


@virtual
async def test_leaving_closes_the_models_stream() -> None:
    """Whether it is read, rests, or waits for its next attempt; no timer is left."""
    for answers, seconds in (([["a", 60.0]], 5.0), ([[ServerFailed("x")], ["a"]], 1.0)):
        model = Model(list(answers))
        task = asyncio.create_task(ask(model=model))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.open == 0


@virtual
async def test_a_models_iterator_need_not_be_a_generator() -> None:
    """`Model.stream` gives an async iterator; one that cannot be closed will do."""

    class Words:
        def __init__(self) -> None:
            self.left = ["a", "b"]

        def __aiter__(self) -> Words:
            return self

        async def __anext__(self) -> ModelChunk:
            if not self.left:
                raise StopAsyncIteration
            return ModelChunk(text=self.left.pop(0))

    class Plain(ScriptedModel):
        def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
            return Words()

    asked, _ = await ask(model=Plain([text("never")]))
    assert (asked.got, asked.error) == (["a", "b"], None)
