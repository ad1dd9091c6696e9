"""Cases O05, O13 to O17 and O38: budgets that do not hold, counts that lie, and roles that a provider refuses."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx import ContextBlock, ContextPolicy, ContextRequest, ContextTokenEstimator, GenerateOptions
from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.errors import ContextBudgetExceeded, InvalidOption, ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Base64Source, DataBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock, URLSource
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.operators import RequestDraft, Step, text_operator, view_operator
from agentscope_rx.requests import ModelRequest, ToolSpec
from agentscope_rx.testing import calls
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, from_case
from agentscope_rx.tools import Tool, ToolContext
from tests.cases import case
from tests.cases.playing import CaseTool, check_pairs
from tests.cases.roles import STRICT, no_user_after_a_result, sources
from tests.context.support import ALICE, builder_before, harness, manifests, scripted
from tests.strategies import conversations
from tests.support import watch
from tests.virtual import virtual


def said(messages: list[dict[str, Any]]) -> list[Msg]:
    """Messages of a case as ours; those that only have text."""
    make = {"user": Msg.user, "assistant": Msg.assistant}
    return [make[message["role"]](message["content"]) for message in messages]


def variant(id: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in case(id)["variants"] if each["name"] == name]
    return found


# -- budgets ------------------------------------------------------------------------------------------------


async def test_o05_a_fixed_part_that_alone_is_over_the_budget() -> None:
    """Both calls raise ContextBudgetExceeded, each after its `context_build`; no model is asked."""
    the = variant("O05", "fixed")
    policy = ContextPolicy(**the["config"]["context_policy"])
    async with harness(sys_prompt=the["config"]["sys_prompt"], context_policy=policy) as (agent, provider):
        await agent.observe(said(the["history"]), ALICE)
        for _ in range(the["calls"]):
            seen = await watch(agent, the["input"]["content"], ALICE)
            assert isinstance(seen.error, ContextBudgetExceeded)
            assert seen.error.largest[0][0] == "system_prompt"
            assert [manifest.validation for manifest in manifests(seen)] == ["budget_exceeded"]
            assert seen.types == ["AGENT_START", "CUSTOM", "AGENT_END"]
        assert [m.text for m in (await agent.state(ALICE)).context.messages][:2] == ["u", "a"]
    assert provider.requests == []


async def test_o05_no_output_room_is_ever_negative() -> None:
    """A window that the answer alone would fill is refused at build; nothing is sent, least of all max_tokens < 1."""
    config = variant("O05", "negative")["config"]
    options = GenerateOptions(max_tokens=config["max_tokens"])
    async with FakeProvider([fake.text("never")]) as provider:
        builder = builder_before(provider, window=config["model_window"], generate_options=options)
        with pytest.raises(InvalidOption, match=r"max_tokens=8192.*window of 4,096"):
            builder.build()
        seen: list[Exception] = []
        builder.call("hi", ALICE).subscribe(on_error=seen.append)
        assert isinstance(seen[0], InvalidOption)
    assert provider.requests == []


async def test_o13_an_output_reservation_that_is_the_overflow() -> None:
    """With a known window the build refuses it, so that the provider's error never comes."""
    the = case("O13")
    options = GenerateOptions(max_tokens=the["config"]["max_tokens"])
    async with FakeProvider([from_case(reply) for reply in the["model"]]) as provider:
        builder = builder_before(provider, window=the["config"]["model_window"], generate_options=options)
        with pytest.raises(InvalidOption, match="max_tokens=131072"):
            builder.build()
        assert provider.requests == []


async def test_o13_where_the_window_is_not_known() -> None:
    """The provider's error is a cap of output and not an overflow: one more try with a lower `max_tokens`, the history
    is unchanged."""
    the = case("O13")
    options = GenerateOptions(max_tokens=the["config"]["max_tokens"])
    async with harness(*map(from_case, the["model"]), generate_options=options) as (agent, provider):
        await agent.observe(said(the["history"]), ALICE)
        before = [message.text for message in (await agent.state(ALICE)).context.messages]
        seen = await watch(agent, the["input"]["content"], ALICE)
        assert (seen.error, seen.result.text) == (None, "hi")
        assert [request.body["max_tokens"] for request in provider.requests] == [131_072, 131_072 - 7_884]
        (told,) = [event.value for event in seen.of(Custom) if event.name == "overflow_recovery"]
        assert (told["error"], told["max_tokens"]) == ("output_cap", 131_072 - 7_884)
        after = [message.text for message in (await agent.state(ALICE)).context.messages]
        assert after == [*before, the["input"]["content"], "hi"]
    assert provider.refusals == []


# -- counts -------------------------------------------------------------------------------------------------

COUNTERS = {
    "approximate": counter_for(ContextTokenEstimator.approximate(), "any"),
    "tiktoken": counter_for(None, "gpt-5"),
    "tiktoken, older": counter_for(None, "gpt-4"),
    "proxy": counter_for(None, "qwen3-max"),
}


def count_in_place(counter: RequestCounter, place: str, text: str) -> int:
    """What a text costs in its place."""
    match place:
        case "user text" | "summary text":
            return Exchange(Msg.user(text)).measure(counter)
        case "tool result":
            call = Msg.assistant(ToolUseBlock(id="c1", name="look"))
            result = Msg.tool(ToolResultBlock(id="c1", name="look", output=(TextBlock(text=text),)))
            return counter.items(Exchange(call, result))[1]
        case "tool description":
            return counter.tool(ToolSpec(name="look", description=text, parameters={}))
        case "call arguments":
            return Exchange(Msg.assistant(ToolUseBlock(id="c1", name="look", input={"p": text}))).measure(counter)
        case _:
            raise AssertionError(place)


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("place", case("O14")["places"])
@pytest.mark.parametrize("text", case("O14")["texts"])
def test_o14_special_tokens_are_counted_as_text(counter: str, place: str, text: str) -> None:
    """A whole number of at least 1, in every place, with every counter; nothing raises."""
    tokens = count_in_place(COUNTERS[counter], place, text)
    assert isinstance(tokens, int)
    assert tokens > count_in_place(COUNTERS[counter], place, "") or place == "user text"


@pytest.mark.parametrize("text", case("O14")["texts"])
async def test_o14_special_tokens_reach_the_request_unchanged(text: str) -> None:
    """In the question, a result, a description, arguments, a block and the prompt."""

    async def load(request: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.reference("x", text)]

    arguments = json.dumps({"p": text})
    look = CaseTool("look", text)
    options: dict[str, Any] = {"sys_prompt": text, "tools": [look], "context_sources": {"s": load}}
    async with harness(fake.tool_calls(("c1", "look", arguments)), "done", **options) as (agent, provider):
        seen = await watch(agent, text, ALICE)
    assert seen.error is None
    assert provider.refusals == []
    system, question, call, result, *_ = provider.requests[1].messages
    assert system["content"].startswith(text)
    assert question["content"] == result["content"] == text
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == look.calls[0] == {"p": text}
    assert all(manifest.estimated_input_tokens > 0 for manifest in manifests(seen))


def image(url: str, size: int | None = None) -> DataBlock:
    data = url.removeprefix("data:image/png;base64,")
    return DataBlock(source=Base64Source(media_type="image/png", data=data if size is None else data[:size]))


async def test_o15_an_image_is_not_counted_by_its_characters() -> None:
    """Between 50 and 6,000 tokens, whatever its size; two cost twice one; the request holds it unchanged."""
    the = case("O15")
    question, url = (part.get("text") or part["image_url"]["url"] for part in the["input"]["content"])
    policy = ContextPolicy(**the["config"]["context_policy"])

    async def estimate(*blocks: DataBlock) -> int:
        prepared = await scripted(context_policy=policy).build().prepare(Msg.user(question, *blocks), ALICE)
        assert prepared.error is None
        return prepared.manifest.estimated_input_tokens

    none, one, small, two = (
        await estimate(),
        await estimate(image(url)),
        await estimate(image(url, 4_096)),
        await estimate(image(url), image(url)),
    )
    assert 50 <= one - none <= 6_000
    assert one == small
    assert two - none == 2 * (one - none)
    assert await estimate(DataBlock(source=URLSource(url=url))) == one
    async with harness("a cat", context_policy=policy) as (agent, provider):
        reply = await agent.call(Msg.user(question, image(url)), ALICE)
    assert reply.text == "a cat"
    _, asked, *_ = provider.requests[0].messages
    assert asked["content"] == the["input"]["content"]


@virtual
async def test_o15_an_image_in_a_result() -> None:
    """It costs what an image costs, and is neither dropped nor refused for its size."""
    url = case("O15")["tool_result_with_image"]["content"][0]["image_url"]["url"]

    class Camera(Tool):
        name = "camera"

        @property
        def spec(self) -> ToolSpec:
            return ToolSpec(name="camera", description="Takes a picture.", parameters={"type": "object"})

        async def call(self, arguments: Any, context: ToolContext, /) -> object:
            return image(url)

    policy = ContextPolicy(max_input_tokens=24_000)
    agent = scripted(calls(("v1", "camera", "{}")), "a cat", tools=[Camera()], context_policy=policy).build()
    seen = await watch(agent, "what is this?", ALICE)
    assert seen.error is None
    first, second = manifests(seen)
    result = list(second.items)[[item.kind for item in second.items].index("message") + 2]
    assert 50 <= result.tokens <= 6_000
    assert second.estimated_input_tokens - first.estimated_input_tokens <= 6_000


RATIOS = {"text": (0.6, None), "kana": (0.6, None), "hangul": (0.6, None), "emoji": (1.0, None), "ascii": (0.2, 0.4),
          "mixed": (0.3, None)}  # fmt: skip


@pytest.mark.parametrize("counter", ["approximate", "tiktoken"])
@pytest.mark.parametrize("script", RATIOS)
async def test_o16_scripts_are_not_counted_by_a_latin_ratio(counter: str, script: str) -> None:
    """Tokens a character as the manifest of a request has them; the bounds are those of the approximate counter."""
    text, (least, most) = case("O16")[script], RATIOS[script]
    estimator = ContextTokenEstimator.approximate() if counter == "approximate" else None
    policy = ContextPolicy(estimator=estimator)
    manifest = (await scripted(context_policy=policy).build().prepare(text, ALICE)).manifest
    (tokens,) = [item.tokens for item in manifest.items if item.kind == "message"]
    ratio = tokens / len(text)
    if counter == "approximate":
        assert ratio >= least
    assert most is None or ratio <= most
    assert ratio >= 0.15


async def test_o17_everything_is_counted() -> None:
    """Each part of a request that is added raises the estimate by 1,200 at least, and the parts make up the whole."""
    (prompt, schema, call, result, instruction, block) = [
        next(iter(each.values())) for each in case("O17")["add_one_each"] if "todo" not in each
    ]

    class Described(Tool):
        name = schema["name"]

        @property
        def spec(self) -> ToolSpec:
            return ToolSpec(**schema)

        async def call(self, arguments: Any, context: ToolContext, /) -> object:
            return ""

    async def load(request: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.reference("x", block)]

    function = call["tool_calls"][0]["function"]
    asking = Msg.assistant(ToolUseBlock(id="c1", name=function["name"], content=function["arguments"]))
    answer = Msg.tool(ToolResultBlock(id="c1", name="write_file", output=(TextBlock(text=result["content"]),)))
    short = Msg.tool(ToolResultBlock(id="c1", name="write_file", output=(TextBlock(text="ok"),)))
    bare = Msg.assistant(ToolUseBlock(id="c1", name="write_file", content="{}"))
    parts: dict[str, dict[str, Any]] = {
        "prompt": {"sys_prompt": prompt},
        "schema": {"tools": [Described()]},
        "arguments": {"history": [asking, short]},
        "result": {"history": [bare, answer]},
        "instruction": {"instructions": {"policy": instruction}},
        "block": {"context_sources": {"s": load}},
    }

    async def estimate(**options: Any) -> int:
        history = options.pop("history", [])
        agent = scripted(workspace_context=False, **options).build()
        await agent.observe([Msg.user("u"), *history], ALICE)
        prepared = await agent.prepare(None, ALICE)
        assert prepared.error is None
        return prepared.manifest.estimated_input_tokens

    base = await estimate()
    added = {name: await estimate(**options) - base for name, options in parts.items()}
    assert all(tokens >= 1_200 for tokens in added.values()), added
    everything: dict[str, Any] = {key: value for part in parts.values() for key, value in part.items()}
    everything["history"] = [asking, answer]
    whole = await estimate(**everything) - base
    assert abs(sum(added.values()) - whole) <= 0.05 * whole


# -- roles --------------------------------------------------------------------------------------------------


async def test_o38_a_profile_writes_state_into_the_result_before_it() -> None:
    """Request 2 is accepted and has state and references; history and layout know nothing of it."""
    the = case("O38")
    look = CaseTool("look", the["tools"]["look"])
    options: dict[str, Any] = {"context_sources": {"s": sources}, "tools": [look], "profile": STRICT}
    async with harness(script=no_user_after_a_result, **options) as (agent, provider):
        seen = await watch(agent, the["input"]["content"], ALICE)
        state = await agent.state(ALICE)
    assert seen.error is None
    assert provider.refusals == []
    system, asked, called, result = provider.requests[1].messages
    assert [message["role"] for message in (system, asked, called, result)] == ["system", "user", "assistant", "tool"]
    assert result["content"].startswith("1\n\n<HARNESS_CONTEXT>\nCurrent state")
    for words in (">\nR\n<", ">\nD\n<", "<RUNTIME_STATE>"):
        assert words in result["content"]
    check_pairs(provider.requests[1].body)
    assert [message.tool_result.text for message in state.context.messages if message.tool_result] == ["1"]
    assert all(manifest.validation == "passed" for manifest in manifests(seen))


async def test_o38_without_it_the_layout_is_as_ever() -> None:
    """The provider's 400 is a bad request, and never taken for an overflow."""
    the = case("O38")
    options: dict[str, Any] = {"context_sources": {"s": sources}, "tools": [CaseTool("look", "1")]}
    async with harness(script=no_user_after_a_result, **options) as (agent, provider):
        seen = await watch(agent, the["input"]["content"], ALICE)
    assert isinstance(seen.error, ProviderError)
    assert seen.error.kind == "bad_request"
    assert [m["role"] for m in provider.requests[1].messages][-4:] == ["tool", "user", "user", "user"]


def merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What merging means, said again without the library: over decoded messages, one after the other."""
    found: list[dict[str, Any]] = []
    for message in messages:
        before = found[-1] if found else None
        if message["role"] != "user" or before is None or before["role"] in ("system", "assistant"):
            found.append(dict(message))
        elif isinstance(message["content"], str) and isinstance(before["content"], str):
            before["content"] += "\n\n" + message["content"]
        else:
            found += [{"role": "assistant", "content": "(noted)"}, dict(message)]
    return found


PNG = DataBlock(source=Base64Source(media_type="image/png", data="QUJD"))
TEXTS = st.text(st.sampled_from('ab"\\\n\u00e9\U0001f378 '), max_size=6)
TAIL = st.lists(TEXTS.map(Msg.user) | TEXTS.map(lambda text: Msg.user(text, PNG)), max_size=3)


@given(conversations(max_turns=150, answered=True), TAIL, st.integers(0, 3))
def test_o38_merging_changes_nothing_but_the_joints(conversation: tuple[Msg, ...], tail: list[Msg], cut: int) -> None:
    """Invariant: bytes put together leaf by leaf are what merging all messages one by one gives."""
    history = History.of(*conversation).replace_first(cut)  # so that leaves have other borders
    request = ModelRequest(call_id="r", system="You help.", conversation=history, tail=tuple(tail))
    plain = json.loads(encode(request, model="m", provider=COMPATIBLE))["messages"]
    strict = json.loads(encode(request, model="m", provider=STRICT))["messages"]
    assert strict == merged(plain)
    roles = [message["role"] for message in strict]
    assert not {("user", "user"), ("tool", "user")} & set(pairwise(roles))


@text_operator
def shout(text: str) -> str:
    return text.upper()


async def test_o38_merging_goes_with_everything_else() -> None:
    """Calls without an answer between them, a redaction, an image: still a request that such a provider takes."""

    @view_operator
    def with_note(draft: RequestDraft, step: Step) -> RequestDraft:
        return draft.add_reference(ContextBlock.reference("note", "a note"))

    async with harness("done", profile=STRICT) as (_, provider):
        builder = builder_before(provider, profile=STRICT).pipeline(
            lambda default: default.insert_before("validate_request", with_note).insert_before(
                "validate_request", shout
            )
        )
        agent = builder.build()
        await agent.observe([Msg.user("first"), Msg.user("second", PNG), Msg.user("third")], ALICE)
        await agent.call("fourth", ALICE)
    _, *messages = provider.requests[0].messages
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert messages[0]["content"] == "FIRST"
    assert messages[2]["content"][0] == {"type": "text", "text": "SECOND"}
    assert messages[4]["content"].startswith("THIRD\n\nFOURTH\n\n<RUNTIME_STATE>")
    assert "A NOTE" in messages[4]["content"]
