"""A model provider that runs in the test: a real HTTP server on this machine that answers from a script."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Thread
from types import TracebackType
from typing import Self

from agentscope_rx.testing._http import HttpRequest, whole
from agentscope_rx.testing._recording import Bell, RecordedRequest
from agentscope_rx.testing._replies import ScriptedReply, failure, from_case, stream, text, tool_calls
from agentscope_rx.testing._scripting import MODEL, Script, ScriptReader, error_reply, send_reply
from agentscope_rx.testing._server import HOST, Connection, LoopbackServer
from agentscope_rx.testing._strict import strict_violations

__all__ = [
    "FakeProvider",
    "RecordedRequest",
    "Script",
    "ScriptedReply",
    "failure",
    "from_case",
    "stream",
    "strict_violations",
    "text",
    "tool_calls",
]


class FakeProvider:
    """A Chat Completions server on this machine that answers from a script and remembers what it was asked.

    It speaks real HTTP over a real socket, so clients, time-outs and cancellation are tested as they are. Use
    it with `async with`, or with `FakeProvider.in_thread(...)` where no event loop runs.

    Attributes:
        requests: Every chat completion request, refused ones included, in order of arrival.
        refusals: The reasons for which requests were refused, in order.

    Example:
        >>> import json, urllib.request
        >>> question = {"messages": [{"role": "user", "content": "hi"}]}
        >>> with FakeProvider.in_thread([text("hello")]) as provider:
        ...     url = f"{provider.base_url}/chat/completions"
        ...     with urllib.request.urlopen(url, data=json.dumps(question).encode()) as response:
        ...         json.load(response)["choices"][0]["message"]["content"]
        'hello'
    """

    def __init__(
        self,
        replies: Iterable[ScriptedReply] | Script = (),
        *,
        strict: bool = True,
        always_usage: bool = False,
        port: int = 0,
    ) -> None:
        """Make a provider that is not started yet.

        Args:
            replies: The replies, one for each accepted request, or a function that makes them. When a list
                is used up, further requests are answered with 500.
            strict: Whether what a strict provider refuses is answered with 400; that uses up no reply.
            always_usage: Whether token usage is streamed even when the request does not ask for it.
            port: The port to listen on; 0: any free one.
        """
        self.requests: list[RecordedRequest] = []
        self.refusals: list[str] = []
        self._reader = ScriptReader(replies, strict=strict)
        self._always_usage = always_usage
        self._port = port
        self._closed = False
        self._bell = Bell()
        self._server = LoopbackServer(self._handle)

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        replies: Iterable[ScriptedReply] | Script = (),
        *,
        strict: bool = True,
        always_usage: bool = False,
        port: int = 0,
    ) -> Generator[Self]:
        """Run a provider on an event loop of its own in a daemon thread, which is joined on exit.

        Args:
            replies: As for the class; a function is called in that thread.
            strict: As for the class.
            always_usage: As for the class.
            port: As for the class.

        Raises:
            OSError: The port is taken.
        """
        provider = cls(replies, strict=strict, always_usage=always_usage, port=port)
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever, name="fake-provider", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(provider.start(), loop).result()
            try:
                yield provider
            finally:
                asyncio.run_coroutine_threadsafe(provider.aclose(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: The port is taken.
        """
        await self._server.start(self._port)

    async def aclose(self) -> None:
        """Close every connection and wait for every task.

        Raises:
            Exception: What the script raised, if it is a function and raised.
            ExceptionGroup: It raised more than once.
        """
        errors = await self._close()
        if len(errors) > 1:
            raise ExceptionGroup("the fake provider failed more than once", errors)
        if errors:
            raise errors[0]

    async def __aenter__(self) -> Self:
        """Start listening."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error of the script is raised, or noted on the error that is on its way."""
        if error is None:
            await self.aclose()
            return
        for hidden in await self._close():
            error.add_note(f"in the fake provider there was also {hidden!r}")

    @property
    def base_url(self) -> str:
        """The URL that clients take as base, `http://127.0.0.1:<port>/v1`; known once it is started."""
        if not self._server.port:
            raise RuntimeError("the fake provider has no URL before it is started: use `async with`")
        return f"http://{HOST}:{self._server.port}/v1"

    @property
    def script_ended(self) -> bool:
        """Whether an accepted request found no reply left."""
        return self._reader.ended

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return self._server.open_connections

    async def wait_for_requests(self, count: int) -> list[RecordedRequest]:
        """Wait until so many requests have arrived; from any event loop.

        Args:
            count: How many.

        Returns:
            The first `count` requests.

        Raises:
            RuntimeError: The provider was closed before.
        """
        await self._bell.until(lambda: self._closed or len(self.requests) >= count)
        if len(self.requests) < count:
            raise RuntimeError(f"the fake provider was closed after {len(self.requests)} of {count} requests")
        return self.requests[:count]

    async def client_gone(self, number: int) -> RecordedRequest:
        """Wait until the client of a request has left before the end of its reply; from any event loop.

        Args:
            number: Which request, counted from 1.

        Returns:
            The request; its `left_at` says when.

        Raises:
            AssertionError: The reply was played to its end with the client still there.
            RuntimeError: The provider was closed before.
        """
        await self._bell.until(lambda: self._closed or self._is_over(number))
        if len(self.requests) < number or not self._is_over(number):
            raise RuntimeError(f"the fake provider was closed before the client of request {number} left")
        request = self.requests[number - 1]
        if not request.client_left:
            raise AssertionError(f"request {number} was answered to its end: its client did not leave")
        return request

    async def _close(self) -> list[Exception]:
        await self._server.aclose()
        self._closed = True
        self._bell.ring()
        errors = [*self._reader.errors, *self._server.errors]
        self._reader.errors.clear()
        self._server.errors.clear()
        return errors

    def _is_over(self, number: int) -> bool:
        return len(self.requests) >= number and (
            self.requests[number - 1].client_left or self.requests[number - 1].finished
        )

    async def _handle(self, request: HttpRequest, connection: Connection) -> bool:
        if request.method == "POST" and request.path.endswith("/chat/completions"):
            return await self._complete(request, connection)
        if request.method == "GET" and request.path.endswith("/models"):
            models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "tests"}]}
            answer = failure(200, models)
        else:
            answer = error_reply(404, f"nothing answers {request.method} {request.path} here", "not_found")
        await connection.send(whole(answer.status, answer.body, answer.headers))
        return True

    async def _complete(self, request: HttpRequest, connection: Connection) -> bool:
        recorded = self._reader.record(request, connection.number)
        self.requests.append(recorded)
        self.refusals.extend(recorded.refused)
        self._bell.ring()
        reply = self._reader.reply_to(recorded)
        sending = send_reply(reply, recorded, connection, always_usage=self._always_usage)
        reusable = await connection.unless_gone(sending)
        if reusable is None:
            recorded.finished = False
            recorded.left_at = connection.reader.gone.result()
            recorded.client_left = True
        self._bell.ring()
        return bool(reusable)
