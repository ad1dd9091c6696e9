"""Ways to ask a model, and servers that do what no provider in good order does."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import httpx2

from agentscope_rx.messages import Msg
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.requests import GenerateOptions, Model, ModelRequest
from agentscope_rx.testing.fake_provider import FakeProvider, ScriptedReply
from tests.models.answers import Answer

ModelClass: TypeAlias = type[HttpxChatModel] | type[OpenAIChatModel]
BOTH: tuple[ModelClass, ...] = (HttpxChatModel, OpenAIChatModel)


def question(**options: Any) -> ModelRequest:
    """A request of one message."""
    return ModelRequest(call_id="r1", tail=(Msg.user("q"),), options=GenerateOptions(**options))


async def ask(model: Model, **options: Any) -> Answer:
    """Ask, and put the whole answer together."""
    answer = Answer()
    async for chunk in model.stream(question(**options)):
        answer.add(chunk)
    return answer


@asynccontextmanager
async def served(
    model_class: ModelClass, *replies: ScriptedReply, **options: Any
) -> AsyncGenerator[tuple[HttpxChatModel | OpenAIChatModel, FakeProvider]]:
    """A model before a provider that answers with these replies."""
    async with FakeProvider(replies) as provider:
        given: dict[str, Any] = {"api_key": "test-key", **options}
        yield model_class("m", base_url=provider.base_url, **given), provider


class Pieces(httpx2.AsyncByteStream):
    """A body in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def answering(handler: Callable[[httpx2.Request], httpx2.Response]) -> httpx2.AsyncClient:
    """A client whose requests are answered by a function, without any connection."""
    return httpx2.AsyncClient(transport=httpx2.MockTransport(handler))


def stream_of(*pieces: bytes, **headers: str) -> httpx2.Response:
    """An answer of status 200 in pieces."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(200, headers={"content-type": "text/event-stream", **named}, stream=Pieces(*pieces))


HELLO = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WHOLE = json.dumps({"choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}]}).encode()
ZIPPED = gzip.compress(HELLO)


class Watched:
    """A server that answers each request with `HELLO`, keeps connections open, and tells when clients end them.

    Attributes:
        base_url: Its address.
        ended: For each connection in order of arrival, set when the client has closed it.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        self.ended: list[threading.Event] = []
        self._listening = listening

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            ended = threading.Event()
            self.ended.append(ended)
            threading.Thread(target=self._answer, args=(connection, ended), daemon=True).start()

    def _answer(self, connection: socket.socket, ended: threading.Event) -> None:
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(HELLO), HELLO)
        with connection:
            pending = b""
            while received := connection.recv(65_536):
                pending += received
                if pending.endswith(b"}"):
                    pending = b""
                    connection.sendall(answer)
        ended.set()


@contextmanager
def watched_server() -> Generator[Watched]:
    """Run such a server on threads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Watched(listening)
        accepting = threading.Thread(target=server.serve)
        accepting.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
