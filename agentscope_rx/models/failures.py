"""What a provider says when it fails, turned into the error that says what can be done about it.

One classification serves refused requests, errors inside a stream that had begun well, and finish reasons. What users
registered is asked first; then a telling code decides, then the status, then words of the provider's own message. The
rest of a body, which may quote the user, is never searched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

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
from agentscope_rx.models.overflow import (
    Verdict,
    is_weak_sign,
    verdict_of_code,
    verdict_of_message,
    verdict_of_recognisers,
)
from agentscope_rx.models.reports import Report, read_report

_KEY_CODE: Final = re.compile(r"invalid_?api_?key|authentication|unauthorized|permission_(denied|error)")
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
    said = read_report(body)
    text = _without(f"{said.message or _phrase(status)} (HTTP {status})", hide)
    return _error(_verdict(said, status, hide), text, said, status, _retry_after(headers))


def stream_failure(payload: object, *, hide: Sequence[str] = ()) -> ProviderError:
    """Make the error for what a provider reported inside a stream that began with status 200.

    Args:
        payload: The data of the event as bytes, or already decoded.
        hide: Secrets that must not be in the message.
    """
    said = read_report(payload)
    status = int(said.code) if said.code.isdecimal() and len(said.code) == 3 and said.code >= "400" else None
    verdict = _verdict(said, status, hide)
    if verdict.kind in (ServerFailed, ProviderTimeout):
        verdict = Verdict(kind=StreamFailed)  # the request was accepted: what failed is this one answer
    text = said.message or f"the provider reported an error without a message (code {said.code or 'none'})"
    return _error(verdict, _without(text, hide), said, None, None)


def finish_failure(reason: str) -> ContextOverflow | None:
    """Make the error for a finish reason which says that the window is full; None for any other reason."""
    verdict = verdict_of_code(reason, "")
    if verdict is None or verdict.kind is not ContextOverflow:
        return None
    return ContextOverflow(f"the model ended its answer at once: {reason}", provider_code=reason)


def reports_failure(chunk: Mapping[str, object]) -> bool:
    """Whether an object without any answer in it is an error report."""
    if chunk.get("error") or "error" in (chunk.get("type"), chunk.get("object")):
        return True
    return "choices" not in chunk and "code" in chunk and isinstance(chunk.get("message"), str)


# -- words ------------------------------------------------------------------------------------------------


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


def _verdict(said: Report, status: int | None, hide: Sequence[str]) -> Verdict:
    return (
        verdict_of_recognisers(status, said.code or said.type, _without(said.message, hide))
        or verdict_of_code(said.codes, said.words)
        or _verdict_of_access(said, status)
        or verdict_of_message(status, said.words)
        or Verdict(kind=_kind_of_status(status, said.codes))
    )


def _verdict_of_access(said: Report, status: int | None) -> Verdict | None:
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return Verdict(kind=QuotaExceeded)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or _KEY_CODE.search(said.codes.lower()):
        return Verdict(kind=AuthenticationFailed)
    return None


def _kind_of_status(status: int | None, codes: str) -> type[ProviderError]:
    match status:
        case None:
            return BadRequest if "invalid_request" in codes.lower() else StreamFailed
        case 413:
            return PayloadTooLarge
        case 429:
            return RateLimited
        case 408 | 504 | 524:  # 524: the time-out of a proxy
            return ProviderTimeout
        case 409 | 425:  # refused for the moment, not for what it says
            return ServerFailed
        case _:
            return ServerFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else BadRequest


def _error(verdict: Verdict, text: str, said: Report, status: int | None, retry_after: float | None) -> ProviderError:
    error = verdict.kind(text, status=status, provider_code=said.code or said.type or None, retry_after=retry_after)
    if isinstance(error, ContextOverflow):
        error.limit = verdict.limit if said.window is None else said.window
    elif isinstance(error, OutputCap):
        error.limit = verdict.limit
    elif isinstance(error, BadRequest | PayloadTooLarge):
        error.may_be_overflow = not said.codes and is_weak_sign(status, said.message)
    return error


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
