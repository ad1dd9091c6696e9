"""Turns whatever a tool returned into the blocks of a tool result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import (
    NOTHING,
    Base64Source,
    DataBlock,
    Msg,
    OutputBlock,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    URLSource,
)
from agentscope_rx.tools.plain import plain, plain_text
from agentscope_rx.tools.texts import clean, cut, error_text
from agentscope_rx.wire import clean_text

#: What a result without any says, since providers refuse an empty one.
NO_OUTPUT: Final = "(no output)"
#: How many characters the texts of one result have at most, where nothing else was said.
MAX_RESULT_CHARS: Final = 1_000_000


@frozen(kw_only=False)
class Converted:
    """A tool's return value as a result holds it.

    Args:
        output: At least one block, and never one with blank text alone.
        state: ERROR for an exception, a result block's own state, else SUCCESS.
        metadata: A result block's own metadata, as plain JSON values.
    """

    output: tuple[OutputBlock, ...]
    state: ToolResultState = ToolResultState.SUCCESS
    metadata: Mapping[str, object] = field(default_factory=lambda: NOTHING)


def convert(value: object, *, max_chars: int = MAX_RESULT_CHARS) -> Converted:
    """Turn a value into blocks; never raises for what the value is or does.

    A text stays plain text, blocks stay blocks, a message gives its text and data blocks, bytes are decoded,
    an exception becomes an error, and everything else becomes compact JSON, with non-ASCII text readable.
    ANSI escapes are removed.

    Args:
        value: What a tool returned.
        max_chars: How many characters the texts may have in all; of longer ones head and tail are kept.
            Default 1,000,000.

    Examples:
        >>> convert({"city": "Zürich"}).output
        (TextBlock(type='text', text='{"city":"Zürich"}'),)
    """
    try:
        return _convert(value, max_chars)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a subclass of one of our values that misbehaves when it is read
        return Converted((TextBlock(text=f"<{type(value).__name__}>"),), ToolResultState.ERROR)


def _convert(value: object, max_chars: int) -> Converted:
    if type(value) is str:
        return Converted(_fitting((TextBlock(text=clean(value)),), max_chars))
    if isinstance(value, Msg) and value.tool_result is not None:
        value = value.tool_result
    if isinstance(value, ToolResultBlock):
        return Converted(_fitting(_blocks(value.output), max_chars), _state(value), _metadata(value))
    if isinstance(value, BaseException):
        return Converted(_fitting((TextBlock(text=error_text(value)),), max_chars), ToolResultState.ERROR)
    if isinstance(value, Msg):
        return Converted(_fitting(_blocks(_shown(value)), max_chars))
    if isinstance(value, (TextBlock, DataBlock)):
        return Converted(_fitting(_blocks((value,)), max_chars))
    items = cast("Iterable[object]", value if isinstance(value, (list, tuple)) else ())
    if any(isinstance(item, (TextBlock, DataBlock)) for item in items):
        return Converted(_fitting(_blocks(items), max_chars))
    text = "" if value is None else plain_text(cast("object", value))
    return Converted(_fitting((TextBlock(text=text),), max_chars))


def _shown(message: Msg) -> tuple[OutputBlock, ...]:
    return tuple(block for block in message.content if isinstance(block, (TextBlock, DataBlock)))


def _state(result: ToolResultBlock) -> ToolResultState:
    try:
        return ToolResultState(result.state)
    except ValueError:
        return ToolResultState.ERROR


def _metadata(result: ToolResultBlock) -> Mapping[str, object]:
    shown = plain(result.metadata) if result.metadata else None
    return cast("Mapping[str, object]", shown) if isinstance(shown, dict) else NOTHING


def _blocks(items: Iterable[object]) -> tuple[OutputBlock, ...]:
    return tuple(_block(item) for item in items)


def _block(item: object) -> OutputBlock:
    if isinstance(item, DataBlock):
        return _clean_data(item)
    text = item.text if isinstance(item, TextBlock) else item
    return TextBlock(text="" if text is None else plain_text(text))


def _clean_data(block: DataBlock) -> DataBlock:
    """The same block where its texts can be encoded, as those of nearly every block can."""
    match block.source:
        case URLSource(url=url, mime_type=kind):
            source = URLSource(url=clean_text(url), mime_type=clean_text(kind) if kind else kind)
        case Base64Source(data=data, media_type=kind):
            source = Base64Source(data=clean_text(data), media_type=clean_text(kind))
    name = clean_text(block.name) if block.name else block.name
    return replace(block, source=source, id=clean_text(block.id), name=name)


def _fitting(blocks: tuple[OutputBlock, ...], max_chars: int) -> tuple[OutputBlock, ...]:
    """The blocks without blank texts, and with at most so many characters of text."""
    kept = tuple(block for block in blocks if not isinstance(block, TextBlock) or not _blank(block.text))
    if not kept:
        return (TextBlock(text=NO_OUTPUT),)
    texts = [block.text for block in kept if isinstance(block, TextBlock)]
    if sum(map(len, texts)) <= max_chars:
        return kept
    data = (block for block in kept if isinstance(block, DataBlock))
    return (TextBlock(text=cut("\n".join(texts), max_chars)), *data)


def _blank(text: str) -> bool:
    return not text or text.isspace()
