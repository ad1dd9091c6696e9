"""An asyncio event loop in virtual time, for tests of code that waits.

Where a loop would sleep until its next timer, this one moves its clock there instead. Everything that waits
by `loop.time()` (`asyncio.sleep`, `asyncio.timeout`, `call_later`) then runs at once and in a fixed order.
"""

import asyncio
import gc
import math
import selectors
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

__all__ = ["VirtualLoop", "VirtualLoopError", "run_virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_RESOLUTION: Final = 1e-9


class VirtualLoopError(AssertionError):
    """Code in virtual time is stuck, left a task behind, or had an error that reached only the event loop."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0.0 and jumps from timer to timer.

    Threads stay real: while work given to `run_in_executor` or `asyncio.to_thread` is awaited, the clock
    stands still. Real sockets and subprocesses do not belong here, since nobody knows how much virtual time
    they take; waiting for one raises `VirtualLoopError`.

    Example:
        >>> async def main() -> float:
        ...     await asyncio.sleep(3600)
        ...     return asyncio.get_running_loop().time()
        >>> run_virtual(main)
        3600.0
    """

    def __init__(self, *, grace: float = 1.0, thread_limit: float = 30.0) -> None:
        """Make a loop at time 0.0.

        Args:
            grace: Real seconds to wait, when no timer is set, for threads that the loop does not know of;
                when they do not wake it, the loop is stuck.
            thread_limit: Real seconds that work in a thread may take before the loop is stuck.
        """
        self._now = 0.0
        self._grace = grace
        self._thread_limit = thread_limit
        self._awaited_threads = 0
        self._work: set[Future[Any]] = set()
        self._pool: Executor | None = None
        selector = _JumpingSelector(self._pass_time, self._describe_deadlock)
        super().__init__(selector)
        selector.sealed = True
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread; the clock stands still until its result is here or no longer awaited.

        Args:
            executor: Where to run it; None: the loop's own thread pool.
            func: What to run.
            args: Its arguments.
        """
        if executor is None:
            executor = self._pool = self._pool or ThreadPoolExecutor(thread_name_prefix="virtual-loop")
        work = executor.submit(func, *args)
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        future = asyncio.wrap_future(work, loop=self)
        self._awaited_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:
        """Use another thread pool.

        Args:
            executor: The pool.
        """
        self._pool = executor

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the work in threads to end, also for such that nobody awaits any more.

        Args:
            timeout: Not used; the `thread_limit` of the loop holds.
        """
        if unfinished := [asyncio.wrap_future(work, loop=self) for work in self._work if not work.done()]:
            self._awaited_threads += 1
            await asyncio.wait(unfinished)
            self._awaited_threads -= 1
        if self._pool is not None:
            self._pool.shutdown()

    def _thread_done(self, _: object) -> None:
        self._awaited_threads -= 1

    def _pass_time(self, timeout: float | None) -> float:
        """Move the clock instead of sleeping, or tell how many real seconds to wait for a thread."""
        if self._awaited_threads:
            return self._thread_limit
        if timeout is None:
            return self._grace
        self._now += timeout
        # Late in virtual time a float's steps are wider than the resolution: timers would never become due.
        self._clock_resolution = max(_RESOLUTION, math.ulp(self._now))
        return 0.0

    def _describe_deadlock(self) -> str:
        reason = "every task waits and no timer is set"
        if self._awaited_threads:
            reason = f"work in a thread has not ended in {self._thread_limit} s, and the clock waits for it"
        return _listed(f"stuck at {self._now} s: {reason}", map(_describe_task, asyncio.all_tasks(self)))


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]], *, grace: float = 1.0, thread_limit: float = 30.0) -> T:
    """Run a coroutine in virtual time and check that it leaves nothing behind.

    Args:
        main: Makes the coroutine.
        grace: As for `VirtualLoop`.
        thread_limit: As for `VirtualLoop`.

    Returns:
        What the coroutine returned.

    Raises:
        VirtualLoopError: The loop got stuck, tasks were still alive at the end, or an error reached only
            the exception handler of the loop. What the coroutine itself raises is passed on, with a note.
    """
    loop = VirtualLoop(grace=grace, thread_limit=thread_limit)
    troubles: list[str] = []
    loop.set_exception_handler(lambda _, context: troubles.append(_describe_error(context)))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            result = runner.run(main())
        except VirtualLoopError:
            raise
        except BaseException as error:
            if seen := [*troubles, *_leaks(loop)]:
                error.add_note(_listed("meanwhile, in the virtual loop:", seen))
            raise
        troubles += _leaks(loop)
    # A task whose error nobody asked for reports it when it is collected; those of this run are young.
    gc.collect(1)
    if troubles:
        raise VirtualLoopError(_listed("the coroutine left trouble behind", troubles))
    return result


class _JumpingSelector(selectors.DefaultSelector):
    """Looks for events without waiting; between them it lets the loop move its clock."""

    def __init__(self, pass_time: Callable[[float | None], float], describe_deadlock: Callable[[], str]) -> None:
        super().__init__()
        self.sealed = False
        self._pass_time = pass_time
        self._describe_deadlock = describe_deadlock

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.sealed:  # what the loop itself needs, a pipe to be woken by, is in place by then
            raise VirtualLoopError("real sockets and subprocesses do not belong into virtual time")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        seconds = self._pass_time(timeout)
        if seconds:
            ready = super().select(seconds)
            if not ready:
                raise VirtualLoopError(self._describe_deadlock())
        return ready


def _leaks(loop: asyncio.AbstractEventLoop) -> list[str]:
    return [f"still alive: {_describe_task(task)}" for task in asyncio.all_tasks(loop)]


def _describe_task(task: asyncio.Task[Any]) -> str:
    awaited: Any = task.get_coro()
    name = getattr(awaited, "__qualname__", repr(awaited))
    place = ""
    while awaited is not None:  # down to the innermost coroutine: that is the one that waits
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            place = f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return f"{task.get_name()} ({name}){place}"


def _describe_error(context: Mapping[str, Any]) -> str:
    error = context.get("exception")
    return f"{context['message']}: {error!r}" if error is not None else str(context["message"])


def _listed(headline: str, entries: Iterable[str]) -> str:
    return "\n  ".join([headline, *sorted(entries)])
