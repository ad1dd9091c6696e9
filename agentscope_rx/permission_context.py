"""What a session may do, as values: the mode, the rules, and the directories that may be worked in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import ClassVar, Final, Literal, Self, TypeAlias

from pydantic import ConfigDict

from agentscope_rx.frozen import frozen

Behavior: TypeAlias = Literal["allow", "deny", "ask", "passthrough"]


class PermissionMode(StrEnum):
    """What becomes of calls that no rule speaks of.

    `default` asks, `accept_edits` allows reading, and edits inside the working directories, `explore` allows reading
    and denies the rest, `bypass` allows, `dont_ask` denies whatever would have to be asked.

    Examples:
        >>> PermissionMode("Accept_Edits")
        <PermissionMode.ACCEPT_EDITS: 'accept_edits'>
    """

    DEFAULT = "default"
    ACCEPT_EDITS = "accept_edits"
    EXPLORE = "explore"
    BYPASS = "bypass"
    DONT_ASK = "dont_ask"

    @classmethod
    def _missing_(cls, value: object) -> PermissionMode | None:
        lower = value.lower() if isinstance(value, str) else None
        return next((mode for mode in cls if mode.value == lower), None)


@frozen
class PermissionRule:
    """A rule that allows, denies or asks for calls of one tool; in JSON, too, under the names of its fields.

    Args:
        tool_name: The tool, by its exact name.
        behavior: What the rule says; `passthrough` says nothing.
        rule_content: Which of its calls: a pattern for paths, or the beginning of a command; None = all.
        source: Who made the rule, in free words: `policy`, `session`, `suggested`, ...

    Examples:
        >>> PermissionRule.deny("read_file", "secrets/**").behavior
        'deny'
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict()

    tool_name: str
    behavior: Behavior
    rule_content: str | None = None
    source: str = "session"

    @classmethod
    def allow(cls, tool_name: str, rule_content: str | None = None, *, source: str = "session") -> Self:
        """Let calls run."""
        return cls(tool_name=tool_name, behavior="allow", rule_content=rule_content, source=source)

    @classmethod
    def deny(cls, tool_name: str, rule_content: str | None = None, *, source: str = "session") -> Self:
        """Never let calls run."""
        return cls(tool_name=tool_name, behavior="deny", rule_content=rule_content, source=source)

    @classmethod
    def ask(cls, tool_name: str, rule_content: str | None = None, *, source: str = "session") -> Self:
        """Have a person asked, each time."""
        return cls(tool_name=tool_name, behavior="ask", rule_content=rule_content, source=source)

    def __str__(self) -> str:
        about = self.tool_name if not self.rule_content else f"{self.tool_name}({self.rule_content})"
        return f"{self.behavior} {about}"


@frozen
class WorkingDirectory:
    """A directory of the workspace in which `accept_edits` lets files be edited; `.` is the workspace itself."""

    path: str
    source: str = "session"


Rules: TypeAlias = Mapping[str, tuple[PermissionRule, ...]]
_TABLES: Final[Mapping[str, str]] = {"allow": "allow_rules", "deny": "deny_rules", "ask": "ask_rules"}


def _no_rules() -> Rules:
    return {}


@frozen
class PermissionContextState:
    """What a session may do, or what an agent's policy says of all its sessions.

    Args:
        mode: The mode; None = what the policy says, and `default` where that says nothing.
        working_directories: Where `accept_edits` lets files be edited.
        allow_rules: The rules that allow, by tool.
        deny_rules: The rules that deny, by tool.
        ask_rules: The rules by which a person is asked, by tool.

    Examples:
        >>> policy = PermissionContextState().with_rules([PermissionRule.ask("pay")])
        >>> session = PermissionContextState(mode=PermissionMode.BYPASS)
        >>> session.under(policy).mode, [str(rule) for rule in session.under(policy).ask_rules["pay"]]
        (<PermissionMode.BYPASS: 'bypass'>, ['ask pay'])
    """

    mode: PermissionMode | None = None
    working_directories: tuple[WorkingDirectory, ...] = ()
    allow_rules: Rules = field(default_factory=_no_rules)
    deny_rules: Rules = field(default_factory=_no_rules)
    ask_rules: Rules = field(default_factory=_no_rules)

    @property
    def is_trivial(self) -> bool:
        """Whether nothing was ever said about permissions."""
        configured = self.working_directories or self.allow_rules or self.deny_rules or self.ask_rules
        return self.mode in (None, PermissionMode.DEFAULT) and not configured

    def with_mode(self, mode: PermissionMode | None) -> Self:
        """The same in another mode."""
        return replace(self, mode=mode)

    def with_rules(self, rules: Iterable[PermissionRule]) -> Self:
        """The same with further rules; those that are known or say nothing change nothing."""
        tables = {name: dict(getattr(self, name)) for name in _TABLES.values()}
        for rule in rules:
            if rule.behavior != "passthrough":
                table = tables[_TABLES[rule.behavior]]
                known = table.get(rule.tool_name, ())
                table[rule.tool_name] = known if rule in known else (*known, rule)
        return replace(self, **tables)

    def with_directories(self, directories: Iterable[WorkingDirectory]) -> Self:
        """The same with further working directories."""
        new = (each for each in directories if each not in self.working_directories)
        return replace(self, working_directories=(*self.working_directories, *dict.fromkeys(new)))

    def under(self, policy: PermissionContextState) -> PermissionContextState:
        """What holds for a session: everything that the policy says, then what the session adds; its mode wins."""
        if self == PermissionContextState():
            return policy
        own = (rule for name in _TABLES.values() for rules in getattr(self, name).values() for rule in rules)
        whole = policy.with_directories(self.working_directories).with_rules(own)
        return whole if self.mode is None else whole.with_mode(self.mode)
