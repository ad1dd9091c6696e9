"""Judging: a tool is asked what a call is about and what it thinks of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentscope_rx.errors import InvalidOption
from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule
from agentscope_rx.permissions import PermissionDecision, commands, judge
from agentscope_rx.permissions.decision import PASSTHROUGH, session_only, stricter
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools import Tool, ToolContext, tool
from agentscope_rx.tools.groups import GroupSwitch, ToolGroup

RULES = PermissionContextState().with_rules([PermissionRule.allow("execute", "ls")])


class Bare(Tool):
    """A tool without anything for permissions."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name="bare", description="Bare.", parameters={"type": "object"})

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        return "done"


def execute(**options: Any) -> Any:
    def execute(command: str) -> str:
        """Run a command."""
        return command

    return tool(**options)(execute)


async def test_a_target_is_compared() -> None:
    """What `target` finds is what rules speak of; a tool without one is judged by its name."""
    shell = execute(target=commands("command"))
    assert (await judge(shell, {"command": "ls -l"}, RULES)).behavior == "allow"
    assert (await judge(shell, {"command": "rm"}, RULES)).behavior == "ask"
    assert (await judge(execute(), {"command": "ls"}, RULES)).behavior == "ask"
    assert (await judge(Bare(), {}, RULES)).behavior == "ask"
    assert (await judge(Bare(), {}, PermissionContextState())).behavior == "allow"


async def test_a_check_is_asked() -> None:
    """A check may be plain or async, and sees the arguments."""

    async def later(arguments: Mapping[str, object]) -> PermissionDecision:
        return PermissionDecision.deny(f"no {arguments['command']}")

    def now(arguments: Mapping[str, object]) -> PermissionDecision:
        return PermissionDecision.ask("sure?", non_bypassable=True)

    nothing = PermissionContextState()
    assert (await judge(execute(check=later), {"command": "x"}, nothing)).message == "no x"
    bypass = PermissionContextState(mode=PermissionMode.BYPASS)
    assert (await judge(execute(check=now), {}, bypass)).behavior == "ask"
    assert (await judge(execute(check=now), {}, bypass, confirmed=True)).behavior == "allow"


async def test_of_two_opinions_the_stricter_counts() -> None:
    """What the session's state says and what the tool says are weighed; an ask that insists is stricter than one that
    does not."""
    allows, asks = PermissionDecision.allow(), PermissionDecision.ask("sure?")
    insists, denies = PermissionDecision.ask("really?", non_bypassable=True), PermissionDecision.deny("no")
    weights = [PASSTHROUGH, allows, asks, insists, denies]
    for at, weaker in enumerate(weights):
        for stronger in weights[at:]:
            assert stricter(weaker, stronger) == stricter(stronger, weaker) == stronger
    bypass = PermissionContextState(mode=PermissionMode.BYPASS)

    def saying(decision: PermissionDecision) -> Any:
        def check(arguments: Mapping[str, object]) -> PermissionDecision:
            return decision

        return execute(check=check)

    shell = saying(allows)
    assert (await judge(shell, {}, bypass, standing=insists)).message == "really?"
    assert (await judge(shell, {}, bypass, standing=denies, confirmed=True)).message == "no"
    assert (await judge(saying(denies), {}, bypass, standing=insists)).message == "no"


async def test_a_check_that_fails_denies() -> None:
    """What could not be checked does not run, even when somebody has confirmed it."""

    def broken(arguments: Mapping[str, object]) -> PermissionDecision:
        raise LookupError("secret words")

    for options in ({"check": broken}, {"target": broken}):
        decision = await judge(execute(**options), {}, PermissionContextState(), confirmed=True)
        assert (decision.behavior, decision.reason) == ("deny", "check_failed")
        assert "secret" not in decision.message


def test_only_functions_judge() -> None:
    """What cannot be called is refused where it is written."""
    with pytest.raises(InvalidOption, match="check"):
        execute(check="yes")
    with pytest.raises(InvalidOption, match="target"):
        execute(target="path")


async def test_switching_groups_needs_no_permission() -> None:
    """Which tools are on offer is nobody's business but the model's; each has its own permissions."""
    switch = GroupSwitch((ToolGroup(name="web", description="Web."),))
    for mode in (PermissionMode.EXPLORE, PermissionMode.DONT_ASK, None):
        state = RULES.with_mode(mode)
        assert (await judge(switch, {"to_activate": []}, state)).behavior == "allow"


async def test_what_only_the_session_keeps_needs_no_question() -> None:
    """It is allowed by itself; a rule or a mode may still mind."""
    note = execute(check=session_only)
    for mode in (None, PermissionMode.DEFAULT, PermissionMode.DONT_ASK):
        assert (await judge(note, {}, RULES.with_mode(mode))).reason == "session_only"
    assert (await judge(note, {}, RULES.with_mode(PermissionMode.EXPLORE))).reason == "explore"
    assert (await judge(note, {}, RULES.with_rules([PermissionRule.deny("execute")]))).reason == "deny_rule"
