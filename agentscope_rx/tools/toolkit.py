"""The set of tools that an agent has: an immutable value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from typing import Final, TypedDict, Unpack, cast

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import NOTHING
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.groups import META_TOOL, GroupSwitch, ToolGroup
from agentscope_rx.tools.results import MAX_RESULT_CHARS
from agentscope_rx.tools.tool import Tool, is_function_tool, tool

#: A tool, or a function that `tool` makes one of.
ToolLike = Tool | Callable[..., object]

#: Below this, the note about what was cut would be longer than what is left.
_LEAST_RESULT_CHARS: Final = 1000


class ToolkitOptions(TypedDict, total=False):
    """The keywords of `Toolkit.of`; `Toolkit` says what they mean."""

    parallel: bool
    default_timeout: float | None
    max_result_chars: int


@frozen(kw_only=False)
class ToolEntry:
    """One tool of a toolkit.

    Args:
        tool: The tool.
        group: The name of its group. Default None: none, so that it is always on offer.
        presets: Arguments that win over what the model says.
    """

    tool: Tool
    group: str | None = None
    presets: Mapping[str, object] = field(default_factory=lambda: NOTHING, hash=False)
    spec: ToolSpec = field(init=False, compare=False)

    def __post_init__(self) -> None:
        spec = self.tool.spec
        object.__setattr__(self, "spec", _without(spec, self.presets) if self.presets else spec)


@frozen
class Toolkit:
    """Tools, their groups and how they are run. Every method returns a new toolkit.

    Args:
        entries: The tools; `Toolkit.of` and `add` make them.
        groups: The groups of tools.
        meta_tool: Whether the model may switch groups by `reset_equipped_tools`. Default False.
        parallel: Whether calls of one step may run side by side. Default True.
        default_timeout: Seconds that one attempt at a call may take where the tool says nothing else; None =
            without limit. Default 300.
        max_result_chars: How many characters one result may have. Default 1,000,000.

    Raises:
        InvalidOption: Two tools have one name, or an option is out of its range.

    Examples:
        >>> toolkit = Toolkit.of(run_tests).group("web", "Search and read web pages.", search, fetch)
        >>> [spec.name for spec in toolkit.specs()], [spec.name for spec in toolkit.specs({"web"})]
        (['run_tests'], ['run_tests', 'search', 'fetch'])
    """

    entries: tuple[ToolEntry, ...] = ()
    groups: tuple[ToolGroup, ...] = ()
    meta_tool: bool = False
    parallel: bool = True
    default_timeout: float | None = 300.0
    max_result_chars: int = MAX_RESULT_CHARS
    _by_name: dict[str, ToolEntry] = field(init=False, repr=False, compare=False)
    _specs: dict[frozenset[str], tuple[ToolSpec, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.default_timeout is not None and not self.default_timeout > 0:
            raise InvalidOption("default_timeout", self.default_timeout, "give seconds, more than 0, or None")
        if self.max_result_chars < _LEAST_RESULT_CHARS:
            rule = f"give at least {_LEAST_RESULT_CHARS:,}"
            raise InvalidOption("max_result_chars", self.max_result_chars, rule)
        switch = (ToolEntry(GroupSwitch(self.groups)),) if self.meta_tool and self.groups else ()
        by_name: dict[str, ToolEntry] = {}
        for entry in (*self.entries, *switch):
            other = by_name.setdefault(entry.spec.name, entry)
            if other is not entry:
                both = f"{_origin(other.tool)} and {_origin(entry.tool)}"
                rule = f"two tools have this name, {both}; give one of them another by tool(..., name=...)"
                raise InvalidOption("tools", entry.spec.name, rule)
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_specs", {})

    @classmethod
    def of(cls, *tools: ToolLike, **options: Unpack[ToolkitOptions]) -> Toolkit:
        """Make a toolkit.

        Args:
            tools: Tools, or functions, which become tools as by `@tool`.
            options: `parallel`, `default_timeout`, `max_result_chars`; see the class.

        Raises:
            InvalidOption: Two tools have one name, something is no tool, or an option is out of its range.
        """
        return cls(**options).add(*tools)

    # -- making another one ---------------------------------------------------------------------------------

    def add(self, *tools: ToolLike) -> Toolkit:
        """The same toolkit with further tools; `InvalidOption` where a name is taken."""
        return replace(self, entries=(*self.entries, *(ToolEntry(_as_tool(each)) for each in tools)))

    def remove(self, name: str) -> Toolkit:
        """The same toolkit without one tool; `InvalidOption` where there is no such tool."""
        entry = self._known(name)
        if isinstance(entry.tool, GroupSwitch):
            return replace(self, meta_tool=False)
        return replace(self, entries=tuple(each for each in self.entries if each is not entry))

    def only(self, offered: Callable[[str], bool]) -> Toolkit:
        """The same toolkit with those tools alone whose names a function says yes to."""
        entries = tuple(each for each in self.entries if offered(each.spec.name))
        return replace(self, entries=entries, meta_tool=self.meta_tool and offered(META_TOOL))

    def group(self, name: str, description: str, *tools: ToolLike, active: bool = False) -> Toolkit:
        """The same toolkit with a group of tools that are on offer only while the group is active.

        Args:
            name: What the group is called; the same rule as for a tool.
            description: What its tools are for, as the model is told.
            tools: Its tools.
            active: Whether it is active in a fresh session. Default False.

        Raises:
            InvalidOption: A name is taken or not usable, or the description is blank.
        """
        if any(each.name == name for each in self.groups):
            raise InvalidOption("group", name, "there is a group with this name; give all its tools at once")
        added = ToolGroup(name=name, description=description, active=active)
        entries = tuple(ToolEntry(_as_tool(each), group=name) for each in tools)
        return replace(self, groups=(*self.groups, added), entries=(*self.entries, *entries))

    def preset(self, tool_name: str, /, **arguments: object) -> Toolkit:
        """The same toolkit with arguments that the model neither sees nor can change.

        Args:
            tool_name: The tool.
            arguments: What it is called with.

        Raises:
            InvalidOption: There is no such tool or argument, or the value does not fit.
        """
        entry = self._known(tool_name)
        properties = cast("Mapping[str, object]", entry.tool.spec.parameters.get("properties", NOTHING))
        for name, value in arguments.items():
            why = None if name in properties else f"there is no such argument; there are: {_listed(properties)}"
            if why is None and is_function_tool(entry.tool):
                why = entry.tool.signature.refuses(name, value)
            if why is not None:
                raise InvalidOption(name, value, f"preset of {tool_name}: {why}")
        changed = ToolEntry(entry.tool, entry.group, {**entry.presets, **arguments})
        return replace(self, entries=tuple(changed if each is entry else each for each in self.entries))

    def with_meta_tool(self) -> Toolkit:
        """The same toolkit with `reset_equipped_tools`, by which the model chooses the active groups."""
        return replace(self, meta_tool=True)

    def configure(self, **options: Unpack[ToolkitOptions]) -> Toolkit:
        """The same toolkit with other options: `parallel`, `default_timeout`, `max_result_chars`."""
        return replace(self, **options)

    # -- asking it ------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools, those of inactive groups too."""
        return tuple(self._by_name)

    @property
    def default_groups(self) -> frozenset[str]:
        """The groups that are active in a fresh session."""
        return frozenset(group.name for group in self.groups if group.active)

    def specs(self, active_groups: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them; for the same groups the same tuple, as long as the toolkit lives.

        Args:
            active_groups: The active groups; unknown ones are ignored. Default None: as in a fresh session.
        """
        active = self._active(active_groups)
        known = self._specs.get(active)
        return known if known is not None else self._specs.setdefault(active, tuple(self._visible(active)))

    def find(self, name: str, active_groups: Collection[str] | None = None) -> Tool | None:
        """The tool that the model may call by this name now; None where there is none."""
        entry = self._by_name.get(name)
        if entry is None or not (entry.group is None or entry.group in self._active(active_groups)):
            return None
        return entry.tool

    def entry(self, name: str) -> ToolEntry | None:
        """A tool with its group and presets, whether its group is active or not; None where there is none."""
        return self._by_name.get(name)

    def presets(self, name: str) -> Mapping[str, object]:
        """The arguments of a tool that win over what the model says; empty where there are none."""
        entry = self._by_name.get(name)
        return NOTHING if entry is None else entry.presets

    def _active(self, active_groups: Collection[str] | None) -> frozenset[str]:
        if active_groups is None:
            return self.default_groups
        return frozenset(group.name for group in self.groups if group.name in active_groups)

    def _visible(self, active: frozenset[str]) -> Iterator[ToolSpec]:
        """Those without a group first: what a switch changes stands behind what it does not."""
        for wanted in (None, *(group.name for group in self.groups if group.name in active)):
            yield from (entry.spec for entry in self._by_name.values() if entry.group == wanted)

    def _known(self, name: str) -> ToolEntry:
        entry = self._by_name.get(name)
        if entry is None:
            rule = f"there is no such tool; there are: {_listed(self._by_name)}"
            raise InvalidOption("tool_name", name, rule)
        return entry


def _as_tool(value: object) -> Tool:
    made: object = value
    if not isinstance(value, (type, Tool)) and callable(value):
        made = tool(value)
    if is_function_tool(made) and made.is_method:
        raise InvalidOption("tools", value, "it is a method: hand in `instance.method`")
    if isinstance(made, type) or not isinstance(made, Tool):
        raise InvalidOption("tools", value, "give functions or tools")
    return made


def _without(spec: ToolSpec, presets: Collection[str]) -> ToolSpec:
    properties = cast("Mapping[str, object]", spec.parameters.get("properties", NOTHING))
    shown = {name: schema for name, schema in properties.items() if name not in presets}
    parameters: dict[str, object] = {**spec.parameters, "properties": shown}
    if "required" in parameters:
        required = cast("Collection[str]", parameters["required"])
        parameters["required"] = [name for name in required if name not in presets]
    return replace(spec, parameters=parameters)


def _origin(value: Tool) -> str:
    named = value.function if is_function_tool(value) else type(value)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
