"""What the model is shown of a function, and how its arguments arrive there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools import Injected, Tool, ToolContext, tool
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


def test_annotations_may_name_local_classes() -> None:
    """Under postponed annotations too, a class of the calling function is found."""

    class Local(BaseModel):
        x: int

    @tool
    def use(value: Local) -> int:
        return value.x

    assert call(use, value={"x": 3}) == 3
