"""A Chat Completions model without any provider's SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, Final

from agentscope_rx.__about__ import __version__
from agentscope_rx.errors import MissingExtra
from agentscope_rx.models.chat_model import BASE_HEADERS, ChatModel, Clients, checked_headers, transport_errors
from agentscope_rx.models.clients import http_module, tls_context
from agentscope_rx.models.failures import response_failure
from agentscope_rx.models.providers import Provider, find_endpoint
from agentscope_rx.requests import ModelRequest

#: As many connections as there are requests, each kept for so many seconds.
_KEPT_SECONDS: Final = 30.0


class HttpxChatModel(ChatModel):
    """A model behind an OpenAI-compatible endpoint, asked over httpx2 (or httpx, where httpx2 is missing).

    Each event loop gets a client of its own on first use, which is closed with the loop. Two models are equal
    only if they are the same.

    Args:
        name: The model's name, as the provider knows it.
        base_url: The endpoint's address, up to what comes before `/chat/completions`; None = the provider's.
        api_key: The key; None = from the provider's environment variable.
        provider: The provider or its name; None = the one that `base_url` belongs to, `openai` without one.
            Give it for an address of your own in front of a known provider.
        context_window: How many tokens a request and its answer may have together; None = not known.
        max_output_tokens: How many tokens an answer may have; None = not known.
        http_client: An `AsyncClient` of httpx2 or httpx to use on every loop; it stays yours to close.
        headers: Further headers of every request; they win over the ones set here.

    Raises:
        MissingApiKey: The provider needs a key and there is none.
        UnknownProvider: No provider has this name.
        InvalidOption: Another argument is not usable.
        MissingExtra: Neither httpx2 nor httpx is installed.

    Examples:
        >>> HttpxChatModel("qwen3:8b", provider="ollama")
        HttpxChatModel('qwen3:8b', provider='ollama', base_url='http://127.0.0.1:11434/v1')
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
        http_client: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        endpoint = find_endpoint(provider, base_url, api_key)
        clients = Clients(make=_new_client, close=_close_client, given=http_client)
        super().__init__(name, endpoint, clients, context_window=context_window, max_output_tokens=max_output_tokens)
        self._own_headers = {
            **BASE_HEADERS,
            "accept": "text/event-stream, application/json",
            "user-agent": f"agentscope-rx/{__version__}",
            **({"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}),
            **checked_headers("headers", headers or {}),
        }
        self._url = f"{endpoint.base_url}/chat/completions"
        if http_client is None and not any(map(find_spec, ("httpx2", "httpx"))):
            raise MissingExtra(type(self).__name__, "httpx")

    def _sent_always(self) -> Mapping[str, str]:
        return self._own_headers

    @asynccontextmanager
    async def _sent(self, client: Any, request: ModelRequest, body: bytes) -> AsyncGenerator[Any]:
        sent = client.build_request(
            "POST",
            self._url,
            content=body,
            headers=self._own_headers | self._headers(request),
            params=dict(request.options.additional_query) or None,
            # Connecting, reading, writing, waiting for the pool: how long an answer may take is the caller's rule.
            timeout=(request.connect_timeout, None, None, None),
        )
        try:
            response = await client.send(sent, stream=True, follow_redirects=True)
        except transport_errors() as error:
            raise self._unreachable(error, request) from error
        try:
            if not response.is_success:
                try:
                    content = await response.aread()
                except transport_errors():
                    content = b""  # the status says enough
                raise response_failure(response.status_code, response.headers, content, hide=self._secrets(request))
            yield response
        finally:
            await response.aclose()


def _new_client() -> Any:
    module = http_module()
    limits = module.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEPT_SECONDS)
    return module.AsyncClient(limits=limits, verify=tls_context())


async def _close_client(client: Any) -> None:
    await client.aclose()
