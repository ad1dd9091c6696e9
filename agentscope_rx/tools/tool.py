"""A tool: what the model may call, and `@tool`, which makes one of a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial, update_wrapper
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeGuard,
    TypeVar,
    Unpack,
    cast,
    overload,
    runtime_checkable,
)

from agentscope_rx.errors import InvalidOption, RunError
from agentscope_rx.frozen import frozen
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.callables import first_parameter, name_of, way_of
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.settings import ToolOptions, ToolSettings, check_name
from agentscope_rx.tools.signature import read_signature

if TYPE_CHECKING:
    from agentscope_rx.permissions.decision import CheckCall, FindTarget

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


@runtime_checkable
class Tool(Protocol):
    """What a model may call. Most tools are functions with `@tool`; other classes derive from this.

    A class may also have what `@tool` has for permissions, `target` and `check`, and `settings`, which say how long and
    how often a call is tried.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it; the same object each time."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing. Default False."""
        return False

    @property
    def concurrency_safe(self) -> bool:
        """Whether it may run beside other tools. Default True."""
        return True

    @property
    def external(self) -> bool:
        """Whether somebody outside runs it, so that a call waits for their result. Default False."""
        return False

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Run the tool.

        Args:
            arguments: What the model wrote, with presets put in.
            context: The call.

        Returns:
            Anything: text, blocks, a `ToolResultBlock`, what JSON can hold, or an async iterator of pieces.

        Raises:
            Exception: The call failed; the model is told so.
        """
        ...


class FunctionTool(Generic[P, R]):
    """A function as a tool. Called, it is the plain function; through an instance, it is a bound method.

    Attributes:
        function: The plain function.
        settings: How it is a tool.
        signature: What it wants.
        spec: The tool as the model sees it.
        is_method: Whether it lacks the instance that it is a method of.
    """

    def __init__(self, function: Callable[P, R], settings: ToolSettings) -> None:
        """Read a function; `tool(...)` is the usual way.

        Args:
            function: Any callable with named parameters.
            settings: How it is to be a tool.

        Raises:
            InvalidOption: It cannot be one.
        """
        update_wrapper(self, function, updated=())
        self.function = function
        self.settings = settings
        self._way = way_of(function)
        self._read(is_method=first_parameter(function) in ("self", "cls"))

    def _read(self, *, is_method: bool) -> None:
        self.is_method = is_method
        self.signature = read_signature(self.function, skip_first=is_method)
        name = check_name(self.settings.name or name_of(self.function))
        self.spec = ToolSpec(
            name=name,
            description=self.settings.description or self.signature.summary or name.replace("_", " "),
            parameters=self.signature.schema,
            strict=self.settings.strict,
        )

    def __set_name__(self, owner: type, name: str) -> None:
        # A method whose first parameter has an unusual name; any other tool may well be kept in a class.
        path = getattr(self.function, "__qualname__", "").rpartition(".")[0]
        if not self.is_method and path == owner.__qualname__ and self.function.__module__ == owner.__module__:
            self._read(is_method=True)

    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[S, Q], R], instance: S, owner: type | None = None, /
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> FunctionTool[Any, R]:
        if instance is None or not self.is_method:
            return self
        bound = cast("FunctionTool[Any, R]", object.__new__(FunctionTool))
        bound.__dict__.update(self.__dict__)  # what was read once holds for every instance
        bound.function = MethodType(self.function, instance)
        bound.__dict__["__wrapped__"] = bound.function
        bound.is_method = False
        return bound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        return self.settings.read_only

    @property
    def concurrency_safe(self) -> bool:
        """Whether it may run beside other tools."""
        return self.settings.concurrency_safe

    @property
    def external(self) -> bool:
        """Whether somebody outside runs it."""
        return self.settings.external

    @property
    def target(self) -> FindTarget | None:
        """What its calls are about; None = nobody has said so."""
        return self.settings.target

    @property
    def check(self) -> CheckCall | None:
        """Its own opinion about calls; None = it has none."""
        return self.settings.check

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Validate the arguments and run the function, in a thread unless it is async.

        Raises:
            InvalidArguments: The arguments do not fit.
            RunError: Somebody outside runs this tool.
        """
        if self.settings.external:
            raise RunError(f"{self.spec.name} is run by somebody outside")
        args, named = self.signature.place(self.signature.parse(arguments), context)
        function = cast("Callable[..., Any]", self.function)
        if self._way == "thread":
            return await context.in_thread(function, *args, **named)
        made = function(*args, **named)
        return await cast("Awaitable[object]", made) if self._way == "await" else made


@frozen(kw_only=False)
class SchemaTool:
    """A tool of which only the schema is known here: somebody outside runs it."""

    spec: ToolSpec
    read_only: bool = False
    concurrency_safe: bool = True
    external: bool = True

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Refuse; nothing here can run it.

        Raises:
            RunError: Always.
        """
        raise RunError(f"{self.spec.name} is run by somebody outside")


def schema_tool(
    name: str, description: str, parameters: Mapping[str, object], *, strict: bool | None = None
) -> SchemaTool:
    """Make a tool that somebody outside runs: the call ends the run, which goes on with their result.

    Args:
        name: What the model calls it.
        description: What it is for.
        parameters: The JSON schema of its arguments, of type `object`.
        strict: Whether the provider is to hold the model to the schema. Default: the provider decides.

    Raises:
        InvalidOption: The name is not usable, the description is blank or the schema is of another type.

    Examples:
        >>> schema_tool("pay", "Pay an invoice.", {"properties": {"invoice": {"type": "string"}}}).external
        True
    """
    check_name(name)
    if not description.strip():
        raise InvalidOption("description", description, "say what the tool is for")
    if parameters.get("type", "object") != "object":
        raise InvalidOption("parameters", parameters, 'give a JSON schema of {"type": "object"}')
    schema: dict[str, object] = {"type": "object", "properties": dict[str, object](), **parameters}
    return SchemaTool(ToolSpec(name=name, description=description, parameters=schema, strict=strict))


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> object:
    """Make a tool of a function: `@tool`, `@tool(read_only=True)` or `tool(obj.method, name="other")`.

    The schema comes from annotations, defaults and docstring (Google, NumPy or reST). Parameters annotated
    `ToolContext`, `RuntimeContext` or `Annotated[T, Injected]` are filled in and not shown. Async functions
    run on the loop, others in a thread; generators, async or not, show each piece as it comes.

    Args:
        function: A function, method, partial or callable object; a tool gives one with other options.
        options: `name`, `description`, `strict`, `read_only`, `concurrency_safe`, `external`, `timeout` in
            seconds, `max_attempts`, `initial_backoff` and `max_backoff` in seconds; see `ToolSettings`.

    Raises:
        InvalidOption: The function takes `*args` or `**kwargs`, a type has no JSON schema, the name is not one
            that providers accept, or an option is unknown or out of its range.

    Examples:
        >>> @tool(read_only=True)
        ... async def weather(city: str, days: int = 1) -> str:
        ...     '''Tell the weather.
        ...
        ...     Args:
        ...         city: Where.
        ...     '''
        ...     return f"sunny in {city}"
        >>> weather.spec.parameters["required"]
        ['city']
    """
    known = [field.name for field in fields(ToolSettings)]
    for name, value in options.items():
        if name not in known:
            raise InvalidOption(name, value, f"there is no such option; there are: {', '.join(known)}")
    if function is None:
        ToolSettings(**options)  # a wrong option is told here, on its own line
        return partial(tool, **options)
    return _function_tool(function, options)


def is_function_tool(value: object) -> TypeGuard[FunctionTool[..., Any]]:
    """Whether a value was made by `tool`."""
    return isinstance(value, FunctionTool)


def _function_tool(function: object, options: ToolOptions) -> FunctionTool[..., Any]:
    if is_function_tool(function):
        settings = replace(function.settings, **cast("dict[str, Any]", options))
        return FunctionTool(function.function, settings) if options else function
    if isinstance(function, MethodType) and is_function_tool(made := cast("object", function.__func__)):
        return made.__get__(function.__self__)  # what `classmethod` makes of a tool since Python 3.13
    if isinstance(function, (staticmethod, classmethod)):
        raise InvalidOption("tool", cast("object", function), "put @staticmethod or @classmethod above @tool")
    if isinstance(function, type) or not callable(function):
        raise InvalidOption("tool", function, "give a function, a method or a callable object")
    return FunctionTool(cast("Callable[..., Any]", function), ToolSettings(**options))
