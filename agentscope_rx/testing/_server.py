"""A loopback HTTP server that keeps count of its connections and joins every task that it starts."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

from agentscope_rx.testing._http import (
    LAST_CHUNK,
    HttpRequest,
    MalformedRequest,
    WatchedReader,
    chunk,
    read_request,
    whole,
)
from agentscope_rx.testing._sse import Action, Cut, Pause, Send

__all__ = ["HOST", "Connection", "Handler", "LoopbackServer"]

HOST: Final = "127.0.0.1"
_BATCH: Final = 64 * 1024


class Connection:
    """One connection to a client.

    Attributes:
        number: Which connection of the server it is, counted from 1.
        reader: Its input, which also tells when the client leaves.
    """

    __slots__ = ("_writer", "number", "reader")

    def __init__(self, number: int, reader: WatchedReader, writer: asyncio.StreamWriter) -> None:
        """Wrap the two halves of a connection."""
        self.number = number
        self.reader = reader
        self._writer = writer
        # Draining then waits until the system has all of it, so that "sent" is no guess.
        writer.transport.set_write_buffer_limits(high=0)

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until the system has taken them.

        Args:
            data: The bytes as they go over the wire.

        Raises:
            ConnectionError: The client is gone.
        """
        self._writer.write(data)
        await self._writer.drain()

    async def play(self, actions: Iterable[Action]) -> tuple[bytes, bool]:
        """Play a streamed body up to its last bytes; what is not paced goes out in few large chunks.

        Args:
            actions: What to do, in order.

        Returns:
            The last bytes, still to be sent, and whether the connection can be used again afterwards.

        Raises:
            ConnectionError: The client is gone.
        """
        pending = bytearray()
        for action in actions:
            match action:
                case Send(data):
                    pending += data
                case Cut(clean):
                    return _framed(pending) + (LAST_CHUNK if clean else b""), clean
                case Pause(seconds):
                    await self.send(_framed(pending))
                    pending.clear()
                    await _pause(seconds)
            if len(pending) >= _BATCH:
                await self.send(_framed(pending))
                pending.clear()
        return _framed(pending) + LAST_CHUNK, True

    async def unless_gone(self, sending: Coroutine[Any, Any, bool]) -> bool | None:
        """Send a response, but stop at the moment the client leaves.

        Args:
            sending: Sends the response; its result is passed on.

        Returns:
            What `sending` returned; None when the client left before its end.
        """
        task = asyncio.ensure_future(sending)
        try:
            await asyncio.wait({task, self.reader.gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled() or isinstance(task.exception(), ConnectionError):
            return None
        return task.result()

    async def close(self) -> None:
        """Close the connection and wait until it is closed; bytes that nobody takes any more are dropped."""
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # it was lost before; closed it is all the same


Handler: TypeAlias = Callable[[HttpRequest, Connection], Awaitable[bool]]
"""Answers one request; tells whether the connection can be used again."""


class LoopbackServer:
    """Accepts connections on this machine and hands each request to a handler.

    Attributes:
        errors: What handlers raised, in order.
        port: The port it listens on; 0 before it was started.
    """

    def __init__(self, handle: Handler) -> None:
        """Make a server that is not started yet."""
        self.errors: list[Exception] = []
        self.port = 0
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepted = 0

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        return len(self._tasks)

    async def start(self, port: int) -> None:
        """Listen.

        Args:
            port: The port; 0: any free one.

        Raises:
            OSError: The port is taken.
        """
        self._server = await asyncio.get_running_loop().create_server(self._make_protocol, HOST, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening, close every connection and wait for every task; more than once does no harm."""
        if self._server is None:
            return
        self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._server.wait_closed()
        self._server = None

    def _make_protocol(self) -> asyncio.StreamReaderProtocol:
        # As asyncio.start_server does it, but with a reader that tells when the client leaves.
        loop = asyncio.get_running_loop()
        reader = WatchedReader(loop)

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._accepted += 1
            task = loop.create_task(self._serve(Connection(self._accepted, reader, writer)))
            self._tasks.add(task)
            task.add_done_callback(self._note_end)

        return asyncio.StreamReaderProtocol(reader, accept, loop=loop)

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._converse(connection)
        except MalformedRequest as error:
            body = json.dumps({"error": {"message": str(error), "type": "invalid_request_error"}}).encode()
            headers = {"content-type": "application/json", "connection": "close"}
            await connection.send(whole(400, body, headers))
        finally:
            await connection.close()

    async def _converse(self, connection: Connection) -> None:
        while (request := await read_request(connection.reader)) is not None:
            reusable = await self._handle(request, connection)
            if not (reusable and request.keep_alive):
                return

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A client that goes away between two requests is nobody's fault; what is no Exception ends the loop.
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            self.errors.append(error)


def _framed(data: bytearray) -> bytes:
    # An empty chunk would end the body.
    return chunk(data) if data else b""


async def _pause(seconds: float | None) -> None:
    if seconds is None:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(seconds)
