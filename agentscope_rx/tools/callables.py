"""What kinds of callables there are, and what they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias, cast

#: How a function is run: its coroutine awaited, its generator made on the loop, or all of it in a thread.
Way: TypeAlias = Literal["await", "make", "thread"]


def without_partials(function: object) -> object:
    """The callable below `functools.partial`."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def keywords_of(function: object) -> Mapping[str, object]:
    """The keyword arguments that a partial has fixed."""
    return cast("partial[Any]", function).keywords if isinstance(function, partial) else {}


def underlying(function: object) -> Callable[..., Any]:
    """The function or method below partials; the `__call__` of an object."""
    function = without_partials(function)
    return cast("Callable[..., Any]", function if inspect.isroutine(function) else type(function).__call__)


def way_of(function: object) -> Way:
    """How a function has to be run."""
    target = underlying(function)
    if inspect.iscoroutinefunction(target):
        return "await"
    # Making a generator runs none of its code yet.
    return "make" if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target) else "thread"


def name_of(function: object) -> str:
    """The name of a function, or of the class of a callable object."""
    function = without_partials(function)
    return str(getattr(function, "__name__", type(function).__name__))


def docstring_of(function: object) -> str:
    """The docstring of a function, or of a callable object."""
    found = inspect.getdoc(underlying(function))
    bare = without_partials(function)
    if found is None and not inspect.isroutine(bare):
        found = inspect.getdoc(bare)
    return found or ""


def first_parameter(function: Callable[..., Any]) -> str | None:
    """The name of the first parameter; None where there is none, or none is known."""
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None
