"""JSON: what models, tools and users say can always be written, and is read leniently."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, cast

import pydantic_core
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentscope_rx.messages import Role
from agentscope_rx.wire import clean_text, from_json, json_object, to_json, write
from tests.strategies import JSON_OBJECTS, JSON_VALUES, ODD_TEXTS


class Mute:
    """A thing that cannot say what it is."""

    def __repr__(self) -> str:
        return "Mute()"

    def __str__(self) -> NoReturn:
        raise RuntimeError("no words")


@dataclasses.dataclass
class Box:
    """A dataclass that may hold anything."""

    inside: object


def ring() -> list[object]:
    """A list that contains itself, behind a dict."""
    outer: list[object] = []
    outer.append({"back": outer})
    return outer


def tower(height: int) -> object:
    """A list in a list in a list."""
    value: object = "top"
    for _ in range(height):
        value = [value]
    return value


_HALVES = st.text(st.sampled_from("a\ud83d\udcb2🍸\0"), max_size=4)
_LEAVES: st.SearchStrategy[object] = (
    JSON_VALUES
    | _HALVES
    | st.binary(max_size=4)
    | st.floats()
    | st.complex_numbers()
    | st.integers().map(lambda n: n * 10**300)
    | st.datetimes(timezones=st.just(UTC))
    | st.decimals()
    | st.builds(Box, _HALVES | st.floats() | st.binary(max_size=2))
    | st.sampled_from([Mute(), object(), Mute, ValueError("\ud83d"), range(2), ..., NotImplemented, Role.USER, ring()])
    | st.builds(ring)
    | st.builds(tower, st.sampled_from([10, 250, 5_000]))
)
_KEYS: st.SearchStrategy[Any] = (
    _HALVES
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=3)
    | st.tuples(_HALVES, st.binary(max_size=2))
    | st.sampled_from([Mute(), Role.USER])
)
#: Whatever Python programs hold.
ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=3)
        | st.builds(Box, inner)
    ),
    max_leaves=6,
)


# -- writing ------------------------------------------------------------------------------------------------


@given(ANYTHING)
@example({Mute(): [Mute()]})
@example({10**5_000: 1})
@example(Box(ring()))
@example([b"\xff", {"k": {b"\xff": "\ud83d"}}])
@example(frozenset({"\ud83d", b"\xff"}))
def test_anything_can_be_written(value: object) -> None:
    """`to_json` raises for nothing that a value holds, and what it gives is JSON in UTF-8, on one line."""
    data = to_json(value)
    json.loads(data.decode("utf-8"))
    assert b"\n" not in data
    from_json(data)


@given(JSON_VALUES)
def test_json_values_survive(value: object) -> None:
    """What JSON can hold is read back as it was, whoever wrote or reads it."""
    assert from_json(to_json(value)) == value
    assert json.loads(to_json(value)) == value
    assert from_json(json.dumps(value)) == value
    assert from_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(ODD_TEXTS)
def test_lone_surrogates_become_one_character_each(text: str) -> None:
    """Each lone half becomes U+FFFD; whole characters stay, and so does text that says `\\ud83d` in words."""
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert clean_text(text) == expected
    for value in (text, [text], {"k": text}, (text,), Box(text)):
        read = from_json(to_json(value))
        assert read in (expected, [expected], {"k": expected}, {"inside": expected})
    assert from_json(to_json({text: 1})) == {expected: 1}
    assert from_json(to_json("\\ud83d \\u0000")) == "\\ud83d \\u0000"


def test_clean_text_is_given_back_as_it_is() -> None:
    """Text that can be written is not copied."""
    for text in ("plain", "é🍸", ""):
        assert clean_text(text) is text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("é🍸\0\x7f", '"é🍸\\u0000\x7f"'),
        ({"b": 1, "a": None}, '{"b":1,"a":null}'),
        (float("nan"), "null"),
        ([math.inf, -math.inf], "[null,null]"),
        (1.0, "1.0"),
        (2**70, str(2**70)),
        ((1, 2), "[1,2]"),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (Role.USER, '"USER"'),
        (Box(1), '{"inside":1}'),
        (Mute(), '"<Mute>"'),
        (ValueError("no"), '"no"'),
        ({None: 1, True: 2, 3: 4}, '{"None":1,"true":2,"3":4}'),
        (ring(), '[{"back":"…"}]'),
        (b"text", '"text"'),
        (b"\xfftext", '"\ufffdtext"'),
    ],
)
def test_how_values_are_written(value: object, written: str) -> None:
    """Compact, in the order of the dict, not ASCII alone; what has no form in JSON becomes its text or null."""
    assert to_json(value).decode() == written


def test_what_is_nested_too_deeply_is_cut() -> None:
    """A value of a thousand levels is written down to some depth, and can be read."""
    data = to_json(tower(1_000))
    assert "…" in data.decode()
    assert b"[" * 100 in data
    from_json(data)


# -- values of ours -----------------------------------------------------------------------------------------

BOXES = TypeAdapter(Box)


@given(JSON_OBJECTS)
def test_values_of_ours_are_written_by_their_adapter(inside: dict[str, object]) -> None:
    """`write` gives what the adapter reads."""
    assert BOXES.validate_json(write(BOXES, Box(inside))) == Box(inside)


@given(ANYTHING.filter(lambda value: not is_ring(value)))
def test_anything_in_a_value_of_ours_can_be_written(inside: object) -> None:
    """A message, event or state is not lost for something odd in it; only what contains itself is refused."""
    assert "inside" in json.loads(write(BOXES, Box(inside))) or inside is None


def is_ring(value: object) -> bool:
    """Whether a value contains itself, is too deep to tell, or holds a number too long to be shown."""
    try:
        return "[...]" in repr(value)
    except (RecursionError, ValueError):
        return True


# -- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (r'{"p":"\ud83d"}', {"p": "\ufffd"}),
        (r'{"\udcb2":["a\ud83d"]}', {"\ufffd": ["a\ufffd"]}),
        (r'"\ud83c\udf78"', "🍸"),
        ('{"p":"\ud83d"}', {"p": "\ufffd"}),
        (b'{"p":"\xff"}', {"p": "\ufffd"}),
        ('{"p":NaN,"q":[Infinity,-Infinity]}', {"p": None, "q": [None, None]}),
        (' {"p" : 1}\n', {"p": 1}),
        (str(2**70), 2**70),
        ('{"p":1,"p":2}', {"p": 2}),
    ],
)
def test_reading_is_lenient(data: bytes | str, value: object) -> None:
    """Halves of surrogate pairs, bytes that are no UTF-8 and NaN come from providers, and end no run (O29)."""
    assert from_json(data) == value


def test_halves_in_bytes_are_no_utf_8() -> None:
    """A half of a pair that was encoded as if it were a character is three bytes of rubbish."""
    assert from_json('{"p":"\ud83d"}'.encode("utf-8", "surrogatepass")) == {"p": "\ufffd" * 3}


@pytest.mark.parametrize(
    "data", ["", " ", "{", '{"p":}', "nope", '{"p":1}x', "[" * 100_000, '{"p":' * 100_000, "1" * 5_000, "\ufeff{}"]
)
def test_what_is_no_json_is_refused(data: str) -> None:
    """One class of error for all that cannot be read, whatever is wrong with it."""
    with pytest.raises(ValueError):
        from_json(data)
    with pytest.raises(ValueError):
        from_json(data.encode())
    assert json_object(data) is json_object(data.encode()) is None


@given(st.text(st.sampled_from('{}[]":,\\u d8 3nulltrue1e9.-NaN\ud83d'), max_size=20) | st.text(max_size=10))
def test_reading_text_gives_a_value_or_a_value_error(text: str) -> None:
    """Nothing that a model writes as arguments raises anything else."""
    try:
        value = from_json(text)
    except ValueError:
        assert json_object(text) is None
    else:
        to_json(value)
        assert isinstance(value, dict) == (json_object(text) is not None)


@given(st.binary(max_size=20))
def test_reading_bytes_gives_a_value_or_a_value_error(data: bytes) -> None:
    """Nothing that a server sends raises anything else."""
    try:
        from_json(data)
    except ValueError:
        assert json_object(data) is None


@pytest.mark.parametrize(
    ("data", "value"), [('{"p":1}', {"p": 1}), ("{}", {}), ("[1]", None), ("7", None), ("null", None), ('"{}"', None)]
)
def test_arguments_are_objects(data: str, value: object) -> None:
    """`json_object` tells an object, the empty one too, from all else."""
    assert json_object(data) == value
    assert json_object(data.encode()) == value


@given(st.recursive(st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=4))
def test_common_json_takes_the_fast_way(value: object) -> None:
    """The lenient reader gives what pydantic_core gives wherever that can read."""
    data = json.dumps(value)
    read: Callable[[str], object] = cast("Callable[[str], object]", pydantic_core.from_json)
    assert from_json(data) == read(data)
