"""The one retry layer and the one set of time-outs around every model call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import cast

from agentscope_rx.errors import ProviderError, ProviderTimeout
from agentscope_rx.requests import ExecutionConfig, Model, ModelChunk, ModelRequest

#: Called before the next attempt: its number from 2, the seconds of waiting, and why.
OnRetry = Callable[[int, float, ProviderError], None]


async def attempts(
    model: Model,
    request: ModelRequest,
    config: ExecutionConfig,
    *,
    jitter: Callable[[], float],
    on_retry: OnRetry,
) -> AsyncGenerator[ModelChunk, None]:
    """Ask a model, again where its answer has not begun and another attempt may help.

    Args:
        model: The model.
        request: What it is asked.
        config: Time-outs and retry.
        jitter: A number from 0 to 1; each wait is its 50 to 100 %.
        on_retry: Told of each further attempt.

    Raises:
        ProviderError: The last attempt's, or one that cannot be mended by asking again.
    """
    for attempt in range(1, config.max_attempts + 1):
        begun = False
        try:
            async with aclosing(_timed(model.stream(request), config)) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
            return
        except ProviderError as error:
            too_late = (error.retry_after or 0) > config.timeout
            if begun or not error.retryable or too_late or attempt == config.max_attempts:
                raise
            wait = _wait_before(attempt + 1, error, config, jitter)
            on_retry(attempt + 1, wait, error)
            await asyncio.sleep(wait)


def _wait_before(attempt: int, error: ProviderError, config: ExecutionConfig, jitter: Callable[[], float]) -> float:
    if error.retry_after is not None:
        return error.retry_after
    backoff = config.initial_backoff * config.backoff_multiplier ** (attempt - 2)
    return min(backoff, config.max_backoff) * (0.5 + 0.5 * jitter())


async def _timed(chunks: AsyncIterator[ModelChunk], config: ExecutionConfig) -> AsyncGenerator[ModelChunk, None]:
    """Hand chunks on; raise when one takes too long, or all together do."""
    patience = _Patience(config)
    try:
        async with patience.timeout, _closed_at_the_end(chunks):
            patience.start()
            async for chunk in chunks:
                patience.pause()
                yield chunk
                patience.resume()
    except TimeoutError as error:
        if not patience.timeout.expired():
            raise
        raise ProviderTimeout(f"the model {patience.complaint}") from error
    finally:
        patience.stop()


@asynccontextmanager
async def _closed_at_the_end(chunks: AsyncIterator[ModelChunk]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if isinstance(chunks, AsyncGenerator):  # a plain iterator has nothing to close
            await cast("AsyncGenerator[ModelChunk, None]", chunks).aclose()


class _Patience:
    """One timer for a whole answer: a chunk only moves a number, and the timer looks at it when it goes off.

    The time for which the consumer holds up the stream does not count.
    """

    def __init__(self, config: ExecutionConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._paused_at: float | None = None
        self._begun = False
        self.timeout = asyncio.timeout(None)
        self.complaint = ""

    def start(self) -> None:
        now = self._loop.time()
        self._call_deadline = now + self._config.timeout
        self._chunk_deadline = now + self._config.first_chunk_timeout
        self._arm(now)

    def pause(self) -> None:
        self._begun = True
        self._paused_at = now = self._loop.time()
        if self.complaint:  # the time was over in the very moment in which this piece came: it still counts
            self.complaint = ""
            self.timeout.reschedule(None)
            self._arm(now)

    def resume(self) -> None:
        now = self._loop.time()
        assert self._paused_at is not None
        self._call_deadline += now - self._paused_at
        self._chunk_deadline = now + self._config.chunk_timeout
        self._paused_at = None
        if min(self._call_deadline, self._chunk_deadline) < self._due:  # once, after the first piece or a long pause
            self.stop()
            self._arm(now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, now: float) -> None:
        due = min(self._call_deadline, self._chunk_deadline)
        if self._paused_at is not None or due <= now:  # a paused stream is looked at again after a pause as long
            due = now + min(self._config.chunk_timeout, self._config.timeout)
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        now, config = self._loop.time(), self._config
        if self._paused_at is None and now >= self._call_deadline:
            self.complaint = f"did not finish within timeout={config.timeout} s"
        elif self._paused_at is None and now >= self._chunk_deadline and self._begun:
            self.complaint = f"was silent for chunk_timeout={config.chunk_timeout} s in the middle of its answer"
        elif self._paused_at is None and now >= self._chunk_deadline:
            self.complaint = f"did not begin its answer within first_chunk_timeout={config.first_chunk_timeout} s"
        else:
            self._arm(now)
            return
        self.timeout.reschedule(now)
