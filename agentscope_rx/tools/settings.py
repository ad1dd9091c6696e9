"""How a function is a tool, and what a tool may be called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypedDict

from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen

if TYPE_CHECKING:
    from agentscope_rx.permissions.decision import CheckCall, FindTarget

#: What all providers accept as the name of a tool.
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ToolOptions(TypedDict, total=False):
    """The keywords of `@tool`; `ToolSettings` says what they mean."""

    name: str | None
    description: str | None
    strict: bool | None
    read_only: bool
    concurrency_safe: bool
    external: bool
    timeout: float | None
    max_attempts: int
    initial_backoff: float
    max_backoff: float
    target: FindTarget | None
    check: CheckCall | None


@frozen
class ToolSettings:
    """How a function is a tool.

    Args:
        name: What the model calls it, 1 to 64 of `a-zA-Z0-9_-`. Default: the function's name.
        description: What it is for. Default: the docstring without its sections.
        strict: Whether the provider is to hold the model to the schema. Default: the provider decides.
        read_only: Whether it changes nothing. Default False.
        concurrency_safe: Whether it may run beside other tools. Default True.
        external: Whether somebody outside runs it. Default False.
        timeout: Seconds that one attempt may take; `math.inf` = without limit. Default: the toolkit's.
        max_attempts: Attempts in all. Default 1: no retry.
        initial_backoff: Seconds before the second attempt; each further wait is twice as long. Default 1.
        max_backoff: Seconds between two attempts at most. Default 30.
        target: Finds what a call is about, so that permission rules with a content can be compared with it:
            `paths(workspace, "path")`, `commands("command")`, or a function of the arguments. Default: none.
        check: The tool's own opinion about a call, from its arguments: a `PermissionDecision`. Default: none.

    Raises:
        InvalidOption: An option is out of its range.
    """

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    read_only: bool = False
    concurrency_safe: bool = True
    external: bool = False
    timeout: float | None = None
    max_attempts: int = 1
    initial_backoff: float = 1.0
    max_backoff: float = 30.0
    target: FindTarget | None = None
    check: CheckCall | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.description is not None and not self.description.strip():
            raise InvalidOption("description", self.description, "say what the tool is for")
        for option in ("target", "check"):
            if getattr(self, option) is not None and not callable(getattr(self, option)):
                raise InvalidOption(option, getattr(self, option), "give a function of the call's arguments")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidOption("timeout", self.timeout, "give seconds, more than 0")
        if self.max_attempts < 1:
            raise InvalidOption("max_attempts", self.max_attempts, "give at least 1")
        for option in ("initial_backoff", "max_backoff"):
            if not getattr(self, option) >= 0:
                raise InvalidOption(option, getattr(self, option), "give seconds, 0 or more")


def check_name(name: object, option: str = "name") -> str:
    """Return the name of a tool or group.

    Raises:
        InvalidOption: Providers would refuse it.
    """
    if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
        return name
    raise InvalidOption(option, name, "give 1 to 64 letters, digits, '_' or '-'; providers accept no others")
