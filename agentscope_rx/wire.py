"""JSON, the only way it is read and written here.

Nothing that a model, a tool or a provider says can make either function raise for its *content*: lone halves of
surrogate pairs become U+FFFD, NaN becomes null, what is no JSON value becomes its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

import pydantic_core

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
    except (ValueError, RecursionError):
        return pydantic_core.to_json(_clean(value, frozenset()), inf_nan_mode="null", fallback=_as_text)


def from_json(data: bytes | str) -> object:
    """Read JSON.

    Raises:
        ValueError: The data are no JSON.
    """
    try:
        return pydantic_core.from_json(data)
    except ValueError:
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        return _clean(json.loads(text), frozenset())


def json_object(data: bytes | str) -> Mapping[str, object] | None:
    """The JSON object that the data hold; None where they hold anything else."""
    try:
        value = from_json(data)
    except ValueError:
        return None
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _clean(value: object, inside: frozenset[int]) -> object:
    """A copy that can be written: text without lone surrogates, nothing that contains itself."""
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return value
    within = inside | {id(cast("object", value))}
    if len(within) == len(inside) or len(inside) > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {clean_text(str(key)): _clean(each, within) for key, each in entries.items()}
    return [_clean(each, within) for each in cast("list[object]", value)]


def _as_text(value: object) -> str:
    try:
        return clean_text(str(value))
    except Exception:
        return f"<{type(value).__name__}>"
