"""What a provider said in an error, taken out of everything that is wrapped around it.

Only the innermost message and its codes are taken. The rest of a body may quote the user, and is never looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.wire import from_json

_MESSAGE_LIMIT: Final = 1_000
_HTML_LIMIT: Final = 200
_WRAPPED_LIMIT: Final = 20_000
_NESTING: Final = 6

#: What a gateway puts before the words that it passes on: the names of its errors, one after the other.
_CLASSES: Final = re.compile(r"\s*(?:(?:[\w.]{0,80}(?:Error|Exception)|Error code: \d{3})(?:: | - |:|$)\s*){1,8}")
#: And what LiteLLM puts behind them.
_ASIDE: Final = re.compile(r"[\s.]*\bReceived Model Group=.*", re.DOTALL)
#: An escape that `repr` does not write, at which Python's parser would warn.
_ODD_ESCAPE: Final = re.compile(r"\\[^\\'\"nrtxuU]")
_TAG: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


@frozen
class Report:
    """What a provider said.

    Args:
        message: The innermost message, on one line and shortened; "" = there is none.
        code: Its code, as text.
        type: Its type.
        classes: The names of errors that gateways put before the message.
        window: The window in tokens, where a field of its own tells it.
    """

    message: str = ""
    code: str = ""
    type: str = ""
    classes: str = ""
    window: int | None = None

    @property
    def codes(self) -> str:
        """Everything that may be a telling code, parted by blanks."""
        return f"{self.code} {self.type} {self.classes}".strip()

    @property
    def words(self) -> str:
        """The message without names of errors before it."""
        return self.message[len(_class_names(self.message)) :].strip() or self.message


def read_report(payload: object, depth: int = 0) -> Report:
    """Unwrap bytes, lists, `error` objects, messages that are themselves JSON, and what gateways put around them.

    Args:
        payload: The body of an answer or the data of an event, as bytes or decoded.
        depth: How many wrappings were taken off before.
    """
    if isinstance(payload, bytes | str):
        return _text_report(payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload, depth)
    if isinstance(payload, list):
        items = cast("list[object]", payload)
        return read_report(items[0] if items and depth < _NESTING else {}, depth + 1)
    if not isinstance(payload, dict):
        return Report()
    outer = cast("dict[str, object]", payload)
    error = outer.get("error")
    if isinstance(error, dict) and depth < _NESTING:
        return read_report(cast("dict[str, object]", error), depth + 1)
    return _object_report(outer, error if isinstance(error, str) else _first_text(outer), depth)


def _text_report(text: str, depth: int) -> Report:
    names = _class_names(text)
    inner = _decoded(text, names) if depth < _NESTING else None
    if inner is None:
        return Report(message=_shortened(text), classes=_shortened(names))
    deeper = read_report(inner, depth + 1)
    return Report(
        message=deeper.message or (_shortened(text) if names else ""),
        code=deeper.code,
        type=deeper.type,
        classes=f"{_shortened(names)} {deeper.classes}".strip(),
        window=deeper.window,
    )


def _object_report(error: Mapping[str, object], message: str, depth: int) -> Report:
    metadata = error.get("metadata")
    # A router wraps the words of the provider behind it, which say more than its own.
    raw = cast("dict[str, object]", metadata).get("raw") if isinstance(metadata, dict) else None
    deeper = read_report(raw if isinstance(raw, str) and raw.strip() else message, depth + 1)
    told = deeper if deeper.message else Report(message=_shortened(message))
    window = error.get("n_ctx")
    return Report(
        message=told.message,
        code=told.code or _text(error.get("code")),
        type=told.type or _text(error.get("type")),
        classes=told.classes,
        window=window if isinstance(window, int) else told.window,
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


def _class_names(text: str) -> str:
    found = _CLASSES.match(text)
    return found[0] if found else ""


def _decoded(text: str, names: str) -> object:
    """The JSON that a text is, or what a gateway wrote behind names of errors: JSON, or bytes or a dict of Python."""
    body = text[len(names) :].strip()
    if names:
        body = _ASIDE.sub("", body)
    if body.startswith(("{", "[")):
        try:
            return from_json(body)
        except (ValueError, RecursionError):
            pass  # it may be a dict of Python, which is tried next; what is neither is only text
    is_python = bool(names) and body.startswith(("{", "[", "b'")) and not _ODD_ESCAPE.search(body)
    if not is_python or len(body) > _WRAPPED_LIMIT:
        return None
    try:
        return ast.literal_eval(body)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
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
