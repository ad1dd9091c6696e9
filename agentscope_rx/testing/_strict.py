"""What a strict Chat Completions server refuses, one small rule a function.

Real servers differ in what they forgive. The rules here are the union of what the strict ones refuse, so a
request that passes all of them is accepted everywhere.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias, cast

__all__ = ["RULES", "Rule", "decode_object", "strict_violations"]

Rule: TypeAlias = Callable[[Mapping[str, Any]], Iterator[str]]
"""One rule: takes the decoded body of a request, yields a reason for each violation."""

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_ROLES: Final = _SYSTEM_ROLES | {"user", "assistant", "tool"}
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def strict_violations(body: Mapping[str, Any]) -> list[str]:
    """Return the reasons for which a strict provider would answer 400 to this request body.

    Args:
        body: The decoded JSON object of a Chat Completions request.

    Returns:
        One sentence for each violation, in the order of the rules; empty when the body is acceptable.

    Example:
        >>> strict_violations({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 0})
        ['max_tokens must be a whole number of at least 1, got 0']
    """
    return [reason for rule in RULES for reason in rule(body)]


def decode_object(text: str | bytes) -> dict[str, Any]:
    """Decode a JSON text that must hold an object; a lone surrogate passes, `NaN` and `Infinity` do not.

    Args:
        text: The JSON text.

    Raises:
        ValueError: The text is not JSON, or holds another value than an object.
    """
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def messages_present(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason when `messages` is missing, empty or not a list."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages must be a non-empty list"


def messages_well_formed(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each message or tool call that is not an object, and for each unknown role."""
    for index, value in enumerate(_list(body.get("messages"))):
        message = _object(value)
        if message is None:
            yield f"messages[{index}] must be an object"
        elif message.get("role") not in _ROLES:
            yield f"messages[{index}] has the unknown role {message.get('role')!r}"
        else:
            for position, call in enumerate(_list(message.get("tool_calls"))):
                if _object(call) is None:
                    yield f"messages[{index}].tool_calls[{position}] must be an object"


def one_system_message_first(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each system message that is not the first message."""
    for index, message in _messages(body):
        if index > 0 and message.get("role") in _SYSTEM_ROLES:
            yield f"messages[{index}] is a system message; only messages[0] may be one"


def assistant_says_something(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each assistant message with neither text nor tool calls; blank text is no text."""
    for index, message in _messages(body):
        if message.get("role") == "assistant" and not _calls(message) and not _has_text(message):
            yield f"messages[{index}] is an assistant message with neither text nor tool calls"


def pairs_intact(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each call without one result right after it, and each result without a call."""
    waiting: list[str] = []
    caller = -1
    for index, message in _messages(body):
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered in waiting:
                waiting.remove(answered)
            else:
                yield f"messages[{index}] is a tool result for {answered!r}, for which no call waits"
            continue
        yield from _unanswered(caller, waiting)
        caller, waiting = index, []
        if message.get("role") == "assistant":
            waiting = _call_ids(message)
            yield from _bad_ids(index, message)
    yield from _unanswered(caller, waiting)


def arguments_parse(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each tool call whose arguments are not the text of a JSON object."""
    for place, function in _functions_called(body):
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            yield f"{place}: the arguments must be a string, got {type(arguments).__name__}"
            continue
        try:
            decode_object(arguments)
        except ValueError as error:
            yield f"{place}: the arguments must be the text of a JSON object: {error}"


def tool_names_valid(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each tool offered or called under a name outside `^[a-zA-Z0-9_-]{1,64}$`."""
    offered = [
        (f"tools[{index}]", _object((_object(tool) or {}).get("function")) or {})
        for index, tool in enumerate(_list(body.get("tools")))
    ]
    for place, function in (*offered, *_functions_called(body)):
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            yield f"{place}: the tool name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$"


def output_limit_positive(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason when `max_tokens` or `max_completion_tokens` is given and is below 1."""
    for option in ("max_tokens", "max_completion_tokens"):
        limit = body.get(option)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            yield f"{option} must be a whole number of at least 1, got {limit!r}"


def no_lone_surrogate(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each string of the body, keys included, that is not encodable as UTF-8."""
    # One pass of the C encoder settles the usual case; only a bad body is walked to name the place.
    if _encodable(json.dumps(body, ensure_ascii=False)):
        return
    for place, text in _strings("body", body):
        if not _encodable(text):
            yield f"{place} holds a lone surrogate"


RULES: Final[tuple[Rule, ...]] = (
    messages_present,
    messages_well_formed,
    one_system_message_first,
    assistant_says_something,
    pairs_intact,
    arguments_parse,
    tool_names_valid,
    output_limit_positive,
    no_lone_surrogate,
)
"""Every rule, in the order in which `strict_violations` asks them."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _messages(body: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for index, value in enumerate(_list(body.get("messages"))):
        message = _object(value)
        if message is not None:
            yield index, message


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [call for value in _list(message.get("tool_calls")) if (call := _object(value)) is not None]


def _functions_called(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, message in _messages(body):
        for position, call in enumerate(_calls(message)):
            yield f"messages[{index}].tool_calls[{position}]", _object(call.get("function")) or {}


def _has_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return bool(content.strip())
    return any(_part_says_something(_object(part) or {}) for part in _list(content))


def _part_says_something(part: Mapping[str, Any]) -> bool:
    said = part.get("text", part.get("refusal"))
    return isinstance(said, str) and bool(said.strip())


def _call_ids(message: Mapping[str, Any]) -> list[str]:
    return [call["id"] for call in _calls(message) if isinstance(call.get("id"), str) and call["id"]]


def _bad_ids(index: int, message: Mapping[str, Any]) -> Iterator[str]:
    ids = _call_ids(message)
    if len(ids) < len(_calls(message)):
        yield f"messages[{index}] has a tool call without an id"
    for repeated in sorted({name for name in ids if ids.count(name) > 1}):
        yield f"messages[{index}] has the call id {repeated!r} more than once"


def _unanswered(caller: int, waiting: list[str]) -> Iterator[str]:
    for name in waiting:
        yield f"messages[{caller}] has the call {name!r} without a tool result right after it"


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _strings(place: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif (entries := _object(value)) is not None:
        for key, entry in entries.items():
            yield f"a key of {place}", key
            yield from _strings(f"{place}.{key}" if _encodable(key) else f"{place}.{key!r}", entry)
    else:
        for index, entry in enumerate(_list(value)):
            yield from _strings(f"{place}[{index}]", entry)
