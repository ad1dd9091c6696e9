"""Asks the person at the terminal about tool calls, and reads rules from the command line."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal

from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line
from agentscope_rx.errors import InvalidOption
from agentscope_rx.interactions import Answer, PendingCall, approve, reject
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.wire import json_object, to_json

_RULE: Final = re.compile(r"(?P<tool>[\w-]+)(?:\((?P<content>.+)\))?", re.DOTALL)
_LONGEST_ARGUMENTS: Final = 4000


def can_ask() -> bool:
    """Whether there is a person at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def ask(waiting: Sequence[PendingCall]) -> dict[str, Answer]:
    """Ask about each call that waits for a yes or no.

    Args:
        waiting: What waits.

    Returns:
        The answers, fewer where the person leaves; what waits for something else is not asked about.
    """
    answers: dict[str, Answer] = {}
    for each in waiting:
        if each.kind != "confirmation":
            continue
        say(f"\n{_shown(each)}")
        answer = await _answer(each)
        if answer is None:
            break
        answers[each.id] = answer
    return answers


def rules_of(
    behavior: Literal["allow", "deny", "ask"], texts: Iterable[str], tools: Collection[str]
) -> Iterator[PermissionRule]:
    """Read rules as they are written on the command line: `TOOL` or `TOOL(CONTENT)`.

    Args:
        behavior: What they say.
        texts: The rules.
        tools: The names of the tools that there are.

    Raises:
        InvalidOption: One is no rule, or about no tool.

    Examples:
        >>> [str(rule) for rule in rules_of("deny", ["read_file(secrets/**)"], ["read_file"])]
        ['deny read_file(secrets/**)']
    """
    for text in texts:
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise InvalidOption(f"--{behavior}", text, "TOOL or TOOL(CONTENT), such as 'read_file(secrets/**)'")
        if found["tool"] not in tools:
            raise InvalidOption(f"--{behavior}", text, f"there is no such tool; there are {', '.join(tools)}")
        yield PermissionRule(
            tool_name=found["tool"], behavior=behavior, rule_content=found["content"], source="command line"
        )


def _shown(pending: PendingCall) -> str:
    """The question: everything that the call would do, and why it is asked about."""
    arguments = harmless_json(to_json(pending.call.input).decode())  # nothing is left out that would run
    if len(arguments) > _LONGEST_ARGUMENTS:
        left = len(arguments) - _LONGEST_ARGUMENTS
        arguments = f"{arguments[:_LONGEST_ARGUMENTS]} ... and {left:,} characters more"
    return f"May this run?  {one_line(pending.call.name)} {arguments}\n  {one_line(pending.message)}"


def _choices(pending: PendingCall) -> str:
    choices = ["y = yes", "n [REASON] = no", "e JSON = yes, with other arguments"]
    if pending.suggestions:
        choices.append(f"a = always ({one_line(', '.join(map(str, pending.suggestions)))})")
    return "; ".join([*choices, "q = answer later"])


async def _answer(pending: PendingCall) -> Answer | None:
    """The person's answer; None = they leave."""
    say(f"  {_choices(pending)}")
    while True:
        line = await _line()
        letter, _, rest = line.strip().partition(" ")
        match letter.lower():
            case "y" | "yes":
                return approve()
            case "n" | "no":
                return reject(rest.strip() or None)
            case "a" | "always" if pending.suggestions:
                return approve(rules=pending.suggestions)
            case "e" | "edit" if (arguments := json_object(rest)) is not None:
                return approve(input=arguments)
            case "q" | "quit":
                return None
            case "" if not line:  # the end of the input
                return None
            case _:
                say(f"  {_choices(pending)}")


async def _line() -> str:
    """The next line of the terminal, without blocking the loop; empty at the end of the input."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), _note, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()


def _note(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
