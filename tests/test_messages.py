"""Messages, their blocks and their usage: what they may hold, and how they look as JSON."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentscope_rx.messages import (
    NOTHING,
    Base64Source,
    ContentBlock,
    DataBlock,
    GenerateReason,
    HintBlock,
    MetadataKey,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    URLSource,
    timestamp_of,
)
from agentscope_rx.usage import ChatUsage, total
from tests.strategies import JSON_OBJECTS, ODD_TEXTS, TEXTS, USAGES, messages

IMAGE = DataBlock(source=URLSource(url="https://example.org/cat.png", mime_type="image/png"), id="d1", name="cat")
SOUND = DataBlock(source=Base64Source(media_type="audio/wav", data="AAAA"))
THOUGHT = ThinkingBlock(thinking="hm", metadata={"signature": "s"})
CALL = ToolUseBlock(id="c1", name="look", input={"p": 1}, content='{"p":1}')
RESULT = ToolResultBlock(id="c1", name="look", output=(TextBlock(text="A"), SOUND, TextBlock(text="B")))
HINT = HintBlock(id="h1", hint="be brief", source="inbox")
EVERY_BLOCK: tuple[ContentBlock, ...] = (TextBlock(text="t"), IMAGE, SOUND, THOUGHT, CALL, RESULT, HINT)


# -- what a message may hold --------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [THOUGHT, CALL, RESULT, HINT])
def test_a_user_message_holds_text_and_data_only(block: ContentBlock) -> None:
    """A USER message may hold text and data; the error names the block's class."""
    assert Msg.user("look", IMAGE).content == (TextBlock(text="look"), IMAGE)
    with pytest.raises(ValueError, match=f"USER message may not hold a {type(block).__name__}"):
        Msg.user(block)


@pytest.mark.parametrize("block", [IMAGE, THOUGHT, CALL, RESULT, HINT])
def test_a_system_message_holds_text_only(block: ContentBlock) -> None:
    """A SYSTEM message may hold text alone."""
    assert Msg.system("be brief").content == (TextBlock(text="be brief"),)
    with pytest.raises(ValueError, match=f"SYSTEM message may not hold a {type(block).__name__}"):
        Msg(role=Role.SYSTEM, content=(block,))


@pytest.mark.parametrize("role", [Role.ASSISTANT, Role.TOOL])
def test_assistant_and_tool_messages_hold_anything(role: Role) -> None:
    """An ASSISTANT or TOOL message may hold every block."""
    assert Msg(role=role, content=EVERY_BLOCK).content == EVERY_BLOCK


def test_a_message_of_a_user_has_no_identity() -> None:
    """Id and time come from the session that accepts a message, so equal input gives equal messages."""
    one, other = Msg.user("Hello", name="alice"), Msg.user("Hello", name="alice")
    assert one == other
    assert (one.id, one.timestamp, one.usage, one.metadata) == ("", "", None, {})


@pytest.mark.parametrize(
    "value", [Msg.user("x"), ChatUsage(), IMAGE.source, SOUND.source, *EVERY_BLOCK], ids=lambda v: type(v).__name__
)
def test_values_cannot_be_changed(value: object) -> None:
    """Messages, blocks, sources and usages are frozen and take no further attributes."""
    for field in dataclasses.fields(cast(Any, value)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)
    with pytest.raises((AttributeError, TypeError)):  # which of them depends on the version of Python
        setattr(value, "another", None)  # noqa: B010


@pytest.mark.parametrize(
    ("method", "arguments"), [("__setitem__", ("k", 1)), ("setdefault", ("k", 1)), ("update", ({"k": 1},))]
)
def test_the_empty_mapping_of_all_values_stays_empty(method: str, arguments: tuple[object, ...]) -> None:
    """All values without metadata share one mapping: what one user wrote into it would be in all messages."""
    for value in (Msg.user("x").metadata, CALL.metadata, RESULT.metadata, ThinkingBlock(thinking="").metadata):
        assert value is NOTHING
    with pytest.raises(TypeError, match="make a new message"):
        getattr(Msg.user("x").metadata, method)(*arguments)
    assert NOTHING == {}


# -- looking at a message -----------------------------------------------------------------------------------


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4))
def test_texts_are_joined_by_newlines(texts: list[str], thoughts: list[str]) -> None:
    """`text` and `thinking` are the blocks of their kind, joined by newlines, and empty where there are none."""
    blocks = [TextBlock(text=text) for text in texts]
    message = Msg.assistant(*(ThinkingBlock(thinking=thought) for thought in thoughts), CALL, *blocks)
    assert message.text == "\n".join(texts)
    assert message.thinking == "\n".join(thoughts)


def test_blocks_of_one_kind() -> None:
    """`blocks`, `tool_calls` and `tool_result` pick blocks by their kind, in order."""
    other = ToolUseBlock(id="c2", name="look")
    message = Msg.assistant("a", CALL, THOUGHT, other)
    assert message.tool_calls == message.blocks(ToolUseBlock) == (CALL, other)
    assert message.blocks(DataBlock) == ()
    assert message.tool_result is None
    assert Msg.tool(RESULT).tool_result == RESULT
    assert RESULT.text == "A\nB"


@given(messages((Role.ASSISTANT,)), TEXTS)
def test_with_text_replaces_all_texts_by_one(message: Msg, text: str) -> None:
    """The new text stands where the first text was; every other block, and everything else, is kept in order."""
    after = message.with_text(text)
    assert after.text == text
    assert [b for b in after.content if not isinstance(b, TextBlock)] == [
        b for b in message.content if not isinstance(b, TextBlock)
    ]
    before_text = next((i for i, b in enumerate(message.content) if isinstance(b, TextBlock)), len(message.content))
    assert after.content[before_text] == TextBlock(text=text)
    assert dataclasses.replace(after, content=message.content) == message


def test_the_reason_is_metadata() -> None:
    """A message says why its call ended in its metadata, by the constant's name; without, the model stopped."""
    message = Msg.assistant("Done.")
    assert message.reason is GenerateReason.MODEL_STOP
    limited = message.with_reason(GenerateReason.MAX_ITERATIONS).with_metadata(k=1)
    assert limited.reason is GenerateReason.MAX_ITERATIONS
    assert limited.metadata == {MetadataKey.GENERATE_REASON: "MAX_ITERATIONS", "k": 1}
    assert message.metadata == {}


def test_constants_are_those_of_java() -> None:
    """Roles and reasons are upper-case, states of calls and results lower-case, as in AgentScope Java."""
    assert list(Role) == ["USER", "ASSISTANT", "SYSTEM", "TOOL"]
    assert all(reason == reason.name for reason in GenerateReason)
    assert list(ToolCallState) == ["pending", "asking", "allowed", "submitted", "finished"]
    assert list(ToolResultState) == ["success", "error", "interrupted", "denied", "running"]


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC), "2026-01-02 03:04:05.678"),
        (datetime(2026, 1, 2, 0, 30, tzinfo=timezone(timedelta(hours=2))), "2026-01-01 22:30:00.000"),
    ],
)
def test_timestamps_are_utc_with_milliseconds(moment: datetime, text: str) -> None:
    """A timestamp reads `YYYY-MM-DD hh:mm:ss.mmm`, in UTC whatever the zone of the moment."""
    assert timestamp_of(moment) == text


# -- JSON ---------------------------------------------------------------------------------------------------


@given(messages())
def test_messages_survive_json(message: Msg) -> None:
    """What is written is read back as it was: nulls in arguments and metadata included."""
    assert Msg.from_json(message.to_json()) == message
    assert Msg.from_json(message.to_json().decode()) == message


def test_the_names_in_json() -> None:
    """Fields are those of AgentScope; what is absent is left out."""
    message = dataclasses.replace(
        Msg.assistant("Hi", THOUGHT, IMAGE, SOUND, CALL, HINT),
        id="m1",
        timestamp="2026-01-02 03:04:05.678",
        usage=ChatUsage(input_tokens=3, output_tokens=2, cached_tokens=1, time=0.5),
    )
    assert json.loads(message.to_json()) == {
        "id": "m1",
        "role": "ASSISTANT",
        "content": [
            {"type": "text", "text": "Hi"},
            {"type": "thinking", "thinking": "hm", "metadata": {"signature": "s"}},
            {
                "type": "data",
                "source": {"type": "url", "url": "https://example.org/cat.png", "mime_type": "image/png"},
                "id": "d1",
                "name": "cat",
            },
            {"type": "data", "source": {"type": "base64", "media_type": "audio/wav", "data": "AAAA"}, "id": ""},
            {
                "type": "tool_use",
                "id": "c1",
                "name": "look",
                "input": {"p": 1},
                "content": '{"p":1}',
                "metadata": {},
                "state": "pending",
            },
            {"type": "hint", "id": "h1", "hint": "be brief", "source": "inbox"},
        ],
        "metadata": {},
        "timestamp": "2026-01-02 03:04:05.678",
        "usage": {"inputTokens": 3, "outputTokens": 2, "cachedTokens": 1, "time": 0.5},
    }
    assert json.loads(Msg.tool(RESULT).to_json())["content"] == [
        {
            "type": "tool_result",
            "id": "c1",
            "name": "look",
            "output": [
                {"type": "text", "text": "A"},
                {"type": "data", "source": {"type": "base64", "media_type": "audio/wav", "data": "AAAA"}, "id": ""},
                {"type": "text", "text": "B"},
            ],
            "metadata": {},
            "state": "success",
        }
    ]


def test_unknown_properties_are_ignored() -> None:
    """A newer writer may add properties, to messages, blocks and sources."""
    data = {
        "role": "USER",
        "new": 1,
        "content": [
            {"type": "text", "text": "Hi", "new": 1},
            {"type": "data", "source": {"type": "url", "url": "u", "new": 1}, "new": 1},
        ],
        "usage": {"inputTokens": 1, "new": 1},
    }
    assert Msg.from_json(json.dumps(data)) == dataclasses.replace(
        Msg.user("Hi", DataBlock(source=URLSource(url="u"))), usage=ChatUsage(input_tokens=1)
    )


@pytest.mark.parametrize(
    "data",
    [
        '{"role":"USER","content":[{"type":"video","text":"x"}]}',
        '{"role":"USER","content":[{"text":"x"}]}',
        '{"role":"NOBODY"}',
        '{"role":"USER","content":[{"type":"thinking","thinking":"x"}]}',
        '{"role":"ASSISTANT","content":[{"type":"data","source":{"type":"ftp"}}]}',
        '{"role":"USER"',
        b"\xff",
    ],
)
def test_what_is_no_message_is_refused(data: bytes | str) -> None:
    """An unknown block, source or role, and a block that the role may not hold, are errors."""
    with pytest.raises(ValidationError):
        Msg.from_json(data)


@given(ODD_TEXTS, ODD_TEXTS)
def test_no_text_keeps_a_message_from_being_written(text: str, key: str) -> None:
    """Lone surrogates anywhere become U+FFFD when a message is written; every other character stays (O29)."""
    message = Msg.assistant(
        text,
        ToolUseBlock(id="c", name=text, input={key: [text]}, content=text),
        ToolResultBlock(id="c", name="n", output=(TextBlock(text=text),), metadata={"k": {key: text}}),
        name=text,
    )
    clean = text.encode("utf-8", "replace").decode().replace("?", "\ufffd")
    read = Msg.from_json(message.to_json())
    assert (read.text, read.name, read.tool_calls[0].name) == (clean, clean, clean)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, {("a", 1): b"\xff"}])
def test_no_metadata_keeps_a_message_from_being_written(value: object) -> None:
    """What is no JSON value becomes its text, or null, as everywhere."""
    read = Msg.from_json(Msg.user("x").with_metadata(odd=value).to_json())
    assert set(read.metadata) == {"odd"}


@given(JSON_OBJECTS)
def test_arguments_are_written_as_they_are(arguments: dict[str, object]) -> None:
    """A null that the model wrote into arguments is no absent value."""
    written = json.loads(Msg.assistant(ToolUseBlock(id="c", name="n", input=arguments)).to_json())
    assert written["content"][0]["input"] == arguments


# -- usage --------------------------------------------------------------------------------------------------


@given(st.lists(USAGES, max_size=5))
def test_usages_add_up(usages: list[ChatUsage]) -> None:
    """Each number of a total is the sum of those numbers; no calls consume nothing."""
    whole = total(usages)
    assert whole.input_tokens == sum(usage.input_tokens for usage in usages)
    assert whole.output_tokens == sum(usage.output_tokens for usage in usages)
    assert whole.cached_tokens == sum(usage.cached_tokens for usage in usages)
    assert whole.time == pytest.approx(sum(usage.time for usage in usages))
    assert whole.total_tokens == sum(usage.total_tokens for usage in usages)
