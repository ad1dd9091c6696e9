"""The fake provider as a server: connections, its script, strict mode, what it remembers."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from agentscope_rx.testing.fake_provider import (
    FakeProvider,
    RecordedRequest,
    ScriptedReply,
    failure,
    text,
)
from tests.testing.client import PATH, QUESTION, STREAMED, ask, raw_client


async def test_request_is_recorded_as_sent():
    """A request is remembered with its body, its bytes, its headers and the time of its arrival."""
    async with FakeProvider([text("hello")]) as provider:
        response = await ask(provider)
        (request,) = provider.requests
    assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert request.body == QUESTION
    assert json.loads(request.raw) == QUESTION
    assert request.messages == QUESTION["messages"]
    assert request.headers["content-type"] == "application/json"
    assert 0 < request.received_at <= asyncio.get_running_loop().time()
    assert (request.finished, request.client_left, request.left_at) == (True, False, None)


async def test_connection_is_used_again():
    """Two requests of one client come over one connection, after a stream as after a whole answer."""
    async with (
        FakeProvider([text("a"), text("b"), failure(429, {})]) as provider,
        httpx2.AsyncClient() as client,
    ):
        url = f"{provider.base_url}/chat/completions"
        answers = [await client.post(url, json=body) for body in (STREAMED, QUESTION, QUESTION)]
        assert provider.open_connections == 1
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [request.connection for request in provider.requests] == [1, 1, 1]


async def test_request_may_come_in_chunks_and_in_a_row():
    """A chunked request body is read, and a request that was sent ahead is answered after the first."""
    async with FakeProvider([text("a"), text("b")]) as provider, raw_client(provider) as client:
        content = json.dumps(QUESTION).encode()
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (content[:7], content[7:]))
        head = f"POST {PATH}?v=1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        client.writer.write(head + pieces + b"0\r\nchecksum: 1\r\n\r\n")
        client.post(QUESTION)
        await provider.wait_for_requests(2)
    assert [request.body for request in provider.requests] == [QUESTION, QUESTION]


@pytest.mark.parametrize(
    "head",
    ["nonsense", "GET / FTP/1", f"POST {PATH} HTTP/1.1\r\ncontent-length: -1", "GET / HTTP/1.1\r\nno colon"],
)
async def test_malformed_request_is_answered_with_400(head: str):
    """Bytes that are no HTTP request get a 400, and the connection is closed."""
    async with FakeProvider() as provider, raw_client(provider) as client:
        client.writer.write(f"{head}\r\n\r\n".encode())
        answer = await client.reader.read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert provider.requests == []


async def test_models_are_listed_and_other_paths_unknown():
    """`GET /models` gives a list; anything else but a completion is not found."""
    async with FakeProvider() as provider, httpx2.AsyncClient(base_url=provider.base_url) as client:
        models = (await client.get("/models")).json()
        unknown = await client.get("/embeddings")
    assert [model["id"] for model in models["data"]] == ["fake-model"]
    assert unknown.status_code == 404
    assert provider.requests == []


async def test_script_end_is_an_error_that_says_so():
    """A request beyond the script gets a 500 that names the length of the script, and is remembered."""
    async with FakeProvider([text("one")]) as provider:
        await ask(provider)
        assert not provider.script_ended
        response = await ask(provider)
    assert response.status_code == 500
    assert "ended after 1 replies" in response.json()["error"]["message"]
    assert provider.script_ended


async def test_script_may_be_a_function():
    """A function makes the reply from the request and its number, as often as it is asked."""

    def echo(request: RecordedRequest, number: int) -> ScriptedReply:
        return text(f"{number}: {request.messages[-1]['content']}")

    async with FakeProvider(echo) as provider:
        answers = [(await ask(provider)).json()["choices"][0]["message"]["content"] for _ in range(3)]
    assert answers == ["1: hi", "2: hi", "3: hi"]


def fail(request: RecordedRequest, number: int) -> ScriptedReply:
    raise LookupError(f"nothing for {number}")


async def test_error_of_a_script_is_raised_at_the_end():
    """What a script raises is answered with 500 and raised when the provider is closed, never lost."""
    provider = FakeProvider(fail)
    await provider.start()
    assert (await ask(provider)).status_code == 500
    with pytest.raises(LookupError, match="nothing for 1"):
        await provider.aclose()
    await provider.aclose()

    with pytest.raises(ExceptionGroup) as group:  # noqa: PT012  # the error comes out of `async with`
        async with FakeProvider(fail) as provider:
            await ask(provider)
            await ask(provider)
    assert [str(error) for error in group.value.exceptions] == ["nothing for 1", "nothing for 2"]


async def test_error_of_a_script_does_not_hide_another():
    """When the test itself fails, its own error is raised and the one of the script is noted on it."""
    with pytest.raises(KeyError) as caught:  # noqa: PT012  # as above
        async with FakeProvider(fail) as provider:
            await ask(provider)
            raise KeyError("mine")
    assert "LookupError('nothing for 1')" in caught.value.__notes__[0]


async def test_refused_request_uses_up_no_reply():
    """Strict mode answers 400 in the provider's error shape, records why, and keeps the reply for later."""
    async with FakeProvider([text("kept")]) as provider:
        refused = await ask(provider, {"messages": []})
        accepted = await ask(provider)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["message"]) == ("invalid_request_error", "messages must be a non-empty list")
    assert provider.refusals == ["messages must be a non-empty list"]
    assert [request.refused for request in provider.requests] == [("messages must be a non-empty list",), ()]
    assert accepted.json()["choices"][0]["message"]["content"] == "kept"


async def test_lenient_provider_refuses_only_what_is_no_json():
    """Without strict mode a broken conversation passes; bytes that are no JSON object never do."""
    async with FakeProvider([text("fine")], strict=False) as provider, httpx2.AsyncClient() as client:
        accepted = await ask(provider, {"messages": []})
        refused = await client.post(f"{provider.base_url}/chat/completions", content=b"[1]")
    assert accepted.status_code == 200
    assert refused.status_code == 400
    assert provider.requests[1].body == {}
    assert "a JSON object was expected" in provider.refusals[0]


async def test_unpaced_stream_goes_out_in_few_chunks():
    """2,000 deltas without a pace are a handful of chunks on the wire; with one, each event is its own."""
    script = [text("x" * 2000, deltas=2000), text("abc", deltas=3, pace=1e-6)]
    async with FakeProvider(script) as provider, raw_client(provider) as client:
        counts: list[tuple[int, int]] = []
        for _ in script:
            client.post()
            await client.read_head()
            chunks = await client.read_chunks()
            counts.append((len(chunks), b"".join(chunks).count(b"data: ")))
    assert counts[0][0] < 10
    assert counts[0][1] == 2000 + 3
    assert counts[1] == (5, 3 + 3)


async def test_no_url_before_the_start_and_no_port_twice():
    """The URL is known once the server listens, and a taken port is an error."""
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = FakeProvider().base_url
    async with FakeProvider() as provider:
        taken = httpx2.URL(provider.base_url).port or 0
        with pytest.raises(OSError, match="address already in use"):
            await FakeProvider(port=taken).start()
        with pytest.raises(OSError, match="address already in use"), FakeProvider.in_thread(port=taken):
            pass


async def test_request_with_a_generator_body():
    """A client may send its body without knowing its length."""

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(QUESTION).encode()

    async with FakeProvider([text("ok")]) as provider, httpx2.AsyncClient() as client:
        response = await client.post(f"{provider.base_url}/chat/completions", content=body())
    assert response.status_code == 200
    assert provider.requests[0].body == QUESTION
