"""The order of permissions: every row, and what must hold whatever the rules are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule, WorkingDirectory
from agentscope_rx.permissions import JudgedCall, PermissionDecision, decide
from agentscope_rx.permissions.decision import PASSTHROUGH

ALLOW, DENY, ASK = PermissionRule.allow, PermissionRule.deny, PermissionRule.ask
SAYS_NO = PermissionDecision.deny("no")
SAYS_YES = PermissionDecision.allow()
ASKS = PermissionDecision.ask("sure?")
INSISTS = PermissionDecision.ask("really?", non_bypassable=True)


@dataclass(frozen=True)
class Target:
    """A call about one name."""

    name: str = "a"
    danger: str = ""
    edits: bool = False

    @property
    def suggestions(self) -> tuple[str, ...]:
        return (self.name,)

    def touched_by(self, content: str, /) -> bool:
        return content == self.name

    def covered_by(self, contents: Sequence[str], /) -> bool:
        return self.name in contents

    def edits_inside(self, directories: Sequence[str], /) -> bool:
        return self.edits and self.name in directories


def permissions(
    *rules: PermissionRule, mode: str | None = None, directories: Sequence[str] = ()
) -> PermissionContextState:
    """What holds for a session."""
    state = PermissionContextState(mode=None if mode is None else PermissionMode(mode)).with_rules(rules)
    return state.with_directories(WorkingDirectory(path=each) for each in directories)


def call(**fields: Any) -> JudgedCall:
    return JudgedCall(tool_name="t", **fields)


EDIT = Target(edits=True)
ROWS: list[tuple[str, JudgedCall, PermissionContextState, str, str]] = [
    # 1 deny rules, before everything
    ("a deny rule", call(own=SAYS_YES), permissions(DENY("t"), ALLOW("t"), ASK("t")), "deny", "deny_rule"),
    ("also in bypass", call(), permissions(DENY("t"), mode="bypass"), "deny", "deny_rule"),
    ("with a content that fits", call(target=Target()), permissions(DENY("t", "a")), "deny", "deny_rule"),
    ("not one that does not", call(target=Target()), permissions(DENY("t", "b"), ALLOW("t")), "allow", "allow_rule"),
    ("a content for a tool without a target", call(), permissions(DENY("t", "b"), ALLOW("t")), "deny", "deny_rule"),
    ("what was confirmed, too", call(confirmed=True), permissions(DENY("t")), "deny", "deny_rule"),
    ("not another tool's", call(), permissions(DENY("u"), ALLOW("t")), "allow", "allow_rule"),
    # 2 the tool's own denial
    ("the tool denies", call(own=SAYS_NO), permissions(ALLOW("t"), mode="bypass"), "deny", "tool"),
    ("nobody is asked about that", call(own=SAYS_NO), permissions(ASK("t")), "deny", "tool"),
    ("nor does anything else count", call(own=SAYS_NO, confirmed=True), permissions(), "deny", "tool"),
    # 3 ask rules
    ("an ask rule", call(own=SAYS_YES), permissions(ASK("t"), ALLOW("t")), "ask", "ask_rule"),
    ("also in bypass", call(), permissions(ASK("t"), mode="bypass"), "ask", "ask_rule"),
    ("also in explore", call(), permissions(ASK("t"), mode="explore"), "ask", "ask_rule"),
    ("a content for a tool without a target", call(), permissions(ASK("t", "b"), ALLOW("t")), "ask", "ask_rule"),
    ("confirmed", call(confirmed=True), permissions(ASK("t")), "allow", "confirmed"),
    # 4 explore
    ("explore denies what changes", call(own=SAYS_YES), permissions(ALLOW("t"), mode="explore"), "deny", "explore"),
    ("what was confirmed before, too", call(confirmed=True), permissions(mode="explore"), "deny", "explore"),
    # 5 what a tool insists on
    ("a tool insists", call(own=INSISTS), permissions(ALLOW("t"), mode="bypass"), "ask", "tool"),
    ("when it only looks, too", call(own=INSISTS, read_only=True), permissions(mode="explore"), "ask", "tool"),
    ("confirmed", call(own=INSISTS, confirmed=True), permissions(mode="bypass"), "allow", "confirmed"),
    # 6 dangers
    ("a danger", call(target=Target(danger="!")), permissions(ALLOW("t"), mode="bypass"), "ask", "danger"),
    ("where nothing is configured", call(target=Target(danger="!")), permissions(), "ask", "danger"),
    ("in a working directory", call(target=Target(danger="!", edits=True)),
     permissions(mode="accept_edits", directories=["a"]), "ask", "danger"),
    # 7 nothing configured
    ("nothing is configured", call(), permissions(), "allow", "unconfigured"),
    ("the default mode is nothing", call(), permissions(mode="default"), "allow", "unconfigured"),
    ("the tool asks", call(own=ASKS), permissions(), "ask", "tool"),
    # 8 modes that let look
    ("explore looks", call(read_only=True), permissions(mode="explore"), "allow", "read_only"),
    ("accept_edits looks", call(read_only=True, own=ASKS), permissions(mode="accept_edits"), "allow", "read_only"),
    ("default does not", call(read_only=True), permissions(ALLOW("u")), "ask", "default"),
    # 9 edits inside the working directories
    ("an edit inside", call(target=EDIT), permissions(mode="accept_edits", directories=["a"]), "allow", "edit_inside"),
    ("an edit elsewhere", call(target=EDIT), permissions(mode="accept_edits", directories=["b"]), "ask", "default"),
    ("without directories", call(target=EDIT), permissions(mode="accept_edits"), "ask", "default"),
    ("no edit", call(target=Target()), permissions(mode="accept_edits", directories=["a"]), "ask", "default"),
    ("no target", call(), permissions(mode="accept_edits", directories=["a"]), "ask", "default"),
    ("in another mode", call(target=EDIT), permissions(directories=["a"]), "ask", "default"),
    # 10 the tool's own permission
    ("the tool allows", call(own=SAYS_YES), permissions(ALLOW("u")), "allow", "tool"),
    # 11 allow rules
    ("an allow rule", call(own=ASKS), permissions(ALLOW("t")), "allow", "allow_rule"),
    ("with a content that fits", call(target=Target()), permissions(ALLOW("t", "a")), "allow", "allow_rule"),
    ("not one that does not", call(target=Target()), permissions(ALLOW("t", "b")), "ask", "default"),
    ("a content for a tool without a target", call(), permissions(ALLOW("t", "a")), "ask", "default"),
    # 12 bypass
    ("bypass", call(own=ASKS), permissions(mode="bypass"), "allow", "bypass"),
    # 13 questions
    ("the tool asks, configured", call(own=ASKS), permissions(ALLOW("u")), "ask", "tool"),
    ("no rule says anything", call(), permissions(DENY("u")), "ask", "default"),
    ("confirmed", call(confirmed=True), permissions(DENY("u")), "allow", "confirmed"),
    # nobody is asked
    ("dont_ask", call(), permissions(mode="dont_ask"), "deny", "dont_ask"),
    ("dont_ask, ask rules too", call(), permissions(ASK("t"), mode="dont_ask"), "deny", "dont_ask"),
    ("dont_ask, the tool too", call(own=INSISTS), permissions(mode="dont_ask"), "deny", "dont_ask"),
    ("dont_ask, but allowed", call(), permissions(ALLOW("t"), mode="dont_ask"), "allow", "allow_rule"),
    ("dont_ask, but confirmed before", call(confirmed=True), permissions(mode="dont_ask"), "allow", "confirmed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "state", "behavior", "reason"),
    [row[1:] for row in ROWS],
    ids=[f"{i}: {row[0]}" for i, row in enumerate(ROWS)],
)
def test_every_row(judged: JudgedCall, state: PermissionContextState, behavior: str, reason: str) -> None:
    """Each row decides what it has to, with a reason that names it and words for people."""
    decision = decide(judged, state)
    assert (decision.behavior, decision.reason) == (behavior, reason)
    assert decision.message or decision.behavior == "allow"


def test_suggestions_answer_the_question() -> None:
    """What is suggested allows the very call; where no rule could help, nothing is."""
    for judged, suggested in (
        (call(target=Target()), [ALLOW("t", "a", source="suggested")]),
        (call(), [ALLOW("t", source="suggested")]),
        (call(own=ASKS), [ALLOW("t", source="suggested")]),
    ):
        decision = decide(judged, permissions(ALLOW("u")))
        assert (decision.behavior, list(decision.suggestions)) == ("ask", suggested)
        assert decide(judged, permissions(*decision.suggestions)).behavior == "allow"
    for hopeless in (call(own=INSISTS), call(target=Target(danger="!"))):
        assert decide(hopeless, permissions()).suggestions == ()
    assert decide(call(), permissions(ASK("t"))).suggestions == ()


# -- whatever the rules are ---------------------------------------------------------------------------------

CONTENTS = st.sampled_from([None, "", "a", "b", "c"])
RULES = st.lists(
    st.builds(
        PermissionRule,
        tool_name=st.sampled_from(["t", "u"]),
        behavior=st.sampled_from(["allow", "deny", "ask", "passthrough"]),
        rule_content=CONTENTS,
        source=st.sampled_from(["policy", "session"]),
    ),
    max_size=8,
)


@st.composite
def states(draw: st.DrawFn) -> PermissionContextState:
    """Any rules, mode and directories."""
    mode = draw(st.sampled_from([None, *PermissionMode]))
    directories = draw(st.lists(st.sampled_from(["a", "b"]), max_size=2))
    return permissions(*draw(RULES), mode=mode, directories=directories)


STATES = states()
CALLS = st.builds(
    JudgedCall,
    tool_name=st.just("t"),
    read_only=st.booleans(),
    target=st.none() | st.builds(Target, name=st.sampled_from(["a", "b"]), edits=st.booleans()),
    own=st.sampled_from([PASSTHROUGH, SAYS_NO, SAYS_YES, ASKS, INSISTS]),
    confirmed=st.booleans(),
)


@given(CALLS, STATES, RULES, st.sampled_from([None, *PermissionMode]))
def test_no_rule_lets_a_denied_call_run(
    judged: JudgedCall, state: PermissionContextState, more: list[PermissionRule], mode: PermissionMode | None
) -> None:
    """Once a rule or the tool denies a call, no further rule, mode, session or confirmation lets it run."""
    if decide(judged, state).reason in ("deny_rule", "tool") and decide(judged, state).behavior == "deny":
        later = permissions(*more, mode=mode, directories=["a", "b"]).under(state)
        assert decide(judged, later).behavior == "deny"
        assert decide(replace(judged, confirmed=True), later).behavior == "deny"


@given(CALLS, STATES)
def test_only_three_outcomes(judged: JudgedCall, state: PermissionContextState) -> None:
    """A call is allowed, denied or asked about; confirmed ones are never asked about again, and none in dont_ask."""
    decision = decide(judged, state)
    assert decision.behavior in ("allow", "deny", "ask")
    if judged.confirmed or state.mode is PermissionMode.DONT_ASK:
        assert decision.behavior != "ask"


@given(CALLS, STATES)
def test_what_a_tool_insists_on_is_asked(judged: JudgedCall, state: PermissionContextState) -> None:
    """No rule and no mode lets a call pass that the tool insists on asking about."""
    if judged.own is INSISTS and not judged.confirmed:
        assert decide(judged, state).behavior in ("ask", "deny")


@given(RULES, RULES)
def test_under_a_policy_both_hold(policy: list[PermissionRule], session: list[PermissionRule]) -> None:
    """The rules of both, each once, the policy's first; the session's mode wins where it has one."""
    whole = permissions(*session, mode="bypass").under(permissions(*policy, mode="explore"))
    assert whole.mode is PermissionMode.BYPASS
    assert permissions(*session).under(permissions(*policy, mode="explore")).mode is (PermissionMode.EXPLORE)
    for table, behavior in ((whole.allow_rules, "allow"), (whole.deny_rules, "deny"), (whole.ask_rules, "ask")):
        wanted = [rule for rule in (*policy, *session) if rule.behavior == behavior]
        for tool_name in {rule.tool_name for rule in wanted} | set(table):
            expected = list(dict.fromkeys(rule for rule in wanted if rule.tool_name == tool_name))
            assert list(table.get(tool_name, ())) == expected


def test_modes_by_name() -> None:
    """Whatever the case; a name that is none is refused."""
    assert PermissionMode("ACCEPT_EDITS") is PermissionMode.ACCEPT_EDITS
    for wrong in ("yolo", 3):
        with pytest.raises(ValueError, match="not a valid"):
            PermissionMode(wrong)
