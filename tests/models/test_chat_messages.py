"""Messages on the wire: what is written, what is left out, what is put in another's place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentscope_rx.messages import (
    Base64Source,
    DataBlock,
    HintBlock,
    MetadataKey,
    Msg,
    ThinkingBlock,
    ToolUseBlock,
    URLSource,
)
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.models.tool_names import wire_name, wire_speaker
from agentscope_rx.testing.fake_provider import strict_violations
from tests.models.bodies import ECHO, LOOK, NAMED, PNG, body_of, call, request, result, sent


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
