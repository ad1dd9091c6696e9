"""Clients that leave a fake provider, waiting for them, its end, and its form in a thread."""

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

import httpx2
import pytest

from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply, stream, text
from tests.testing.client import PATH, QUESTION, STREAMED, ask, deltas, raw_client

STALLED = stream([{"d": {"content": "a"}}, {"stall": True}])


@pytest.mark.parametrize("abruptly", [False, True])
async def test_client_that_leaves_is_noticed_while_stalled(abruptly: bool):
    """A client that closes or resets the connection during a stall is noticed without a further write."""
    async with FakeProvider([STALLED]) as provider, raw_client(provider) as client:
        client.post()
        await client.read_head()
        assert await client.read_chunk()
        if abruptly:
            client.writer.transport.abort()
        else:
            client.writer.close()
        request = await provider.client_gone(1)
        assert request is provider.requests[0]
        assert request.client_left
        assert not request.finished
        assert request.left_at is not None
        assert request.left_at >= request.received_at


async def test_client_that_leaves_is_noticed_before_the_first_byte():
    """`delay` holds back even the head of the answer, and leaving during it is noticed."""
    async with FakeProvider([text("late", delay=3600)]) as provider, raw_client(provider) as client:
        client.post()
        await provider.wait_for_requests(1)
        client.writer.write_eof()
        await provider.client_gone(1)
        assert await client.reader.read() == b""


async def test_client_that_stops_reading_and_leaves_is_noticed():
    """A client that leaves while the server cannot write any further is noticed too."""
    endless = text("x" * 20_000_000, deltas=200)
    async with FakeProvider([endless]) as provider, raw_client(provider) as client:
        client.post()
        await client.read_head()
        client.writer.close()
        assert (await provider.client_gone(1)).client_left


async def test_disposed_http_stream_is_a_client_that_leaves():
    """Closing a streamed response half-way closes its connection, and the provider knows."""
    async with FakeProvider([STALLED]) as provider, httpx2.AsyncClient() as client:
        url = f"{provider.base_url}/chat/completions"
        async with client.stream("POST", url, json=STREAMED) as response:
            async for _ in response.aiter_raw():
                break
        await provider.client_gone(1)
    assert provider.requests[0].client_left


async def test_waiting_for_a_client_that_stayed_fails():
    """`client_gone` raises instead of hanging when the reply was played to its end."""
    async with FakeProvider([text("all")]) as provider:
        await ask(provider)
        with pytest.raises(AssertionError, match="request 1 was answered to its end"):
            await provider.client_gone(1)


async def test_waiting_ends_when_the_provider_closes():
    """Whoever waits for a request or a client when the provider is closed gets an error, not a hang."""
    async with FakeProvider([STALLED]) as provider, raw_client(provider) as client:
        request = asyncio.create_task(provider.wait_for_requests(2))
        leaving = asyncio.create_task(provider.client_gone(1))
        client.post()
        await provider.wait_for_requests(1)
        await provider.aclose()
        with pytest.raises(RuntimeError, match="closed after 1 of 2 requests"):
            await request
        with pytest.raises(RuntimeError, match="closed before the client of request 1 left"):
            await leaving


async def test_cancelled_waiting_does_no_harm():
    """A test may give up waiting; the next change wakes the others."""
    async with FakeProvider([text("a")]) as provider:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await provider.wait_for_requests(1)
        waiting = asyncio.create_task(provider.wait_for_requests(1))
        await ask(provider)
        assert await waiting == provider.requests


async def test_closing_ends_every_connection_and_task():
    """Closing during a stall and with an idle connection leaves no task; nobody has left then."""
    before = asyncio.all_tasks()
    async with (
        FakeProvider([STALLED]) as provider,
        raw_client(provider) as idle,
        raw_client(provider) as client,
    ):
        client.post()
        await client.read_head()
        assert provider.open_connections == 2
        await provider.aclose()
        assert provider.open_connections == 0
        assert asyncio.all_tasks() == before
        assert await idle.reader.read() == b""
        with pytest.raises(asyncio.IncompleteReadError):
            await client.read_chunks()
    assert (provider.requests[0].finished, provider.requests[0].client_left) == (False, False)


def fail(request: RecordedRequest, number: int) -> ScriptedReply:
    raise LookupError(f"nothing for {number}")


def post_blocking(provider: FakeProvider, body: Any = QUESTION) -> Any:
    url = f"{provider.base_url}/chat/completions"
    with urllib.request.urlopen(url, data=json.dumps(body).encode()) as response:
        return json.load(response)


def test_thread_form_serves_blocking_clients():
    """In a thread the provider answers blocking clients and records as usual; it is joined at the end."""
    with FakeProvider.in_thread([text("hello")]) as provider:
        answer = post_blocking(provider)
        assert any(thread.name == "fake-provider" for thread in threading.enumerate())
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert provider.requests[0].finished
    assert not any(thread.name == "fake-provider" for thread in threading.enumerate())


def test_thread_form_can_be_waited_for_from_another_loop():
    """The waiting methods work from a loop that is not the provider's."""
    with FakeProvider.in_thread([STALLED]) as provider:
        address = ("127.0.0.1", httpx2.URL(provider.base_url).port or 0)
        with socket.create_connection(address) as client:
            content = json.dumps(STREAMED).encode()
            client.sendall(f"POST {PATH} HTTP/1.1\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
            assert len(asyncio.run(provider.wait_for_requests(1))) == 1
        assert asyncio.run(provider.client_gone(1)).client_left


def test_thread_form_raises_what_the_script_raised():
    """An error of the script leaves the thread and is raised where the provider is used."""
    with pytest.raises(LookupError, match="nothing"), FakeProvider.in_thread(fail) as provider:  # noqa: PT012
        with pytest.raises(urllib.error.HTTPError) as refused:
            post_blocking(provider)
        refused.value.close()


async def test_thread_form_serves_other_loops():
    """Its URL can be used from any loop."""
    with FakeProvider.in_thread([text("ab", deltas=2)]) as provider:
        assert [delta.get("content") for delta in await deltas(provider)] == ["", "a", "b", None]
