"""A model whose answers are marble diagrams: each letter is a piece that comes in its second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from agentscope_rx.errors import ScriptEnded
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.testing.marbles import MarbleError, read_marks

ChunkLetters: TypeAlias = Mapping[str, ModelChunk | Exception]
_NO_LETTERS: Final[ChunkLetters] = {}


class MarbleModel:
    """Answers request after request as it is drawn, and keeps the requests.

    Args:
        answers: The diagrams, in order: `--a-b|` gives two pieces of text and ends, `--a#` breaks off, `--a` falls
            silent. Each begins when the model is asked; a column is a second.
        chunks: What letters stand for: chunks, or errors with which an answer ends. Others are pieces of text.
        name: The model's name.
        context_window: Its window in tokens; None = not known.
        max_output_tokens: How long an answer may be; None = not known.

    Attributes:
        requests: What it was asked.

    Raises:
        ScriptEnded: It is asked more often than there are answers.
        ValueError: A diagram cannot be read.

    Examples:
        >>> model = MarbleModel("--#", "-a-b|")
        >>> model.name
        'marbles'
    """

    def __init__(
        self,
        *answers: str,
        chunks: ChunkLetters = _NO_LETTERS,
        name: str = "marbles",
        context_window: int | None = None,
        max_output_tokens: int | None = None,
    ) -> None:
        self._answers = iter([read_marks(each) for each in answers])
        self._chunks, self.name = chunks, name
        self.context_window, self.max_output_tokens = context_window, max_output_tokens
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer as the next diagram says."""
        self.requests.append(request)
        marks = next(self._answers, None)
        if marks is None:
            raise ScriptEnded(f"the model {self.name!r} has no diagram for request {len(self.requests)}")
        asked = asyncio.get_running_loop().time()
        async for chunk in spoken([(asked + column, mark) for column, mark in marks], self._chunks):
            yield chunk


async def spoken(
    marks: Sequence[tuple[float, str]], chunks: ChunkLetters, said: Callable[[str], None] | None = None
) -> AsyncIterator[ModelChunk]:
    """Give the pieces of an answer, each at its moment of the loop's clock; one without an end falls silent.

    Args:
        marks: When each is due, and the letter.
        chunks: What letters stand for.
        said: Told of each letter when its moment has come.
    """
    finished, loop = False, asyncio.get_running_loop()
    for due, mark in marks:
        await asyncio.sleep(due - loop.time())
        if said is not None:
            said(mark)
        if mark == "|":
            if not finished:
                yield ModelChunk(finish_reason="stop")
            return
        chunk = MarbleError(mark) if mark == "#" else chunks.get(mark) or ModelChunk(text=mark)
        if isinstance(chunk, Exception):
            raise chunk
        finished = finished or chunk.finish_reason is not None
        yield chunk
    await loop.create_future()  # until nobody waits any more
