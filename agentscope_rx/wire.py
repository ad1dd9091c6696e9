"""JSON, the only way it is read and written here.

Nothing that a model, a tool or a provider says can make either function raise for its *content*: lone halves of
surrogate pairs become U+FFFD, NaN becomes null, what is no JSON value becomes its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar, cast

import pydantic_core

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
_DEEPEST: Final = 200
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The same text, with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", text)
    return text


def to_json(value: object) -> bytes:
    """Write a value as compact JSON in UTF-8; never raises for its content."""
    try:
        return pydantic_core.to_json(value, inf_nan_mode="null", fallback=_as_text)
    except Exception:
        return pydantic_core.to_json(_plain(value, frozenset()), inf_nan_mode="null", fallback=_as_text)


def write(adapter: TypeAdapter[T], value: T) -> bytes:
    """Write a value of ours as compact JSON, under the names of its fields in JSON and without absent ones.

    Args:
        adapter: The writer of its type.
        value: The value; its content is treated as by `to_json`.
    """
    try:
        return adapter.dump_json(value, by_alias=True, exclude_none=True, fallback=_as_text)
    except ValueError:
        return to_json(adapter.dump_python(value, by_alias=True, exclude_none=True))


def from_json(data: bytes | str) -> object:
    """Read JSON; NaN and the infinities, which some providers write, become None.

    Raises:
        ValueError: The data are no JSON.
    """
    try:
        return pydantic_core.from_json(data, allow_inf_nan=False)
    except (ValueError, TypeError):  # a str with lone surrogates is a TypeError
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        try:
            return _plain(json.loads(text, parse_constant=_null), frozenset())
        except RecursionError:
            raise ValueError("the JSON is nested too deeply to be read") from None


def is_json(data: bytes) -> bool:
    """Whether the data are JSON to the letter, which `from_json` is not particular about."""
    try:
        pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def json_object(data: bytes | str) -> Mapping[str, object] | None:
    """The JSON object that the data hold; None where they hold anything else."""
    try:
        value = from_json(data)
    except ValueError:
        return None
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _plain(value: object, inside: frozenset[int]) -> object:
    """A copy that can be written: text without lone surrogates, nothing that contains itself."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or isinstance(value, int | float):
        return value
    within = inside | {id(value)}
    if len(within) == len(inside) or len(inside) > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {_as_text(key): _plain(each, within) for key, each in entries.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, within) for each in cast("list[object]", value)]
    try:
        shown = pydantic_core.to_jsonable_python(value, inf_nan_mode="null", fallback=_as_text)
    except Exception:
        return _as_text(value)
    return _plain(shown, within)


def _as_text(value: object) -> str:
    try:
        return clean_text(str(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _null(_: str) -> None:
    return None
