"""What the model is shown of a function: the JSON schema of its arguments, and its docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from agentscope_rx.errors import InvalidOption
from agentscope_rx.tools.callables import name_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.json_schema import GenerateJsonSchema


def arguments_model(
    function: Callable[..., Any], fields: dict[str, Any]
) -> tuple[type[BaseModel], Mapping[str, object]]:
    """Make a pydantic model of a function's arguments, and the JSON schema of that.

    Args:
        function: The function, for its name.
        fields: The model's fields as `pydantic.create_model` takes them.

    Raises:
        InvalidOption: Pydantic has no schema for one of the types.
    """
    from pydantic import ConfigDict, PydanticUserError, create_model

    try:
        model = create_model(name_of(function), __config__=ConfigDict(extra="forbid"), **fields)
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
    """Read a docstring in the style of Google, NumPy or reST.

    Args:
        text: The docstring.

    Returns:
        What it says beside its sections, and what it says about each parameter.
    """
    if not text:
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        found = parse(text)
    except ParseError:
        return text, {}
    documented = {each.arg_name: each.description for each in found.params if each.description}
    return (found.description or "").strip(), documented
