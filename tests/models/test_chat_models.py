"""Both model classes over a real connection: what an answer is, how it fails, how it is given up."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from agentscope_rx.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    InvalidOption,
    OutputCap,
    PayloadTooLarge,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    ServerFailed,
    StreamFailed,
    StreamIncomplete,
)
from agentscope_rx.models import chat_model
from agentscope_rx.requests import Model
from agentscope_rx.testing.fake_provider import failure, stream, text, tool_calls
from agentscope_rx.usage import ChatUsage
from tests.models.answers import Answer
from tests.models.asking import BOTH, ModelClass, ask, question, served

pytestmark = pytest.mark.parametrize("model_class", BOTH)

PART = {"d": {"content": "half an ans"}}
CALL = {"index": 0, "id": "w1", "type": "function", "function": {"name": "rm", "arguments": '{"path":"a"}'}}


async def test_text_thinking_and_usage(model_class: ModelClass) -> None:
    """An answer comes piece by piece, and its usage with it."""
    async with served(model_class, text("hello there", deltas=["hello ", "there"], reasoning="hm", usage=(5, 2))) as (
        model,
        provider,
    ):
        answer = await ask(model)
    assert (answer.texts, answer.thinking, answer.finish_reason) == (["hello ", "there"], "hm", "stop")
    assert answer.usage == ChatUsage(input_tokens=5, output_tokens=2)
    assert provider.requests[0].body == {
        "messages": [{"role": "user", "content": "q"}],
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_tool_calls(model_class: ModelClass) -> None:
    """Calls in pieces are put together again."""
    wanted = ("c1", "look", '{"p": "ü🍸"}'), ("c2", "look", "{}")
    async with served(model_class, tool_calls(*wanted, pieces=5, text="I look")) as (model, _):
        answer = await ask(model)
    assert (answer.text, answer.triples(), answer.finish_reason) == ("I look", list(wanted), "tool_calls")


async def test_pieces_come_before_the_answer_ends(model_class: ModelClass) -> None:
    """A piece is there as soon as it has arrived, while the rest is still to come."""
    async with served(model_class, stream([PART, {"stall": True}])) as (model, provider):
        answer = model.stream(question())
        assert (await anext(answer)).text == "half an ans"
        assert not provider.requests[0].finished
        await answer.aclose()


FAILED: list[tuple[Any, type[ProviderError], str]] = [
    (failure(429, {"error": {"message": "slow down", "code": "rate_limit"}}), RateLimited, "slow down"),
    (failure(400, {"error": {"message": "long", "code": "context_length_exceeded"}}), ContextOverflow, "long"),
    (failure(413, "<html><h1>413 Too Large</h1></html>"), PayloadTooLarge, "413 Too Large"),
    (failure(400, {"error": {"message": "max_tokens is too large: 9"}}), OutputCap, "too large: 9"),
    (failure(401, {"error": {"message": "bad key"}}), AuthenticationFailed, "bad key"),
    (failure(500, ""), ServerFailed, "Internal Server Error"),
    (failure(404, {"error": {"message": "no such model"}}), BadRequest, "no such model"),
    (failure(200, {"error": {"message": "oops"}}), StreamFailed, "oops"),
    (failure(200, "<html>login</html>", {"content-type": "text/html"}), BadRequest, "web page"),
    (stream([PART, {"error": {"message": "Upstream overloaded", "code": 502}}]), StreamFailed, "overloaded"),
    (stream([PART, {"raw": "event: error\ndata: it broke\n\n"}]), StreamFailed, "it broke"),
    (stream([{"raw": "data: {nonsense\n\n"}]), StreamFailed, "nonsense"),
]


@pytest.mark.parametrize(("reply", "kind", "said"), FAILED)
async def test_failures(model_class: ModelClass, reply: Any, kind: type[ProviderError], said: str) -> None:
    """What the provider reports is raised as what it is, with its words; it is asked once only."""
    async with served(model_class, reply, text("never")) as (model, provider):
        with pytest.raises(kind, match=said):
            await ask(model)
        assert len(provider.requests) == 1


async def test_facts_of_a_failure(model_class: ModelClass) -> None:
    """Status, code and the time to wait are on the error."""
    reply = failure(429, {"error": {"message": "slow", "code": "rate_limit"}}, {"retry-after": "7"})
    async with served(model_class, reply) as (model, _):
        with pytest.raises(RateLimited) as caught:
            await ask(model)
    error = caught.value
    assert (error.status, error.provider_code, error.retry_after) == (429, "rate_limit", 7.0)


async def test_key_is_not_in_an_error(model_class: ModelClass) -> None:
    """A key that the provider repeats is neither in the error nor in the errors behind it."""
    async with served(model_class, failure(401, {"error": {"message": "wrong key: test-key"}})) as (model, _):
        with pytest.raises(AuthenticationFailed) as caught:
            await ask(model)
    chain: list[BaseException | None] = [caught.value, caught.value.__cause__]
    assert "test-key" not in "".join(str(error) for error in chain)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("cut", [True, "clean"])
@pytest.mark.parametrize(
    "items",
    [
        [],
        [PART],
        [{"d": {"tool_calls": [CALL]}}],
        [PART, {"raw": 'data: {"id":"c","obj'}],
        [{"raw": ": ping\n\n"}],
    ],
)
async def test_answer_that_ends_in_its_middle(model_class: ModelClass, items: list[Any], cut: object) -> None:
    """An answer that stops is incomplete, whether the connection breaks or ends in good order."""
    async with served(model_class, stream([*items, {"cut": cut}])) as (model, _):
        with pytest.raises(StreamIncomplete):
            await ask(model)


@pytest.mark.parametrize("cut", [True, "clean"])
async def test_break_after_the_end_does_no_harm(model_class: ModelClass, cut: object) -> None:
    """Once the model has said why it stopped, the answer is complete."""
    async with served(model_class, stream([PART, {"d": {}, "f": "stop"}, {"cut": cut}])) as (model, _):
        assert (await ask(model)).text == "half an ans"


async def test_answer_without_its_last_blank_line(model_class: ModelClass) -> None:
    """The last event counts although its blank line is missing."""
    last = {"raw": 'data: {"choices":[{"delta":{"content":"!"},"finish_reason":"stop"}]}'}
    async with served(model_class, stream([PART, last, {"cut": "clean"}])) as (model, _):
        assert (await ask(model)).text == "half an ans!"


async def test_no_server(model_class: ModelClass) -> None:
    """Where nothing listens, the error names the address and chains what the client said."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = model_class("m", base_url=f"http://user:hush@127.0.0.1:{port}/v1", api_key="k")
    with pytest.raises(ProviderUnreachable, match=f"no connection to http://127.0.0.1:{port}/v1") as caught:
        await ask(model)
    assert caught.value.__cause__ is not None
    assert "hush" not in str(caught.value)


async def test_connection_that_breaks_before_the_answer(model_class: ModelClass) -> None:
    """A connection that is closed without an answer is unreachable, not incomplete."""

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ProviderUnreachable, match="broke"):
            await ask(model_class("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="k"))


async def test_closing_reaches_the_server(model_class: ModelClass) -> None:
    """Closing the generator closes the connection at once, and the model goes on working."""
    async with served(model_class, stream([PART, {"stall": True}]), text("next")) as (model, provider):
        answer = model.stream(question())
        await anext(answer)
        await answer.aclose()
        assert (await provider.client_gone(1)).client_left
        assert (await ask(model)).text == "next"


@pytest.mark.parametrize("items", [[{"stall": True}], [PART, {"stall": True}]])
async def test_cancelling_reaches_the_server(model_class: ModelClass, items: list[Any]) -> None:
    """A task that is cancelled, before the answer or in it, closes the connection at once."""
    async with served(model_class, stream(items), text("next")) as (model, provider):
        task = asyncio.create_task(ask(model))
        await provider.wait_for_requests(1)
        task.cancel()
        assert (await provider.client_gone(1)).client_left
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(model)).text == "next"


async def test_connection_is_used_again(model_class: ModelClass) -> None:
    """Answers and refusals leave the connection fit for the next request."""
    async with served(model_class, text("a"), failure(429, {}), text("b")) as (model, provider):
        await ask(model)
        with pytest.raises(RateLimited):
            await ask(model)
        await ask(model)
        assert [request.connection for request in provider.requests] == [1, 1, 1]


async def test_server_that_does_not_end_after_done(model_class: ModelClass, monkeypatch: pytest.MonkeyPatch) -> None:
    """After [DONE] the answer is complete, although the server keeps the connection open."""
    monkeypatch.setattr(chat_model, "_PATIENCE_AFTER_DONE", 0.01)
    async with served(model_class, stream([PART, {"raw": "data: [DONE]\n\n"}, {"stall": True}])) as (model, provider):
        async with asyncio.timeout(5):
            assert (await ask(model)).text == "half an ans"
        assert (await provider.client_gone(1)).client_left


async def test_many_at_once(model_class: ModelClass) -> None:
    """Requests at the same time do not wait for one another's connection."""
    replies = [text(f"answer {number}", deltas=4) for number in range(30)]
    async with served(model_class, *replies) as (model, _):
        answers: list[Answer] = await asyncio.gather(*(ask(model) for _ in replies))
    assert sorted(answer.text for answer in answers) == sorted(f"answer {number}" for number in range(30))


async def test_headers(model_class: ModelClass) -> None:
    """The key goes out as a header; additional headers win, whatever their case."""
    extra = {"X-Tenant": "t1", "Accept-Encoding": "gzip"}
    async with served(model_class, text("a"), text("b")) as (model, provider):
        await ask(model)
        await ask(model, additional_headers={**extra, "AUTHORIZATION": "Other o"})
    first, second = (request.headers for request in provider.requests)
    assert first["authorization"] == "Bearer test-key"
    assert first["content-type"] == "application/json"
    assert first["accept-encoding"] == "identity"
    assert (second["x-tenant"], second["accept-encoding"], second["authorization"]) == ("t1", "gzip", "Other o")


async def test_no_key_no_header(model_class: ModelClass, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key no authorization is sent."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with served(model_class, text("a"), api_key=None) as (model, provider):
        await ask(model)
    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize("headers", [{"X-A": "a\nb"}, {"x a": "b"}, {"": "b"}, {"x": "🍸"}])
async def test_unusable_header_is_not_sent_and_not_shown(model_class: ModelClass, headers: dict[str, str]) -> None:
    """A header that HTTP does not allow is refused before anything is sent, without its value."""
    async with served(model_class) as (model, provider):
        with pytest.raises(InvalidOption, match="additional_headers") as caught:
            await ask(model, additional_headers=headers)
    assert provider.requests == []
    assert all(value not in str(caught.value) for value in headers.values() if len(value) > 1)


async def test_it_is_a_model(model_class: ModelClass) -> None:
    """Both classes are models for the type checker and for everybody else."""
    model: Model = model_class("m", base_url="http://127.0.0.1:1/v1", context_window=10)
    assert (model.name, model.context_window, model.max_output_tokens) == ("m", 10, None)
