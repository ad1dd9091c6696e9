"""Requests that are too long, told from what only looks like them: a table of wordings, and recognisers of users.

The table is `overflow.json`, which says how it is read. No HTTP status makes an overflow: providers report it with
200, 400, 413, 500 and 503, and use nearly the same words for throttling, for bodies of too many bytes and for
answers that may not be as long as was asked for.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias, TypeGuard, cast

from agentscope_rx.errors import (
    BadRequest,
    ContextOverflow,
    InvalidOption,
    OutputCap,
    PayloadTooLarge,
    ProviderError,
    QuotaExceeded,
    RateLimited,
)
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.wire import from_json

OverflowRecogniser: TypeAlias = Callable[[int | None, str, str], type[ProviderError] | None]
"""Gets the HTTP status (None inside a stream), the provider's code and its innermost message; None = no opinion."""

_KINDS: Final[Mapping[str, type[ProviderError]]] = {
    kind.kind: kind for kind in (BadRequest, ContextOverflow, OutputCap, PayloadTooLarge, QuotaExceeded, RateLimited)
}
#: Refused for who asks, or how often: what was asked has not been looked at.
_NOT_READ: Final = frozenset({401, 402, 403, 429})

_PLACEHOLDER: Final = re.compile(r"\{(number|window|input|tools|output|cap)\}")
_NUMBER: Final = r"\d{1,15}(?:[,_]\d{3}){0,4}"
_PLAIN_QUOTES: Final = str.maketrans("‘’“”", "''\"\"")
#: From a quotation mark to the one that belongs to it, or to the end where that was cut off.
_QUOTATION: Final = re.compile(
    r"""(?<!\w)(?:'(?:\\.?|[^'\\]|'(?=\w))*(?:'|$)|"(?:\\.?|[^"\\])*(?:"|$)|`[^`]*(?:`|$))""", re.DOTALL
)


@frozen
class Entry:
    """A row of the table; `overflow.json` says what its fields mean."""

    id: str
    kind: type[ProviderError] | None
    code: re.Pattern[str] | None
    message: re.Pattern[str] | None
    status: tuple[int | None, ...] | None
    output_below: float
    weak: bool

    def stands_for(self, status: int | None) -> bool:
        """Whether its message decides at this status."""
        return status in self.status if self.status is not None else status not in _NOT_READ


@frozen
class Verdict:
    """What became of an error.

    Args:
        kind: Its class.
        limit: The window of a `ContextOverflow`, or the largest output of an `OutputCap`, in tokens; None = not told.
    """

    kind: type[ProviderError]
    limit: int | None = None


@cache
def table() -> tuple[Entry, ...]:
    """The entries in their order, read from the file on first use."""
    data = from_json((files("agentscope_rx.models") / "overflow.json").read_bytes())
    return tuple(_entry(row) for row in cast("dict[str, Any]", data)["entries"])


def verdict_of_code(codes: str, message: str) -> Verdict | None:
    """Decide by the codes of an error, where one of them is telling.

    Args:
        codes: All its codes and types, parted by blanks.
        message: Its innermost message; only numbers are read from it.
    """
    for entry in table():
        if entry.kind and entry.code and entry.code.search(codes):
            return _weighed(entry.kind, *_numbers(_provider_words(message)))
    return None


def verdict_of_message(status: int | None, message: str) -> Verdict | None:
    """Decide by the innermost message of an error.

    Args:
        status: The HTTP status; None = it came inside a stream.
        message: The message; what it quotes is not looked at.
    """
    words = _provider_words(message)
    for entry in table():
        if entry.kind and entry.message and entry.message.search(words):
            return _weighed(entry.kind, *_numbers(words)) if entry.stands_for(status) else None
    return None


def is_weak_sign(status: int | None, message: str) -> bool:
    """Whether an error without any code may be an overflow, which only the size of the request can tell."""
    return any(
        entry.message is not None and entry.stands_for(status) and entry.message.search(message.strip())
        for entry in table()
        if entry.weak
    )


# -- reading the table --------------------------------------------------------------------------------------


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        id=row["id"],
        kind=_KINDS[row["kind"]] if "kind" in row else None,
        code=re.compile(row["code"], re.IGNORECASE) if "code" in row else None,
        message=_pattern(row["message"]) if "message" in row else None,
        status=tuple(row["status"]) if "status" in row else None,
        output_below=row.get("output_below", 0.5),
        weak=row.get("weak", False),
    )


def _pattern(written: str) -> re.Pattern[str]:
    # An alternation may name a number in each of its branches, a regular expression only once: hence the counting.
    seen = 0

    def group(found: re.Match[str]) -> str:
        nonlocal seen
        seen += 1
        return _NUMBER if found[1] == "number" else f"(?P<{found[1]}_{seen}>{_NUMBER})"

    return re.compile(_PLACEHOLDER.sub(group, written), re.IGNORECASE)


# -- reading a message --------------------------------------------------------------------------------------


def _provider_words(message: str) -> str:
    """The message without the sentences that it quotes, which may be the user's; names in quotes stay."""
    text = message.translate(_PLAIN_QUOTES).strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`" and text[0] not in text[1:-1]:
        text = text[1:-1]  # all of it is in quotes: it is what the provider says
    text = text.partition("input_value=")[0]  # a validator of pydantic shows what it was given
    return _QUOTATION.sub(lambda quoted: "…" if " " in quoted[0] else quoted[0], text)


def _numbers(words: str) -> tuple[Mapping[str, int], float]:
    """The numbers of the first entry that finds some, and its `output_below`."""
    for entry in table():
        found = entry.message.search(words) if entry.message else None
        numbers = {
            name.partition("_")[0]: int(re.sub("[,_]", "", number))
            for name, number in (found.groupdict() if found else {}).items()
            if number
        }
        if numbers:
            return numbers, entry.output_below
    return {}, 0.0


def _weighed(kind: type[ProviderError], numbers: Mapping[str, int], output_below: float) -> Verdict:
    """Let the numbers say which part is too long: where the input leaves room, it is the output that was asked for."""
    if kind is not ContextOverflow and kind is not OutputCap:
        return Verdict(kind=kind)
    window, cap = numbers.get("window"), numbers.get("cap")
    if window is None or "input" not in numbers:
        return Verdict(kind=kind, limit=window if kind is ContextOverflow else cap)
    taken = numbers["input"] + numbers.get("tools", 0)
    room = window - taken
    is_small = taken <= output_below * window and numbers.get("output", window) > room
    if room > 0 and (kind is OutputCap or is_small):
        return Verdict(kind=OutputCap, limit=room)
    return Verdict(kind=ContextOverflow, limit=window)


# -- recognisers of users -----------------------------------------------------------------------------------

_lock: Final = threading.Lock()
_recognisers: Final[dict[object, OverflowRecogniser]] = {}


def register_overflow_recogniser(recogniser: OverflowRecogniser) -> Callable[[], None]:
    """Have errors of models looked at by a function of yours, before the table of known wordings.

    Of several the one registered first is asked first, and the first answer counts. One that raises is logged and
    passed over. Windows and output limits are read from the message as usual.

    Args:
        recogniser: Gets the HTTP status (None inside a stream), the provider's code ("" without one) and its
            innermost message; gives the class of the error, or None to leave it to others. It is called on the
            event loop for every failed model call and must not block.

    Returns:
        A function that removes it again; calling it twice does no harm.

    Raises:
        InvalidOption: It cannot be called.

    Examples:
        >>> def acme(status: int | None, code: str, message: str) -> type[ProviderError] | None:
        ...     return ContextOverflow if code == "ACME-17" else None
        >>> remove = register_overflow_recogniser(acme)
        >>> recognised(400, "ACME-17", "no room").__name__
        'ContextOverflow'
        >>> remove()
    """
    if not callable(recogniser):
        raise InvalidOption("recogniser", recogniser, "it is a function of status, code and message")
    key = object()
    with _lock:
        _recognisers[key] = recogniser

    def remove() -> None:
        with _lock:
            _recognisers.pop(key, None)

    return remove


def recognised(status: int | None, code: str, message: str) -> type[ProviderError] | None:
    """What the first recogniser with an opinion says."""
    with _lock:
        asked = tuple(_recognisers.values())
    for recogniser in asked:
        try:
            kind = recogniser(status, code, message)
        except Exception as error:
            logger().warning("overflow_recogniser_failed", error=type(error).__name__)
            continue
        if _is_kind(kind):
            return kind
        if kind is not None:
            logger().warning("overflow_recogniser_refused", given=type(kind).__name__)
    return None


def verdict_of_recognisers(status: int | None, code: str, message: str) -> Verdict | None:
    """Decide as the recognisers do, who know better than the numbers; these only give the limit."""
    kind = recognised(status, code, message)
    if kind is None:
        return None
    numbers, _ = _numbers(_provider_words(message))
    name = "window" if issubclass(kind, ContextOverflow) else "cap" if issubclass(kind, OutputCap) else ""
    return Verdict(kind=kind, limit=numbers.get(name))


def _is_kind(given: object) -> TypeGuard[type[ProviderError]]:
    return isinstance(given, type) and issubclass(given, ProviderError)
