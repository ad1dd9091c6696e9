"""Text that came from outside, made harmless for a terminal."""

from __future__ import annotations

import re
from typing import Final

from agentscope_rx.tools.texts import clean

#: C0 without tab and newline, DEL, C1, and what turns the direction of text or breaks its line.
_HARMFUL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The same text without control sequences, control characters and marks that turn its direction.

    Args:
        text: Text of a model, a tool or a provider.

    Examples:
        >>> plain("\\x1b[31mred\\x1b[0m\\r\\x07 and [bold]")
        'red and [bold]'
    """
    return _HARMFUL.sub("", clean(text))


def one_line(text: str, *, limit: int = 0) -> str:
    """The same text, harmless and in one line.

    Args:
        text: Any text.
        limit: How many characters may be left; 0 = all.

    Examples:
        >>> one_line("two\\n  lines")
        'two lines'
    """
    line = " ".join(plain(text).split())
    return fitted(line, limit) if limit else line


def fitted(line: str, limit: int) -> str:
    """The same line, harmless and cut where it is too long.

    Args:
        line: A line; its indentation is kept.
        limit: How many characters may be left.

    Examples:
        >>> fitted("    return 1  # as always", 12)
        '    return …'
    """
    line = plain(line).expandtabs(4).rstrip()
    return f"{line[: limit - 1]}…" if len(line) > limit else line


def harmless_json(line: str) -> str:
    """The same JSON, with what a terminal could act on written as escapes.

    Args:
        line: JSON text, in which such characters can only stand inside strings.

    Examples:
        >>> harmless_json('"\\x9b2J"')
        '"\\\\u009b2J"'
    """
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
