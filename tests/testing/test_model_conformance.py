"""The check of models: ours pass it, and each broken one is told which rule it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from agentscope_rx.errors import ConformanceFailed
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.testing import FakeProvider, ScriptedModel, check_model
from agentscope_rx.testing.fake_provider import ScriptedReply, failure, stream
from agentscope_rx.testing.scripted_model import Scripted, ScriptedTurn, text
from tests.virtual import virtual


def reply_of(scripted: Scripted) -> ScriptedReply:
    """What a provider sends where a scripted model gives this answer."""
    if isinstance(scripted, Exception):
        return failure(503, {"error": {"message": str(scripted)}})
    turn = text(scripted) if isinstance(scripted, str) else scripted
    return stream([item for chunk in turn.chunks for item in items_of(chunk)])


def items_of(chunk: ModelChunk | Exception) -> list[dict[str, Any]]:
    if isinstance(chunk, Exception):
        return [{"cut": True}]
    if chunk.finish_reason is not None:
        end: dict[str, Any] = {"d": {}, "f": chunk.finish_reason}
        usage = chunk.usage
        if usage is None:
            return [end]
        told = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        return [end, {"choices": [], "usage": {**told, "total_tokens": sum(told.values())}}]
    called = [
        {"index": each.index, "id": each.id, "type": "function", "function": {"name": each.name, "arguments": ""}}
        for each in chunk.calls
    ]
    pieces = [{"index": each.index, "function": {"arguments": each.arguments}} for each in chunk.calls]
    deltas = [{"content": chunk.text}] if chunk.text else []
    deltas += [{"tool_calls": each} for each in (called, pieces) if each]
    return [{"d": delta, "f": None} for delta in deltas]


@pytest.mark.parametrize("kind", [HttpxChatModel, OpenAIChatModel])
async def test_the_models_over_http(kind: type[HttpxChatModel | OpenAIChatModel]) -> None:
    """Both models keep every rule before a real provider."""

    @asynccontextmanager
    async def make(script: Sequence[Scripted]) -> AsyncGenerator[HttpxChatModel | OpenAIChatModel]:
        async with FakeProvider(list(map(reply_of, script))) as provider:
            yield kind("fake-model", base_url=provider.base_url, api_key="k")

    await check_model(make)


class Broken(ScriptedModel):
    """A scripted model that breaks one rule."""

    def __init__(self, script: Sequence[Scripted], fault: str) -> None:
        super().__init__(script, name=" " if fault == "name" else "scripted")
        self.fault = fault
        self.context_window = 0 if fault == "window" else None
        self.numbers = count()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.failed = False

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        if self.fault == "one loop" and loop is not self.loop:
            raise RuntimeError("another loop")
        if self.fault == "task":
            self.tasks.append(loop.create_task(asyncio.sleep(3_600)))
        if self.fault == "stuck" and self.failed:
            raise RuntimeError("stuck")
        try:
            async for chunk in super().stream(request):
                yield self.spoiled(chunk)
                if self.fault == "mixes":
                    await asyncio.sleep(0)
        except Exception as error:
            self.failed = True
            if self.fault == "other error":
                raise RuntimeError("no provider error") from error
            if self.fault != "swallows":
                raise

    def spoiled(self, chunk: ModelChunk) -> ModelChunk:
        match self.fault:
            case "strips":
                return replace(chunk, text=chunk.text.strip())
            case "parses":
                return replace(chunk, calls=tuple(replace(each, arguments="{}") for each in chunk.calls))
            case "counts":
                return replace(chunk, calls=tuple(replace(each, index=each.index + 1) for each in chunk.calls))
            case "renames":
                return replace(chunk, calls=tuple(replace(each, id=f"x{next(self.numbers)}") for each in chunk.calls))
            case "no reason":
                return replace(chunk, finish_reason=None)
            case "no usage":
                return replace(chunk, usage=None)
            case "mixes":
                return replace(chunk, text=f"{next(self.numbers)}") if "answer" in chunk.text else chunk
            case _:
                return chunk


FAULTS = {
    "name": "a model has a name",
    "window": "context_window is a positive number",
    "strips": "the pieces of a text join to what was sent",
    "parses": "ids, names and arguments of calls are passed on word for word",
    "counts": "calls are counted from 0",
    "renames": "ids, names and arguments of calls are passed on word for word",
    "no reason": "the provider's reason to stop is told once",
    "no usage": "what a call consumed is told",
    "swallows": "a failure of the provider is a ProviderError, and nothing was raised",
    "other error": "a failure of the provider is a ProviderError, not RuntimeError",
    "stuck": "the model raised what no rule allows: RuntimeError",
    "mixes": "requests at the same time get an answer each, unmixed",
    "task": "who leaves an answer leaves no task behind",
    "one loop": "the model raised what no rule allows: RuntimeError",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_model(fault: str) -> None:
    """Each rule is broken by some model, and is then named."""
    made: list[Broken] = []

    @asynccontextmanager
    async def make(script: Sequence[Scripted]) -> AsyncGenerator[Broken]:
        model = Broken(script, fault)
        made.append(model)
        yield model

    try:
        with pytest.raises(ConformanceFailed, match=FAULTS[fault]):
            await check_model(make)
    finally:
        for task in [task for model in made for task in model.tasks if task.get_loop() is asyncio.get_running_loop()]:
            task.cancel()


@virtual
async def test_the_scripted_model() -> None:
    """The model of the tests is itself one that keeps every rule; a model that never answers is told so."""

    @asynccontextmanager
    async def make(script: Sequence[Scripted]) -> AsyncGenerator[ScriptedModel]:
        yield ScriptedModel(script)

    await check_model(make)

    @asynccontextmanager
    async def slow(script: Sequence[Scripted]) -> AsyncGenerator[ScriptedModel]:
        turns = (text(each) if isinstance(each, str) else each for each in script)
        yield ScriptedModel([turn.after(3_600) if isinstance(turn, ScriptedTurn) else turn for turn in turns])

    with pytest.raises(ConformanceFailed, match="passes text on: .*TimeoutError"):
        await check_model(slow)
