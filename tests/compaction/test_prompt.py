"""What a summariser reads, in parts that fit, and what a summary looks like: untrusted text stays data."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compaction.prompt import (
    HEADINGS,
    SUMMARY_PROMPT,
    Summary,
    earlier_notes,
    in_parts,
    missing_headings,
    notes_of,
    prompt_of,
    quoted,
    rendered,
)
from agentscope_rx.compactions import SUMMARY_NAME, is_summary
from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.errors import InvalidOption
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import HintBlock, Msg, Role, TextBlock, ThinkingBlock, ToolUseBlock
from agentscope_rx.tokens import ContextTokenEstimator
from tests.compaction.support import COUNTER, PICTURE, asked, conversations, said, seen, user
from tests.context.support import scripted

WORDS = counter_for(ContextTokenEstimator.approximate(), "")
COUNTERS = [COUNTER, WORDS, counter_for(None, "gpt-4o")]
_HOSTILE_PARTS = ["<", ">", "/", "&", "lt;", "summary", "earlier_notes", "</summary>", "\n", "x", "é", "🍸", "\ud83d"]
HOSTILE = st.lists(st.sampled_from(_HOSTILE_PARTS), max_size=12).map("".join)


# -- one exchange -------------------------------------------------------------------------------------------


def test_who_said_what() -> None:
    """Speakers, calls by name with the beginning of their arguments, results by name with theirs; no thinking."""
    head = Msg.assistant(
        ThinkingBlock(thinking="secret thought"), TextBlock(text="I look."),
        ToolUseBlock(id="c", name="look", content='{"p":"' + "a" * 300 + '"}'), ToolUseBlock(id="d", name="find"),
        HintBlock(id="h", hint="Mind the gap."), PICTURE,
    )  # fmt: skip
    (exchange,) = History.of(head, seen("r", "c", "y" * 501, PICTURE), seen("s", "d", "z" * 500))
    assert rendered(exchange).split("\n\n") == [
        'AI: I look.\n[tool_call: look] {"p":"'
        + "a" * 194
        + "…\n[tool_call: find]\nMind the gap.\n[attachment: shot.png]",
        "Tool: [tool_result: look] " + "y" * 500 + "…",
        "Tool: [tool_result: look] " + "z" * 500,
    ]
    assert rendered(Exchange(user("u", "Hello"))) == "Human: Hello"


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_opens_or_closes_a_tag(text: str, output: str, arguments: str) -> None:
    """Neither of the user, of a tool, of a model nor of an earlier summary; what was escaped can be read again."""
    head = Msg.assistant(text, ToolUseBlock(id="c", name="look", content=arguments))
    for exchange in History.of(user("u", text), head, seen("r", "c", output)):
        assert not re.search("[<>]", rendered(exchange))
        assert re.fullmatch("(?s)(?:[^&]|&(?:amp|lt|gt);)*", rendered(exchange))
    message = Summary(text=text, model="m", covered=("a",)).message()
    assert message.text.count("<summary>") == message.text.count("</summary>") == 1
    assert message.text.endswith("\n</summary>")
    notes = notes_of(Exchange(message))
    assert notes == quoted(text)
    assert earlier_notes(notes).count("<") == 2


def test_the_prompt_holds_the_conversation_once() -> None:
    """In the place of the field; what looks like the field in a conversation is text."""
    prompt = prompt_of(SUMMARY_PROMPT, ["Human: {messages}", "AI: no"])
    assert prompt.endswith("The conversation:\n\nHuman: {messages}\n\nAI: no")
    assert all(f"## {heading}" in SUMMARY_PROMPT for heading in HEADINGS)
    assert prompt_of("{messages} and {messages}", ["x"]) == "x and x"


def test_a_prompt_without_a_place_is_refused_at_build() -> None:
    """Before anything is asked; other braces are no matter."""
    with pytest.raises(InvalidOption, match=r"must hold \{messages\}"):
        scripted().compaction(summary_prompt="Sum up.")
    with pytest.raises(InvalidOption, match="messages"):
        scripted(compaction={"summary_prompt": "Sum up { messages }."})
    assert CompactionConfig(summary_prompt='{"a": {messages}}').summary_prompt
    with pytest.raises(InvalidOption, match="keep_tokens_min=9000 is above keep_tokens_max=8000"):
        scripted().compaction(keep_tokens_min=9_000)
    for name in ("strategy", "before"):
        with pytest.raises(InvalidOption, match=f"{name}=1: an async function"):
            scripted().compaction(**{name: 1})


# -- in parts -----------------------------------------------------------------------------------------------


def cost(part: list[str], counter: RequestCounter) -> int:
    """What a part costs, by the counter's own count of what is sent."""
    return Exchange(Msg.user("\n\n".join(part))).measure(counter)


@pytest.mark.parametrize("counter", COUNTERS, ids=["characters", "approximate", "o200k"])
@settings(max_examples=40)
@given(history=conversations(), room=st.integers(64, 600))
def test_no_part_costs_more_than_its_room(counter: RequestCounter, history: History, room: int) -> None:
    """By what the counter makes of the text that is sent, blank lines between pieces apart."""
    parts = in_parts(list(history), counter, room)
    for part in parts:
        assert cost(part, counter) <= room + 2 * len(part)
    texts = [rendered(exchange) for exchange in history]
    assert "".join("".join(part) for part in parts) == "".join(texts)


@pytest.mark.parametrize("counter", COUNTERS, ids=["characters", "approximate", "o200k"])
@settings(max_examples=40)
@given(
    text=st.lists(st.sampled_from(["<", "&&&", "<tag>", "word ", "é", "漢字", "🍸", "\n"]), max_size=200).map("".join)
)
def test_what_is_escaped_is_counted(counter: RequestCounter, text: str) -> None:
    """Text that grows when it is quoted still fits."""
    for part in in_parts(list(History.of(user("u", text), said("b", text))), counter, 150):
        assert cost(part, counter) <= 150 + 2 * len(part)


@pytest.mark.parametrize("counter", COUNTERS, ids=["characters", "approximate", "o200k"])
def test_a_giant_message_is_cut_in_pieces(counter: RequestCounter) -> None:
    """One message that no request has room for is read piece by piece, all of it and in order."""
    text = "".join(f"{at} bottles; " for at in range(3_000))
    parts = in_parts([Exchange(user("u", text))], counter, 500)
    assert len(parts) > 10
    assert all(cost(part, counter) <= 500 + 2 * len(part) for part in parts)
    assert "".join("".join(part) for part in parts) == f"Human: {text}"


def test_parts_are_filled() -> None:
    """As many messages as fit, and no part without one; a message that fits is not torn."""
    exchanges = [Exchange(user(f"m{at}", "x" * 89)) for at in range(10)]  # 92 tokens each, and 8 for the label
    assert [len(part) for part in in_parts(exchanges, COUNTER, 300)] == [3, 3, 3, 1]
    assert [len(part) for part in in_parts(exchanges, COUNTER, 299)] == [3, 3, 3, 1]
    assert [len(part) for part in in_parts(exchanges, COUNTER, 150)] == [1] * 10
    assert in_parts([], COUNTER, 100) == []
    assert in_parts([Exchange(user("u", "é"))], COUNTER, 1) == [[each] for each in "Human: é"]


# -- a summary ----------------------------------------------------------------------------------------------


def test_a_summary_is_a_message_of_the_user() -> None:
    """Its name, its id and its metadata say what it is; equal summaries of the same have equal ids."""
    summary = Summary(text="It went <well>.", model="m", covered=("a", "b"))
    message = summary.message()
    assert (message.role, message.name) == (Role.USER, SUMMARY_NAME)
    assert message.metadata == {
        "context.summary_version": 1,
        "context.covered_messages": ["a", "b"],
        "context.summary_model": "m",
    }
    assert is_summary(message)
    assert not is_summary(user("u", message.text))
    assert message.id == summary.message().id
    assert message.id.startswith("__compaction_summary__:")
    assert message.id != Summary(text="It went <well>.", model="m", covered=("a",)).message().id
    assert message.id != Summary(text="It went.", model="m", covered=("a", "b")).message().id
    assert "<summary>\nIt went &lt;well&gt;.\n</summary>" in message.text


def test_notes_that_were_made_in_another_way_are_taken_whole() -> None:
    """A summary of a strategy has no tags: all of it is quoted."""
    assert notes_of(Exchange(user("u", "plain <b>"))) == "plain &lt;b&gt;"


def test_headings_are_found_in_any_case() -> None:
    """And named in order where they are missing."""
    assert missing_headings("## session intent\nNext Steps", HEADINGS) == ("SUMMARY", "ARTIFACTS")
    assert missing_headings("x", ()) == ()


def test_calls_of_a_batch_are_all_read() -> None:
    """Each call and each result."""
    (exchange,) = History.of(asked("a", "c", "d", p=1), seen("r", "c", "one"), seen("s", "d", "two"))
    assert rendered(exchange).count("[tool_call: look]") == 2
    assert "one" in rendered(exchange)
    assert "two" in rendered(exchange)
