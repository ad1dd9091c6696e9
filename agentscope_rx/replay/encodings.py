"""Texts in other clothes: what a secret looks like inside JSON, in an address, or in Base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote_plus

_SHORTEST: Final = 16  # characters of Base64: of twelve bytes
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_SHORTEST},}}={{0,2}}")
_ESCAPED: Final = re.compile(r"[^\s\"'<>\\]*%[0-9A-Fa-f]{2}[^\s\"'<>\\]*")
_URL_SAFE: Final = str.maketrans("-_", "+/")


def json_forms(text: str) -> Iterator[str]:
    """A text, as it is and as it stands in JSON, and in JSON that stands in JSON.

    Examples:
        >>> [*json_forms('a"b')] == ['a"b', r'a\\"b', r'a\\\\\\"b']
        True
    """
    forms = {text: None}
    for _ in range(2):
        for each in [*forms]:
            forms |= {json.dumps(each, ensure_ascii=ascii)[1:-1]: None for ascii in (False, True)}
    yield from forms


def without_hidden(text: str, is_secret: Callable[[str], bool], removed: str) -> str:
    """A text without the words that are something secret in Base64 or with percent signs.

    Args:
        text: The text.
        is_secret: Whether something secret is in what a word says.
        removed: What stands in the place of such a word.
    """

    def escaped(found: re.Match[str]) -> str:
        return removed if is_secret(unquote_plus(found.group())) else found.group()

    def encoded(found: re.Match[str]) -> str:
        return removed if any(map(is_secret, _decoded(found.group()))) else found.group()

    if "%" in text:
        text = _ESCAPED.sub(escaped, text)
    return _BASE64.sub(encoded, text)


def _decoded(word: str) -> Iterator[str]:
    """What a word says in Base64, wherever in it that begins; nothing, where it says no text."""
    digits = word.rstrip("=").translate(_URL_SAFE)
    for start in range(4):
        part = digits[start:]
        part = part[:-1] if len(part) % 4 == 1 else part
        try:
            yield base64.b64decode(part + "=" * (-len(part) % 4), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
