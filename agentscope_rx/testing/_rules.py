"""How a conformance check names the rule that an implementation does not keep."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from agentscope_rx.errors import ConformanceFailed


def require(kept: bool, rule: str) -> None:
    """Hold that a rule is kept."""
    if not kept:
        raise ConformanceFailed(rule)


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
