"""The replies that a fake provider can be scripted with, as frozen values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = [
    "ScriptedReply",
    "StreamedReply",
    "Usage",
    "WholeReply",
    "failure",
    "from_case",
    "stream",
    "text",
    "tool_calls",
]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"

Usage: TypeAlias = tuple[int, int]
"""Input and output tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeReply:
    """A reply sent in one piece whatever the request asked for; made by `failure`.

    Attributes:
        status: The HTTP status.
        body: The bytes of the body.
        headers: Further response headers; `content-type` is among them.
        delay: Seconds before the first byte.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedReply:
    """A reply that can be streamed; made by `text`, `tool_calls` and `stream`.

    Attributes:
        items: What goes out, in the format that `stream` describes.
        message: The same as one assistant message, for a request without streaming; None: streamed only.
        finish: The finish reason that goes with `message`.
        usage: Input and output tokens to report; None: estimated at four bytes a token.
        delay: Seconds before the first byte.
        pace: Seconds between two chunks.
        headers: Further response headers.
    """

    items: tuple[Mapping[str, Any], ...]
    message: Mapping[str, Any] | None = None
    finish: str = "stop"
    usage: Usage | None = None
    delay: float = 0.0
    pace: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


ScriptedReply: TypeAlias = WholeReply | StreamedReply
"""One entry of a provider's script."""


def text(
    text: str,
    *,
    deltas: int | Sequence[str] | None = None,
    reasoning: str | None = None,
    finish: str = "stop",
    usage: Usage | None = None,
    delay: float = 0.0,
    pace: float = 0.0,
) -> StreamedReply:
    """Script an assistant message of plain text.

    Args:
        text: The whole text; empty gives an empty reply.
        deltas: The pieces in which it is streamed, or how many of nearly equal length; None: one.
        reasoning: Thinking sent before the text, as `reasoning_content`.
        finish: The finish reason; `length` makes a reply that ran into the output limit.
        usage: Input and output tokens to report; None: estimated at four bytes a token.
        delay: Seconds before the first byte.
        pace: Seconds between two chunks.

    Raises:
        ValueError: `deltas` is below 1, or the given pieces do not make up the text.
    """
    thinking: dict[str, Any] = {"reasoning_content": reasoning} if reasoning else {}
    opening = {"role": "assistant", "content": ""}
    pieces = [{"content": piece} for piece in _cut(text, 1 if deltas is None else deltas)]
    return StreamedReply(
        items=_items([opening, *([thinking] if thinking else []), *pieces], finish),
        message={"role": "assistant", "content": text, **thinking},
        finish=finish,
        usage=usage,
        delay=delay,
        pace=pace,
    )


def tool_calls(
    *calls: tuple[str, str, str],
    text: str | None = None,
    pieces: int = 1,
    usage: Usage | None = None,
    delay: float = 0.0,
    pace: float = 0.0,
) -> StreamedReply:
    """Script an assistant message that asks for tools.

    Args:
        calls: Id, tool name and arguments (as JSON text) of each call; sent as given, valid or not.
        text: Text that comes before the calls; None: none.
        pieces: Into how many deltas the arguments of each call are cut.
        usage: Input and output tokens to report; None: estimated at four bytes a token.
        delay: Seconds before the first byte.
        pace: Seconds between two chunks.

    Raises:
        ValueError: `pieces` is below 1.

    Example:
        >>> tool_calls(("c1", "look", '{"p": 1}')).items[-1]
        {'d': {}, 'f': 'tool_calls'}
    """
    opening = {"role": "assistant", "content": None}
    spoken = [{"content": text}] if text else []
    called = [delta for index, call in enumerate(calls) for delta in _call_deltas(index, call, pieces)]
    return StreamedReply(
        items=_items([opening, *spoken, *called], "tool_calls"),
        message={**opening, "content": text, "tool_calls": [_call(*call) for call in calls]},
        finish="tool_calls",
        usage=usage,
        delay=delay,
        pace=pace,
    )


def failure(
    status: int,
    body: Mapping[str, Any] | str,
    headers: Mapping[str, str] | None = None,
    *,
    delay: float = 0.0,
) -> WholeReply:
    """Script an answer other than a completion, usually an error.

    Args:
        status: The HTTP status.
        body: An object, sent as JSON, or a text, sent as it is.
        headers: Further response headers, such as `retry-after`; they win over the ones set here.
        delay: Seconds before the first byte.
    """
    is_text = isinstance(body, str)
    payload = body if is_text else json.dumps(body)
    return WholeReply(
        status=status,
        body=payload.encode("utf-8"),
        headers={"content-type": _TEXT if is_text else _JSON, **(headers or {})},
        delay=delay,
    )


def stream(
    items: Sequence[Mapping[str, Any]],
    *,
    delay: float = 0.0,
    pace: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> StreamedReply:
    """Script a stream item by item, faults included; no usage is added to it.

    Args:
        items: `{"d": delta, "f": finish_reason or None}` is a chunk with one choice, `{"raw": text}` goes out
            as it is, `{"stall": seconds}` waits, `{"stall": True}` waits until the client leaves,
            `{"cut": True}` drops the connection in the middle of the body, `{"cut": "clean"}` ends the body
            in good order but without `[DONE]`; any other object is a chunk as written. `[DONE]` follows at
            the end of a stream that is not cut.
        delay: Seconds before the first byte.
        pace: Seconds between two chunks.
        headers: Further response headers.

    Raises:
        ValueError: An item follows a cut.
    """
    if any("cut" in item for item in items[:-1]):
        raise ValueError("a cut ends the stream: nothing may follow it")
    return StreamedReply(items=tuple(items), delay=delay, pace=pace, headers=dict(headers or {}))


def from_case(reply: Mapping[str, Any]) -> ScriptedReply:
    """Turn a scripted reply written as data into one for the provider.

    Args:
        reply: `{"text": …}`, `{"call": [[id, name, arguments], …]}` (and `text`, if it says something too),
            `{"status": …, "body": …, "headers": …}` or `{"stream": [items]}`; other keys are passed over.

    Raises:
        ValueError: It is none of these.
    """
    if "stream" in reply:
        return stream(reply["stream"])
    if "status" in reply:
        return failure(reply["status"], reply.get("body", {}), reply.get("headers"))
    if "call" in reply:
        return tool_calls(*(_triple(call) for call in reply["call"]), text=reply.get("text"))
    if "text" in reply:
        return text(reply["text"])
    raise ValueError(f"a scripted reply has one of stream, status, call, text; this one has {sorted(reply)}")


def _cut(whole: str, pieces: int | Sequence[str]) -> list[str]:
    if not isinstance(pieces, int):
        if "".join(pieces) != whole:
            raise ValueError(f"the deltas {list(pieces)!r} do not make up the text {whole!r}")
        return list(pieces)
    if pieces < 1:
        raise ValueError(f"a text is cut into at least 1 piece, got {pieces}")
    count = min(pieces, len(whole))
    return [whole[len(whole) * i // count : len(whole) * (i + 1) // count] for i in range(count)]


def _items(deltas: Sequence[Mapping[str, Any]], finish: str) -> tuple[Mapping[str, Any], ...]:
    return (*({"d": delta, "f": None} for delta in deltas), {"d": {}, "f": finish})


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _call_deltas(index: int, call: tuple[str, str, str], pieces: int) -> Iterator[dict[str, Any]]:
    # As real providers do it: who is called first, then the arguments piece by piece.
    call_id, name, arguments = call
    yield {"tool_calls": [{"index": index, **_call(call_id, name, "")}]}
    for piece in _cut(arguments, pieces):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _triple(call: Sequence[str]) -> tuple[str, str, str]:
    call_id, name, arguments = call
    return call_id, name, arguments
