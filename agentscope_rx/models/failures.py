"""What a provider says when it fails, turned into the error that says what can be done about it.

One classification serves refused requests and errors inside a stream that had begun well. A telling code
decides first, then the status, then words of the provider's own message; the rest of a body, which may quote
the user, is never searched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, cast

from agentscope_rx.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    OutputCap,
    PayloadTooLarge,
    ProviderError,
    ProviderTimeout,
    QuotaExceeded,
    RateLimited,
    ServerFailed,
    StreamFailed,
)
from agentscope_rx.frozen import frozen
from agentscope_rx.wire import from_json

_MESSAGE_LIMIT: Final = 1_000
_HTML_LIMIT: Final = 200
_NESTING: Final = 4

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_THROTTLE_CODE: Final = re.compile(r"rate_?limit|throttl|too_?many_?requests")
_QUOTA_CODE: Final = re.compile(r"quota|insufficient_(balance|credit|fund)|arrearage|billing")
_KEY_CODE: Final = re.compile(r"invalid_?api_?key|authentication|unauthorized|permission_(denied|error)")

_THROTTLED: Final = re.compile(r"throttl|rate.?limit|too many requests|per (minute|second|day)")
_WAITING_HELPS: Final = re.compile(r"(retry|try again) (in|after) \d")
_QUOTA: Final = re.compile(
    r"quota|insufficient (balance|credit|fund)|(balance|credits?) (is|are) (too low|insufficient)|billing"
)
_OUTPUT_CAP: Final = re.compile(
    r"max_(?:completion_|output_)?tokens['\"`]?(?: or '?max_(?:completion_|output_)?tokens'?)?"
    r"(?: is too large|: \d+ > \d+)|range of max_(?:completion_|output_)?tokens"
)
#: A router's sum of what was asked for: where the answer is the large part, the input is not what has to be shorter.
_SUM: Final = re.compile(r"\((\d+) of text input,.*?(\d+) in the output\)")
_LIMIT: Final = re.compile(r"maximum context length (?:is|of) (\d+)|configured limit of (\d+)")
_TAG: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_SECRET: Final = re.compile(r"\b(?:sk|pk|rk|gsk|xai)-[\w-]{8,}|(?i:\bbearer\s+)[^\s\"',]+")


def response_failure(
    status: int, headers: Mapping[str, str], body: object, *, hide: Sequence[str] = ()
) -> ProviderError:
    """Make the error for an answer with an HTTP error status.

    Args:
        status: The HTTP status.
        headers: The response headers, by names in lower case.
        body: The body as bytes, or already decoded.
        hide: Secrets that must not be in the message, even where the provider repeats them.

    Examples:
        >>> error = response_failure(429, {"retry-after": "3"}, b'{"error": {"message": "slow down"}}')
        >>> type(error).__name__, error.retry_after, str(error)
        ('RateLimited', 3.0, 'slow down (HTTP 429)')
    """
    said = _said(body)
    text = f"{said.message or _phrase(status)} (HTTP {status})"
    return _error(_kind(said, status), _without(text, hide), said, status, _retry_after(headers))


def stream_failure(payload: object, *, hide: Sequence[str] = ()) -> ProviderError:
    """Make the error for what a provider reported inside a stream that began with status 200.

    Args:
        payload: The data of the event as bytes, or already decoded.
        hide: Secrets that must not be in the message.
    """
    said = _said(payload)
    status = int(said.code) if said.code.isdecimal() and len(said.code) == 3 and said.code >= "400" else None
    kind = _kind(said, status)
    if kind in (ServerFailed, ProviderTimeout):
        kind = StreamFailed  # the request was accepted: what failed is this one answer
    text = said.message or f"the provider reported an error without a message (code {said.code or 'none'})"
    return _error(kind, _without(text, hide), said, None, None)


def reports_failure(chunk: Mapping[str, object]) -> bool:
    """Whether an object without any answer in it is an error report."""
    if chunk.get("error") or "error" in (chunk.get("type"), chunk.get("object")):
        return True
    return "choices" not in chunk and "code" in chunk and isinstance(chunk.get("message"), str)


# -- reading what was said ----------------------------------------------------------------------------------


@frozen
class _Said:
    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""
    window: object = None


def _said(payload: object, depth: int = 0) -> _Said:
    """Unwrap bytes, lists, `error` objects and messages that are themselves JSON."""
    if isinstance(payload, bytes | str):
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
        decoded = _decoded(text) if depth < _NESTING else None
        return _Said(message=_shortened(text)) if decoded is None else _said(decoded, depth + 1)
    if isinstance(payload, list):
        items = cast("list[object]", payload)
        return _said(items[0] if items and depth < _NESTING else {}, depth + 1)
    if not isinstance(payload, dict):
        return _Said()
    outer = cast("dict[str, object]", payload)
    error = outer.get("error")
    if isinstance(error, dict) and depth < _NESTING:
        return _said(cast("dict[str, object]", error), depth + 1)
    return _innermost(outer, error if isinstance(error, str) else _first_text(outer), depth)


def _innermost(error: Mapping[str, object], message: str, depth: int) -> _Said:
    metadata = error.get("metadata")
    # A router wraps the words of the provider behind it, which say more than its own.
    raw = cast("dict[str, object]", metadata).get("raw") if isinstance(metadata, dict) else None
    inner = raw if isinstance(raw, str) and raw.strip() else message
    if depth < _NESTING and (raw or inner.lstrip().startswith(("{", "["))):
        deeper = _said(inner, depth + 1)
        if deeper.message:
            return _Said(
                message=deeper.message,
                code=deeper.code or _text(error.get("code")),
                type=deeper.type or _text(error.get("type")),
                param=deeper.param or _text(error.get("param")),
                window=deeper.window,
            )
    return _Said(
        message=_shortened(message),
        code=_text(error.get("code")),
        type=_text(error.get("type")),
        param=_text(error.get("param")),
        window=error.get("n_ctx"),
    )


def _first_text(error: Mapping[str, object]) -> str:
    for key in ("message", "msg", "detail", "error_description"):
        value = error.get(key)
        if isinstance(value, list) and value:  # validators give a list; beside a reason, what the user sent
            value = cast("list[object]", value)[0]
        if isinstance(value, dict):
            value = _first_text(cast("dict[str, object]", value))
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _decoded(text: str) -> object:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return from_json(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _shortened(text: str) -> str:
    """One line of what a person can read: pages lose their tags, long texts their end."""
    limit = _MESSAGE_LIMIT
    if text.lstrip()[:1] == "<":
        text = _TAG.sub(" ", text[: 64 * limit])
        limit = _HTML_LIMIT
    text = " ".join(text[: 64 * limit].split())
    return text if len(text) <= limit else f"{text[:limit]}…"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "the provider gave no reason"


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _SECRET.sub("***", text)


# -- deciding -----------------------------------------------------------------------------------------------


def _kind(said: _Said, status: int | None) -> type[ProviderError]:
    codes = f"{said.code} {said.type}".lower()
    if not _OVERFLOW_CODES.isdisjoint(codes.split()):
        return ContextOverflow
    if _THROTTLE_CODE.search(codes):
        return RateLimited
    if status == HTTPStatus.PAYMENT_REQUIRED or _QUOTA_CODE.search(codes):
        return QuotaExceeded
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or "request_too_large" in codes.split():
        return PayloadTooLarge
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or _KEY_CODE.search(codes):
        return AuthenticationFailed
    words = said.message.lower()
    if status in (None, HTTPStatus.TOO_MANY_REQUESTS):
        if _THROTTLED.search(words) or (status and _WAITING_HELPS.search(words)):
            return RateLimited
        if _QUOTA.search(words):
            return QuotaExceeded
    if status in (None, 400, 422) and (_OUTPUT_CAP.search(words) or _asks_for_too_long_an_answer(said)):
        return OutputCap
    return _kind_of_status(status, codes)


def _kind_of_status(status: int | None, codes: str) -> type[ProviderError]:
    match status:
        case None:
            return BadRequest if "invalid_request" in codes else StreamFailed
        case 429:
            return RateLimited
        case 408 | 504 | 524:  # 524: the time-out of a proxy
            return ProviderTimeout
        case 409 | 425:  # refused for the moment, not for what it says
            return ServerFailed
        case _:
            return ServerFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else BadRequest


def _error(
    kind: type[ProviderError], text: str, said: _Said, status: int | None, retry_after: float | None
) -> ProviderError:
    error = kind(text, status=status, provider_code=said.code or said.type or None, retry_after=retry_after)
    if isinstance(error, ContextOverflow):
        error.limit = _window(said)
    return error


def _window(said: _Said) -> int | None:
    if isinstance(said.window, int):
        return said.window
    found = _LIMIT.search(said.message.lower())
    return int(found[1] or found[2]) if found else None


def _asks_for_too_long_an_answer(said: _Said) -> bool:
    parts, window = _SUM.search(said.message.lower()), _window(said)
    return parts is not None and window is not None and int(parts[1]) <= window / 2 and int(parts[2]) > int(parts[1])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait; a date counts from the date of the answer, so that no clock of ours is asked."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1_000
    written = headers.get("retry-after", "")
    if (seconds := _number(written)) is not None:
        return seconds
    try:
        until = parsedate_to_datetime(written) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return max(0.0, until.total_seconds())


def _number(written: str | None) -> float | None:
    try:
        number = float(written or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
