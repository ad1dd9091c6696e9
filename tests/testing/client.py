"""Two clients for tests of the fake provider: one that speaks HTTP well, one that writes and reads bytes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from agentscope_rx.testing.fake_provider import FakeProvider

QUESTION: Final[Mapping[str, Any]] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAMED: Final[Mapping[str, Any]] = {**QUESTION, "stream": True}
PATH: Final = "/v1/chat/completions"


async def ask(provider: FakeProvider, body: Mapping[str, Any] = QUESTION) -> httpx2.Response:
    """Send one request over a connection of its own and read the whole answer."""
    async with httpx2.AsyncClient() as client:
        return await client.post(f"{provider.base_url}/chat/completions", json=body)


async def events(provider: FakeProvider, **options: Any) -> list[Any]:
    """Send one streamed request; returns the data of its events, decoded where they are JSON."""
    response = await ask(provider, {**STREAMED, **options})
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    return [line if line in {"", "[DONE]"} else json.loads(line) for line in lines]


async def deltas(provider: FakeProvider) -> list[dict[str, Any]]:
    """Send one streamed request; returns the delta of each chunk that has one."""
    return [event["choices"][0]["delta"] for event in await events(provider) if event != "[DONE]"]


class RawClient:
    """A connection on which a test decides about each byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def post(self, body: Mapping[str, Any] = STREAMED) -> None:
        """Write a request."""
        content = json.dumps(body).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)

    async def read_head(self) -> str:
        """Read the head of a response."""
        return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def read_chunk(self) -> bytes:
        """Read one chunk of a chunked body; empty at its end."""
        size = int(await self.reader.readuntil(b"\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def read_chunks(self) -> list[bytes]:
        """Read a chunked body to its end."""
        chunks: list[bytes] = []
        while chunk := await self.read_chunk():
            chunks.append(chunk)
        return chunks


@asynccontextmanager
async def raw_client(provider: FakeProvider) -> AsyncGenerator[RawClient]:
    """Open a connection to the provider; it is closed at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(provider.base_url).port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass  # the server was faster
