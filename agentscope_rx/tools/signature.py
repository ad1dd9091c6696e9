"""Reads what a function wants, and brings the arguments of a call to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.tools.arguments import explain
from agentscope_rx.tools.callables import docstring_of, keywords_of, underlying
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.plain import plain
from agentscope_rx.tools.schemas import arguments_model, read_docstring
from agentscope_rx.wire import to_json

if TYPE_CHECKING:
    from pydantic import BaseModel

_ABSENT: Final = inspect.Parameter.empty
_GATHERING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@frozen(kw_only=False)
class Injected:
    """Marks a parameter that the application fills and the model never sees.

    `Annotated[Database, Injected]` is looked up in the RuntimeContext by its type, `Annotated[str,
    Injected("tenant")]` by name.

    Args:
        key: The name of an attribute of the RuntimeContext. Default None: look it up by type.

    Examples:
        >>> @tool
        ... def orders(database: Annotated[Database, Injected], customer: str) -> list[str]:
        ...     '''List the orders of a customer.'''
        ...     return database.orders(customer)
    """

    key: str | None = None


@frozen
class Parameter:
    """One parameter of a function.

    Args:
        name: Its name in the function.
        default: Its default there.
        by_position: Whether it can only be passed by position.
        field: Its name in the model of the arguments; empty for one that is injected.
        injected: What an injected one is looked up by.
        optional: Whether an injected one may be None.
    """

    name: str
    default: object
    by_position: bool
    field: str = ""
    injected: type | str | None = None
    optional: bool = False


@frozen
class Signature:
    """What a function wants.

    Args:
        model: A pydantic model of the arguments.
        parameters: The parameters, in order.
        schema: The JSON schema of the arguments.
        summary: What the docstring says beside its sections; empty where there is none.
    """

    model: type[BaseModel]
    parameters: tuple[Parameter, ...]
    schema: Mapping[str, object]
    summary: str

    def parse(self, arguments: Mapping[str, object]) -> BaseModel:
        """Validate arguments.

        Raises:
            InvalidArguments: They do not fit.
        """
        from pydantic import ValidationError

        validator = self.model.__pydantic_validator__
        try:
            return validator.validate_python(dict(arguments))
        except ValidationError as error:
            given = self._without_nulls(arguments, {each["loc"][0] for each in error.errors() if each["loc"]})
        try:  # as JSON: only there may a text stand for a date under strict rules
            return validator.validate_json(to_json(plain(given)))
        except ValidationError as error:
            raise explain(error, list(cast("Mapping[str, object]", self.schema["properties"]))) from None

    def place(self, parsed: BaseModel, context: ToolContext) -> tuple[list[object], dict[str, object]]:
        """Put validated arguments, and what is injected, where the function wants them.

        Raises:
            LookupError: The RuntimeContext lacks something that is injected.
        """
        positional: list[object] = []
        named: dict[str, object] = {}
        given = parsed.__pydantic_fields_set__
        for parameter in self.parameters:
            if parameter.injected is not None:
                value = _look_up(parameter, context)
            elif parameter.default is _ABSENT or parameter.field in given:
                value = getattr(parsed, parameter.field)
            elif parameter.by_position:
                value = parameter.default
            else:
                continue  # the function's own default, the very object
            if parameter.by_position:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named

    def _without_nulls(self, arguments: Mapping[str, object], wrong: Set[object]) -> dict[str, object]:
        """Leave out a null that is wrong where there is a default: models write it for what they leave out."""
        required = cast("Sequence[str]", self.schema.get("required", ()))
        left_out = {name for name in wrong if name not in required}
        return {name: each for name, each in arguments.items() if each is not None or name not in left_out}

    def refuses(self, name: str, value: object) -> str | None:
        """Say why a value does not fit one argument; None where it does."""
        from pydantic import ValidationError

        try:
            self.model.__pydantic_validator__.validate_python({name: value})
        except ValidationError as error:
            wrong = [found["msg"] for found in error.errors() if found["loc"][:1] == (name,)]
            return wrong[0] if wrong else None
        return None


def _look_up(parameter: Parameter, context: ToolContext) -> object:
    wanted = parameter.injected
    if wanted is ToolContext:
        return context
    if wanted is RuntimeContext:
        return context.runtime_context
    found = context.get(wanted) if isinstance(wanted, str) else context.get(cast("type[object]", wanted))
    if found is not None or parameter.optional:
        return found
    if parameter.default is not _ABSENT:
        return parameter.default
    shown = repr(wanted) if isinstance(wanted, str) else wanted.__name__ if wanted else ""
    raise LookupError(f"the RuntimeContext holds no {shown} for the parameter {parameter.name!r}")


# -- reading a function -------------------------------------------------------------------------------------


def read_signature(function: Callable[..., Any], *, skip_first: bool = False) -> Signature:
    """Read a function's parameters and docstring.

    Args:
        function: Any callable with a Python signature.
        skip_first: Whether the first parameter is a method's own. Default False.

    Raises:
        InvalidOption: The function takes `*args` or `**kwargs`, an annotation cannot be resolved, or pydantic
            has no schema for a type.
    """
    summary, documented = read_docstring(docstring_of(function))
    parameters: list[Parameter] = []
    fields: dict[str, Any] = {}
    for parameter, annotation in _annotated(function, skip_first=skip_first):
        read = _read_parameter(parameter, annotation, field=f"p{len(fields)}")
        parameters.append(read)
        if read.field:
            default = ... if parameter.default is _ABSENT else parameter.default
            fields[read.field] = (_described(annotation, parameter.name, documented), default)
    model, schema = arguments_model(function, fields)
    return Signature(model=model, parameters=tuple(parameters), schema=schema, summary=summary)


def _annotated(function: Callable[..., Any], *, skip_first: bool) -> list[tuple[inspect.Parameter, object]]:
    try:
        found = list(inspect.signature(function).parameters.values())[skip_first:]
    except (TypeError, ValueError) as error:
        raise InvalidOption("tool", function, f"give a function with a Python signature: {error}") from error
    fixed = keywords_of(function)
    found = [parameter for parameter in found if parameter.name not in fixed]
    for parameter in found:
        if parameter.kind in _GATHERING:
            rule = f"name the parameters: a model cannot be shown what {parameter} takes"
            raise InvalidOption("tool", cast("object", function), rule)
    annotations = {each.name: each.annotation for each in found if each.annotation is not _ABSENT}
    hints = _resolve(annotations, underlying(function))
    return [(parameter, hints.get(parameter.name, Any)) for parameter in found]


def _resolve(annotations: Mapping[str, object], function: Callable[..., Any]) -> Mapping[str, object]:
    """Turn annotations that are texts into what they name."""
    holder = SimpleNamespace(__annotations__=dict(annotations))
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, names, names, include_extras=True)
    except NameError:
        pass
    # Local classes, and our own names where they are imported for the type checker alone.
    ours = {"ToolContext": ToolContext, "RuntimeContext": RuntimeContext}
    try:
        return get_type_hints(holder, names, {**ours, **_locals_of_caller()}, include_extras=True)
    except NameError as error:
        rule = f"annotate it with types that exist when the tool is made: {error}"
        raise InvalidOption("tool", function, rule) from error


def _locals_of_caller() -> Mapping[str, object]:
    frame = inspect.currentframe()
    package = __name__.rpartition(".")[0]
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(package):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def _read_parameter(parameter: inspect.Parameter, annotation: object, *, field: str) -> Parameter:
    by_position = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    bare = get_args(annotation)[0] if marks else annotation
    optional = False
    if get_origin(bare) in (Union, UnionType) and NoneType in get_args(bare):
        rest = [each for each in get_args(bare) if each is not NoneType]
        bare, optional = (rest[0] if len(rest) == 1 else bare), True
    mark = next((each for each in marks if each is Injected or isinstance(each, Injected)), None)
    wanted: object = None
    if bare in (ToolContext, RuntimeContext):
        wanted = bare
    elif mark is not None:
        wanted = mark.key if isinstance(mark, Injected) and mark.key else bare
        if not isinstance(wanted, (type, str)):
            raise InvalidOption(parameter.name, annotation, "an injected parameter wants a class, or a name")
    default = parameter.default if not _is_field(parameter.default) else _ABSENT
    return Parameter(
        name=parameter.name,
        default=default,
        by_position=by_position,
        field="" if wanted is not None else field,
        injected=cast("type | str | None", wanted),
        optional=optional,
    )


def _is_field(default: object) -> bool:
    from pydantic.fields import FieldInfo

    return isinstance(default, FieldInfo)


def _described(annotation: object, name: str, documented: Mapping[str, str]) -> object:
    """The annotation with the parameter's name, and what is said about it; what a `Field` says counts more.

    The name is an alias, since a pydantic field can be called neither `schema` nor `_x`.
    """
    from pydantic import Field

    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    bare = get_args(annotation)[0] if marks else annotation
    said = next((mark for mark in marks if isinstance(mark, str)), None) or documented.get(name)
    return cast("Any", Annotated)[(bare, Field(alias=name, description=said), *marks)]
