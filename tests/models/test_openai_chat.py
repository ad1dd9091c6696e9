"""What only `OpenAIChatModel` has: the SDK's client, its errors, its loading."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from agentscope_rx.errors import BadRequest, ContextOverflow, ProviderUnreachable
from agentscope_rx.models import OpenAIChatModel
from agentscope_rx.testing.fake_provider import FakeProvider, failure, text
from tests.models.asking import HELLO, answering, ask, served, stream_of

ROOT = Path(__file__).resolve().parents[2]


async def test_errors_of_the_sdk_are_chained() -> None:
    """Behind our error is the SDK's, for those who look for it."""
    reply = failure(400, {"error": {"message": "long", "code": "context_length_exceeded"}})
    async with served(OpenAIChatModel, reply) as (model, _):
        with pytest.raises(ContextOverflow) as caught:
            await ask(model)
    cause = caught.value.__cause__
    assert isinstance(cause, openai.BadRequestError)
    assert cause.code == "context_length_exceeded"


async def test_lost_connection_is_chained() -> None:
    """A connection that cannot be made has the SDK's error behind it, and behind that the client's."""
    with pytest.raises(ProviderUnreachable) as caught:
        await ask(OpenAIChatModel("m", base_url="http://127.0.0.1:1/v1", api_key="k"))
    assert isinstance(caught.value.__cause__, openai.APIConnectionError)


async def test_given_client() -> None:
    """A client of the SDK is used with its address and key, is not retried, and stays open."""
    async with FakeProvider([text("a"), failure(500, "")]) as provider:
        client = openai.AsyncOpenAI(base_url=provider.base_url, api_key="own-key", max_retries=5)
        async with client:
            model = OpenAIChatModel("m", client=client)
            assert repr(model) == f"OpenAIChatModel('m', provider='compatible', base_url='{provider.base_url}')"
            assert (await ask(model)).text == "a"
            with pytest.raises(Exception, match="HTTP 500"):
                await ask(model)
            assert not client.is_closed()
    assert len(provider.requests) == 2
    assert provider.requests[0].headers["authorization"] == "Bearer own-key"


async def test_other_errors_of_the_sdk() -> None:
    """What the SDK refuses to send is a bad request, with its reason."""

    async def no_key() -> str:
        raise openai.OpenAIError("the vault is closed")

    async with answering(lambda _: stream_of(HELLO)) as http_client:
        client = openai.AsyncOpenAI(api_key=no_key, http_client=http_client)
        with pytest.raises(BadRequest, match="the vault is closed"):
            await ask(OpenAIChatModel("m", client=client))


async def test_key_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the SDK nor the HTTP client logs the key, at any level."""
    caplog.set_level(logging.DEBUG)
    async with served(OpenAIChatModel, text("a"), api_key="sk-hush-hush-hush") as (model, _):
        await ask(model)
    assert caplog.records
    assert "hush" not in caplog.text


def test_sdk_is_loaded_at_the_first_request() -> None:
    """Making a model does not load the SDK, which takes half a second."""
    code = (
        "import sys; from agentscope_rx.models import OpenAIChatModel; OpenAIChatModel('m', provider='ollama');"
        "sys.exit('openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
