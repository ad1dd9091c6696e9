"""A scripted reply as bytes: server-sent events, or one completion object."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agentscope_rx.testing._replies import StreamedReply, Usage

__all__ = ["Action", "Cut", "Pause", "Send", "completion", "estimated_usage", "stream_actions"]

_ID: Final = "chatcmpl-fake"
_CREATED: Final = 1_700_000_000
_DONE: Final = b"data: [DONE]\n\n"
_BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes into the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds; None: until the client leaves."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """End the body here, in good order (`clean`) or by dropping the connection."""

    clean: bool


Action: TypeAlias = Send | Pause | Cut
"""One act of playing a streamed reply."""


def stream_actions(reply: StreamedReply, model: str, usage: Usage | None) -> Iterator[Action]:
    """Yield what has to be done to stream a reply.

    Args:
        reply: The reply.
        model: The model name that each chunk carries.
        usage: Input and output tokens for a last chunk; None: no such chunk.
    """
    encoder = _ChunkEncoder(model)
    started = False
    for item in reply.items:
        action = encoder.action(item)
        if started and reply.pace and isinstance(action, Send):
            yield Pause(reply.pace)
        yield action
        if isinstance(action, Cut):
            return
        started = True
    if usage is not None:
        yield Send(encoder.usage(usage))
    yield Send(_DONE)


def completion(reply: StreamedReply, model: str, usage: Usage | None) -> bytes:
    """Encode a reply as the one object that answers a request without streaming.

    Args:
        reply: The reply; it has a message.
        model: The model name to report.
        usage: Input and output tokens to report; None: none.
    """
    choice = {"index": 0, "message": reply.message, "finish_reason": reply.finish}
    whole = {"id": _ID, "object": "chat.completion", "created": _CREATED, "model": model, "choices": [choice]}
    return _compact(whole if usage is None else {**whole, "usage": _usage_object(usage)})


def estimated_usage(request: bytes, message: Mapping[str, Any]) -> Usage:
    """Estimate input and output tokens of a call at four bytes a token.

    Args:
        request: The body of the request.
        message: The assistant message that answers it.
    """
    return -(-len(request) // _BYTES_PER_TOKEN), -(-len(_compact(message)) // _BYTES_PER_TOKEN)


class _ChunkEncoder:
    """Encodes the chunks of one reply; what they have in common is encoded once."""

    __slots__ = ("_head",)

    def __init__(self, model: str) -> None:
        head = {"id": _ID, "object": "chat.completion.chunk", "created": _CREATED, "model": model}
        self._head = b"data: " + _compact(head)[:-1] + b',"choices":['

    def action(self, item: Mapping[str, Any]) -> Action:
        if "d" in item:
            return Send(self._choice(item["d"], item.get("f")))
        if "raw" in item:
            return Send(_utf8(item["raw"]))
        if "stall" in item:
            return Pause(None if item["stall"] is True else float(item["stall"]))
        if "cut" in item:
            return Cut(clean=item["cut"] == "clean")
        return Send(b"data: " + _compact(item) + b"\n\n")

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + _compact(_usage_object(usage)) + b"}\n\n"

    def _choice(self, delta: object, finish: object) -> bytes:
        parts = (b'{"index":0,"delta":', _compact(delta), b',"finish_reason":', _compact(finish), b"}]}\n\n")
        return self._head + b"".join(parts)


def _usage_object(usage: Usage) -> dict[str, int]:
    given, made = usage
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _compact(value: object) -> bytes:
    # Raw UTF-8 like a real provider, so that readers meet characters split over packets. A lone surrogate has
    # no UTF-8 form; providers send it as an escape, which is what plain ASCII output gives.
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return written.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _utf8(raw: str) -> bytes:
    return raw.encode("utf-8", "surrogatepass")
