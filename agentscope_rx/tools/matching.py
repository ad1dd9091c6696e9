"""How a model's words for a search are understood, by every tool that searches texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agentscope_rx.tools.arguments import InvalidArguments

_MODES: Final = ("phrase", "all", "any")


def matcher(query: str, mode: str) -> Callable[[str], bool]:
    """What tells whether a text, in lower case, is meant by a query.

    Args:
        query: The words.
        mode: `phrase`: the query as it is. `all`: all of its words. `any`: one of them.

    Raises:
        InvalidArguments: The query is blank, or there is no such mode.
    """
    words = query.lower().split()
    if not words:
        raise InvalidArguments("query: must not be blank")
    match mode:
        case "phrase":
            phrase = query.lower().strip()
            return lambda text: phrase in text
        case "all":
            return lambda text: all(word in text for word in words)
        case "any":
            return lambda text: any(word in text for word in words)
        case _:
            raise InvalidArguments(f"matchMode: should be one of {', '.join(_MODES)}, got {mode!r}")
