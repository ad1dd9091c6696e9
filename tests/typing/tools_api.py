"""The calls that users write, for the type checker alone: nobody runs this file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, assert_type

from agentscope_rx.interactions import PendingCall, approve, reject
from agentscope_rx.messages import DataBlock, Msg, TextBlock, ToolUseBlock, URLSource
from agentscope_rx.permissions import PermissionDecision, commands
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ToolSpec
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools import CancelToken, Injected, Tool, ToolContext, ToolGroup, Toolkit, schema_tool, tool


class Database:
    """Something that an application hands along."""


@tool
async def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"{city} {days}"


@tool(name="look-up", read_only=True, timeout=2.5, max_attempts=3)
def look_up(word: str, database: Annotated[Database, Injected], context: ToolContext) -> list[str]:
    """Look a word up."""
    context.report(word)
    context.report(TextBlock(text=word))
    context.report(DataBlock(source=URLSource(url="https://example.org/x.png")))
    context.cancelled.raise_if_set()
    assert_type(context.get("tenant"), object | None)
    assert_type(context.get(Database), Database | None)
    assert_type(context.cancelled, CancelToken)
    return [word, str(database)]


def sure(arguments: Mapping[str, object]) -> PermissionDecision:
    """Ask, whatever the mode."""
    return PermissionDecision.ask(f"pay {arguments['amount']}?", non_bypassable=True)


@tool(target=commands("command"), check=sure)
async def pay(command: str, amount: int) -> str:
    """Pay."""
    return command


async def answer(agent: ReActAgent, context: RuntimeContext) -> None:
    """What waits is answered by a yes, a no, a text, or more than that."""
    waiting = await agent.pending(context)
    assert_type(waiting, tuple[PendingCall, ...])
    stream = agent.respond(context, {each.id: approve(rules=each.suggestions) for each in waiting})
    assert_type(await stream.reply(), Msg)
    agent.respond(context, {"a": True, "b": reject("no"), "c": "result", "d": [TextBlock(text="result")]})
    agent.respond(context, {"a": 3})  # pyright: ignore[reportArgumentType]


@tool
async def watch(path: str) -> AsyncIterator[str]:
    """Watch a file."""
    yield path


class Shop:
    """Its methods are tools."""

    @tool
    async def buy(self, item: str) -> int:
        """Buy something."""
        return len(item)

    @tool(read_only=True)
    def price(self, item: str) -> float:
        """Tell a price."""
        return float(len(item))


class Remote:
    """A tool of one's own."""

    spec = ToolSpec(name="remote", description="Somewhere else.", parameters={})
    read_only = True
    concurrency_safe = True
    external = False

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Call it."""
        return await context.in_thread(len, arguments)


class Derived(Tool):
    """One that takes the defaults of the protocol."""

    @property
    def spec(self) -> ToolSpec:
        """What the model sees."""
        return Remote.spec

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Call it."""
        return dict(arguments)


async def plain(n: int) -> int:
    """A function that nobody decorated."""
    return n


async def use(context: ToolContext) -> None:
    """A decorated function is called like the plain one; the checker knows its parameters and its result."""
    assert_type(await weather("Bern", days=2), str)
    assert_type(await weather.function("Bern"), str)
    assert_type(look_up("word", Database(), context), list[str])
    assert_type(watch("x"), AsyncIterator[str])
    shop = Shop()
    assert_type(await shop.buy("tea"), int)
    assert_type(shop.price("tea"), float)
    assert_type(shop.price.spec, ToolSpec)
    assert_type(tool(shop.price, name="other").read_only, bool)
    await weather(3)  # type: ignore[reportArgumentType]
    await weather("Bern", hours=1)  # type: ignore[reportCallIssue]
    await shop.buy()  # type: ignore[reportCallIssue]
    tool(retries=3)  # type: ignore[reportCallIssue]
    tool(timeout="long")  # type: ignore[reportArgumentType]
    assert_type(await context.in_thread(len, "four"), int)


def combine(call: ToolUseBlock) -> Toolkit:
    """Toolkits take tools of every kind, and plain functions."""
    tools: list[Tool] = [weather, look_up, Shop().buy, Remote(), Derived(), schema_tool("pay", "Pay.", {})]
    toolkit = (
        Toolkit.of(*tools, plain, parallel=False, default_timeout=None, max_result_chars=5000)
        .group("web", "Read the web.", watch, active=True)
        .preset("look-up", word="x")
        .with_meta_tool()
        .configure(parallel=True)
        .remove("plain")
    )
    assert_type(toolkit.specs({"web"}), tuple[ToolSpec, ...])
    assert_type(toolkit.find(call.name, ()), Tool | None)
    assert_type(toolkit.groups, tuple[ToolGroup, ...])
    return toolkit
