"""Answers of any kind: nothing that a provider sends breaks the reader."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.errors import ProviderError
from agentscope_rx.models.chat_chunks import ChatChunkParser
from tests.models.answers import DONE, Answer, read

Strategy: TypeAlias = st.SearchStrategy[Any]

JSON: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SOME: Strategy = st.one_of(JSON, st.text(max_size=3))
FUNCTION: Strategy = st.fixed_dictionaries({}, optional={"name": SOME, "arguments": SOME})
ENTRY: Strategy = st.one_of(
    SOME, st.fixed_dictionaries({}, optional={"index": SOME, "id": SOME, "function": FUNCTION | SOME})
)
DELTA: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "content": SOME,
        "reasoning_content": SOME,
        "reasoning_details": SOME,
        "refusal": SOME,
        "tool_calls": SOME | st.lists(ENTRY, max_size=3),
    },
)
CHOICE: Strategy = st.fixed_dictionaries(
    {}, optional={"delta": DELTA | SOME, "message": DELTA | SOME, "finish_reason": SOME, "index": SOME, "error": SOME}
)
CHUNK: Strategy = st.fixed_dictionaries(
    {}, optional={"choices": SOME | st.lists(CHOICE | SOME, max_size=2), "usage": SOME, "error": SOME, "code": SOME}
)


@given(st.lists(CHUNK | JSON, max_size=5))
def test_nothing_that_a_provider_says_breaks_the_parser(values: list[object]) -> None:
    """Any JSON gives chunks that an agent can follow, or an error of ours; never another exception."""
    try:
        answer = read(*(json.dumps(value).encode() for value in values), DONE)
    except ProviderError:
        answer = Answer()
    assert len({call.id for call in answer.calls}) == len(answer.calls)


@given(st.binary(max_size=40), st.sampled_from(["", "error", "message"]))
def test_no_bytes_break_the_parser(data: bytes, event: str) -> None:
    """Any bytes are noise, or an error of ours that says something."""
    said: object
    try:
        said = ChatChunkParser().feed(data, event) == []
    except ProviderError as error:
        said = str(error)
    assert said
