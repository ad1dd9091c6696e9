"""What is done to the text of a result before anybody sees it."""

from __future__ import annotations

import re
from typing import Final, cast

from agentscope_rx.wire import clean_text

_SEQUENCE: Final = (
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours and cursor
    r"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles and links
    r"|[PX^_][^\x1b\n]*\x1b\\"  # strings for the device
    r"|[ -/]+[0-~]"
    r"|[0-OQ-WYZ\\`-~]"
    r")"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_ANSI: Final = re.compile(_SEQUENCE + r"|\x1b")
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[PX^_][^\x1b\n]*\x1b?|[ -/]*)\Z")

#: No escape sequence that anybody writes is longer; what is, was none.
_LONGEST_SEQUENCE: Final = 2048


def clean(text: str) -> str:
    """The same text without ANSI escapes, with U+FFFD for NUL and for lone surrogates.

    PostgreSQL can store no NUL and no UTF-8 encoder writes a lone surrogate; both are replaced here, once, so
    that request, log and state hold the same text.

    Args:
        text: Any text.

    Examples:
        >>> clean("\\x1b[31mred\\x1b[0m")
        'red'
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ANSI.sub("", text)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return clean_text(text)


def split_unfinished(text: str) -> tuple[str, str]:
    """Split off an escape sequence that has begun at the end of the text and may go on in the next piece."""
    found = _BEGUN.search(text, max(0, len(text) - _LONGEST_SEQUENCE)) if "\x1b" in text else None
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


def cut(text: str, limit: int) -> str:
    """The same text, or its head and tail with a note between them that tells how much is missing.

    Args:
        text: Any text.
        limit: How many characters may be left, the note included.
    """
    if len(text) <= limit:
        return text
    middle = len(text) // 2
    return cut_between(text[:middle], text[middle:], 0, limit)


def cut_between(head: str, tail: str, missing: int, limit: int) -> str:
    """Join the two ends of a text of which `missing` characters are gone already; `limit` as for `cut`."""
    side = max(0, (limit - len(_note(missing + len(head) + len(tail)))) // 2)
    gone = missing + max(0, len(head) - side) + max(0, len(tail) - side)
    return head[:side] + _note(gone) + (tail[-side:] if side else "")


def _note(characters: int) -> str:
    return f"\n\n[... {characters:,} characters cut ...]\n\n"


def error_text(error: BaseException) -> str:
    """Say what went wrong as `ClassName: message`; never empty, never raises, no traceback.

    Args:
        error: Any exception; of a group, the first five of its exceptions are told too.

    Examples:
        >>> error_text(ValueError("no such city"))
        'ValueError: no such city'
    """
    cause = error.__cause__
    if isinstance(error, RuntimeError) and isinstance(cause, (StopIteration, StopAsyncIteration)):
        error = cause  # what Python makes of a StopIteration that leaves a coroutine
    try:
        message = clean(str(error)).strip()
    except KeyboardInterrupt:
        raise
    except BaseException:
        message = ""
    text = f"{type(error).__name__}: {message or '(no message)'}"
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions[:5]
        text += "".join(f"\n- {error_text(each)}" for each in inner)
    return text
