"""What every model must do, as a check that any test framework can run.

@asynccontextmanager
async def make(script: Sequence[Scripted]) -> AsyncGenerator[Model]:
    async with MyServer(answers_for(script)) as server:
        yield MyModel(server.url)

await check_model(make)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, cast

from agentscope_rx.errors import ConformanceFailed, ProviderError, ServerFailed, StreamFailed
from agentscope_rx.history import History
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.requests import Model, ModelChunk, ModelRequest, ToolSpec
from agentscope_rx.testing._rules import elsewhere, require
from agentscope_rx.testing.scripted_model import Scripted, ScriptedTurn, calls, text
from agentscope_rx.usage import ChatUsage

MakeModel: TypeAlias = Callable[[Sequence[Scripted]], AbstractAsyncContextManager[Model]]
"""Makes a fresh model whose provider gives these answers, one for each request, and clears it away afterwards.

An error in the script stands for one of the provider's; one at the end of a turn, for an answer that breaks off there.
"""

_LOOK: Final = ToolSpec(
    name="look",
    description="Look at a path.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
_CALLED: Final = ToolUseBlock(id="c0", name="look", input={"path": "a.txt"})
_REQUEST: Final = ModelRequest(
    call_id="checked",
    system="Be brief.",
    conversation=History.of(
        Msg.user("What is in a.txt? 会话 🍸"),
        Msg.assistant(_CALLED),
        Msg.tool(ToolResultBlock(id="c0", name="look", output=(TextBlock(text="alpha"),))),
    ),
    tools=(_LOOK,),
)
_TEXTS: Final = (
    ("one",),
    ("Two ", "pieces."),
    (" leading", "\n", "\n- lines\n", "\ttrailing "),
    ("会", "话 🍸", " é", '"quoted"', " \\n \\u0041"),
    ("a", "b" * 5_000, "c"),
)
_ARGUMENTS: Final = (
    '{"path": "a.txt"}',
    '{"path": "会话 🍸.txt"}',
    '{ "path" : "two  spaces" }',
    '{"path": "a\\"b\\\\c"}',
    "{}",
    '{"path": "not closed',  # what a model has written, good or bad, is passed on as it is
)
_USAGE: Final = ChatUsage(input_tokens=12, output_tokens=34)
_watched: ContextVar[bool] = ContextVar("watched", default=False)
_TURNS_TO_END: Final = 16  # of the loop, which tasks of the model's own may take
_AT_ONCE: Final = 4


async def check_model(make: MakeModel, *, patience: float = 60.0) -> None:
    """Check one implementation of `Model` against every rule of the protocol.

    Args:
        make: Makes the model that is checked, once for each rule, before a provider that answers from a script.
        patience: Seconds of the loop's time within which a rule must be checked.

    Raises:
        ConformanceFailed: With the first rule that is not kept.

    Examples:
        >>> await check_model(make)  # no answer is a good answer
    """
    for check in _CHECKS:
        try:
            async with asyncio.timeout(patience):
                await check(make)
        except ConformanceFailed:
            raise
        except Exception as error:
            raise ConformanceFailed(f"{_named(check)}: the model raised what no rule allows: {error!r}") from error


def _named(check: Callable[[MakeModel], Awaitable[None]]) -> str:
    return check.__name__.strip("_").replace("_", " ")


async def _asked(model: Model) -> list[ModelChunk]:
    return [chunk async for chunk in model.stream(_REQUEST)]


def _text_of(chunks: Sequence[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def _calls_of(chunks: Sequence[ModelChunk]) -> list[tuple[str, str, str]]:
    found: dict[int, tuple[str, str, str]] = {}
    for delta in (delta for chunk in chunks for delta in chunk.calls):
        require(delta.index in found or delta.index == len(found), "calls are counted from 0, as they appear")
        id, name, arguments = found.get(delta.index, ("", "", ""))
        require(not (id and delta.id) or id == delta.id, "a call keeps its id")
        found[delta.index] = (id or delta.id, name or delta.name, arguments + delta.arguments)
    return list(found.values())


# -- the rules ----------------------------------------------------------------------------------------------


async def _says_what_it_is(make: MakeModel) -> None:
    async with make([]) as model:
        require(bool(model.name.strip()), "a model has a name")
        for fact, number in (
            ("context_window", model.context_window),
            ("max_output_tokens", model.max_output_tokens),
        ):
            require(number is None or number > 0, f"{fact} is a positive number, or None where it is not known")


async def _passes_text_on(make: MakeModel) -> None:
    async with make([text(*pieces) for pieces in _TEXTS]) as model:
        for pieces in _TEXTS:
            found = _text_of(await _asked(model))
            require(found == "".join(pieces), f"the pieces of a text join to what was sent: {found[:40]!r}")


async def _passes_calls_on(make: MakeModel) -> None:
    wanted = [(f"c{number}", "look", arguments) for number, arguments in enumerate(_ARGUMENTS, 1)]
    async with make([calls(*wanted, text="I look."), *(calls(each) for each in wanted)]) as model:
        chunks = await _asked(model)
        require(_text_of(chunks) == "I look.", "what is said before calls is passed on")
        found = _calls_of(chunks)
        require(found == wanted, f"ids, names and arguments of calls are passed on word for word, in order: {found}")
        for each in wanted:
            require(_calls_of(await _asked(model)) == [each], f"a single call is passed on: {each}")


async def _tells_the_end(make: MakeModel) -> None:
    script = [text("done", usage=_USAGE), calls(("c1", "look", "{}"), usage=_USAGE)]
    async with make(script) as model:
        for said in ("stop", "tool_calls"):
            chunks = await _asked(model)
            reasons = [chunk.finish_reason for chunk in chunks if chunk.finish_reason]
            require(reasons == [said], f"the provider's reason to stop is told once: {said!r}, not {reasons}")
            usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
            require(bool(usages), "what a call consumed is told where the provider tells it")
            counted = (usages[-1].input_tokens, usages[-1].output_tokens)
            require(counted == (12, 34), f"usage is the provider's: {counted}")


async def _fails_as_a_provider(make: MakeModel) -> None:
    async with make([ServerFailed("overloaded", status=503), "fine"]) as model:
        await _holds_that_it_fails(model, "")
        require(_text_of(await _asked(model)) == "fine", "after a failure the model can be asked again")


async def _breaks_off_as_a_provider(make: MakeModel) -> None:
    broken = text("the beginning", "is lost").failing(StreamFailed("the connection was lost"))
    kept = ScriptedTurn(chunks=(*broken.chunks[:1], *broken.chunks[-1:]))
    async with make([kept, "fine"]) as model:
        await _holds_that_it_fails(model, "the beginning")
        require(_text_of(await _asked(model)) == "fine", "after an answer that broke off the model can be asked again")


async def _holds_that_it_fails(model: Model, begins: str) -> None:
    said = ""
    try:
        async for chunk in model.stream(_REQUEST):
            said += chunk.text
    except ProviderError:
        require(said == begins, f"what came before a failure is passed on: {begins!r}, not {said!r}")
        return
    except Exception as error:
        raise ConformanceFailed(f"a failure of the provider is a ProviderError, not {error!r}") from error
    raise ConformanceFailed("a failure of the provider is a ProviderError, and nothing was raised")


async def _keeps_answers_apart(make: MakeModel) -> None:
    words = [f"answer {number}" for number in range(_AT_ONCE)]
    async with make(words) as model:
        answers = await asyncio.gather(*(_asked(model) for _ in words))
        require(sorted(map(_text_of, answers)) == words, "requests at the same time get an answer each, unmixed")


async def _can_be_left(make: MakeModel) -> None:
    async with make([text("one ", "two ", "three "), "fine"]) as model:
        with _own_tasks() as own:
            async with aclosing(cast("AsyncGenerator[ModelChunk]", model.stream(_REQUEST))) as chunks:
                await anext(chunks)
            for _ in range(_TURNS_TO_END):
                await asyncio.sleep(0)
        left = sorted(repr(task) for task in own if not task.done())
        require(not left, f"who leaves an answer leaves no task behind: {', '.join(left)}")
        require(_text_of(await _asked(model)) == "fine", "after an answer that was left the model can be asked again")


@contextmanager
def _own_tasks() -> Generator[set[asyncio.Future[Any]]]:
    """The tasks that are begun from here on by this task and its own, and not by a provider on the same loop."""
    loop, found = asyncio.get_running_loop(), set[asyncio.Future[Any]]()
    usual = loop.get_task_factory()

    def begin(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        task: asyncio.Future[Any] = (
            asyncio.Task(work, loop=loop, **options) if usual is None else usual(loop, work, **options)
        )
        if _watched.get():
            found.add(task)
        return task

    loop.set_task_factory(begin)  # type: ignore[reportArgumentType]
    token = _watched.set(True)
    try:
        yield found
    finally:
        _watched.reset(token)
        loop.set_task_factory(usual)


async def _serves_several_loops(make: MakeModel) -> None:
    async with make(["here", "elsewhere", "here again"]) as model:
        require(_text_of(await _asked(model)) == "here", "it answers")
        other = await elsewhere(lambda: _asked(model))
        require(_text_of(other) == "elsewhere", "it can be asked from another event loop")
        require(_text_of(await _asked(model)) == "here again", "and from the first one again")


_CHECKS: Final[tuple[Callable[[MakeModel], Awaitable[None]], ...]] = (
    _says_what_it_is,
    _passes_text_on,
    _passes_calls_on,
    _tells_the_end,
    _fails_as_a_provider,
    _breaks_off_as_a_provider,
    _keeps_answers_apart,
    _can_be_left,
    _serves_several_loops,
)
