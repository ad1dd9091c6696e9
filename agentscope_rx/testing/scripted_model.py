"""A model that answers from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from agentscope_rx.errors import ScriptEnded
from agentscope_rx.requests import CallDelta, ModelChunk, ModelRequest
from agentscope_rx.usage import ChatUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """One answer: pieces, and how long each takes to come."""

    chunks: tuple[ModelChunk | Exception, ...]
    delay: float = 0.0

    def after(self, seconds: float) -> ScriptedTurn:
        """The same answer, each of whose pieces comes so many seconds after the one before."""
        return replace(self, delay=seconds)

    def failing(self, error: Exception) -> ScriptedTurn:
        """The same answer, which breaks off with an error."""
        return replace(self, chunks=(*self.chunks[:-1], error))


Scripted: TypeAlias = ScriptedTurn | Exception | str


def text(*pieces: str, thinking: str = "", usage: ChatUsage | None = None) -> ScriptedTurn:
    """An answer in words, piece by piece."""
    thoughts = (ModelChunk(thinking=thinking),) if thinking else ()
    words = tuple(ModelChunk(text=piece) for piece in pieces)
    return ScriptedTurn(chunks=(*thoughts, *words, ModelChunk(finish_reason="stop", usage=usage)))


def calls(*wanted: tuple[str, str, str], text: str = "", usage: ChatUsage | None = None) -> ScriptedTurn:
    """An answer that calls tools.

    Args:
        wanted: Id, name and arguments (as JSON) of each call.
        text: What the model says before.
        usage: What the call consumed.
    """
    words = (ModelChunk(text=text),) if text else ()
    deltas = tuple(
        ModelChunk(calls=(CallDelta(index, id, name, arguments),)) for index, (id, name, arguments) in enumerate(wanted)
    )
    return ScriptedTurn(chunks=(*words, *deltas, ModelChunk(finish_reason="tool_calls", usage=usage)))


class ScriptedModel:
    """Answers request after request from a script, and keeps the requests.

    Args:
        script: What it answers, in order: turns, plain texts, or errors to raise. An iterator may be endless.
        name: The model's name.
        context_window: Its window in tokens; None = not known.
        max_output_tokens: How long an answer may be; None = not known.
        keep_requests: Whether `requests` is filled; not for runs of thousands of steps.
        json_schema: Whether it takes part as a model that is held to a JSON schema.

    Attributes:
        requests: What it was asked.
        asked: How often.

    Raises:
        ScriptEnded: It is asked more often than the script has answers.

    Examples:
        >>> model = ScriptedModel([calls(("c1", "look", "{}")), text("Done.")])
    """

    def __init__(
        self,
        script: Iterable[Scripted],
        *,
        name: str = "scripted",
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        keep_requests: bool = True,
        json_schema: bool = False,
    ) -> None:
        self._script = iter(script)
        self.name = name
        self.context_window = context_window
        self.max_output_tokens = max_output_tokens
        self.json_schema = json_schema
        self.requests: list[ModelRequest] = []
        self.asked = 0
        self._keep_requests = keep_requests

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer with the script's next turn."""
        self.asked += 1
        if self._keep_requests:
            self.requests.append(request)
        turn = next(self._script, None)
        if turn is None:
            raise ScriptEnded(f"the script of model {self.name!r} has no answer to request {self.asked}")
        if isinstance(turn, Exception):
            raise turn
        for chunk in _turn(turn).chunks:
            if delay := _turn(turn).delay:
                await asyncio.sleep(delay)
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def _turn(scripted: ScriptedTurn | str) -> ScriptedTurn:
    return text(scripted) if isinstance(scripted, str) else scripted
