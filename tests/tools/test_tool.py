"""`@tool`: which schema and which behaviour a function gets."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agentscope_rx.errors import AgentScopeError, InvalidOption, RunError
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools import Injected, Tool, ToolContext, schema_tool, tool
from agentscope_rx.tools.arguments import InvalidArguments
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


# -- the schema ---------------------------------------------------------------------------------------------


def test_annotations_defaults_and_docstring_make_the_schema() -> None:
    """The schema is exactly what the function says, without generated titles; unknown arguments are refused."""

    @tool
    def search(query: str, limit: Annotated[int, Field(ge=1)] = 10, kind: Literal["a", "b"] | None = None) -> str:
        """Search the archive.

        Only finished documents are found.

        Args:
            query: What to look for.
            limit: How many hits.

        Returns:
            The hits.
        """
        return f"{query} {limit} {kind}"

    assert search.spec.name == "search"
    assert search.spec.description == "Search the archive.\n\nOnly finished documents are found."
    assert search.spec.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "How many hits."},
            "kind": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def numpy_style(city: str) -> str:
    """Tell the weather.

    Parameters
    ----------
    city : str
        Where it is.
    """
    return city


def rest_style(city: str) -> str:
    """Tell the weather.

    :param city: Where it is.
    """
    return city


@pytest.mark.parametrize("function", [numpy_style, rest_style])
def test_other_docstring_styles_are_read(function: Callable[[str], str]) -> None:
    """NumPy and reST docstrings describe parameters as Google's do."""
    made = tool(function)
    assert made.spec.description == "Tell the weather."
    assert properties(made)["city"]["description"] == "Where it is."


def test_a_field_says_more_than_the_docstring() -> None:
    """A `Field`, or a plain text in `Annotated`, wins over the docstring; an alias is what the model sees."""

    @tool
    def look(
        a: Annotated[str, Field(description="field")],
        b: Annotated[str, "text"],
        c: Annotated[int, Field(alias="startLine")] = 1,
        d: int = Field(default=7, description="default"),
    ) -> str:
        """Look.

        Args:
            a: docstring
            b: docstring
            c: docstring
        """
        return f"{a}{b}{c}{d}"

    told = {name: schema["description"] for name, schema in properties(look).items()}
    assert told == {"a": "field", "b": "text", "startLine": "docstring", "d": "default"}
    assert call(look, a="x", b="y", startLine=3) == "xy37"


def test_names_that_pydantic_keeps_for_itself_are_usable() -> None:
    """A parameter may be called `schema`, `json`, `model_dump` or `_x`."""

    @tool
    def odd(schema: int, json: int, model_dump: int, _x: int) -> list[int]:
        return [schema, json, model_dump, _x]

    assert list(properties(odd)) == ["schema", "json", "model_dump", "_x"]
    assert call(odd, schema=1, json=2, model_dump=3, _x=4) == [1, 2, 3, 4]


def test_a_description_is_never_empty() -> None:
    """Without docstring the name stands for the description, since some providers refuse an empty one."""

    @tool
    def look_up() -> str:
        return ""

    assert look_up.spec.description == "look up"
    assert tool(look_up, description="Find it.").spec.description == "Find it."


def test_a_default_that_json_cannot_hold_stays_the_functions_own() -> None:
    """The default object itself reaches the function, and the schema leaves it out without a warning."""
    nothing = object()

    @tool
    def keep(value: Any = nothing) -> bool:
        return value is nothing

    assert "default" not in properties(keep)["value"]
    assert call(keep) is True


# -- arguments ----------------------------------------------------------------------------------------------


def test_arguments_arrive_as_what_the_annotations_say() -> None:
    """Models, dates and numbers in texts are converted; positional-only parameters are passed by position."""

    @tool
    def pay(invoice: Invoice, on: date, copies: int = 1, /, *, note: str = "") -> object:
        return invoice, on, copies, note

    paid = call(pay, invoice={"number": "4"}, on="2026-01-31", note="n")
    assert paid == (Invoice(number=4), date(2026, 1, 31), 1, "n")


def test_a_null_for_an_argument_with_a_default_means_the_default() -> None:
    """Models write null for what they leave out; where null is no value of its own, the default is taken."""

    @tool
    def page(number: int, size: int = 20, mark: str | None = "m") -> object:
        return number, size, mark

    assert call(page, number=1, size=None, mark=None) == (1, 20, None)
    with pytest.raises(InvalidArguments, match="number: Input should be a valid integer"):
        call(page, number=None)


def test_every_violation_is_named_with_its_place() -> None:
    """Wrong, missing and unknown arguments are told at once, nested ones with their path."""

    @tool
    def pay(invoice: Invoice, days: int) -> str:
        return f"{invoice}{days}"

    with pytest.raises(InvalidArguments) as raised:
        call(pay, invoice={"number": "x"}, extra=1)
    assert [violation.split(":")[0] for violation in raised.value.violations] == ["invoice.number", "days", "extra"]
    assert "there are: invoice, days" in raised.value.violations[2]


def test_injected_parameters_come_from_the_context_and_are_not_shown() -> None:
    """Contexts by annotation, anything else by `Injected`, by type or by name."""

    @tool
    def orders(
        told: ToolContext,
        runtime: RuntimeContext | None,
        database: Annotated[Database, Injected],
        tenant: Annotated[str, Injected("tenant")],
        spare: Annotated[list[int] | None, Injected("spare")],
        retries: Annotated[int, Injected("retries")] = 3,
        *,
        customer: str,
    ) -> object:
        return told.call.id, runtime, database, tenant, spare, retries, customer

    told = context(values=(Database("main"),), attributes={"tenant": "acme"})
    assert list(properties(orders)) == ["customer"]
    found = call(orders, told, customer="x")
    assert found == ("c1", told.runtime_context, Database("main"), "acme", None, 3, "x")
    with pytest.raises(InvalidArguments, match="tenant: there is no such argument"):
        call(orders, told, customer="x", tenant="evil")
    with pytest.raises(LookupError, match="holds no Database"):
        call(orders, context(attributes={"tenant": "acme"}), customer="x")


# -- kinds of functions -------------------------------------------------------------------------------------


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
    made = tool(functools.partial(numpy_style, city="Bern"))
    assert (made.spec.name, made.spec.description, properties(made)) == ("numpy_style", "Tell the weather.", {})
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


def test_annotations_may_name_local_classes() -> None:
    """Under postponed annotations too, a class of the calling function is found."""

    class Local(BaseModel):
        x: int

    @tool
    def use(value: Local) -> int:
        return value.x

    assert call(use, value={"x": 3}) == 3


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
        (lambda: tool(numpy_style, name="a.b"), "a.b"),
        (lambda: tool(numpy_style, name="x" * 65), "64"),
        (lambda: tool(numpy_style, name=""), "name=''"),
        (lambda: tool(numpy_style, description=" "), "description=' '"),
        (lambda: tool(name=" "), "name=' '"),
        (lambda: tool(numpy_style, timeout=0), "timeout=0"),
        (lambda: tool(numpy_style, max_attempts=0), "max_attempts=0"),
        (lambda: tool(numpy_style, max_backoff=-1), "max_backoff=-1"),
        (lambda: tool(numpy_style, retries=2), "max_attempts"),  # type: ignore[call-overload]
        (lambda: tool(Invoice), "give a function"),
        (lambda: tool(staticmethod(numpy_style)), "above @tool"),
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
    for made in (pay, tool(numpy_style, external=True)):
        with pytest.raises(RunError) as raised:
            asyncio.run(made.call({}, context()))
        assert isinstance(raised.value, AgentScopeError)
