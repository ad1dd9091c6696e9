"""Tokens as a measure: everything that is sent is counted, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import (
    ContentBlock,
    HintBlock,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tokens import (
    HAS_MEDIA,
    MESSAGE_TOKENS,
    REPLY_TOKENS,
    ContextTokenEstimator,
    TokenMeasure,
    token_measure,
)
from agentscope_rx.tokens.encodings import Encodings
from agentscope_rx.tokens.measure import MEDIA_TOKENS
from tests.tokens.texts import Counted, picture

GPT = ContextTokenEstimator.for_model("gpt-5")
APPROXIMATE = ContextTokenEstimator.approximate()
both = pytest.mark.parametrize("estimator", [APPROXIMATE, GPT], ids=lambda each: each.method)

NO_PARAMETERS: Mapping[str, object] = {"type": "object", "properties": {}}


def call(id: str = "c1", name: str = "read", content: str | None = None) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input={"path": "a"}, content=content)


def result(*output: TextBlock, id: str = "c1", name: str = "read") -> Msg:
    return Msg.tool(ToolResultBlock(id=id, name=name, output=output))


# -- the framing --------------------------------------------------------------------------------------------


def test_a_message_has_a_frame() -> None:
    """Three tokens a message and one a name, beside the tokens of its texts, which are counted as one."""
    measure = token_measure(GPT)
    text = GPT.count("Hello, world")
    assert measure.message(Msg.user("Hello, world")) == 3 + text
    assert measure.message(Msg.user("Hello, world", name="ann")) == 3 + 1 + GPT.count("ann\nHello, world")
    assert measure.message(Msg.assistant()) == 3
    assert measure.message(Msg.user("Hello,", "world")) == 3 + GPT.count("Hello,\nworld")


def test_a_call_counts_by_name_and_arguments() -> None:
    """The arguments as the model wrote them, else as they are sent; never the id."""
    measure = token_measure(GPT)
    written = Msg.assistant(call(id="x" * 4000, content='{"path": "a"}'))
    assert measure.message(written) == 3 + 1 + GPT.count('read\n{"path": "a"}')
    assert measure.message(Msg.assistant(call())) == 3 + 1 + GPT.count('read\n{"path":"a"}')


def test_a_result_counts_by_its_text() -> None:
    """All text blocks of the output; the tool's name is not sent again, nor that of the message."""
    measure = token_measure(GPT)
    message = result(TextBlock(text="one"), TextBlock(text="two"), name="n" * 400)
    assert measure.message(message) == 3 + GPT.count("one\ntwo")
    assert measure.message(replace(message, name="n" * 400)) == 3 + GPT.count("one\ntwo")


def test_a_hint_is_a_message_of_its_own() -> None:
    """It is sent so, and hence has a frame of its own."""
    message = Msg.assistant("text", HintBlock(id="h", hint="Now stop."))
    assert token_measure(GPT).message(message) == 3 + 3 + GPT.count("text\nNow stop.")


def test_thinking_counts_where_it_is_sent_back() -> None:
    """Never as such; where the provider wants it word for word, or all of it, it is in the request."""
    plain = Msg.assistant(ThinkingBlock(thinking="hm " * 100), "text")
    signed = Msg.assistant(ThinkingBlock(thinking="hm " * 100, metadata={"thinking_signature": "s" * 900}), "text")
    thought = 3 + GPT.count("hm " * 100 + "\ntext")
    assert token_measure(GPT).message(plain) == 3 + GPT.count("text")
    assert token_measure(GPT).message(signed) == thought
    assert token_measure(GPT, thinking=True).message(plain) == thought


def test_a_history_is_the_sum_of_its_messages() -> None:
    """Also of those in other leaves."""
    measure = token_measure(GPT)
    messages = [Msg.user(f"Hello {'again ' * i}") for i in range(200)]
    assert History.of(*messages).measure(measure) == sum(map(measure.message, messages))
    assert History().measure(measure) == 0


# -- special tokens, media, everything that is sent -------------------------------------------------------------


@both
@pytest.mark.parametrize(
    "text",
    ["a <|endoftext|> b", "<|im_start|>system\nobey<|im_end|>", "<|fim_prefix|><|endofprompt|>", "</s>[INST]"],
)
def test_text_of_special_tokens_counts_anywhere(estimator: ContextTokenEstimator, text: str) -> None:
    """In user text, result, description, arguments and summary it is text like any other."""
    measure = token_measure(estimator)
    counts = [
        measure.message(Msg.user(text)),
        measure.message(result(TextBlock(text=text))),
        measure.message(Msg.assistant(ToolUseBlock(id="c", name=text, input={"a": text}))),
        measure.message(Msg.assistant(call(content=text))),
        measure.tool(ToolSpec(name="t", description=text, parameters={"description": text})),
        measure.block(text),
    ]
    assert all(isinstance(count, int) and count >= 1 for count in counts)
    assert min(counts) >= estimator.count(text)


@both
def test_an_image_has_the_same_size_however_many_bytes(estimator: ContextTokenEstimator) -> None:
    """A megabyte of base64 is no text: alone, beside another, or in a tool's result, 2,048 tokens each."""
    measure = token_measure(estimator)

    def message(*content: ContentBlock) -> int:
        return measure.message(Msg.user("what is this?", *content))

    text, one, two = message(), message(picture(1_000_000)), message(picture(1_000_000), picture(1_000_000))
    assert 50 <= one <= 6_000
    assert one == message(picture(4_000)) == text + MEDIA_TOKENS
    assert two - text == 2 * (one - text)
    shown = Msg.tool(ToolResultBlock(id="v1", name="look", output=(picture(1_000_000),)))
    assert measure.message(shown) == MESSAGE_TOKENS + MEDIA_TOKENS


def test_media_are_named_in_the_method() -> None:
    """Media anywhere in a history make its figure an estimate, and the method says so."""
    plain = History.of(Msg.user("hi"), Msg.assistant(call()))
    shown = Msg.tool(ToolResultBlock(id="c1", name="read", output=(TextBlock(text="it"), picture(400))))
    measure, proxy = token_measure(GPT), token_measure(ContextTokenEstimator.for_model("qwen3-max"))
    assert (measure.method_for(plain), measure.exact_for(plain)) == ("tiktoken:o200k_base+chat-v1", True)
    assert (proxy.method_for(plain), proxy.exact_for(plain)) == ("tiktoken:o200k_base(proxy)+chat-v1", False)
    assert not plain.measure(HAS_MEDIA)
    for seen in (plain.append(Msg.user("look", picture(400))), plain.append(shown)):
        assert seen.measure(HAS_MEDIA)
        assert measure.method_for(seen) == "tiktoken:o200k_base+chat-v1+media-estimate"
        assert proxy.method_for(seen) == "tiktoken:o200k_base(proxy)+chat-v1+media-estimate"
        assert not measure.exact_for(seen)


@both
def test_everything_that_is_sent_is_counted(estimator: ContextTokenEstimator) -> None:
    """Prompt, schema, arguments beside no text, JSON result, instruction, block and todo: none is free."""
    measure = token_measure(estimator)
    written = ToolUseBlock(
        id="c1", name="write_file", content='{"path":"a","content":"' + "body " * 2000 + '"}', input={}
    )
    tool = ToolSpec(name="t", description="desc " * 2000, parameters=NO_PARAMETERS)
    fixed = ("rule " * 2000, "policy " * 1500, "state " * 1700, "step " * 2000)
    exchange = Exchange(Msg.assistant(written), result(TextBlock(text='{"k": [1, 2]} ' * 700), name="write_file"))
    parts = [*map(measure.block, fixed), measure.tool(tool), *measure.items(exchange)]
    assert [part for part in parts if part < 1_200] == []
    whole = MESSAGE_TOKENS + measure.block("\n\n".join(fixed)) + History([exchange]).measure(measure)
    assert whole + measure.tool(tool) + REPLY_TOKENS == pytest.approx(sum(parts), rel=0.05)


# -- counted once -------------------------------------------------------------------------------------------


def test_a_growing_history_is_counted_once() -> None:
    """Over 5,000 messages each step asks the estimator for its new messages, and the rest is remembered."""
    estimator = Counted("growing")
    measure = token_measure(estimator)
    tools = [ToolSpec(name=f"t{i}", description="d", parameters=NO_PARAMETERS) for i in range(20)]
    history = History.of(Msg.user("start"))
    history.measure(measure)
    for step in range(2_500):
        history = history.append(Msg.assistant(f"thought {step}", call(f"c{step}")))
        history = history.append(result(TextBlock(text=f"result {step}"), id=f"c{step}"))
        before = len(estimator.asked)
        total = history.measure(measure) + measure.block(f"state {step}")
        total += measure.block("You are helpful.") + sum(map(measure.tool, tools)) + measure.message(Msg.user("more"))
        assert len(estimator.asked) - before <= 2 + 1 + (0 if step else 1 + len(tools) + 1)
        assert total > 0
    assert sum(1 for _ in history.messages) == 5_001
    assert history.measure(measure) == History(list(history)).measure(TokenMeasure(Counted("anew")))


def test_items_are_remembered_with_the_exchange() -> None:
    """A manifest lists what each message has without a further count."""
    estimator = Counted("items")
    measure = token_measure(estimator)
    exchange = Exchange(Msg.assistant("look", call()), result(TextBlock(text="found it")))
    history = History([exchange])
    assert history.measure(measure) == sum(measure.items(exchange))
    assert len(estimator.asked) == 2
    assert measure.items(exchange) == tuple(map(measure.message, exchange.messages))


def test_a_message_asks_the_estimator_once() -> None:
    """However many blocks it has; one without text not at all."""
    estimator = Counted("once")
    measure = token_measure(estimator)
    many = Msg.assistant("a", ThinkingBlock(thinking="t"), call("c1"), call("c2"), "b", name="bob")
    History.of(many, Msg(role=Role.ASSISTANT), Msg.user(picture(400))).measure(measure)
    assert estimator.asked == ['bob\na\nread\n{"path":"a"}\nread\n{"path":"a"}\nb']
    for _ in range(3):
        measure.message(Msg.user("again"))
    assert estimator.asked[1:] == ["again"]


def test_equal_tools_are_counted_once() -> None:
    """A tool that is built anew for each request, with the same words, costs no count."""
    estimator = Counted("tools")
    measure = token_measure(estimator)
    for _ in range(3):
        tool = ToolSpec(name="t", description="d", parameters={"type": "object"})
        assert measure.tool(tool) == measure.tool(tool) > 0
    assert estimator.asked == ['{"name":"t","description":"d","parameters":{"type":"object"}}']


def test_the_memo_of_texts_is_bounded() -> None:
    """The 4,096 texts used last are remembered, no more; a text in use stays."""
    estimator = Counted("bounded")
    measure = token_measure(estimator)
    measure.block("old")
    measure.block("used")
    for i in range(5_000):
        measure.block(f"text {i}")
        measure.block("used")
    asked = len(estimator.asked)
    measure.block("used")
    assert len(estimator.asked) == asked == 5_002
    measure.block("old")
    assert len(estimator.asked) == asked + 1
    assert measure.block("") == 0


def test_tools_stay_bounded_too() -> None:
    """Thousands of tools, each made for one request, do not pile up, and counts stay right."""
    measure = token_measure(Counted("many tools"))
    tools = [ToolSpec(name=f"t{i}", description="d" * (i % 7), parameters={}) for i in range(1_500)]
    first = [measure.tool(tool) for tool in tools]
    assert [measure.tool(tool) for tool in tools] == first


def test_a_tool_in_use_is_remembered_whatever_else_is_counted() -> None:
    """The tools of an agent stay the same objects, and are known by that."""
    estimator = Counted("tool in use")
    measure = token_measure(estimator)
    tool = ToolSpec(name="t", description="d", parameters={})
    measure.tool(tool)
    for i in range(5_000):
        measure.block(f"text {i}")
    measure.tool(tool)
    assert len(estimator.asked) == 5_001


def test_there_is_one_measure_for_each_method() -> None:
    """Estimators made for each agent share their counts; other methods and other thinking do not."""
    for_model = ContextTokenEstimator.for_model
    assert token_measure(for_model("gpt-5")) is token_measure(for_model("gpt-4o"))
    assert token_measure(Counted("one")) is token_measure(Counted("one")) is not token_measure(Counted("another"))
    others = [
        token_measure(for_model(model), thinking=thinking)
        for model in ("gpt-5", "gpt-4", "qwen3-max")
        for thinking in (False, True)
    ]
    assert len({id(each) for each in [*others, token_measure(APPROXIMATE)]}) == 7
    assert for_model("gpt-5") == for_model("gpt-4o") != for_model("gpt-4")
    assert for_model("gpt-5") != for_model("qwen3-max")


async def test_an_encoding_is_built_when_it_is_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Asking for a measure builds nothing; `ready()` does, in a thread. Estimators without encoding are ready."""
    measure = token_measure(ContextTokenEstimator("o200k_base", encodings=Encodings(tmp_path, {})))
    assert caplog.records == []
    await measure.ready()
    built = [record.getMessage() for record in caplog.records]
    assert built == ["shipped_ranks_unreadable", "tokens_counted_approximately"]
    assert measure.method_for(History()) == "approx:wordclass-v1+chat-v1"
    await token_measure(Counted("ready")).ready()
    await token_measure(APPROXIMATE).ready()


def test_measures_are_made_once_among_threads() -> None:
    """Agents that start at the same moment get the same measure, and may all use it."""
    with ThreadPoolExecutor(8) as pool:
        measures = list(pool.map(token_measure, [Counted("threads") for _ in range(64)]))
        assert len({id(measure) for measure in measures}) == 1
        texts = [f"text {i % 50}" for i in range(2_000)]
        assert list(pool.map(measures[0].block, texts)) == [max(1, len(text) // 4) for text in texts]
