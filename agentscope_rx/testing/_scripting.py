"""Which reply a request to a fake provider gets, and how that reply is sent."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, cast

from agentscope_rx.testing._http import HttpRequest, head, whole
from agentscope_rx.testing._recording import RecordedRequest
from agentscope_rx.testing._replies import ScriptedReply, StreamedReply, WholeReply, failure
from agentscope_rx.testing._server import Connection
from agentscope_rx.testing._sse import Usage, completion, estimated_usage, stream_actions
from agentscope_rx.testing._strict import decode_object, strict_violations

__all__ = ["MODEL", "Script", "ScriptReader", "error_reply", "send_reply"]

Script: TypeAlias = Callable[[RecordedRequest, int], ScriptedReply]
"""Makes the reply to an accepted request; also receives how many were accepted so far, this one included."""

MODEL: Final = "fake-model"
_JSON: Final = {"content-type": "application/json"}
_EVENTS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "transfer-encoding": "chunked",
}


class ScriptReader:
    """Takes requests down and picks their replies from a script.

    Attributes:
        ended: Whether an accepted request found no reply left.
        errors: What a script that is a function raised, in order.
    """

    def __init__(self, replies: Iterable[ScriptedReply] | Script, *, strict: bool) -> None:
        """Start at the beginning of a script.

        Args:
            replies: The replies in order, or a function that makes them.
            strict: Whether `strict_violations` refuse a request.
        """
        self.ended = False
        self.errors: list[Exception] = []
        self._script: Script = replies if callable(replies) else self._in_order(deque(replies))
        self._strict = strict
        self._accepted = 0

    def record(self, request: HttpRequest, connection: int) -> RecordedRequest:
        """Take a request down, with the reasons to refuse it.

        Args:
            request: The request as it came in.
            connection: The number of its connection.
        """
        body: dict[str, Any] = {}
        try:
            body = decode_object(request.body)
            refused = strict_violations(body) if self._strict else []
        except ValueError as error:
            refused = [f"the body is not a JSON object: {error}"]
        return RecordedRequest(
            body=body,
            raw=request.body,
            headers=request.headers,
            received_at=asyncio.get_running_loop().time(),
            connection=connection,
            refused=tuple(refused),
        )

    def reply_to(self, request: RecordedRequest) -> ScriptedReply:
        """Pick the reply; a refused request uses up none.

        Args:
            request: The request.
        """
        if request.refused:
            return error_reply(400, "; ".join(request.refused), None)
        self._accepted += 1
        try:
            reply = self._script(request, self._accepted)
        except Exception as error:
            self.errors.append(error)
            return error_reply(500, f"the script of the fake provider raised {error!r}", "script_failed")
        if isinstance(reply, StreamedReply) and reply.message is None and not request.body.get("stream"):
            return error_reply(500, "the scripted reply is a stream, the request wants none", "script_failed")
        return reply

    def _in_order(self, replies: deque[ScriptedReply]) -> Script:
        total = len(replies)

        def next_reply(_: RecordedRequest, __: int) -> ScriptedReply:
            if replies:
                return replies.popleft()
            self.ended = True
            return error_reply(500, f"the script of the fake provider ended after {total} replies", "script_ended")

        return next_reply


async def send_reply(
    reply: ScriptedReply, request: RecordedRequest, connection: Connection, *, always_usage: bool
) -> bool:
    """Send a reply, streamed or in one piece as the request asks; marks the request as finished.

    Args:
        reply: The reply.
        request: The request that it answers.
        connection: Where the request came from.
        always_usage: Whether to stream the usage even when the request does not ask for it.

    Returns:
        Whether the connection can be used again.

    Raises:
        ConnectionError: The client is gone.
    """
    await asyncio.sleep(reply.delay)
    model = str(request.body.get("model", MODEL))
    reusable = True
    if isinstance(reply, WholeReply):
        last = whole(reply.status, reply.body, reply.headers)
    elif request.body.get("stream"):
        await connection.send(head(200, {**_EVENTS, **reply.headers}))
        usage = _usage(reply, request) if always_usage or _asks_for_usage(request) else None
        last, reusable = await connection.play(stream_actions(reply, model, usage))
    else:
        last = whole(200, completion(reply, model, _usage(reply, request)), {**_JSON, **reply.headers})
    # Set before the last bytes go out: whoever has read them may rely on it.
    request.finished = True
    await connection.send(last)
    return reusable


def error_reply(status: int, message: str, code: str | None) -> WholeReply:
    """Make an error in the shape that OpenAI gives them.

    Args:
        status: The HTTP status.
        message: What is wrong.
        code: The error code; None: none.
    """
    kind = "invalid_request_error" if status < 500 else "server_error"
    return failure(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


def _asks_for_usage(request: RecordedRequest) -> bool:
    options = request.body.get("stream_options")
    return isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True


def _usage(reply: StreamedReply, request: RecordedRequest) -> Usage | None:
    # A stream written item by item says itself what it says about usage.
    return None if reply.message is None else reply.usage or estimated_usage(request.raw, reply.message)
