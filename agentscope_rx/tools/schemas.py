"""What the model is shown of a function: the JSON schema of its arguments, and its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from agentscope_rx.errors import InvalidOption

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.json_schema import GenerateJsonSchema


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function below partials, wrappers and callable objects: it holds the names and the docstring."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    return inspect.unwrap(function)


def arguments_model(
    function: Callable[..., Any], fields: dict[str, Any]
) -> tuple[type[BaseModel], Mapping[str, object]]:
    from pydantic import ConfigDict, PydanticUserError, create_model

    name = getattr(plain_function(function), "__name__", "arguments")
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(schema_generator=_schema_generator())
    except (PydanticUserError, TypeError, NameError) as error:
        rule = f"a model cannot be shown one of its types; mark such a parameter as Injected: {error}"
        raise InvalidOption("tool", function, rule) from error
    schema.pop("title", None)
    return model, {"type": "object", "properties": {}, **schema}


@cache
def _schema_generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

    class ShortSchema(GenerateJsonSchema):
        """Without the titles that pydantic makes of names: they cost tokens and say nothing."""

        ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return ShortSchema


def read_docstring(text: str) -> tuple[str, Mapping[str, str]]:
    if not text:
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        found = parse(text)
    except ParseError:
        return text, {}
    documented = {each.arg_name: each.description for each in found.params if each.description}
    return (found.description or "").strip(), documented
