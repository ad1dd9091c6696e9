"""What a strict provider refuses: each rule violated alone, and conversations that break none."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.testing.fake_provider import strict_violations

USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "be brief"}


def call(call_id: Any = "c1", name: Any = "look", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: Any = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "A"}


def said(*messages: Any, **options: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER, *messages], **options}


def offering(name: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": name, "parameters": {}}}]}


NAME_RULE = "does not match ^[a-zA-Z0-9_-]{1,64}$"
UNANSWERED = "messages[1] has the call 'c1' without a tool result right after it"
EMPTY = "messages[1] is an assistant message with neither text nor tool calls"

VIOLATIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no messages": ({"model": "m"}, ["messages must be a non-empty list"]),
    "empty messages": ({"messages": []}, ["messages must be a non-empty list"]),
    "messages of another type": ({"messages": "hi"}, ["messages must be a non-empty list"]),
    "message of another type": (said("hi"), ["messages[1] must be an object"]),
    "unknown role": (said({"role": "bot"}), ["messages[1] has the unknown role 'bot'"]),
    "call of another type": (
        said(calling("c1", content="x")),
        ["messages[1].tool_calls[0] must be an object"],
    ),
    "system message in the middle": (
        said(SYSTEM),
        ["messages[1] is a system message; only messages[0] may be one"],
    ),
    "two system messages": (
        {"messages": [SYSTEM, {**SYSTEM, "role": "developer"}, USER]},
        ["messages[1] is a system message; only messages[0] may be one"],
    ),
    "assistant without content": (said({"role": "assistant"}), [EMPTY]),
    "assistant with null": (said({"role": "assistant", "content": None, "tool_calls": []}), [EMPTY]),
    "assistant with an empty text": (said({"role": "assistant", "content": ""}), [EMPTY]),
    "assistant with a blank text": (said({"role": "assistant", "content": "\n "}), [EMPTY]),
    "assistant with an empty part": (
        said({"role": "assistant", "content": [{"type": "text", "text": ""}]}),
        [EMPTY],
    ),
    "assistant with reasoning only": (
        said({"role": "assistant", "content": None, "reasoning_content": "hm"}),
        [EMPTY],
    ),
    "call without result": (said(calling(call())), [UNANSWERED]),
    "result after another message": (
        said(calling(call()), USER, result()),
        [UNANSWERED, "messages[3] is a tool result for 'c1', for which no call waits"],
    ),
    "result without call": (
        said(result()),
        ["messages[1] is a tool result for 'c1', for which no call waits"],
    ),
    "two results for a call": (
        said(calling(call()), result(), result()),
        ["messages[3] is a tool result for 'c1', for which no call waits"],
    ),
    "result for another call": (
        said(calling(call()), result("c2")),
        ["messages[2] is a tool result for 'c2', for which no call waits", UNANSWERED],
    ),
    "one of two calls open": (
        said(calling(call("c0"), call("c1")), result("c0"), USER),
        [UNANSWERED],
    ),
    "call id twice": (
        said(calling(call(), call()), result(), result()),
        ["messages[1] has the call id 'c1' more than once"],
    ),
    "call without id": (said(calling(call(""))), ["messages[1] has a tool call without an id"]),
    "call with an id of another type": (
        said(calling(call(None))),
        ["messages[1] has a tool call without an id"],
    ),
    "max_tokens of 0": (
        said(max_tokens=0),
        ["max_tokens must be a whole number of at least 1, got 0"],
    ),
    "max_completion_tokens below 0": (
        said(max_completion_tokens=-160),
        ["max_completion_tokens must be a whole number of at least 1, got -160"],
    ),
    "max_tokens of another type": (
        said(max_tokens=True),
        ["max_tokens must be a whole number of at least 1, got True"],
    ),
    "name offered with a dot": (said(**offering("a.b")), [f"tools[0]: the tool name 'a.b' {NAME_RULE}"]),
    "name offered with a line end": (
        said(**offering("look\n")),
        [f"tools[0]: the tool name 'look\\n' {NAME_RULE}"],
    ),
    "tool without a name": (said(tools=[{}]), [f"tools[0]: the tool name None {NAME_RULE}"]),
    "lone surrogate in a text": (
        said({"role": "assistant", "content": "a\ud83d"}),
        ["body.messages[1].content holds a lone surrogate"],
    ),
    "lone surrogate in a key": (
        said(metadata={"\udc00": "\udc00"}),
        [
            "a key of body.metadata holds a lone surrogate",
            "body.metadata.'\\udc00' holds a lone surrogate",
        ],
    ),
}


@pytest.mark.parametrize(("body", "reasons"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_violation_is_named(body: dict[str, Any], reasons: list[str]):
    """Each violation gives its own reason, with the place, and no other."""
    assert reasons == strict_violations(body)


@pytest.mark.parametrize("name", ["browser.tabs.open", "", "$lookup", "n" * 65, "é", None])
def test_call_under_a_bad_name_is_refused(name: Any):
    """Old calls in the history are held to the same names as the tools on offer."""
    reasons = strict_violations(said(calling(call(name=name)), result()))
    assert reasons == [f"messages[1].tool_calls[0]: the tool name {name!r} {NAME_RULE}"]


@pytest.mark.parametrize(
    "arguments",
    ["", '{"a": ', "[1]", '"text"', "null", '{"a": NaN}', "{}{}", "[" * 100_000, None, {"a": 1}],
    ids=str,
)
def test_arguments_that_are_no_object_are_refused(arguments: Any):
    """The arguments of a call are the text of a JSON object, also in old calls."""
    (reason,) = strict_violations(said(calling(call(arguments=arguments)), result()))
    assert reason.startswith("messages[1].tool_calls[0]: the arguments must be")


@pytest.mark.parametrize(
    "body",
    [
        said(),
        {"messages": [SYSTEM, USER], "max_tokens": 1, "max_completion_tokens": None},
        said(**offering("n" * 64)),
        said({"role": "assistant", "content": [{"type": "text", "text": "a"}]}),
        said({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
        said(calling(call(), content=""), result(), {"role": "assistant", "content": "done"}),
        said(calling(call("c1"), call("c2")), result("c2"), result("c1"), USER),
        said(calling(call()), result(), calling(call()), result()),
        said({"role": "assistant", "content": "\U0001f600 \x00"}),
    ],
)
def test_acceptable_body_has_no_violation(body: dict[str, Any]):
    """Borderline cases that strict providers accept pass."""
    assert strict_violations(body) == []


texts = st.text(min_size=1).filter(str.strip)  # st.text makes no lone surrogates
names = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
arguments = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()).map(json.dumps)
ids = st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True)


@st.composite
def exchanges(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A user message, rounds of calls with their results in any order, and an answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": draw(st.text())}]
    for call_ids in draw(st.lists(ids, max_size=3)):
        calls = [call(call_id, draw(names), draw(arguments)) for call_id in call_ids]
        messages.append(calling(*calls, content=draw(st.none() | st.text())))
        messages.extend(result(call_id) for call_id in draw(st.permutations(call_ids)))
    messages.append({"role": "assistant", "content": draw(texts)})
    return messages


@settings(max_examples=40, deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=3), st.booleans(), st.integers(min_value=1))
def test_any_well_formed_conversation_passes(turns: list[list[dict[str, Any]]], with_system: bool, limit: int):
    """However long and odd a conversation is: with its pairs whole it is accepted."""
    messages = [SYSTEM] * with_system + [message for turn in turns for message in turn]
    assert strict_violations({"messages": messages, "max_tokens": limit}) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=3), st.data())
def test_conversation_without_one_of_its_pairs_halves_is_refused(
    turns: list[list[dict[str, Any]]], data: st.DataObject
):
    """Whichever tool result, or message with calls, is taken away: the rest is refused."""
    messages = [message for turn in turns for message in turn]
    halves = [index for index, message in enumerate(messages) if {"tool_calls", "tool_call_id"} & set(message)]
    if halves:
        del messages[data.draw(st.sampled_from(halves))]
    assert bool(halves) == bool(strict_violations({"messages": messages}))
