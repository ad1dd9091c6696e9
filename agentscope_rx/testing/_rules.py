"""How a conformance check names the rule that an implementation does not keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from agentscope_rx.errors import ConformanceFailed

T = TypeVar("T")


def require(kept: bool, rule: str) -> None:
    """Hold that a rule is kept."""
    if not kept:
        raise ConformanceFailed(rule)


async def elsewhere(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The outcome of a coroutine on an event loop of its own, in a thread: one of the same kind as this one."""
    factory = type(asyncio.get_running_loop())

    def run() -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work())

    return await asyncio.to_thread(run)


@contextmanager
def refused(kind: type[Exception], rule: str, number: int | None = None) -> Generator[None]:
    """Hold that something is refused with an error of this kind and, where one is given, this `errno`."""
    try:
        yield
    except kind as error:
        found = getattr(error, "errno", None)
        require(number in {None, found}, f"{rule}: expected errno {number}, not {found}")
        return
    except Exception as error:
        raise ConformanceFailed(f"{rule}: expected {kind.__name__}, not {error!r}") from error
    raise ConformanceFailed(f"{rule}: expected {kind.__name__}, and nothing was raised")
