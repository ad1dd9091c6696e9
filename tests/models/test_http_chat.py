"""What only `HttpxChatModel` has, and what is best seen without a connection, for both classes."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from typing import Any

import httpx2
import pytest

from agentscope_rx.errors import InvalidOption, ProviderUnreachable, RateLimited, StreamIncomplete
from agentscope_rx.models import HttpxChatModel, clients
from agentscope_rx.requests import ModelRequest
from agentscope_rx.testing.fake_provider import text
from tests.models.asking import BOTH, HELLO, WHOLE, ZIPPED, ModelClass, answering, ask, question, served, stream_of

both = pytest.mark.parametrize("model_class", BOTH)


def over(model_class: ModelClass, client: Any, **options: Any) -> Any:
    return model_class("m", base_url="http://127.0.0.1:1/v1", api_key="k", http_client=client, **options)


@both
async def test_query_and_time_limits(model_class: ModelClass) -> None:
    """Additional parameters go into the URL; connecting is limited, and nothing else."""
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return stream_of(HELLO)

    async with answering(handler) as client:
        model = over(model_class, client)
        asked = question(additional_query={"api-version": "1 2"})
        chunks = [chunk async for chunk in model.stream(ModelRequest(**_fields(asked), connect_timeout=3.5))]
    assert "".join(chunk.text for chunk in chunks) == "hello"
    assert str(seen[0].url) in (
        "http://127.0.0.1:1/v1/chat/completions?api-version=1+2",
        "http://127.0.0.1:1/v1/chat/completions?api-version=1%202",
    )
    assert seen[0].extensions["timeout"] == {"connect": 3.5, "read": None, "write": None, "pool": None}


def _fields(request: ModelRequest) -> dict[str, Any]:
    return {"call_id": request.call_id, "tail": request.tail, "options": request.options}


@both
@pytest.mark.parametrize(
    "answer",
    [
        lambda: stream_of(HELLO),
        lambda: stream_of(*(HELLO[i : i + 1] for i in range(len(HELLO)))),
        lambda: stream_of(b"\n", b" \n", HELLO),
        lambda: stream_of(b"\xef\xbb\xbf" + HELLO, content_type="application/json"),
        lambda: stream_of(ZIPPED, content_encoding="gzip"),
        lambda: stream_of(ZIPPED[:9], ZIPPED[9:], content_encoding="gzip"),
        lambda: stream_of(WHOLE),
        lambda: stream_of(b"\n ", *(WHOLE[i : i + 7] for i in range(0, len(WHOLE), 7))),
        lambda: stream_of(b"\xef\xbb\xbf" + WHOLE, content_type="application/json"),
    ],
)
async def test_ways_to_send_an_answer(model_class: ModelClass, answer: Any) -> None:
    """A stream or one object, compressed or not, in any pieces and under any content type: it is the answer."""
    async with answering(lambda _: answer()) as client:
        assert (await ask(over(model_class, client))).text == "hello"


@both
async def test_object_that_is_cut_off_is_incomplete(model_class: ModelClass) -> None:
    """An answer as one object that breaks off is incomplete."""
    async with answering(lambda _: stream_of(WHOLE[:-5])) as client:
        with pytest.raises(StreamIncomplete):
            await ask(over(model_class, client))


@both
async def test_connect_timeout(model_class: ModelClass) -> None:
    """A connection that takes too long is an error that names the limit."""

    def handler(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("", request=request)

    async with answering(handler) as client:
        with pytest.raises(ProviderUnreachable, match="no connection to http://127.0.0.1:1/v1 within 10 s"):
            await ask(over(model_class, client))


@both
async def test_given_client_stays_open(model_class: ModelClass) -> None:
    """A client that was given is used and not closed."""
    async with answering(lambda _: stream_of(HELLO)) as client:
        await ask(over(model_class, client))
        await ask(over(model_class, client))
        assert not client.is_closed


async def test_error_body_that_breaks() -> None:
    """Where the text of a refusal cannot be read, its status is enough."""

    class Broken(httpx2.AsyncByteStream):
        async def __aiter__(self):  # pyright: ignore[reportUnknownParameterType]
            raise httpx2.ReadError("gone")
            yield b""

    async with answering(lambda _: httpx2.Response(429, stream=Broken())) as client:
        with pytest.raises(RateLimited):
            await ask(over(HttpxChatModel, client))


async def test_redirect_is_followed() -> None:
    """A provider that has moved is found, but not given the key at another host."""
    seen: list[tuple[str, str | None]] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.host, request.headers.get("authorization")))
        if request.url.host == "127.0.0.1":
            return httpx2.Response(307, headers={"location": "http://localhost:2/v1/chat/completions"})
        return stream_of(HELLO)

    async with answering(handler) as client:
        assert (await ask(over(HttpxChatModel, client))).text == "hello"
    assert seen == [("127.0.0.1", "Bearer k"), ("localhost", None)]


async def test_own_headers() -> None:
    """Headers of the model go with every request and win over ours; those of the request win over them."""
    own = {"Authorization": "Other o", "X-A": "1", "Content-Type": "application/json; charset=utf-8"}
    async with served(HttpxChatModel, text("a"), text("b"), headers=own) as (model, provider):
        await ask(model)
        await ask(model, additional_headers={"x-a": "2"})
    first, second = (request.headers for request in provider.requests)
    assert (first["authorization"], first["x-a"], second["x-a"]) == ("Other o", "1", "2")
    assert first["content-type"] == own["Content-Type"]
    assert first["user-agent"].startswith("agentscope-rx/")
    with pytest.raises(InvalidOption, match="headers"):
        HttpxChatModel("m", provider="ollama", headers={"a": "b\r\nc"})


async def test_over_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where httpx2 is missing, httpx does the same."""
    pytest.importorskip("httpx", reason="the extra httpx is not installed")
    find = clients.find_spec

    def without_httpx2(name: str) -> ModuleSpec | None:
        return None if name == "httpx2" else find(name)

    monkeypatch.setattr(clients, "find_spec", without_httpx2)
    async with served(HttpxChatModel, text("hello", deltas=3)) as (model, _):
        assert (await ask(model)).texts == ["h", "el", "lo"]
