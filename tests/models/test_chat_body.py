"""The body of a request: options, any conversation at all, and how little of it is written anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import DataBlock, HintBlock, Msg, Role, ThinkingBlock, URLSource
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.chat_messages import WireBytes, wire_bytes
from agentscope_rx.models.providers import COMPATIBLE, OPENAI, Provider
from agentscope_rx.models.tool_names import wire_name
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.testing.fake_provider import strict_violations
from tests.models.bodies import LOOK, NAMED, PNG, body_of, call, options, request, result

# -- options ------------------------------------------------------------------------------------------------


def test_options_under_their_names() -> None:
    """Set options are sent as they are; unset ones are not sent at all."""
    given: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "reasoning_effort": "low",
        "seed": 7,
        "response_format": {"type": "json_object"},
    }
    usage = {"stream_options": {"include_usage": True}}
    assert options(**given) == {**given, **usage}
    assert options() == usage
    assert options(replace(COMPATIBLE, stream_usage=False)) == {}
    assert options(additional_body={"stream": False}) == {}


@pytest.mark.parametrize(
    ("given", "openai", "others"),
    [
        ({"max_tokens": 5}, {"max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 6}, {"max_completion_tokens": 6}, {"max_tokens": 6}),
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_completion_tokens": 6}, {"max_tokens": 5}),
    ],
)
def test_output_limit(given: dict[str, Any], openai: dict[str, int], others: dict[str, int]) -> None:
    """The limit goes under the provider's own name, whichever was set."""
    usage = {"stream_options": {"include_usage": True}}
    assert options(OPENAI, **given) == openai | usage
    assert options(**given) == others | usage


@pytest.mark.parametrize(
    ("thinking", "budget", "fields"),
    [
        ("enable_thinking", 100, {"enable_thinking": True, "thinking_budget": 100}),
        ("enable_thinking", 0, {"enable_thinking": False}),
        ("reasoning", 100, {"reasoning": {"max_tokens": 100}}),
        ("reasoning", 0, {"reasoning": {"enabled": False}}),
        (None, 100, {}),
    ],
)
def test_thinking_budget(thinking: Any, budget: int, fields: dict[str, Any]) -> None:
    """The budget is said in the provider's words, and left out where it has none."""
    provider = replace(COMPATIBLE, thinking=thinking, stream_usage=False)
    assert options(provider, thinking_budget=budget) == fields


def test_top_k_only_where_it_is_taken() -> None:
    """`top_k` is left out where the provider does not know it."""
    assert options(replace(COMPATIBLE, top_k=True), top_k=3)["top_k"] == 3
    assert "top_k" not in options(top_k=3)


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice(choice: str) -> None:
    """A mode is sent as it is, a name as the function; without tools neither is sent."""
    assert options(tools=(LOOK,), tool_choice=choice)["tool_choice"] == choice
    named = options(tools=(LOOK,), tool_choice="look", parallel_tool_calls=False)
    assert named["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert named["parallel_tool_calls"] is False
    assert set(options(tool_choice=choice, parallel_tool_calls=True)) == {"stream_options"}


def test_tools() -> None:
    """A tool without parameters says so; `strict` is sent where it is set; an odd name is rewritten."""
    tools = (ToolSpec(name="a.b", description="", parameters={}), replace(LOOK, strict=True))
    first, second = (each["function"] for each in body_of(request(Msg.user("q"), tools=tools))["tools"])
    assert first == {
        "name": wire_name("a.b"),
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    assert second["strict"] is True


def test_additional_body_wins() -> None:
    """Additional fields win over all others, messages and tools included."""
    extra = {"model": "x", "messages": [], "tools": [1], "stream": False, "temperature": 1, "own": {"a": float("nan")}}
    given = GenerateOptions(temperature=0.5, additional_body=extra)
    asked = request(Msg.user("q"), tools=(LOOK,), options=given)
    assert body_of(asked) == {**extra, "own": {"a": None}}


# -- any conversation ---------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec=None) | st.sampled_from("\ud83d\udcb2 \n"), max_size=6)
NAME = st.sampled_from(["look", "browser.tabs.open", "", "$x", "n" * 80])
CONTENT = st.sampled_from([None, "{}", '{"a": 1}', '{"a', "[]", '{"a": NaN}', '{"a": "\\ud83d"}', '{"b": "🍸"}'])
DATA = st.sampled_from([PNG, DataBlock(source=URLSource(url="https://x.example/a.pdf"))])


@st.composite
def exchanges(draw: st.DrawFn, number: int) -> list[Msg]:
    """One exchange of any kind, pairs intact."""
    if draw(st.booleans()):
        role = draw(st.sampled_from([Role.USER, Role.SYSTEM]))
        if role is Role.SYSTEM:
            return [Msg.system(draw(TEXT))]
        return [Msg.user(*draw(st.lists(TEXT | DATA, max_size=3)), name=draw(st.none() | TEXT))]
    count = draw(st.integers(0, 3))
    calls = [
        call(
            f"c{number}_{n}",
            draw(NAME),
            draw(CONTENT),
            input=draw(st.dictionaries(TEXT, TEXT | st.floats(), max_size=2)),
            metadata=draw(st.sampled_from([{}, {"invalid_arguments": "{"}, {"opaque": {"extra": "x"}}])),
        )
        for n in range(count)
    ]
    thinking = [ThinkingBlock(thinking=each) for each in draw(st.lists(TEXT, max_size=1))]
    hints = [HintBlock(id="h", hint=each) for each in draw(st.lists(TEXT, max_size=1))]
    texts = draw(st.lists(TEXT | DATA, max_size=2))
    head = Msg.assistant(*thinking, *texts, *calls, *hints, name=draw(st.none() | TEXT))
    return [head, *(result(each.id, *draw(st.lists(TEXT | DATA, max_size=2))) for each in calls)]


@st.composite
def conversations(draw: st.DrawFn) -> list[Msg]:
    """A conversation that holds at least one word of the user."""
    parts = [draw(exchanges(number)) for number in range(draw(st.integers(0, 4)))]
    return [*(message for part in parts for message in part), Msg.user("q")]


PROVIDERS = st.builds(
    replace,
    st.just(COMPATIBLE),
    names=st.booleans(),
    echo_reasoning=st.booleans(),
    media_in_results=st.booleans(),
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@given(messages=conversations(), provider=PROVIDERS, system=TEXT)
def test_any_conversation_passes_a_strict_provider(messages: list[Msg], provider: Provider, system: str) -> None:
    """The body is strict JSON in UTF-8, keeps every rule of a strict provider, and is the same each time."""
    asked = request(*messages, system=system, tools=(LOOK,), options=GenerateOptions(max_tokens=1))
    raw = encode(asked, model="m", provider=provider)
    body = json.loads(raw.decode("utf-8"), parse_constant=refuse)
    assert strict_violations(body) == []
    again = request(*messages, system=system, tools=(replace(LOOK),), options=GenerateOptions(max_tokens=1))
    assert encode(again, model="m", provider=provider) == raw


# -- how much is written anew -------------------------------------------------------------------------------


def test_each_exchange_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 50 growing steps the measure is taken once of each exchange, also across leaves."""
    seen: list[str] = []
    of = WireBytes.of

    def counting(self: WireBytes, exchange: Exchange, /) -> bytes:
        seen.append(exchange.messages[0].text)
        return of(self, exchange)

    monkeypatch.setattr(WireBytes, "of", counting)
    history = History.of(*(Msg.user(f"old {number}") for number in range(100)))
    for step in range(50):
        asked = Msg.assistant(f"step {step}", call(f"c{step}"))
        history = history.append(asked, result(f"c{step}", "r"))
        body_of(ModelRequest(call_id="r1", conversation=history))
    assert len(seen) == len(set(seen)) == 150


def test_one_measure_for_all_models_of_a_style() -> None:
    """The measure belongs to the process: models of one style share it, and with it what is remembered."""
    assert wire_bytes(COMPATIBLE) is wire_bytes(replace(COMPATIBLE, name="other", top_k=True))
    assert wire_bytes(COMPATIBLE) is not wire_bytes(NAMED)


def test_tools_are_written_once() -> None:
    """A tool's bytes are remembered under the tool itself; many tools do not fill the memory for ever."""
    from agentscope_rx.models import chat_body

    remembered = chat_body._tools  # pyright: ignore[reportPrivateUsage]
    body_of(request(Msg.user("q"), tools=(LOOK,)))
    first = remembered[id(LOOK)][1]
    body_of(request(Msg.user("q"), tools=(LOOK,)))
    assert remembered[id(LOOK)][1] is first
    body_of(request(Msg.user("q"), tools=tuple(replace(LOOK, name=f"t{n}") for n in range(3_000))))
    assert len(remembered) <= 1_024
