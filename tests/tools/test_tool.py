"""`@tool`: what can be a tool, and how it behaves."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from agentscope_rx.errors import AgentScopeError, InvalidOption, RunError
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools import Tool, ToolContext, schema_tool, tool
from agentscope_rx.tools.tool import FunctionTool


class Invoice(BaseModel):
    """An invoice."""

    number: int


@dataclass(frozen=True)
class Database:
    name: str


def context(**values: Any) -> ToolContext:
    return ToolContext(call=ToolUseBlock(id="c1", name="t"), runtime_context=RuntimeContext(**values))


def call(made: FunctionTool[..., Any], told: ToolContext | None = None, /, **arguments: object) -> object:
    return asyncio.run(made.call(arguments, told or context()))


def properties(made: Tool) -> Any:
    return made.spec.parameters["properties"]


def weather(city: str) -> str:
    """Tell the weather."""
    return city


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool
    async def buy(self, item: str) -> str:
        """Buy something."""
        return f"{item} from {self.name}"

    @tool(name="sell_it")
    def sell(this, item: str) -> str:  # noqa: N805
        """Sell something."""
        return f"{item} to {this.name}"

    @staticmethod
    @tool
    def price(item: str) -> int:
        """Tell a price."""
        return len(item)

    @classmethod
    @tool
    def kind(cls, suffix: str) -> str:
        """Tell the kind."""
        return cls.__name__ + suffix

    def plain(self, item: str) -> str:
        """A method without decorator."""
        return f"{item} at {self.name}"

    def __call__(self, item: str) -> str:
        """Ask for something."""
        return f"{item}? {self.name}"


def test_methods_are_bound_to_their_instance() -> None:
    """A decorated method is a tool of its instance, without `self`, whatever that is called."""
    one, other = Shop("A"), Shop("B")
    assert (call(one.buy, item="tea"), call(other.buy, item="tea")) == ("tea from A", "tea from B")
    assert call(one.sell, item="tea") == "tea to A"
    assert (one.sell.spec.name, list(properties(one.sell))) == ("sell_it", ["item"])
    assert one.buy.spec is other.buy.spec


class Holder:
    kept = tool(weather, name="kept")


def test_a_tool_may_be_kept_in_a_class() -> None:
    """Only what was written in the class becomes its method: a tool from elsewhere stays as it is."""
    holder: Any = Holder()
    assert holder.kept is Holder.kept
    assert list(properties(holder.kept)) == ["city"]
    assert call(holder.kept, city="Bern") == "Bern"


def test_static_class_and_plain_methods_and_callable_objects_are_tools() -> None:
    """`tool` takes whatever can be called with named parameters."""
    shop = Shop("A")
    assert call(Shop.price, item="tea") == 3
    assert call(tool(Shop.kind), suffix="!") == "Shop!"  # type: ignore[arg-type]
    assert call(tool(shop.plain), item="tea") == "tea at A"
    made = tool(shop)
    assert (made.spec.name, made.spec.description, call(made, item="tea")) == ("Shop", "Ask for something.", "tea? A")


def test_what_a_partial_fixes_is_not_shown() -> None:
    """Arguments of `functools.partial` are hidden and kept; name and docstring are the function's."""
    made = tool(functools.partial(weather, city="Bern"))
    assert (made.spec.name, made.spec.description, properties(made)) == ("weather", "Tell the weather.", {})
    assert call(made) == "Bern"


def test_a_decorated_function_stays_the_plain_function() -> None:
    """Calling the tool calls the function, with the same name and docstring; `.function` is it."""

    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert (add(1), add(1, b=5), add.function(2)) == (2, 6, 3)
    assert (add.__name__, add.__doc__) == ("add", "Add.")  # type: ignore[attr-defined]


def test_generators_are_handed_on_without_running() -> None:
    """A generator function, async or not, gives its iterator; none of its code has run yet."""
    ran: list[str] = []

    @tool
    async def later() -> AsyncIterator[str]:
        ran.append("async")
        yield "x"

    @tool
    def later_too() -> Iterator[str]:
        ran.append("sync")
        yield "x"

    assert isinstance(call(later), AsyncIterator)
    assert isinstance(call(later_too), Iterator)
    assert ran == []


# -- options ------------------------------------------------------------------------------------------------


def test_options_are_kept_and_may_be_changed_later() -> None:
    """A tool made of a tool has its options, except those that are given anew."""

    @tool(name="first", read_only=True, concurrency_safe=False, strict=True, timeout=5, max_attempts=2)
    def look() -> str:
        return ""

    second = tool(look, name="second")
    assert (look.spec.name, second.spec.name, second.spec.strict) == ("first", "second", True)
    assert (second.read_only, second.concurrency_safe, second.external) == (True, False, False)
    assert (second.settings.timeout, second.settings.max_attempts) == (5, 2)


def gathering(*names: str) -> str:
    return "".join(names)


def unnameable(database: Database, lock: asyncio.Lock) -> str:
    return f"{database}{lock}"


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: tool(gathering), "*names"),
        (lambda: tool(unnameable), "Injected"),
        (lambda: tool(lambda: 1), "<lambda>"),
        (lambda: tool(weather, name="a.b"), "a.b"),
        (lambda: tool(weather, name="x" * 65), "64"),
        (lambda: tool(weather, name=""), "name=''"),
        (lambda: tool(weather, description=" "), "description=' '"),
        (lambda: tool(name=" "), "name=' '"),
        (lambda: tool(weather, timeout=0), "timeout=0"),
        (lambda: tool(weather, max_attempts=0), "max_attempts=0"),
        (lambda: tool(weather, max_backoff=-1), "max_backoff=-1"),
        (lambda: tool(weather, retries=2), "max_attempts"),  # type: ignore[call-overload]
        (lambda: tool(Invoice), "give a function"),
        (lambda: tool(staticmethod(weather)), "above @tool"),
        (lambda: tool(max), "signature"),
        (lambda: schema_tool("pay now", "Pay.", {}), "pay now"),
        (lambda: schema_tool("pay", "", {}), "description"),
        (lambda: schema_tool("pay", "Pay.", {"type": "array"}), "array"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_made(make: Callable[[], object], names: str) -> None:
    """A mistake is an `InvalidOption` on the line that makes it, and names what is wrong."""
    with pytest.raises(InvalidOption) as raised:
        make()
    assert names in str(raised.value)


def test_an_external_tool_cannot_be_run_here() -> None:
    """Of a schema-only tool the schema is kept as it is; calling it is an error."""
    pay = schema_tool("pay", "Pay.", {"properties": {"x": {"type": "integer"}}}, strict=True)
    assert isinstance(pay, Tool)
    assert pay.external
    assert pay.spec.parameters == {"type": "object", "properties": {"x": {"type": "integer"}}}
    for made in (pay, tool(weather, external=True)):
        with pytest.raises(RunError, match="is run by somebody outside") as raised:
            asyncio.run(made.call({}, context()))
        assert isinstance(raised.value, AgentScopeError)
