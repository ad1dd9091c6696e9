"""What is decided about a call, and what a call is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, Self, TypeAlias

from agentscope_rx.frozen import frozen
from agentscope_rx.permission_context import Behavior, PermissionRule


@frozen
class PermissionDecision:
    """What becomes of a call.

    Args:
        behavior: `allow`, `deny` or `ask`; from a tool's own check also `passthrough`: it has no opinion.
        message: Why, in words for the person who is asked and for the model.
        reason: Which row of the order has decided, as a code.
        non_bypassable: Whether an `ask` holds whatever rules and mode say.
        suggestions: Rules that would answer this question for good.
    """

    behavior: Behavior
    message: str = ""
    reason: str = "tool"
    non_bypassable: bool = False
    suggestions: tuple[PermissionRule, ...] = ()

    @classmethod
    def allow(cls, message: str = "", *, reason: str = "tool") -> Self:
        """The call may run."""
        return cls(behavior="allow", message=message, reason=reason)

    @classmethod
    def deny(cls, message: str, *, reason: str = "tool") -> Self:
        """The call does not run."""
        return cls(behavior="deny", message=message, reason=reason)

    @classmethod
    def ask(cls, message: str, *, reason: str = "tool", non_bypassable: bool = False) -> Self:
        """A person is asked."""
        return cls(behavior="ask", message=message, reason=reason, non_bypassable=non_bypassable)


#: A check that has no opinion.
PASSTHROUGH: Final = PermissionDecision(behavior="passthrough")
_WEIGHTS: Final[Mapping[Behavior, int]] = {"passthrough": 0, "allow": 1, "ask": 2, "deny": 3}


def stricter(one: PermissionDecision, other: PermissionDecision) -> PermissionDecision:
    """Of two opinions about a call the one that lets less through; the first where they weigh the same.

    Examples:
        >>> stricter(PermissionDecision.allow(), PermissionDecision.ask("sure?")).behavior
        'ask'
    """
    weights = [(_WEIGHTS[each.behavior], each.non_bypassable) for each in (one, other)]
    return one if weights[0] >= weights[1] else other


def session_only(arguments: Mapping[str, object]) -> PermissionDecision:
    """The check of tools that change nothing but what the session itself keeps: only rules and modes may mind."""
    return PermissionDecision.allow(reason="session_only")


class CallTarget(Protocol):
    """What one call is about, as rules with a content see it: the files that it uses, or the commands that it runs.

    A call may be about several things, and what it is about may be unclear. Rules that deny and ask speak of it when
    any part of it fits or might fit; rules that allow, only when all of it fits for sure.
    """

    @property
    def danger(self) -> str:
        """Why a person has to be asked whatever rules and mode say; empty = no reason."""
        ...

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Contents of rules that together would allow this call."""
        ...

    def touched_by(self, content: str, /) -> bool:
        """Whether a rule that denies or asks speaks of this call."""
        ...

    def covered_by(self, contents: Sequence[str], /) -> bool:
        """Whether rules that allow speak, together, of the whole call."""
        ...

    def edits_inside(self, directories: Sequence[str], /) -> bool:
        """Whether all that the call does is to edit files inside these directories."""
        ...


#: Finds what a call is about, from its arguments.
FindTarget: TypeAlias = Callable[[Mapping[str, object]], CallTarget | Awaitable[CallTarget]]
#: A tool's own opinion about a call, from its arguments.
CheckCall: TypeAlias = Callable[[Mapping[str, object]], PermissionDecision | Awaitable[PermissionDecision]]
