"""The end of a process, in good order: runs stop where nothing is lost, and nothing new begins."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

from agentscope_rx.background_work import BackgroundWork
from agentscope_rx.errors import AgentScopeError, AgentShuttingDown, InvalidOption
from agentscope_rx.finishing import to_the_end
from agentscope_rx.logs import logger
from agentscope_rx.runtime import Runtime

GRACE: Final = 30.0
#: Seconds that interrupted runs have to save and to release what they hold, and cancelled ones once more.
LAST_MOMENTS: Final = 5.0
_REFUSED: Final = "this process is shutting down: make the call again elsewhere, or when it runs again"


class Stoppable(Protocol):
    """A run, as far as its end is concerned; all of it from any thread."""

    ended: Future[None]

    def stop(self, error: AgentScopeError, /) -> None:
        """End at the next safe point; with the error where the run waits for its session's turn."""
        ...

    def refuse(self, error: AgentScopeError, /) -> None:
        """End with what there is; with the error where the run waits for its session's turn."""
        ...

    def cancel(self) -> None:
        """End at once."""
        ...


class Shutdown:
    """What is open in a Runtime; one per Runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[Stoppable] = set()
        self._changes: set[Future[None]] = set()
        self._begun = False

    def entered(self, run: Stoppable) -> None:
        """A run is about to begin; it is refused once the end has begun."""
        with self._lock:
            self._runs.add(run)
            late = self._begun
        run.ended.add_done_callback(lambda _: self._left(run))
        if late:
            run.stop(AgentShuttingDown(_REFUSED))

    @contextmanager
    def changing(self) -> Generator[None, None, None]:
        """A session is changed without a run, inside the block.

        Raises:
            AgentShuttingDown: The end has begun.
        """
        done: Future[None] = Future()
        with self._lock:
            if self._begun:
                raise AgentShuttingDown(_REFUSED)
            self._changes.add(done)
        try:
            yield
        finally:
            with self._lock:
                self._changes.discard(done)
            done.set_result(None)

    def begin(self) -> None:
        """From now on nothing begins."""
        with self._lock:
            self._begun = True

    def open_runs(self) -> Collection[Stoppable]:
        """The runs that have not ended."""
        with self._lock:
            return tuple(self._runs)

    def open_changes(self) -> Collection[Future[None]]:
        """What else is at work on sessions."""
        with self._lock:
            return tuple(self._changes)

    def _left(self, run: Stoppable) -> None:
        with self._lock:
            self._runs.discard(run)


async def shut_down(runtime: Runtime, *, grace: float = GRACE) -> None:
    """End all that the agents of a Runtime are doing, and let them begin nothing new.

    A run goes on until its model has answered or its tools are done. What it has is saved, its session is released,
    and its result says that it was interrupted: `agent.call(None, context)` goes on with it in the next process. What
    is not there within the grace is interrupted, and cancelled 5 s later. Work in the background, such as a memory that
    is being written, has 5 s more.

    Args:
        runtime: The Runtime.
        grace: Seconds that runs have to come to where they can stop.

    Raises:
        InvalidOption: The grace is negative.
    """
    if not grace >= 0:
        raise InvalidOption("grace", grace, "a number of seconds, not negative")
    shutdown = runtime.single(Shutdown)
    shutdown.begin()
    logger().info("shutdown_begun", runs=len(shutdown.open_runs()), grace=grace)
    await end_runs(shutdown.open_runs, AgentShuttingDown(_REFUSED), grace=grace)
    changes = shutdown.open_changes()
    if changes:
        await asyncio.wait(map(asyncio.wrap_future, changes), timeout=LAST_MOMENTS)
    await runtime.single(BackgroundWork).finish(patience=LAST_MOMENTS)
    logger().info("shutdown_done", left=len(shutdown.open_runs()))


async def end_runs(
    open_runs: Callable[[], Collection[Stoppable]], error: AgentScopeError, *, grace: float = 0.0
) -> None:
    """End runs: first where it suits them, then with what they have, at last at once.

    Args:
        open_runs: Gives those that have not ended.
        error: For those that wait for their session's turn.
        grace: Seconds for the first; 0 = interrupt them now.
    """
    stages: list[tuple[Callable[[Stoppable], None], float]] = [
        (lambda run: run.refuse(error), LAST_MOMENTS),
        (lambda run: run.cancel(), LAST_MOMENTS),
    ]
    if grace:
        stages.insert(0, (lambda run: run.stop(error), grace))
    for end, seconds in stages:
        runs = open_runs()
        for run in runs:
            end(run)
        if runs:
            await asyncio.wait([asyncio.wrap_future(run.ended) for run in runs], timeout=seconds)


@asynccontextmanager
async def shut_down_on_signals(
    runtime: Runtime, *, grace: float = GRACE, signals: Sequence[signal.Signals] = (signal.SIGTERM,)
) -> AsyncGenerator[asyncio.Event]:
    """Shut a Runtime down when the process is asked to end; the block ends when that is done.

    It does not end the process: the calls of the block end with their results, and the program goes on behind it.
    Only for the main thread of the process, and not on Windows.

    Args:
        runtime: The Runtime.
        grace: As for `shut_down`.
        signals: What asks it to end.

    Returns:
        An event that is set when the first signal comes, for those who wait for nothing else.

    Examples:
        async with shut_down_on_signals(runtime, grace=20) as asked:
            await asked.wait()
    """
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    work: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not work:
            work.append(loop.create_task(shut_down(runtime, grace=grace)))
            loop.call_soon(asked.set)  # when the runs have been told already

    before = {each: signal.getsignal(each) for each in signals}
    for each in signals:
        loop.add_signal_handler(each, begin)
    try:
        yield asked
    finally:
        for each, handler in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)
        if work:
            await to_the_end(work[0])
