"""What the two Chat Completions models have in common: from a request to chunks, over whichever client."""

from __future__ import annotations

import asyncio
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from agentscope_rx.errors import BadRequest, InvalidOption, ProviderUnreachable, StreamIncomplete
from agentscope_rx.frozen import frozen
from agentscope_rx.loop_local import LoopLocal
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.chat_chunks import ChatChunkParser
from agentscope_rx.models.clients import Pools
from agentscope_rx.models.providers import Endpoint, Provider, shown_url
from agentscope_rx.models.sse import SseEvent, SseParser
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.secret_names import NOT_SHOWN, secrets_of
from agentscope_rx.wire import from_json

#: Seconds that a server gets after [DONE] to end its answer, so that the connection can be used again.
_PATIENCE_AFTER_DONE: Final = 1.0
_BOM: Final = b"\xef\xbb\xbf"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


#: Uncompressed, so that each piece of an answer can be read when it arrives.
BASE_HEADERS: Final = {"content-type": "application/json", "accept-encoding": "identity"}


@frozen
class Clients:
    """Where the clients of a model come from; nothing here may know the model, which closes them when it goes.

    Args:
        make: Makes one.
        close: Closes one.
        given: The user's own, for every loop; None = there is none.
    """

    make: Callable[[], Any]
    close: Callable[[Any], Awaitable[object]]
    given: Any = None


class ChatModel(ABC):
    """A model behind a Chat Completions endpoint; how its bytes travel is up to the subclass.

    Args:
        name: The model's name, as the provider knows it.
        endpoint: Where it is.
        clients: What it is asked over.
        context_window: How many tokens a request and its answer may have together; None = not known.
        max_output_tokens: How many tokens an answer may have; None = not known.

    Raises:
        InvalidOption: The name is blank, or a number is below 1.
    """

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        clients: Clients,
        *,
        context_window: int | None,
        max_output_tokens: int | None,
    ) -> None:
        if not name.strip():
            raise InvalidOption("name", name, "it is the model's name, not blank")
        for option, value in (("context_window", context_window), ("max_output_tokens", max_output_tokens)):
            if value is not None and value < 1:
                raise InvalidOption(option, value, "it is a whole number of at least 1, or None")
        self._name = name.strip()
        self._endpoint = endpoint
        self._given = clients.given
        self._pools: LoopLocal[Pools[Any]] = LoopLocal(lambda: Pools(clients.make, clients.close), Pools[Any].close)
        self._context_window = context_window
        self._max_output_tokens = max_output_tokens

    @property
    def name(self) -> str:
        """The model's name, as the provider knows it."""
        return self._name

    @property
    def provider(self) -> Provider:
        """Who serves it."""
        return self._endpoint.provider

    @property
    def context_window(self) -> int | None:
        """How many tokens a request and its answer may have together; None = not known."""
        return self._context_window

    @property
    def max_output_tokens(self) -> int | None:
        """How many tokens an answer may have; None = not known."""
        return self._max_output_tokens

    @property
    def json_schema(self) -> bool:
        """Whether its provider holds it to a JSON schema."""
        return self.provider.json_schema

    def __repr__(self) -> str:
        url = shown_url(self._endpoint.base_url)
        return f"{type(self).__name__}({self._name!r}, provider={self.provider.name!r}, base_url={url!r})"

    def body(self, request: ModelRequest, /) -> bytes:
        """The bytes that `stream` sends for a request."""
        return encode(request, model=self._name, provider=self.provider)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelChunk]:
        """Ask the model, and give its answer piece by piece.

        Closing the generator closes the connection at once.

        Args:
            request: What to ask. Beside `connect_timeout` there is no limit of time here.

        Raises:
            ProviderUnreachable: There was no connection, or it broke before the answer began.
            StreamIncomplete: The answer ended in its middle.
            ProviderError: The provider refused the request or reported an error in its answer.
        """
        body = self.body(request)
        answer, parser = _Answer(), ChatChunkParser(request.call_id, hide=self._secrets(request))
        async with self._response(request, body) as response, aclosing(_bytes(response)) as incoming:
            try:
                async for data in incoming:
                    for event, payload in answer.feed(data):
                        for chunk in parser.feed(payload, event):
                            yield chunk
                    if parser.done:
                        break
            except transport_errors() as error:
                if not parser.done and parser.finish_reason is None:
                    raise StreamIncomplete(f"the connection broke in the middle of the answer: {error!r}") from error
            for event, payload in answer.rest():
                for chunk in parser.feed(payload, event):
                    yield chunk
            for chunk in parser.finish():
                yield chunk
            await _drain(incoming)

    @asynccontextmanager
    async def _response(self, request: ModelRequest, body: bytes) -> AsyncGenerator[Any]:
        """Send the body over the client that was given, or one of this loop's."""
        if self._given is not None:
            async with self._sent(self._given, request, body) as response:
                yield response
            return
        with (await self._pools.get()).client() as client:
            async with self._sent(client, request, body) as response:
                yield response

    @abstractmethod
    def _sent(self, client: Any, request: ModelRequest, body: bytes) -> AbstractAsyncContextManager[Any]:
        """Send the body; gives the response of status 2xx, whose end closes it."""

    def _secrets(self, request: ModelRequest) -> tuple[str, ...]:
        """What must not get into an error's message: providers and proxies repeat what they refuse."""
        options, address = request.options, urlsplit(self._endpoint.base_url)
        sent = (
            *secrets_of(self._sent_always()),
            *secrets_of(options.additional_headers),
            *secrets_of(options.additional_query),
            *secrets_of(dict(parse_qsl(address.query))),
        )
        return tuple(secret for secret in (self._endpoint.api_key, address.password, *sent) if secret)

    def _sent_always(self) -> Mapping[str, str]:
        """The headers of every request."""
        return {}

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        """The headers of this request alone, checked, with names in lower case."""
        return checked_headers("additional_headers", request.options.additional_headers)

    def _unreachable(self, error: BaseException, request: ModelRequest) -> ProviderUnreachable:
        where, kind = shown_url(self._endpoint.base_url), type(error).__name__
        if kind == "ConnectTimeout":
            return ProviderUnreachable(f"no connection to {where} within {request.connect_timeout:g} s")
        what = f"no connection to {where}" if kind == "ConnectError" else f"the connection to {where} broke"
        return ProviderUnreachable(f"{what}: {error or kind}")


class _Answer:
    """The bytes of an answer, as events: a stream of them, or one JSON object as if it were the data of one."""

    __slots__ = ("_events", "_is_stream", "_whole")

    def __init__(self) -> None:
        self._events = SseParser()
        self._is_stream: bool | None = None  # None: nothing but blanks has come
        self._whole: list[bytes] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        if self._is_stream:
            return self._events.feed(data)
        self._whole.append(data)
        if self._is_stream is None:
            data = b"".join(self._whole)
            # The content type is no guide: servers call a stream JSON, and JSON a stream. But no line of a
            # stream begins with a brace.
            start = data.removeprefix(_BOM).lstrip()[:1]
            self._is_stream = start not in b"{[<" if start else None
            if self._is_stream:
                return self._events.feed(data)
        return []

    def rest(self) -> list[SseEvent]:
        """What is left at the end; JSON that was cut off is left out, since the answer is not complete then."""
        if self._is_stream:
            return [(event, data) for event, data in self._events.flush() if event or _is_whole(data)]
        data = b"".join(self._whole).removeprefix(_BOM).strip()
        if data.startswith(b"<"):
            raise BadRequest(f"this address answers with a web page, not with a model: {data[:80]!r}")
        return [("", data)] if data and _is_whole(data) else []


def _is_whole(data: bytes) -> bool:
    if data.strip() == b"[DONE]":
        return True
    try:
        from_json(data)
    except (ValueError, RecursionError):
        return False
    return True


def _bytes(response: Any) -> AsyncGenerator[bytes]:
    """The body as it arrives; decoded only where a server compresses it although it was asked not to."""
    encoding = response.headers.get("content-encoding", "identity")
    return response.aiter_raw() if encoding == "identity" else response.aiter_bytes()


async def _drain(incoming: AsyncIterator[bytes]) -> None:
    """Wait shortly for the end of the body, without which the connection would be closed and not used again."""
    try:
        async with asyncio.timeout(_PATIENCE_AFTER_DONE):
            async for _ in incoming:
                pass
    except (TimeoutError, *transport_errors()):
        return  # the answer is complete; only the connection is lost


def checked_headers(option: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, with names in lower case.

    Args:
        option: Where they come from, for the error.
        headers: Names and values.

    Raises:
        InvalidOption: One is no valid header; its value is not shown, since it may be a secret.
    """
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidOption(option, {name: NOT_SHOWN}, "names and values are those that HTTP allows")
        checked[name.lower()] = value
    return checked


def transport_errors() -> tuple[type[Exception], ...]:
    """What the loaded HTTP clients raise when a connection cannot be made or breaks."""
    return (
        OSError,
        *_loaded("httpx2", "RequestError"),
        *_loaded("httpx", "RequestError"),
        *_loaded("anyio", "EndOfStream"),
    )


def _loaded(module: str, name: str) -> Iterator[type[Exception]]:
    found = getattr(sys.modules.get(module), name, None)
    if found is not None:
        yield found
