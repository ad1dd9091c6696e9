"""Scripted replies as a client sees them: chunks, whole completions, usage, faults."""

import asyncio
from typing import Any

import httpx2
import pytest

from agentscope_rx.testing.fake_provider import (
    FakeProvider,
    ScriptedReply,
    failure,
    from_case,
    stream,
    text,
    tool_calls,
)
from tests.testing.client import STREAMED, ask, deltas, events, raw_client

USAGE = {"stream_options": {"include_usage": True}}


def shape(events: list[Any]) -> list[Any]:
    """Each event as its delta and finish reason, `[DONE]` as it is."""
    return [
        event if event == "[DONE]" else (event["choices"][0]["delta"], event["choices"][0]["finish_reason"])
        for event in events
    ]


async def test_text_streams_as_openai_does_it():
    """A text is an opening chunk with the role, its pieces, a finish reason and `[DONE]`."""
    async with FakeProvider([text("hello", deltas=2, finish="length")]) as provider:
        received = await events(provider)
    assert shape(received) == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "he"}, None),
        ({"content": "llo"}, None),
        ({}, "length"),
        "[DONE]",
    ]
    assert {event["model"] for event in received[:-1]} == {"m"}
    assert {event["object"] for event in received[:-1]} == {"chat.completion.chunk"}


async def test_reasoning_comes_before_the_text():
    """Reasoning is streamed first and stands beside the text of a whole completion."""
    async with FakeProvider([text("so", reasoning="hm"), text("so", reasoning="hm")]) as provider:
        assert (await deltas(provider))[1:3] == [{"reasoning_content": "hm"}, {"content": "so"}]
        message = (await ask(provider)).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "so", "reasoning_content": "hm"}


@pytest.mark.parametrize(
    ("whole", "pieces", "expected"),
    [
        ("abcdefg", 3, ["ab", "cd", "efg"]),
        ("ab", 5, ["a", "b"]),
        ("ab", None, ["ab"]),
        ("", None, []),
        ("abc", ["", "abc"], ["", "abc"]),
        ("héllo \U0001f600", 4, ["h", "él", "lo", " \U0001f600"]),
        ("\ud83d\ude00", 2, ["\ud83d", "\ude00"]),
    ],
)
async def test_text_is_cut_as_told(whole: str, pieces: Any, expected: list[str]):
    """A number cuts into pieces of nearly equal length, never empty ones; given pieces are sent as given."""
    async with FakeProvider([text(whole, deltas=pieces)]) as provider:
        received = await deltas(provider)
    assert [delta["content"] for delta in received[1:-1]] == expected


@pytest.mark.parametrize("pieces", [0, -1, ["a"], ["ab", "c"]])
def test_impossible_cuts_are_refused(pieces: Any):
    """Less than one piece, and pieces that do not make up the text, are errors of the test."""
    with pytest.raises(ValueError):
        text("ab", deltas=pieces)


async def test_tool_calls_stream_name_first_and_arguments_in_pieces():
    """Each call opens with id and name; the pieces of its arguments carry only its index."""
    script = tool_calls(("c1", "look", '{"p":1}'), ("c2", "add", "{}"), text="let me see", pieces=2)
    async with FakeProvider([script]) as provider:
        received = shape(await events(provider))
    calls = [delta["tool_calls"][0] for delta, _ in received[2:-2]]
    assert received[1] == ({"content": "let me see"}, None)
    assert calls[0] == {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": ""},
    }
    assert calls[1] == {"index": 0, "function": {"arguments": '{"p'}}
    assert [call["index"] for call in calls] == [0, 0, 0, 1, 1, 1]
    assert received[-2] == ({}, "tool_calls")


async def test_tool_calls_as_one_completion():
    """Without streaming the calls come whole, with a content of null when nothing is said."""
    async with FakeProvider([tool_calls(("c1", "look", "{}"))]) as provider:
        choice = (await ask(provider)).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }


@pytest.mark.parametrize(
    ("always", "options", "expected"), [(False, {}, 0), (False, USAGE, 1), (True, {}, 1), (True, USAGE, 1)]
)
async def test_usage_is_streamed_when_asked_for(always: bool, options: dict[str, Any], expected: int):
    """A chunk with usage and no choices comes last when the request or the provider's option asks for it."""
    async with FakeProvider([text("a", usage=(5, 2))], always_usage=always) as provider:
        received = await events(provider, **options)
    chunks = [event for event in received[:-1] if "usage" in event]
    assert len(chunks) == expected
    for chunk in chunks:
        assert chunk is received[-2]
        assert chunk["choices"] == []
        assert chunk["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


async def test_usage_is_estimated_when_not_given():
    """Usage that is not scripted grows with the size of the request and of the answer."""
    async with FakeProvider([text("a"), text("a" * 400)]) as provider:
        short, long = [(await ask(provider)).json()["usage"] for _ in range(2)]
        size = len(provider.requests[0].raw)
    assert short["prompt_tokens"] == -(-size // 4)
    assert long["completion_tokens"] - short["completion_tokens"] == pytest.approx(100, abs=1)


async def test_literal_stream_gets_no_usage_and_keeps_its_text():
    """A stream written item by item goes out to the letter: raw text, unusual chunks, no usage of ours."""
    items: list[dict[str, Any]] = [
        {"raw": ": ping\n\n"},
        {"raw": "data: \n\n"},
        {"id": "", "choices": []},
        {"d": {}, "f": "stop"},
    ]
    async with FakeProvider([stream(items, headers={"x-request-id": "r1"})], always_usage=True) as provider:
        response = await ask(provider, {**STREAMED, **USAGE})
    assert response.headers["x-request-id"] == "r1"
    assert response.text.startswith(': ping\n\ndata: \n\ndata: {"id":"","choices":[]}\n\ndata: {')
    assert response.text.endswith('"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')


async def test_cut_drops_the_connection_in_the_body():
    """`cut` ends the connection without the last chunk, after all that came before it."""
    script = stream([{"d": {"content": "half"}}, {"raw": 'data: {"id'}, {"cut": True}])
    async with FakeProvider([script, script]) as provider:
        with pytest.raises(httpx2.RemoteProtocolError):
            await ask(provider, STREAMED)
        async with raw_client(provider) as client:
            client.post()
            await client.read_head()
            assert (await client.read_chunk()).endswith(b'\n\ndata: {"id')
            assert await client.reader.read() == b""
    assert [request.finished for request in provider.requests] == [True, True]
    assert [request.client_left for request in provider.requests] == [False, False]


async def test_clean_cut_ends_the_body_without_done():
    """`{"cut": "clean"}` ends the body and not the connection, but without `[DONE]`."""
    script = stream([{"d": {"content": "half"}}, {"cut": "clean"}])
    async with FakeProvider([script, text("b")]) as provider, httpx2.AsyncClient() as client:
        url = f"{provider.base_url}/chat/completions"
        cut, after = [await client.post(url, json=STREAMED) for _ in range(2)]
        assert provider.open_connections == 1
    assert "[DONE]" not in cut.text
    assert '"half"' in cut.text
    assert "[DONE]" in after.text


async def test_empty_cut_sends_the_head_only():
    """A stream that is cut at once has been accepted with 200 and has no bytes."""
    async with FakeProvider([stream([{"cut": True}])]) as provider, raw_client(provider) as client:
        client.post()
        assert "200 OK" in await client.read_head()
        assert await client.reader.read() == b""


def test_nothing_may_follow_a_cut():
    """An item that could never be sent is an error of the test."""
    with pytest.raises(ValueError, match="nothing may follow"):
        stream([{"cut": True}, {"d": {}}])


async def test_stall_holds_back_what_follows():
    """What comes before a stall is sent at once; what comes after, when the time is over."""
    script = stream([{"d": {"content": "a"}}, {"stall": 0.001}, {"d": {"content": "b"}}])
    async with FakeProvider([script]) as provider, raw_client(provider) as client:
        client.post()
        await client.read_head()
        chunks = await client.read_chunks()
    assert [b'"a"' in chunk for chunk in chunks] == [True, False]
    assert chunks[1].endswith(b"data: [DONE]\n\n")


async def test_failure_is_sent_as_written():
    """Status, headers and body of a failure arrive as scripted, an object as JSON and a text as text."""
    script = [
        failure(503, {"error": {"message": "busy"}}, headers={"retry-after": "1"}),
        failure(502, "<html>bad gateway</html>", headers={"content-type": "text/html"}),
        failure(529, "Überlast"),
    ]
    async with FakeProvider(script) as provider:
        busy, gateway, overloaded = [await ask(provider, STREAMED) for _ in script]
    assert (busy.status_code, busy.headers["retry-after"], busy.json()) == (
        503,
        "1",
        {"error": {"message": "busy"}},
    )
    assert (gateway.text, gateway.headers["content-type"]) == ("<html>bad gateway</html>", "text/html")
    assert (overloaded.status_code, overloaded.text) == (529, "Überlast")


async def test_stream_only_reply_needs_a_streamed_request():
    """A stream written item by item has no form as one completion: the answer is an error that says so."""
    async with FakeProvider([stream([{"d": {}}])]) as provider:
        response = await ask(provider)
    assert response.status_code == 500
    assert "the scripted reply is a stream" in response.json()["error"]["message"]


CASES: list[tuple[dict[str, Any], ScriptedReply]] = [
    ({"text": "ok"}, text("ok")),
    ({"text": "ok", "kind": "any"}, text("ok")),
    ({"call": [["c1", "look", "{}"]]}, tool_calls(("c1", "look", "{}"))),
    ({"call": [["c1", "look", "{}"]], "text": "so"}, tool_calls(("c1", "look", "{}"), text="so")),
    ({"status": 400, "body": {"error": {}}}, failure(400, {"error": {}})),
    ({"status": 429, "headers": {"retry-after": "2"}}, failure(429, {}, {"retry-after": "2"})),
    ({"stream": [{"d": {}, "f": "stop"}]}, stream([{"d": {}, "f": "stop"}])),
]


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_replies_can_be_written_as_data(case: dict[str, Any], expected: ScriptedReply):
    """Each form of a reply as data gives the same value as its constructor."""
    assert expected == from_case(case)


def test_unknown_data_is_refused():
    """Data that is no reply is an error that names what it has."""
    with pytest.raises(ValueError, match="this one has \\['kind'\\]"):
        from_case({"kind": "x"})


async def test_pace_lets_the_client_see_each_delta():
    """With a pace the client reads a delta before the next one is due, and may leave in between."""
    async with FakeProvider([text("ab", deltas=2, pace=3600)]) as provider, raw_client(provider) as client:
        client.post()
        await client.read_head()
        assert b'"role":"assistant"' in await client.read_chunk()
        client.writer.close()
        request = await provider.client_gone(1)
    assert request.left_at is not None
    assert request.left_at <= asyncio.get_running_loop().time()
