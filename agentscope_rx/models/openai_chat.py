"""A Chat Completions model over the openai SDK: its keys, addresses and errors, but our own reading."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from agentscope_rx.errors import BadRequest, MissingExtra, ProviderError
from agentscope_rx.models.chat_model import BASE_HEADERS, ChatModel, Clients
from agentscope_rx.models.clients import tls_context
from agentscope_rx.models.failures import response_failure
from agentscope_rx.models.providers import Endpoint, Provider, find_endpoint
from agentscope_rx.requests import ModelRequest

#: Makes the SDK hand over the response as it is; its own reading costs more than all the rest of a chunk.
_RAW: Final = {"X-Stainless-Raw-Response": "stream"}


class OpenAIChatModel(ChatModel):
    """A model behind an OpenAI-compatible endpoint, asked over the openai SDK.

    The SDK is loaded at the first request. Its retries are off: retrying is the agent's affair. Each event loop
    gets a client of its own on first use, which is closed with the loop. Two models are equal only if they are
    the same.

    Args:
        name: The model's name, as the provider knows it.
        base_url: The endpoint's address, up to what comes before `/chat/completions`; None = the provider's.
        api_key: The key; None = from the provider's environment variable.
        provider: The provider or its name; None = the one that `base_url` belongs to, `openai` without one.
            Give it for an address of your own in front of a known provider.
        context_window: How many tokens a request and its answer may have together; None = not known.
        max_output_tokens: How many tokens an answer may have; None = not known.
        client: An `AsyncOpenAI` to use on every loop, with its own address and key; it stays yours to close.
        http_client: An `AsyncClient` of httpx2 or httpx for the SDK to use on every loop; it stays yours to close.

    Raises:
        MissingApiKey: The provider needs a key and there is none.
        UnknownProvider: No provider has this name.
        InvalidOption: Another argument is not usable.
        MissingExtra: The openai package is not installed.

    Examples:
        >>> OpenAIChatModel("gpt-5-mini", api_key="not-a-real-one")
        OpenAIChatModel('gpt-5-mini', provider='openai', base_url='https://api.openai.com/v1')
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: Provider | str | None = None,
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        client: Any = None,
        http_client: Any = None,
    ) -> None:
        if client is None and "openai" not in sys.modules and find_spec("openai") is None:
            raise MissingExtra(type(self).__name__, "openai")
        if client is not None:
            base_url, api_key = str(client.base_url), client.api_key or ""
        endpoint = find_endpoint(provider, base_url, api_key)

        def make() -> Any:
            return _new_client(endpoint, http_client)

        async def close(made: Any) -> None:
            if http_client is None:
                await made.close()

        clients = Clients(make=make, close=close, given=client)
        super().__init__(name, endpoint, clients, context_window=context_window, max_output_tokens=max_output_tokens)

    def _sent_always(self) -> Mapping[str, str]:
        if self._given is None:
            return {}
        return {name: value for name, value in self._given.default_headers.items() if isinstance(value, str)}

    @asynccontextmanager
    async def _sent(self, client: Any, request: ModelRequest, body: bytes) -> AsyncGenerator[Any]:
        import openai

        try:
            raw = await client.post(
                "/chat/completions",
                content=body,
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options=self._options(request),
            )
        except openai.OpenAIError as error:
            failure = self._failure(error, request)
            # The chained error shows what the provider said, so it is left out where that repeats the key.
            leaks = any(secret in str(error) for secret in self._secrets(request))
            raise failure from (None if leaks else error)
        try:
            yield raw.http_response
        finally:
            await raw.close()

    def _options(self, request: ModelRequest) -> Any:
        from httpx2 import Timeout
        from openai import Omit

        headers: dict[str, Any] = {**_RAW, **BASE_HEADERS, **self._headers(request)}
        if self._given is None and self._endpoint.api_key is None:
            headers.setdefault("authorization", Omit())
        options: dict[str, Any] = {
            "headers": headers,
            "max_retries": 0,
            # How long an answer may take is the caller's rule; only connecting is limited here.
            "timeout": Timeout(None, connect=request.connect_timeout),
        }
        if request.options.additional_query:
            options["params"] = dict(request.options.additional_query)
        return options

    def _failure(self, error: Exception, request: ModelRequest) -> ProviderError:
        import openai

        if isinstance(error, openai.APIStatusError):
            response = error.response
            return response_failure(
                response.status_code, response.headers, _content(response), hide=self._secrets(request)
            )
        if isinstance(error, openai.APIConnectionError):
            return self._unreachable(error.__cause__ or error, request)
        return BadRequest(f"the openai SDK could not send the request: {error}")


def _new_client(endpoint: Endpoint, http_client: Any) -> Any:
    openai: Any = import_module("openai")
    return openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        # The SDK insists on a key; where there is none, its header is left out of each request.
        api_key=endpoint.api_key or "none",
        max_retries=0,
        http_client=http_client or openai.DefaultAsyncHttpxClient(verify=tls_context()),
    )


def _content(response: Any) -> bytes:
    try:
        return response.content
    except RuntimeError:
        return b""  # it was never read: the status says enough
