"""Just enough HTTP/1.1 for a test server, which has to notice at once when a client leaves."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

__all__ = [
    "LAST_CHUNK",
    "HttpRequest",
    "MalformedRequest",
    "WatchedReader",
    "chunk",
    "head",
    "read_request",
    "whole",
]

LAST_CHUNK: Final = b"0\r\n\r\n"
_HEAD_LIMIT: Final = 256 * 1024


class MalformedRequest(ValueError):
    """The bytes that came in are not an HTTP/1.1 request."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as it came in.

    Attributes:
        method: `GET`, `POST`, and so on.
        path: The path, without the query.
        headers: By name in lower case.
        body: The bytes of the body.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client means to use the connection again."""
        return self.headers.get("connection", "").lower() != "close"


class WatchedReader(asyncio.StreamReader):
    """A stream reader that tells when the other side leaves, without reading what it sent before.

    Attributes:
        gone: Resolves with the loop time at which the connection was closed or lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make a reader for a connection of this loop."""
        super().__init__(limit=_HEAD_LIMIT, loop=loop)
        self.gone: asyncio.Future[float] = loop.create_future()

    def feed_eof(self) -> None:
        """Take note of the end of the input."""
        super().feed_eof()
        self._note()

    def set_exception(self, exc: Exception) -> None:
        """Take note of a lost connection."""
        super().set_exception(exc)
        self._note()

    def _note(self) -> None:
        if not self.gone.done():
            self.gone.set_result(self.gone.get_loop().time())


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read the next request of a connection; None when the client closed it instead.

    Args:
        reader: The input of the connection.

    Raises:
        MalformedRequest: The bytes are not an HTTP/1.1 request.
        ConnectionError: The connection was lost.
    """
    try:
        method, target, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        body = await _read_body(reader, headers)
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise MalformedRequest("the header is too long") from error
    return HttpRequest(method, target.partition("?")[0], headers, body)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Make the head of a response.

    Args:
        status: The HTTP status.
        headers: The response headers.
    """
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def whole(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Make a response in one piece.

    Args:
        status: The HTTP status.
        body: The bytes of the body.
        headers: The response headers, without the length.
    """
    return head(status, {**headers, "content-length": str(len(body))}) + body


def chunk(data: bytes | bytearray) -> bytes:
    """Frame bytes as one chunk of a chunked body.

    Args:
        data: The bytes, at least one.
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


def _parse_head(raw: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise MalformedRequest(f"{first!r} is not a request line") from error
    if not version.startswith("HTTP/1."):
        raise MalformedRequest(f"{version!r} is not spoken here")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise MalformedRequest(f"{line!r} is not a header")
        headers[name.lower()] = value.strip()
    return method, target, headers


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    return await reader.readexactly(_number(headers.get("content-length", "0"), base=10))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while size := _number((await reader.readuntil(b"\n")).partition(b";")[0].decode("latin-1"), base=16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    while (await reader.readuntil(b"\n")).strip():
        pass  # trailers say nothing that a test server needs
    return b"".join(parts)


def _number(written: str, *, base: int) -> int:
    try:
        size = int(written.strip(), base)
    except ValueError as error:
        raise MalformedRequest(f"{written!r} is not a length") from error
    if size < 0:
        raise MalformedRequest(f"{written!r} is not a length")
    return size
