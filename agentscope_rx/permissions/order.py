"""The order in which permissions are evaluated: `decide` has one row for each reason, from top to bottom.

Denials come first, so that nobody is asked about what cannot be. Then come the questions that no later row may
answer: those of ask rules, and those that a tool marks as non-bypassable. Then whatever allows. What is left is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule
from agentscope_rx.permissions.decision import PASSTHROUGH, CallTarget, PermissionDecision

_LOOKS: tuple[PermissionMode, ...] = (PermissionMode.EXPLORE, PermissionMode.ACCEPT_EDITS)


@frozen
class JudgedCall:
    """A call, as far as permissions see it.

    Args:
        tool_name: The tool.
        read_only: Whether the tool changes nothing.
        target: What the call is about; None = the tool does not say.
        own: The opinion of the tool's own check.
        confirmed: Whether a person has been asked about this very call, and said yes.
    """

    tool_name: str
    read_only: bool = False
    target: CallTarget | None = None
    own: PermissionDecision = PASSTHROUGH
    confirmed: bool = False


def decide(call: JudgedCall, permissions: PermissionContextState) -> PermissionDecision:
    """Decide whether a call may run.

    A question that a person has answered is not asked again, and in the mode `dont_ask` every question is a denial.
    What a person has confirmed is still denied where a rule, the tool or the mode denies it.

    Args:
        call: The call.
        permissions: What holds for its session.

    Returns:
        A decision to allow, deny or ask.

    Examples:
        >>> rules = PermissionContextState().with_rules([PermissionRule.allow("look"), PermissionRule.deny("pay")])
        >>> [decide(JudgedCall(tool_name=name), rules).behavior for name in ("look", "pay", "write")]
        ['allow', 'deny', 'ask']
    """
    decision = _first_row(call, permissions)
    if decision.behavior != "ask":
        return decision
    if call.confirmed:
        return PermissionDecision.allow(reason="confirmed")
    if permissions.mode is PermissionMode.DONT_ASK:
        return PermissionDecision.deny(f"{decision.message}; nobody is asked in this mode", reason="dont_ask")
    answerable = decision.reason in ("default", "tool") and not decision.non_bypassable
    return replace(decision, suggestions=_suggested(call)) if answerable else decision


def _first_row(call: JudgedCall, permissions: PermissionContextState) -> PermissionDecision:
    mode, name, own = permissions.mode, call.tool_name, call.own
    if rule := _speaking(call, permissions.deny_rules.get(name, ())):
        return PermissionDecision.deny(f"the rule '{rule}' forbids it", reason="deny_rule")
    if own.behavior == "deny":
        return own
    if rule := _speaking(call, permissions.ask_rules.get(name, ())):
        return PermissionDecision.ask(f"the rule '{rule}' has a person asked", reason="ask_rule")
    if mode is PermissionMode.EXPLORE and not call.read_only:
        return PermissionDecision.deny("only tools that change nothing may be used in this mode", reason="explore")
    if own.behavior == "ask" and own.non_bypassable:
        return own
    if call.target is not None and call.target.danger:
        return PermissionDecision.ask(call.target.danger, reason="danger", non_bypassable=True)
    if permissions.is_trivial:
        return own if own.behavior == "ask" else PermissionDecision.allow(reason="unconfigured")
    if mode in _LOOKS and call.read_only:
        return PermissionDecision.allow(reason="read_only")
    if mode is PermissionMode.ACCEPT_EDITS and _edits_inside(call, permissions):
        return PermissionDecision.allow(reason="edit_inside")
    if own.behavior == "allow":
        return own
    if _allowed(call, permissions.allow_rules.get(name, ())):
        return PermissionDecision.allow(reason="allow_rule")
    if mode is PermissionMode.BYPASS:
        return PermissionDecision.allow(reason="bypass")
    if own.behavior == "ask":
        return own
    return PermissionDecision.ask(f"no rule says whether {name} may be used like this", reason="default")


def _speaking(call: JudgedCall, rules: Sequence[PermissionRule]) -> PermissionRule | None:
    """The first rule that speaks of a call. One whose content cannot be compared speaks of it: it may be meant."""
    for rule in rules:
        if not rule.rule_content or call.target is None or call.target.touched_by(rule.rule_content):
            return rule
    return None


def _allowed(call: JudgedCall, rules: Sequence[PermissionRule]) -> bool:
    """Whether rules allow a call. Those whose content cannot be compared do not."""
    if any(not rule.rule_content for rule in rules):
        return True
    contents = [rule.rule_content for rule in rules if rule.rule_content]
    return bool(contents) and call.target is not None and call.target.covered_by(contents)


def _edits_inside(call: JudgedCall, permissions: PermissionContextState) -> bool:
    directories = [each.path for each in permissions.working_directories]
    return call.target is not None and call.target.edits_inside(directories)


def _suggested(call: JudgedCall) -> tuple[PermissionRule, ...]:
    """Rules that would allow this call, and not much more; for all calls of the tool where it says nothing finer."""
    contents: Sequence[str | None] = (None,) if call.target is None else call.target.suggestions
    return tuple(PermissionRule.allow(call.tool_name, each, source="suggested") for each in contents)
