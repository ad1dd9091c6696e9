"""Structured output: what an answer has to look like, and the tool by which a model gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from inspect import isroutine
from typing import Any, Final, TypeAlias, cast

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.permissions.decision import PermissionDecision, session_only
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.json_schema import Check, checker
from agentscope_rx.tools.tool import Tool
from agentscope_rx.wire import from_json

#: What the tool, and the schema of a native answer, are called.
OUTPUT_TOOL: Final = "generate_response"
RESPONSE: Final = "response"
#: A type that pydantic can check, or a JSON schema.
OutputType: TypeAlias = type[Any] | Mapping[str, object]
_DESCRIPTION: Final = "Give your final answer, in the form that is asked for. It ends your work."
_RULE: Final = "a type that pydantic knows, or a JSON schema"
_FENCE: Final = "```"
_MOST_VIOLATIONS: Final = 20


@frozen(kw_only=False)
class OutputSpec:
    """What the answer of a call has to look like.

    Args:
        schema: Its JSON schema.
        check: Finds what is wrong with a value.
    """

    schema: Mapping[str, object]
    check: Check = field(compare=False, repr=False)

    @classmethod
    def of(cls, output: OutputType) -> OutputSpec:
        """Read what the user wants.

        Args:
            output: A type (a pydantic model, a dataclass, `list[int]`, ...), or a JSON schema.

        Raises:
            InvalidOption: It is neither.
            MissingExtra: A schema needs the extra `schema`.

        Examples:
            >>> OutputSpec.of(list[int]).check(["x"])
            ['0: Input should be a valid integer, unable to parse string as an integer']
        """
        if isinstance(output, Mapping):
            return cls(output, checker("output", output))
        if isroutine(output):  # of which pydantic would check the arguments
            raise InvalidOption("output", output, _RULE)
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(output)
            return cls(adapter.json_schema(), _check_by(adapter))
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            raise InvalidOption("output", output, _RULE) from error

    @property
    def is_object(self) -> bool:
        """Whether the answer is a JSON object, which is all that providers take as a format."""
        return self.schema.get("type") == "object"

    @property
    def response_format(self) -> Mapping[str, object]:
        """What a provider is told that can hold its model to a schema."""
        schema = {"name": OUTPUT_TOOL, "schema": self.schema, "strict": _all_required(self.schema)}
        return {"type": "json_schema", "json_schema": schema}

    def read(self, text: str) -> tuple[object, Sequence[str]]:
        """The value that a text holds, and what is wrong with it."""
        try:
            value = from_json(_unfenced(text))
        except ValueError:
            return None, ["the whole: a JSON value was expected, and nothing beside it"]
        return value, self.check(value)


def _check_by(adapter: TypeAdapter[Any]) -> Check:
    def check(value: object) -> Sequence[str]:
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return [f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in found]
        return ()

    return check


def _all_required(schema: object) -> bool:
    """Whether a provider takes the schema as a strict one: objects with nothing optional and nothing unknown."""
    if isinstance(schema, Mapping):
        each = cast("Mapping[str, object]", schema)
        properties = each.get("properties")
        if isinstance(properties, Mapping) or each.get("type") == "object":
            names = set(cast("Mapping[str, object]", properties or {}))
            required = set(cast("Sequence[str]", each.get("required") or ()))
            if each.get("additionalProperties") is not False or names != required:
                return False
        return all(map(_all_required, each.values()))
    return all(map(_all_required, cast("list[object]", schema))) if isinstance(schema, list) else True


def _unfenced(text: str) -> str:
    """The text without the fence of a code block that models like to put around JSON."""
    text = text.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE) and "\n" in text):
        return text
    return text[text.index("\n") : -len(_FENCE)].strip()


class OutputTool(Tool):
    """The tool `generate_response`: it takes the answer of the whole call.

    Args:
        output: What the answer has to look like.
    """

    def __init__(self, output: OutputSpec) -> None:
        self._output = output
        schema = dict(output.schema)
        # References in it begin at the root.
        definitions = {name: schema.pop(name) for name in ("$defs", "definitions") if name in schema}
        parameters: dict[str, object] = {
            "type": "object",
            "properties": {RESPONSE: schema},
            "required": [RESPONSE],
            **definitions,
        }
        self._spec = ToolSpec(name=OUTPUT_TOOL, description=_DESCRIPTION, parameters=parameters)

    @property
    def spec(self) -> ToolSpec:
        """One argument, `response`, of the wanted form."""
        return self._spec

    @property
    def read_only(self) -> bool:
        """It changes nothing."""
        return True

    def check(self, arguments: Mapping[str, object]) -> PermissionDecision:
        """Nobody is asked whether there may be an answer."""
        return session_only(arguments)

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Look at the answer; the run takes it from the call.

        Raises:
            InvalidArguments: It has another form.
        """
        if wrong := self._output.check(arguments.get(RESPONSE)):
            raise InvalidArguments(*wrong[:_MOST_VIOLATIONS])
        return "The answer was accepted."
