"""The blocks of a request that was sent, out of the texts that the model read.

A block was laid out between tags of its own, and its account holds a hash of its text. So it is found between these
tags, and known by the hash: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from agentscope_rx.blocks import RUNTIME_KINDS, ContextBlock
from agentscope_rx.context.layout import render_block
from agentscope_rx.digests import block_digest
from agentscope_rx.requests import ModelRequest

_TEXT: Final = "\x00"
_ENTITIES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&"))
_MOST_LINES: Final = 40

#: An item of a manifest, as a log has it.
Account = Mapping[str, Any]


def sent_block(request: ModelRequest, item: Account) -> ContextBlock | None:
    """The block of an item; None where the request does not show it word for word.

    Args:
        request: The request, as it was sent.
        item: The account of the block.
    """
    block = ContextBlock(
        id=item["sourceId"],
        kind=item["sourceType"],
        text="",
        required=item["required"],
        priority=item["priority"],
        revision=item["revision"],
    )
    for text in _candidates(request, block):
        found = block.with_text(text)
        if block_digest(found) == item["contentHash"]:
            return found
    return None


def _candidates(request: ModelRequest, block: ContextBlock) -> Iterator[str]:
    """The texts that it may have had."""
    head, _, foot = render_block(block.with_text(_TEXT)).partition(_TEXT)
    for text in (request.system, *(message.text for message in request.tail)):
        shown = _lines(text) if block.kind in RUNTIME_KINDS else _between(text, head, foot)
        for each in shown:
            yield each
            yield _unquoted(each)
            yield each.replace("&lt;", "<")  # of an instruction only what would have closed it was quoted


def _between(text: str, head: str, foot: str) -> Iterator[str]:
    if not head:
        return
    begin = text.find(head)
    while begin >= 0:
        begin += len(head)
        end = text.find(foot, begin)
        while end >= 0:
            yield text[begin:end]
            end = text.find(foot, end + 1)
        begin = text.find(head, begin)


def _lines(text: str) -> Iterator[str]:
    """All runs of whole lines of a short text: of what has no tags of its own."""
    lines = text.splitlines()
    if len(lines) <= _MOST_LINES:
        yield from ("\n".join(lines[begin:end]) for begin, end in combinations(range(len(lines) + 1), 2))


def _unquoted(text: str) -> str:
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text
