"""Asks a tool about a call, and decides."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar, cast, runtime_checkable

from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.permissions.decision import (
    PASSTHROUGH,
    CallTarget,
    CheckCall,
    FindTarget,
    PermissionDecision,
    stricter,
)
from agentscope_rx.permissions.order import JudgedCall, decide
from agentscope_rx.requests import ToolSpec

T = TypeVar("T")


class JudgedTool(Protocol):
    """What permissions must know of a tool."""

    @property
    def spec(self) -> ToolSpec:
        """Its name."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        ...


@runtime_checkable
class HasTarget(Protocol):
    """A tool that says what a call is about, so that rules with a content can be compared with it."""

    @property
    def target(self) -> FindTarget | None:
        """Finds what a call is about; None = the tool does not say."""
        ...


@runtime_checkable
class HasCheck(Protocol):
    """A tool that has its own opinion about calls."""

    @property
    def check(self) -> CheckCall | None:
        """Gives its opinion; None = it has none."""
        ...


async def judge(
    tool: JudgedTool,
    arguments: Mapping[str, object],
    permissions: PermissionContextState,
    *,
    standing: PermissionDecision = PASSTHROUGH,
    confirmed: bool = False,
) -> PermissionDecision:
    """Decide whether a tool may be called with these arguments.

    A tool whose `target` or `check` fails is not called: what was not checked is denied.

    Args:
        tool: The tool; it may have a `target` and a `check`.
        arguments: What it would be called with, presets included.
        permissions: What holds for the session.
        standing: What the state of the session says of the call, beside its rules; it counts like an opinion of the
            tool, and the stricter of the two does. Default: nothing.
        confirmed: Whether a person has said yes to this very call. Default False.
    """
    find = tool.target if isinstance(tool, HasTarget) else None
    check = tool.check if isinstance(tool, HasCheck) else None
    try:
        target: CallTarget | None = None if find is None else await _settled(find(arguments))
        own = PASSTHROUGH if check is None else await _settled(check(arguments))
    except Exception as error:
        failed = f"the check of the call failed ({type(error).__name__})"
        return PermissionDecision.deny(failed, reason="check_failed")
    call = JudgedCall(
        tool_name=tool.spec.name,
        read_only=tool.read_only,
        target=target,
        own=stricter(standing, own),
        confirmed=confirmed,
    )
    return decide(call, permissions)


async def _settled(value: T | Awaitable[T]) -> T:
    return await value if inspect.isawaitable(value) else cast(T, value)
