"""Groups of tools, and the tool by which the model chooses among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, cast

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolResultState
from agentscope_rx.permissions.decision import PermissionDecision
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.settings import check_name

META_TOOL: Final = "reset_equipped_tools"
#: Under this key the result of the meta tool holds the names of the groups that are active from now on.
ACTIVATED_GROUPS: Final = "activated_groups"


@frozen
class ToolGroup:
    """A group of tools that are on offer only while it is active.

    Args:
        name: What it is called; the same rule as for a tool.
        description: What its tools are for, as the model is told.
        active: Whether it is active in a fresh session. Default False.

    Raises:
        InvalidOption: The name is not usable, or the description is blank.
    """

    name: str
    description: str
    active: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "group")
        if not self.description.strip():
            raise InvalidOption("description", self.description, "say what the tools of the group are for")


@frozen(kw_only=False)
class GroupSwitch:
    """The tool `reset_equipped_tools`: it says which groups are to be active, and the session records it.

    Args:
        groups: The groups to choose from.
    """

    groups: tuple[ToolGroup, ...]
    spec: ToolSpec = field(init=False, compare=False)
    read_only: bool = True
    concurrency_safe: bool = True
    external: bool = False

    def __post_init__(self) -> None:
        description = (
            "Choose the groups of tools that you need. The list is the complete new set: groups that it does "
            f"not name are switched off. The groups:\n{_listed(self.groups)}"
        )
        names = [group.name for group in self.groups]
        wanted = {
            "type": "array",
            "items": {"type": "string", "enum": names},
            "description": "The groups that are to be active from now on.",
        }
        parameters: Mapping[str, object] = {
            "type": "object",
            "properties": {"to_activate": wanted},
            "required": ["to_activate"],
            "additionalProperties": False,
        }
        spec = ToolSpec(name=META_TOOL, description=description, parameters=parameters)
        object.__setattr__(self, "spec", spec)

    def check(self, arguments: Mapping[str, object]) -> PermissionDecision:
        """Nobody is asked: a tool that comes on offer has its own permissions."""
        return PermissionDecision.allow()

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Answer with the groups that are active from now on; the caller records them."""
        named = cast("Iterable[str]", arguments["to_activate"])
        active = [group for group in self.groups if group.name in named]
        text = f"Active groups:\n{_listed(active)}" if active else "No group is active."
        return ToolResultBlock(
            id=context.call.id,
            name=META_TOOL,
            output=(TextBlock(text=text),),
            metadata={ACTIVATED_GROUPS: [group.name for group in active]},
            state=ToolResultState.SUCCESS,
        )


def _listed(groups: Iterable[ToolGroup]) -> str:
    return "\n".join(f"- {group.name}: {group.description}" for group in groups)
