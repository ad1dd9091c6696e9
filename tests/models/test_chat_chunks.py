"""Chunks of an answer: text, thinking, usage, ends and errors, however a provider writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentscope_rx.errors import (
    BadRequest,
    ContextOverflow,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    StreamFailed,
    StreamIncomplete,
)
from agentscope_rx.models.chat_chunks import ChatChunkParser
from agentscope_rx.models.sse import SseParser
from agentscope_rx.requests import ModelChunk
from agentscope_rx.usage import ChatUsage
from tests.models.answers import DONE, Answer, chunk, read

STOP = chunk({}, "stop")


def test_noise_that_is_valid() -> None:
    """Comments, retry blocks, blank data, empty choices and empty deltas give no chunk; usage may come alone."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    stream = b"".join(
        (
            b": PROCESSING\n\nretry: 3000\n\n",
            b'data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}\n\nid: 7\n',
            *(b"data: " + each + b"\n\n" for each in (chunk({"role": "assistant", "content": ""}), b"")),
            b": ping\n\n",
            *(
                b"data: " + each + b"\n\n"
                for each in (
                    chunk({"content": "he"}),
                    chunk({"content": None}),
                    chunk({"content": "llo", "tool_calls": []}),
                    STOP,
                    json.dumps({"choices": [], "usage": usage}).encode(),
                    DONE,
                )
            ),
        )
    )
    events, parser, answer = SseParser(), ChatChunkParser(), Answer()
    for _, data in events.feed(stream):
        for found in parser.feed(data):
            answer.add(found)
    assert (answer.text, answer.texts) == ("hello", ["he", "llo"])
    assert answer.usage == ChatUsage(input_tokens=5, output_tokens=2)
    assert answer.finish_reason == "stop"
    assert parser.finish() == []


SILENT: list[dict[str, Any]] = [
    {},
    {"role": "assistant"},
    {"content": ""},
    {"content": None, "refusal": None, "reasoning_content": "", "tool_calls": None},
    {"content": []},
    {"content": [{"type": "image_url", "image_url": {}}]},
    {"tool_calls": [{}, {"index": 3}, None, "x"]},
    {"tool_calls": [{"index": 0, "id": "", "function": {"name": None, "arguments": ""}}]},
    {"annotations": [], "audio": {"id": "a"}},
]


@pytest.mark.parametrize("delta", SILENT)
def test_delta_that_says_nothing_gives_no_chunk(delta: dict[str, Any]) -> None:
    """A delta without anything in it gives no chunk at all, and leaves nothing behind."""
    parser = ChatChunkParser()
    assert parser.feed(chunk(delta)) == []
    parser.feed(DONE)
    assert parser.finish() == []


@pytest.mark.parametrize(
    ("delta", "text", "thinking"),
    [
        ({"content": "a"}, "a", ""),
        ({"content": [{"type": "text", "text": "a"}, "b"]}, "ab", ""),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}, "", "t"),
        ({"content": None, "reasoning_content": "t"}, "", "t"),
        ({"content": "", "reasoning": "t"}, "", "t"),
        ({"reasoning": "t", "reasoning_content": "t"}, "", "t"),
        ({"content": "a", "reasoning": "t"}, "a", "t"),
        ({"content": None, "refusal": "I may not"}, "I may not", ""),
        ({"content": "half \ud83d"}, "half \ufffd", ""),
    ],
)
def test_text_and_thinking(delta: dict[str, Any], text: str, thinking: str) -> None:
    """Text and thinking are found under each of their names, once, and without lone surrogates."""
    assert ChatChunkParser().feed(chunk(delta)) == [ModelChunk(text=text, thinking=thinking)]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, ChatUsage(input_tokens=5, output_tokens=2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}},
            ChatUsage(input_tokens=9, output_tokens=1, cached_tokens=7),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 3},
            ChatUsage(input_tokens=9, output_tokens=1, cached_tokens=3),
        ),
        ({"prompt_tokens": None, "completion_tokens": 2.0}, ChatUsage(output_tokens=2)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage(usage: object, expected: ChatUsage | None) -> None:
    """Usage is read in each provider's words, with a chunk's text or alone; nonsense is no usage."""
    for data in (chunk({"content": "x"}, usage=usage), json.dumps({"choices": [], "usage": usage}).encode()):
        assert read(data, DONE).usage == expected


def test_finish_and_usage_in_one_chunk_are_one_chunk() -> None:
    """What one chunk says comes as one object."""
    parser = ChatChunkParser()
    data = chunk({"content": "x"}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 1})
    expected = ModelChunk(text="x", usage=ChatUsage(input_tokens=1, output_tokens=1), finish_reason="stop")
    assert parser.feed(data) == [expected]


@pytest.mark.parametrize("end", [[STOP, DONE], [STOP], [DONE]])
def test_answer_is_complete(end: list[bytes]) -> None:
    """A finish reason, [DONE], or both end an answer."""
    assert read(chunk({"content": "x"}), *end).text == "x"


@pytest.mark.parametrize("data", [[], [chunk({"content": "half an ans"})], [chunk({}, "")]])
def test_answer_is_incomplete(data: list[bytes]) -> None:
    """An end with neither is an error, whatever came before."""
    with pytest.raises(StreamIncomplete):
        read(*data)


FAILED: list[tuple[dict[str, Any], type[ProviderError], str]] = [
    ({"error": {"message": "Upstream overloaded", "type": "server_error", "code": 502}}, StreamFailed, "overloaded"),
    ({"error": "STREAM_EXPLODED"}, StreamFailed, "STREAM_EXPLODED"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, StreamFailed, "Overloaded"),
    (
        {
            "error": {"code": "server_error", "message": "Provider disconnected"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        },
        StreamFailed,
        "Provider disconnected",
    ),
    (
        {
            "choices": [
                {"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "Gone"}},
            ]
        },
        StreamFailed,
        "Gone",
    ),
    (
        {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}},
        ContextOverflow,
        "8192",
    ),
    ({"object": "error", "message": "bad", "code": 400}, BadRequest, "bad"),
    ({"code": "Throttling.RateQuota", "message": "slower"}, RateLimited, "slower"),
    ({"error": {"code": 429, "message": "slower"}}, RateLimited, "slower"),
    ({"error": {"message": "quota exceeded"}}, QuotaExceeded, "quota exceeded"),
    ({"error": {"type": "invalid_request_error", "message": "no"}}, BadRequest, "no"),
]


@pytest.mark.parametrize(("payload", "kind", "text"), FAILED)
def test_error_inside_a_stream(payload: dict[str, Any], kind: type[ProviderError], text: str) -> None:
    """An error object in an answer of status 200 is raised as what it is, with the provider's text."""
    parser = ChatChunkParser()
    parser.feed(chunk({"content": "par"}))
    with pytest.raises(kind, match=text):
        parser.feed(json.dumps(payload).encode())


@pytest.mark.parametrize("data", [b"it broke", b'{"message": "it broke"}', b'{"error": {"message": "it broke"}}', b""])
def test_error_event(data: bytes) -> None:
    """An event named `error` is an error whatever its data are."""
    with pytest.raises(StreamFailed, match="it broke" if data else "without a message"):
        ChatChunkParser().feed(data, "error")


def test_limit_of_an_overflow_is_read() -> None:
    """The window that the provider names is on the error."""
    message = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"
    data = json.dumps({"error": {"message": message, "code": "context_length_exceeded"}}).encode()
    with pytest.raises(ContextOverflow) as caught:
        ChatChunkParser().feed(data)
    assert caught.value.limit == 8192


@pytest.mark.parametrize("data", [b'{"id": "c", "obj', b"<html>", b"[" * 100_000])
def test_broken_chunk(data: bytes) -> None:
    """A chunk that is no JSON is an error that shows its beginning."""
    with pytest.raises(StreamFailed) as caught:
        ChatChunkParser().feed(data)
    assert len(str(caught.value)) < 400


def test_secrets_are_not_repeated() -> None:
    """A key that the provider repeats is not in the message."""
    parser = ChatChunkParser(hide=["top-secret"])
    with pytest.raises(StreamFailed) as caught:
        parser.feed(b'{"error": "key top-secret is odd"}')
    assert str(caught.value) == "key *** is odd"


def test_whole_answer_instead_of_a_stream() -> None:
    """The object that answers a request without streaming is read as one answer."""
    message = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
            {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        ],
    }
    body = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    answer = read(json.dumps(body).encode())
    assert (answer.text, answer.thinking, answer.finish_reason) == ("Hi", "hm", "tool_calls")
    assert answer.usage == ChatUsage(input_tokens=3, output_tokens=4)
    assert [(name, arguments) for _, name, arguments in answer.triples()] == [
        ("f", "{}"),
        ("f", ""),
        ("f", '{"x":1}'),
    ]
    assert len({call.id for call in answer.calls}) == 3


def test_whole_message_after_its_stream_is_not_read_twice() -> None:
    """A last chunk that repeats the whole message adds nothing."""
    last = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert read(chunk({"content": "Hi"}), json.dumps(last).encode()).text == "Hi"


def test_only_one_of_several_choices_is_read() -> None:
    """Choices beside the first one seen are left out."""
    both = {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "x"}}]}
    other = {"choices": [{"index": 1, "delta": {"content": "y"}}]}
    assert read(json.dumps(both).encode(), json.dumps(other).encode(), DONE).text == "a"
