"""Failure cases from public bug reports: what broke other agents, as data.

`open.json` holds each case in a short form, by its id; `case("O01")` gives it in full. The short forms:

    {"$rep": "x", "n": 5}              a text, so many times
    {"$cat": [...]}                    texts, joined
    {"$hex": "00ff"}                   bytes
    {"$seq": [1, 9], "of": [...]}      in a list: the entries of `of` once for each number, which `{i}` stands for
    "tool_calls": [[id, name, args]]   calls as Chat Completions writes them

Keys: `config` is what differs from the default, `history` what the session holds, `input` the user's message (or
`resume`: go on without one), `model` and `summary` the scripted replies in order (see
`agentscope_rx.testing.FakeProvider`), `tools` what each tool returns, `then` a further call on the same session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast


def case(id: str) -> dict[str, Any]:
    """The case with this id, in full; a new object each time.

    Raises:
        KeyError: There is no such case.
    """
    return expand(_short_forms()[id])


def expand(value: Any, number: int | None = None) -> Any:
    """Write a short form out.

    Args:
        value: What `open.json` holds, or a part of it.
        number: What `{i}` in a text stands for; None = itself.

    Examples:
        >>> expand({"$cat": ["<", {"$rep": "ab", "n": 2}, ">"]})
        '<abab>'
        >>> expand([{"$seq": [1, 2], "of": ["q{i}", "a{i}"]}])
        ['q1', 'a1', 'q2', 'a2']
    """
    if isinstance(value, str):
        return value if number is None else value.replace("{i}", str(number))
    if isinstance(value, list):
        return [each for entry in cast("list[Any]", value) for each in _entries(entry, number)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if "$rep" in fields:
        return expand(fields["$rep"], number) * fields["n"]
    if "$cat" in fields:
        return "".join(expand(fields["$cat"], number))
    if "$hex" in fields:
        return bytes.fromhex(fields["$hex"])
    full = {key: expand(each, number) for key, each in fields.items()}
    if "tool_calls" in full:
        full["tool_calls"] = [_call(each) for each in full["tool_calls"]]
    return full


def _entries(entry: Any, number: int | None) -> Iterator[Any]:
    """What an entry of a list becomes: itself, or a whole sequence."""
    if isinstance(entry, dict) and "$seq" in entry:
        sequence = cast("dict[str, Any]", entry)
        first, last = sequence["$seq"]
        for each in range(first, last + 1):
            yield from expand(sequence["of"], each)
    else:
        yield expand(entry, number)


def _call(call: Any) -> Any:
    if not isinstance(call, list):
        return call
    id, name, arguments = cast("list[str]", call)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@cache
def _short_forms() -> Mapping[str, Any]:
    return json.loads(Path(__file__).with_name("open.json").read_text(encoding="utf-8"))
