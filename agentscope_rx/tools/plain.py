"""Turns any value into one that JSON can hold, whatever the value does when it is looked at."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from itertools import islice
from typing import Final, cast

from pydantic import BaseModel

from agentscope_rx.tools.texts import clean, error_text
from agentscope_rx.wire import to_json

#: Stands for what is not shown: a value inside itself, or too deep, or the rest of a long iterator.
_MORE: Final = "…"
_DEEPEST: Final = 100
_LONGEST_ITERATOR: Final = 10_000
_SEQUENCES: Final = (Sequence, Set, ValuesView, deque)


def plain(value: object) -> object:
    """The same value as None, bools, numbers, clean texts, lists and dicts with text keys; never raises.

    Sets are sorted, NaN and the infinities become texts, bytes are decoded as UTF-8, and what has no other
    form is its `str`.

    Args:
        value: Anything.

    Examples:
        >>> plain({1: {3, 2}, "at": date(2026, 1, 31)})
        {'1': [2, 3], 'at': '2026-01-31'}
    """
    return _plain(value, frozenset())


def plain_text(value: object) -> str:
    """The same value as text: a text stays what it is, anything else becomes JSON."""
    shown = plain(value)
    return shown if isinstance(shown, str) else to_json(shown).decode()


def _plain(value: object, inside: frozenset[int]) -> object:
    try:
        if value is None or value is True or value is False:
            return value
        scalar = _scalar(value)
        if scalar is not None:
            return scalar
        if id(value) in inside or len(inside) >= _DEEPEST:
            return _MORE
        return _compound(value, inside | {id(value)})
    except KeyboardInterrupt:
        raise
    except BaseException:  # code of the value's own class: nothing that it raises is the caller's affair
        return _as_text(value)


def _scalar(value: object) -> str | int | float | None:
    """What needs no look inside; None for everything else."""
    if isinstance(value, Enum):
        return _scalar(value.value)
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return clean(bytes(cast("bytes", value)).decode("utf-8", "replace"))
    if isinstance(value, BaseException):
        return error_text(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    return None


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _compound(value: object, inside: frozenset[int]) -> object:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(), inside)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), inside) for field in fields(value)}
    if isinstance(value, Mapping):
        return _object(cast("Mapping[object, object]", value), inside)
    if isinstance(value, Enum):
        return _plain(value.value, inside)
    if isinstance(value, _SEQUENCES):
        return _array(cast("Iterable[object]", value), inside)
    if isinstance(value, Iterator):
        items = list(islice(cast("Iterator[object]", value), _LONGEST_ITERATOR + 1))
        shown = [_plain(each, inside) for each in items[:_LONGEST_ITERATOR]]
        return shown if len(items) <= _LONGEST_ITERATOR else [*shown, _MORE]
    if inspect.iscoroutine(value):
        value.close()  # or else Python warns that nobody awaited it
        return f"<coroutine {value.__qualname__}>"
    if not isinstance(value, type) and callable(to_list := getattr(value, "tolist", None)):
        return _plain(cast("Callable[[], object]", to_list)(), inside)  # arrays, of numpy and others
    return _as_text(value)


def _object(value: Mapping[object, object], inside: frozenset[int]) -> dict[str, object]:
    entries: dict[str, object] = {}
    for key, each in value.items():
        name = key if type(key) is str else plain_text(key)
        name = clean(name)
        if name in entries:  # 1 and "1"
            name = f"{name} ({type(key).__name__})"
        entries[name] = _plain(each, inside)
    return entries


def _array(value: Iterable[object], inside: frozenset[int]) -> object:
    if isinstance(value, tuple) and callable(as_dict := getattr(value, "_asdict", None)):
        return _plain(cast("Callable[[], object]", as_dict)(), inside)
    items = [_plain(each, inside) for each in value]
    # The order of a set differs from process to process; a result does not.
    return sorted(items, key=to_json) if isinstance(value, Set) else items


def _as_text(value: object) -> str:
    try:
        return clean(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"<{type(value).__name__}>"
