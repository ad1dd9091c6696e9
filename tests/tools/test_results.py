"""Whatever a tool returns becomes blocks that every store and every provider can hold."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer

from agentscope_rx.messages import (
    Base64Source,
    DataBlock,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    URLSource,
)
from agentscope_rx.tools.results import NO_OUTPUT, convert

IMAGE = DataBlock(source=URLSource(url="https://example.org/x.png"))


class Point(NamedTuple):
    x: int
    y: int


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


class Broken(BaseModel):
    x: int = 1

    @field_serializer("x")
    def refuse(self, value: int) -> str:
        raise OSError("disk")


class Fine(BaseModel):
    name: str = "Zoë"
    when: date = date(2026, 1, 31)


@dataclass
class Line:
    text: str
    parts: object = ()


class Colour(Enum):
    RED = "red"


class Array:  # as numpy's: no sequence
    def tolist(self) -> list[list[int]]:
        return [[1], [2]]


def itself() -> dict[str, object]:
    value: dict[str, object] = {"a": 1}
    value["self"] = value
    return value


def text_of(value: object, **options: int) -> str:
    converted = convert(value, **options)
    assert converted.state is ToolResultState.SUCCESS
    (block,) = converted.output
    assert isinstance(block, TextBlock)
    return block.text


# -- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('plain "text"\n', 'plain "text"\n'),
        ("[ERROR] no special text", "[ERROR] no special text"),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (" \n", NO_OUTPUT),
        ([], "[]"),
        (True, "true"),
        (0, "0"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ({"a": float("nan"), "b": -float("inf")}, '{"a":"NaN","b":"-Infinity"}'),
        ({1, 2}, "[1,2]"),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (b"\xff\x00ok", "\ufffd\ufffdok"),
        ({"raw": b"\xff"}, '{"raw":"\ufffd"}'),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00+00:00"),
        (timedelta(seconds=90), "0:01:30"),
        (Decimal("1.5"), "1.5"),
        ({"d": Decimal("1.5"), "f": Fraction(1, 3)}, '{"d":"1.5","f":"1/3"}'),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        ({"city": "Zürich", "雪": True}, '{"city":"Zürich","雪":true}'),
        ({1: "a", None: "b", (1, 2): "c", Colour.RED: "d"}, '{"1":"a","null":"b","[1,2]":"c","red":"d"}'),
        ({1: "a", "1": "b"}, '{"1":"a","1 (str)":"b"}'),
        (itself(), '{"a":1,"self":"…"}'),
        (Line("é", (1,)), '{"text":"é","parts":[1]}'),
        (Fine(), '{"name":"Zoë","when":"2026-01-31"}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (deque([1]), "[1]"),
        (OrderedDict({"b": 1, "a": 2}), '{"b":1,"a":2}'),
        ({"a": 1}.keys(), '["a"]'),
        (range(2), "[0,1]"),
        (Array(), "[[1],[2]]"),
        ({"rows": (n for n in (1, 2))}, '{"rows":[1,2]}'),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x1b(B\x1b=end", "link end"),
        (["\x1b[1mbold"], '["bold"]'),
        ("a\0b", "a\ufffdb"),
        ("\ud83d alone", "\ufffd alone"),
        ({"\ud83d": "\udc00"}, '{"\ufffd":"\ufffd"}'),
        (Unprintable(), "<Unprintable>"),
        ({"x": Unprintable()}, '{"x":"<Unprintable>"}'),
        ([ValueError("inside")], '["ValueError: inside"]'),
        (Msg.assistant("one", "two"), "one"),
    ],
)
def test_each_value_has_its_text(value: object, text: str) -> None:
    """Text stays text, the rest is JSON that people and models can read; nothing is ever empty."""
    first = convert(value).output[0]
    assert first == TextBlock(text=text)
    assert convert(value).state is ToolResultState.SUCCESS or isinstance(value, BaseException)


def test_a_huge_number_keeps_its_digits() -> None:
    """Python refuses to print long integers; a result does not."""
    assert text_of(10**5000) == "1" + "0" * 5000
    assert text_of({10**5000: 1}).startswith('{"1000')


def test_what_is_too_deep_is_cut_off() -> None:
    """Five thousand levels neither fail nor fill the stack."""
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert text_of(value) == "[" * 100 + '"…"' + "]" * 100


def test_a_model_that_cannot_be_serialised_is_shown_as_text() -> None:
    """The tool worked: a failing serialiser makes it no failure."""
    assert text_of(Broken()) == "x=1"
    assert text_of({"model": Broken()}) == '{"model":"x=1"}'


def test_a_value_that_ends_the_program_when_it_is_looked_at() -> None:
    """Even a `SystemExit` out of a `__str__` stays inside the conversion."""

    class Hostile:
        def __str__(self) -> str:
            raise SystemExit(3)

    assert text_of([Hostile(), 1]) == '["<Hostile>",1]'


def test_a_coroutine_inside_a_value_gives_no_warning() -> None:
    """Only the value itself is awaited; one inside is closed, so that Python does not warn."""

    async def late() -> None: ...

    assert text_of([late()]).startswith('["<coroutine ')


# -- blocks -------------------------------------------------------------------------------------------------


def test_blocks_pass_through() -> None:
    """Blocks, alone or in a list, stay blocks; blank texts beside others are left out."""
    assert convert(IMAGE).output == (IMAGE,)
    assert convert(TextBlock(text="\x1b[1mx")).output == (TextBlock(text="x"),)
    mixed = convert(["text", IMAGE, TextBlock(text=""), {"a": 1}])
    assert mixed.output == (TextBlock(text="text"), IMAGE, TextBlock(text='{"a":1}'))
    assert convert(Msg.user("see", IMAGE)).output == (TextBlock(text="see"), IMAGE)


def test_a_result_block_keeps_its_state_and_metadata() -> None:
    """A tool that says how it ended is believed; metadata become plain JSON."""
    block = ToolResultBlock(
        id="", name="", output=(TextBlock(text=""),), metadata={"at": date(2026, 1, 31)}, state=ToolResultState.ERROR
    )
    converted = convert(block)
    assert converted.output == (TextBlock(text=NO_OUTPUT),)
    assert (converted.state, converted.metadata) == (ToolResultState.ERROR, {"at": "2026-01-31"})
    assert convert(Msg.tool(block)) == converted
    odd: Any = "made-up"
    assert convert(ToolResultBlock(id="", name="", state=odd)).state is ToolResultState.ERROR


def test_a_returned_exception_is_an_error() -> None:
    """A failure is never a success, in whichever way it comes."""
    converted = convert(ValueError("no such city"))
    assert converted.state is ToolResultState.ERROR
    assert converted.output == (TextBlock(text="ValueError: no such city"),)


# -- length -------------------------------------------------------------------------------------------------


def test_long_output_keeps_head_and_tail() -> None:
    """What is cut is counted, the whole is within the limit, and both ends are there."""
    text = text_of("".join(f"line {n}\n" for n in range(100_000)), max_chars=5000)
    assert len(text) <= 5000
    assert text.startswith("line 0\n")
    assert text.endswith("line 99999\n")
    head, note, tail = text.partition("\n\n[... ")[0], text.split("[... ")[1].split(" ")[0], text.split(" ...]\n\n")[1]
    assert int(note.replace(",", "")) == 1_088_890 - len(head) - len(tail)


def test_the_limit_holds_for_all_texts_together() -> None:
    """Many blocks are no way around the limit; media are kept."""
    converted = convert([TextBlock(text="x" * 900), IMAGE, TextBlock(text="y" * 900)], max_chars=1000)
    text, image = converted.output
    assert isinstance(text, TextBlock)
    assert len(text.text) <= 1000
    assert (text.text[0], text.text[-1], image) == ("x", "y", IMAGE)


def test_an_ordinary_limit_is_a_million() -> None:
    """Without another limit a million characters pass, and no more."""
    assert text_of("x" * 1_000_000) == "x" * 1_000_000
    assert len(text_of("x" * 1_000_001)) <= 1_000_000


# -- anything -----------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=[]))  # lone surrogates too
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.builds(Unprintable)
    | st.builds(ValueError, texts)
    | st.builds(TextBlock, text=texts)
    | st.builds(DataBlock, source=st.builds(Base64Source, media_type=texts, data=texts), name=texts)
)
keys = st.none() | st.booleans() | st.integers() | texts | st.binary() | st.tuples(st.integers())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(keys, inner)
        | st.frozensets(keys)
        | st.builds(Line, texts, inner)
        | st.builds(
            ToolResultBlock,
            id=texts,
            name=texts,
            output=st.lists(inner).map(tuple),
            metadata=st.dictionaries(texts, inner),
        )
    ),
    max_leaves=20,
)


@given(values)
def test_anything_converts(value: object) -> None:
    """Any value gives blocks that can be written as JSON and are never empty, within the limit."""
    converted = convert(value, max_chars=1000)
    result = ToolResultBlock(
        id="c1", name="t", output=converted.output, metadata=converted.metadata, state=converted.state
    )
    message = Msg.tool(result)
    json.loads(message.to_json())
    assert Msg.from_json(message.to_json()) == message
    assert result.output
    for block in result.output:
        if isinstance(block, TextBlock):
            assert block.text.strip()
            assert "\0" not in block.text
            assert "\x1b" not in block.text
    assert len(result.text) <= 1000
    if not isinstance(value, ToolResultBlock):
        assert (converted.state is ToolResultState.ERROR) == isinstance(value, BaseException)
