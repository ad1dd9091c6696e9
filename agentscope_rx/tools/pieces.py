"""What a tool gives piece by piece: shown at once, and joined to one result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from agentscope_rx.errors import RunError
from agentscope_rx.messages import DataBlock, OutputBlock, TextBlock, ToolResultBlock
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.plain import plain_text
from agentscope_rx.tools.texts import clean, cut_between, split_unfinished

#: More pieces than any real tool gives; an iterator without end is stopped here.
MAX_PIECES: Final = 1_000_000
#: An iterator that never waits lets other tasks run, and its time-out happen, after so many pieces.
_BREATH: Final = 100


class EndlessResult(RunError):
    """An iterator gave so many pieces that it has no end, and was stopped."""


class Pieces:
    """Collects what an iterator gives.

    Args:
        report: Gets each piece as soon as it is there.
        max_chars: How much text is kept in memory, about: its head and its tail.
    """

    __slots__ = (
        "_blocks",
        "_chars",
        "_head",
        "_limit",
        "_missing",
        "_report",
        "_texts",
        "_unfinished",
        "count",
    )

    def __init__(self, report: Callable[[str | DataBlock], None], max_chars: int) -> None:
        self.count = 0
        self._texts: list[str] = []
        self._report = report
        self._limit = max_chars
        self._blocks: list[OutputBlock] = []
        self._chars = 0  # of `_texts`
        self._head: str | None = None  # once the middle is gone
        self._missing = 0
        self._unfinished = ""

    def add(self, piece: object) -> ToolResultBlock | None:
        """Take a piece; a `ToolResultBlock` is given back, since it is the result itself.

        Raises:
            EndlessResult: There are too many.
            BaseException: The piece is an exception, which ends the iterator as if it had raised it.
        """
        self.count += 1
        if self.count > MAX_PIECES:
            raise EndlessResult(f"the tool gave more than {MAX_PIECES:,} pieces and was stopped")
        if isinstance(piece, BaseException):
            raise piece
        if isinstance(piece, ToolResultBlock):
            return piece
        if isinstance(piece, DataBlock):
            self._end_text()
            self._blocks.append(piece)
            self._report(piece)
        elif isinstance(piece, str):
            self._add_text(piece)
        elif isinstance(piece, TextBlock):
            self._add_text(piece.text)
        elif piece is not None:
            self._add_text(plain_text(piece) + "\n")
        return None

    def blocks(self) -> list[OutputBlock]:
        """What has come so far."""
        self._end_text()
        return list(self._blocks)

    def _add_text(self, piece: str) -> None:
        whole, self._unfinished = split_unfinished(self._unfinished + piece)
        self._add_whole(clean(whole))

    def _add_whole(self, text: str) -> None:
        if not text:
            return
        self._report(text)
        self._texts.append(text)
        self._chars += len(text)
        if self._chars > 2 * self._limit:
            self._drop_middle()

    def _drop_middle(self) -> None:
        text, side = "".join(self._texts), self._limit // 2
        if self._head is None:
            self._head, text = text[:side], text[side:]
        self._missing += len(text) - side
        self._texts[:] = [text[-side:]]
        self._chars = side

    def _end_text(self) -> None:
        unfinished, self._unfinished = self._unfinished, ""
        self._add_whole(clean(unfinished))
        text = "".join(self._texts)
        if self._head is not None:
            text = cut_between(self._head, text, self._missing, self._limit)
        if text:
            self._blocks.append(TextBlock(text=text))
        self._texts.clear()
        self._head, self._missing, self._chars = None, 0, 0


async def settle(value: object, context: ToolContext, pieces: Pieces) -> object:
    """Wait for what can be awaited, and take all pieces of what can be iterated once.

    Args:
        value: What a tool returned.
        context: Its context, for iterators that may block: they run in a thread.
        pieces: Where the pieces go.

    Returns:
        A value that is complete: the pieces joined, or `value` itself.
    """
    if type(value) is str:
        return value
    while inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncIterable):
        return await _take_all(cast("AsyncIterable[object]", value), pieces)
    if isinstance(value, Iterator):
        return await context.in_thread(_take, cast("Iterator[object]", value), context, pieces)
    return value


async def _take_all(values: AsyncIterable[object], pieces: Pieces) -> object:
    iterator = aiter(values)
    final = None
    try:
        async for piece in iterator:
            final = pieces.add(piece)
            if final is not None:
                break
            if pieces.count % _BREATH == 0:
                await asyncio.sleep(0)
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()
    return _joined(final, pieces)


def _take(values: Iterator[object], context: ToolContext, pieces: Pieces) -> object:
    final = None
    try:
        for piece in values:
            context.cancelled.raise_if_set()
            final = pieces.add(piece)
            if final is not None:
                break
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()
    return _joined(final, pieces)


def _joined(final: ToolResultBlock | None, pieces: Pieces) -> object:
    if final is None:
        return pieces.blocks() or None
    return final if final.output else replace(final, output=tuple(pieces.blocks()))
