"""The body of a request: what is written, what is left out, and how little of it is written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import (
    Base64Source,
    DataBlock,
    HintBlock,
    MetadataKey,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.chat_messages import WireBytes, wire_bytes
from agentscope_rx.models.providers import COMPATIBLE, OPENAI, Provider
from agentscope_rx.models.tool_names import wire_name, wire_speaker
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.testing.fake_provider import strict_violations

NAMED = replace(COMPATIBLE, names=True)
ECHO = replace(COMPATIBLE, echo_reasoning=True)
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {"p": {}}})


def request(*messages: Msg, tail: Sequence[Msg] = (), **fields: Any) -> ModelRequest:
    return ModelRequest(call_id="r1", conversation=History.of(*messages), tail=tuple(tail), **fields)


def body_of(asked: ModelRequest, provider: Provider = COMPATIBLE) -> dict[str, Any]:
    return json.loads(encode(asked, model="m", provider=provider))


def sent(*messages: Msg, provider: Provider = COMPATIBLE) -> list[dict[str, Any]]:
    return body_of(request(*messages), provider)["messages"]


def options(provider: Provider = COMPATIBLE, *, tools: tuple[ToolSpec, ...] = (), **given: Any) -> dict[str, Any]:
    asked = request(Msg.user("q"), tools=tools, options=GenerateOptions(**given))
    body = body_of(asked, provider)
    return {key: value for key, value in body.items() if key not in ("model", "messages", "stream", "tools")}


def call(id: str, name: str = "look", content: str | None = "{}", **fields: Any) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, content=content, **fields)


def result(id: str, *output: str | DataBlock) -> Msg:
    blocks = tuple(TextBlock(text=each) if isinstance(each, str) else each for each in output)
    return Msg.tool(ToolResultBlock(id=id, name="look", output=blocks))


# -- messages -----------------------------------------------------------------------------------------------


def test_order_of_a_request() -> None:
    """The one System message, the conversation, the tail; then what else the provider is to know."""
    asked = request(
        Msg.user("q"),
        Msg.assistant("I look", call("c1", content='{"p": 1}'), call("c2")),
        result("c1", "one", "two"),
        result("c2"),
        system="Be brief.",
        tail=[Msg.user("now: noon")],
        tools=(LOOK,),
    )
    assert body_of(asked) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": "I look",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"p": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
            {"role": "user", "content": "now: noon"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Look.", "parameters": dict(LOOK.parameters)},
            }
        ],
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_messages_that_say_nothing_are_left_out() -> None:
    """Thinking alone, blanks and nothing at all are never sent."""
    empty = (
        Msg.assistant(),
        Msg.assistant(""),
        Msg.assistant("\n "),
        Msg.assistant(ThinkingBlock(thinking="hmm")),
        Msg.user(),
        Msg.user(" "),
    )
    assert sent(*empty, Msg.user("q"), *empty) == [{"role": "user", "content": "q"}]
    assert sent(*empty) == []


@pytest.mark.parametrize("text", [(), ("",), (" \n",)])
def test_content_beside_calls_is_null(text: tuple[str, ...]) -> None:
    """A message with calls and no text has the content null, not an empty string."""
    assert sent(Msg.assistant(*text, call("c1")), result("c1"))[0]["content"] is None


def test_hints_are_words_of_the_user_after_the_exchange() -> None:
    """A hint in a reply follows it as a user message, behind the results, so that no pair is parted."""
    hint = HintBlock(id="h1", hint="Go on.")
    messages = sent(Msg.assistant("a", call("c1"), hint), result("c1", "r"), Msg.assistant(hint))
    assert [message["role"] for message in messages] == ["assistant", "tool", "user", "user"]
    assert [message["content"] for message in messages[2:]] == ["Go on.", "Go on."]


def test_system_message_in_an_old_history_speaks_as_the_user() -> None:
    """There is one System message and it is the first; another is neither lost nor sent as such."""
    messages = body_of(request(Msg.user("q"), Msg.system("old note"), system="S"))["messages"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("system", "S"),
        ("user", "q"),
        ("user", "old note"),
    ]


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        (call("c", content='{"a":  1}'), '{"a":  1}'),
        (call("c", content=None, input={"a": 1}), '{"a":1}'),
        (call("c", content=None), "{}"),
        (call("c", content=None, metadata={"invalid_arguments": '{"a": "he'}), "{}"),
        (call("c", content='{"a": "he'), "{}"),
        (call("c", content="[1]"), "{}"),
        (call("c", content='{"a": NaN}'), '{"a":null}'),
        (call("c", content='{"a": "\\ud83d"}'), '{"a":"\ufffd"}'),
        (call("c", content='{"a": "\\uD83C\\uDF78"}'), '{"a":"🍸"}'),
        (call("c", content=None, input={"a": "\ud83d"}), '{"a":"\ufffd"}'),
    ],
)
def test_arguments_are_the_text_of_an_object(block: ToolUseBlock, arguments: str) -> None:
    """Arguments go back as the model wrote them; what no strict server could read is replaced."""
    message = sent(Msg.assistant(block), result("c"))[0]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize("name", ["browser.tabs.open", "", "$lookup", "n" * 80, "näme", "a b", "\ud83d", "look\n"])
def test_names_that_providers_refuse_are_rewritten(name: str) -> None:
    """An invented name becomes a valid one, always the same, and differs where the names differ."""
    messages = [sent(Msg.assistant(call("c", name)), result("c"))[0] for _ in range(2)]
    (written,) = {message["tool_calls"][0]["function"]["name"] for message in messages}
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", written)
    assert written != wire_name(name + "x")
    assert wire_name(written) == written


def test_five_invented_calls_are_five_valid_pairs() -> None:
    """Calls of any name and their results pass a strict provider."""
    names = ["browser.tabs.open", "", "$lookup", "n" * 80, "look"]
    calls = [call(f"c{number}", name) for number, name in enumerate(names)]
    body = body_of(request(Msg.user("q"), Msg.assistant(*calls), *(result(each.id) for each in calls)))
    assert strict_violations(body) == []
    assert len({each["function"]["name"] for each in body["messages"][1]["tool_calls"]}) == 5


def test_names_of_speakers() -> None:
    """Who speaks is said where the provider takes it, in the characters that it takes."""
    messages = (Msg.user("q", name="Ann Lee"), Msg.assistant("a", name="bot"), Msg.user("q", name="☃"))
    assert [each.get("name") for each in sent(*messages, provider=NAMED)] == ["Ann_Lee", "bot", None]
    assert [each.get("name") for each in sent(*messages)] == [None, None, None]
    assert len(wire_speaker("n" * 80)) == 64


def test_reasoning_goes_back_only_where_it_is_wanted() -> None:
    """A provider that wants its thinking back gets it, beside calls even where there is none."""
    thought = Msg.assistant(ThinkingBlock(thinking="hm"), "a")
    called = Msg.assistant(call("c1"))
    plain = Msg.assistant("b")
    messages = sent(thought, called, result("c1"), plain, provider=ECHO)
    assert [each.get("reasoning_content") for each in messages] == ["hm", "", None, None]
    assert not any("reasoning_content" in each for each in sent(thought, called, result("c1"), plain))


def test_provider_state_goes_back_word_for_word() -> None:
    """What the provider wants back is put back where it came from, and cannot overwrite what we say."""
    details = [{"type": "reasoning.text", "text": "Let me", "signature": "Et8B", "index": 0}]
    block = call("c1", metadata={"opaque": {"extra_content": {"google": {"s": "x"}}, "id": "other"}, "own": 1})
    message = replace(
        Msg.assistant(ThinkingBlock(thinking="hm", metadata={"reasoning_signature": "s"}), block),
        metadata={MetadataKey.OPAQUE: {"reasoning_details": details, "role": "user"}, "private": 1},
    )
    assert sent(message, result("c1"))[0] == {
        "reasoning_signature": "s",
        "reasoning_details": details,
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "extra_content": {"google": {"s": "x"}},
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": "{}"},
            }
        ],
    }


PNG = DataBlock(source=Base64Source(media_type="image/png", data="AAA"), name="shot.png")


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PNG, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}),
        (
            DataBlock(source=URLSource(url="https://x.example/a.png?s=1")),
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png?s=1"}},
        ),
        (
            DataBlock(source=URLSource(url="https://x.example/a", mime_type="image/webp")),
            {"type": "image_url", "image_url": {"url": "https://x.example/a"}},
        ),
        (
            DataBlock(source=Base64Source(media_type="audio/wav", data="AAA")),
            {"type": "input_audio", "input_audio": {"data": "AAA", "format": "wav"}},
        ),
        (
            DataBlock(source=URLSource(url="https://x.example/a.mp3")),
            {"type": "input_audio", "input_audio": {"data": "https://x.example/a.mp3", "format": "mp3"}},
        ),
        (
            DataBlock(source=URLSource(url="https://x.example/a.MP4#t=1")),
            {"type": "video_url", "video_url": {"url": "https://x.example/a.MP4#t=1"}},
        ),
        (
            DataBlock(source=Base64Source(media_type="application/pdf", data="AAA"), name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAA"}},
        ),
        (
            DataBlock(source=URLSource(url="https://x.example/b.pdf")),
            {"type": "file", "file": {"filename": "b.pdf", "file_data": "https://x.example/b.pdf"}},
        ),
    ],
)
def test_media_of_the_user(block: DataBlock, part: Mapping[str, Any]) -> None:
    """Media of the user become parts of the content, in order, each in the form for its type."""
    text = {"type": "text", "text": "look"}
    assert sent(Msg.user("look", block, ""))[0]["content"] == [text, part]


def test_media_elsewhere() -> None:
    """In results and replies a note stands for media, but for a provider that takes images in results."""
    note = "[image/png shot.png: not shown here]"
    messages = (Msg.assistant("a", PNG, call("c1")), result("c1", "text", PNG))
    assert [each["content"] for each in sent(*messages)] == [f"a\n{note}", f"text\n{note}"]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}
    shown = sent(*messages, provider=replace(COMPATIBLE, media_in_results=True))[1]["content"]
    assert shown == [{"type": "text", "text": "text"}, image]
    unknown = DataBlock(source=URLSource(url="https://x.example/a"))
    assert sent(Msg.assistant(call("c")), result("c", unknown))[1]["content"] == "[media: not shown here]"


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
