"""Digests of what a request holds: short hashes by which items are compared without repeating their text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.history import Exchange, Measure
from agentscope_rx.messages import NOTHING, Msg, message_adapter
from agentscope_rx.requests import ToolSpec
from agentscope_rx.wire import clean_text, to_json, write

DIGEST_LENGTH: Final = 16
_REMEMBERED_TOOLS: Final = 1_024


class _Digests:
    """Sixteen hexadecimal digits for each message, one after the other, as a measure."""

    def of(self, exchange: Exchange, /) -> str:
        return "".join(map(message_digest, exchange.messages))

    def join(self, parts: Sequence[str], /) -> str:
        return "".join(parts)


DIGESTS: Final[Measure[str]] = _Digests()


def digest_of(data: bytes) -> str:
    """The digest of bytes."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def message_digest(message: Msg) -> str:
    """A hash of role and content; also of text that cannot be written as UTF-8."""
    return digest_of(
        write(message_adapter(), replace(message, id="", name=None, metadata=NOTHING, timestamp="", usage=None))
    )


def block_digest(block: ContextBlock) -> str:
    """A hash of the text."""
    return digest_of(clean_text(block.text).encode())


#: Tools by their identity, each with its digest; the tool itself keeps its identity from being used again.
_tools: Final[dict[int, tuple[ToolSpec, str]]] = {}


def tool_digest(tool: ToolSpec) -> str:
    """A hash of name, description and schema."""
    known = _tools.get(id(tool))
    if known is not None:
        return known[1]
    digest = digest_of(to_json(tool))
    if len(_tools) >= _REMEMBERED_TOOLS:
        _tools.clear()  # at once, since dropping one by one is not safe among threads
    _tools[id(tool)] = tool, digest
    return digest


def digest_of_all(parts: Iterable[str]) -> str:
    """A hash of digests in their order."""
    return digest_of("".join(parts).encode())
