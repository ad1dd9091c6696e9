"""The order of a run's events, seen by a subscriber, over HTTP."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import agentscope_rx.events as ev
from agentscope_rx.condensing import condense
from agentscope_rx.errors import ProviderError, ServerFailed, StreamFailed
from agentscope_rx.messages import GenerateReason
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.testing.fake_provider import FakeProvider, failure, stream, text, tool_calls
from agentscope_rx.tools import ToolContext, tool
from tests.support import MODELS, Seen, builder_for, http_agent, type_of, watch


@tool
async def look(p: int = 0) -> str:
    """Look somewhere."""
    return f"saw {p}"


@tool
async def talk(context: ToolContext) -> str:
    """Report while working."""
    context.report("half ")
    context.report("way")
    return "half way, done"


def balanced(seen: Seen) -> bool:
    """Whether every START has exactly one END, after it."""
    opened: Counter[tuple[str, str, str]] = Counter()
    for event in seen.events:
        kind = type_of(event)
        name, _, edge = kind.rpartition("_")
        at = (name, getattr(event, "reply_id", ""), getattr(event, "block_id", getattr(event, "tool_call_id", "")))
        if edge == "START":
            opened[at] += 1
            if opened[at] != 1:
                return False
        elif edge == "END":
            opened[at] -= 1
            if opened[at] != 0:
                return False
    return not +opened


@pytest.mark.parametrize("model", MODELS)
async def test_a_plain_answer(model: type[HttpxChatModel] | type[OpenAIChatModel]) -> None:
    """AGENT_START first, context_build before the model call, its text inside, AGENT_RESULT, AGENT_END last."""
    async with FakeProvider([text("Hello there", deltas=2)]) as provider:
        seen = await watch(builder_for(provider, model).build(), "hi")
    assert seen.types == [
        "AGENT_START",
        "CUSTOM",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "AGENT_RESULT",
        "AGENT_END",
    ]
    assert seen.result.text == "Hello there"
    assert condense(seen.events) == seen.result


async def test_thinking_closes_before_text_and_text_before_calls() -> None:
    """Opening a block closes the one before it; segments are numbered."""
    items: list[dict[str, Any]] = [
        {"d": {"reasoning_content": "hm"}},
        {"d": {"content": "a"}},
        {"d": {"reasoning_content": "hm again"}},
        {"d": {"content": "b"}},
        {"d": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]}},
        {"d": {}, "f": "tool_calls"},
    ]
    async with http_agent([stream(items), text("done")], tools=[look]) as (agent, _):
        seen = await watch(agent, "go")
    first_call = seen.types[2 : seen.types.index("MODEL_CALL_END") + 1]
    assert first_call == [
        "MODEL_CALL_START",
        "THINKING_BLOCK_START",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_END",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "THINKING_BLOCK_START",
        "THINKING_BLOCK_DELTA",
        "THINKING_BLOCK_END",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "TOOL_CALL_START",
        "TOOL_CALL_DELTA",
        "TOOL_CALL_END",
        "MODEL_CALL_END",
    ]
    blocks = [event.block_id for event in seen.of(ev.TextBlockStart)[:2] + seen.of(ev.ThinkingBlockStart)]
    assert blocks == ["text", "text-2", "thinking", "thinking-2"]
    assert balanced(seen)


async def test_a_batch_of_tools() -> None:
    """All results start at once in call order; live deltas come between; ends come in call order."""
    replies = [tool_calls(("c1", "look", '{"p": 1}'), ("c2", "talk", "{}"), ("c3", "look", '{"p": 3}')), text("ok")]
    async with http_agent(replies, tools=[look, talk]) as (agent, _):
        seen = await watch(agent, "go")
    batch = [
        (type_of(event), event.tool_call_id, getattr(event, "delta", None))
        for event in seen.events
        if isinstance(event, ev.ToolEvent) and type_of(event).startswith("TOOL_RESULT")
    ]
    assert batch == [
        ("TOOL_RESULT_START", "c1", None),
        ("TOOL_RESULT_START", "c2", None),
        ("TOOL_RESULT_START", "c3", None),
        ("TOOL_RESULT_TEXT_DELTA", "c2", "half "),
        ("TOOL_RESULT_TEXT_DELTA", "c2", "way"),
        ("TOOL_RESULT_TEXT_DELTA", "c1", "saw 1"),
        ("TOOL_RESULT_END", "c1", None),
        ("TOOL_RESULT_END", "c2", None),
        ("TOOL_RESULT_TEXT_DELTA", "c3", "saw 3"),
        ("TOOL_RESULT_END", "c3", None),
    ]
    assert balanced(seen)


async def test_ids() -> None:
    """One call_reply_id for the call; a reply_id of its own for each model call and each batch; unique event ids."""
    replies = [tool_calls(("c1", "look", "{}")), text("ok")]
    async with http_agent(replies, tools=[look]) as (agent, provider):
        seen = await watch(agent, "go")
    (start,) = seen.of(ev.AgentStart)
    assert {event.call_reply_id for event in seen.events} == {start.reply_id}
    stages = [event.reply_id for event in (*seen.of(ev.ModelCallStart), *seen.of(ev.ToolResultStart))]
    assert len(set(stages)) == 3
    assert len({event.id for event in seen.events}) == len(seen.events)
    assert all(event.execution is not None and event.execution.session_id == "tester" for event in seen.events)
    moments = [event.created_at for event in seen.events if event.created_at is not None]
    assert len(moments) == len(seen.events)
    assert moments == sorted(moments)
    assert start.session_id == "tester"
    assert seen.result.id == seen.of(ev.ModelCallStart)[-1].reply_id
    assert len(provider.requests) == 2


async def test_a_failure_ends_with_agent_end_and_the_error() -> None:
    """On failure: open blocks are closed, MODEL_CALL_END says why, AGENT_END, then the error; no AGENT_RESULT."""
    items = [{"d": {"content": "par"}}, {"error": {"message": "overloaded", "type": "server_error", "code": 502}}]
    async with http_agent([stream(items)]) as (agent, _):
        seen = await watch(agent, "go")
    assert seen.types == [
        "AGENT_START",
        "CUSTOM",
        "MODEL_CALL_START",
        "TEXT_BLOCK_START",
        "TEXT_BLOCK_DELTA",
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "AGENT_END",
    ]
    (end,) = seen.of(ev.ModelCallEnd)
    assert isinstance(seen.error, ProviderError)
    assert end.metadata["error"] == {"class": type(seen.error).__name__, "kind": seen.error.kind}
    assert balanced(seen)


async def test_a_refused_request_is_a_failure_too() -> None:
    """A model call that fails before its first piece has its START and END all the same."""
    async with http_agent([failure(500, {"error": {"message": "boom"}})]) as (agent, _):
        seen = await watch(agent, "go")
    assert seen.types == ["AGENT_START", "CUSTOM", "MODEL_CALL_START", "MODEL_CALL_END", "AGENT_END"]
    assert isinstance(seen.error, ServerFailed)


async def test_the_limit_of_steps() -> None:
    """EXCEED_MAX_ITERS, then one more model call without tools, whose answer says that the limit was reached."""
    replies = [tool_calls(("c1", "look", "{}")), tool_calls(("c2", "look", "{}")), text("summed up")]
    async with http_agent(replies, tools=[look], max_iters=2) as (agent, provider):
        seen = await watch(agent, "go")
    assert seen.types.count("EXCEED_MAX_ITERS") == 1
    assert seen.types.index("EXCEED_MAX_ITERS") < len(seen.types) - 6
    (limit,) = seen.of(ev.ExceedMaxIters)
    assert (limit.reply_id, limit.max_iters, limit.current_iter) == ("", 2, 2)
    assert [("tools" in request.body) for request in provider.requests] == [True, True, False]
    assert seen.result.reason is GenerateReason.MAX_ITERATIONS
    assert condense(seen.events) == seen.result


async def test_an_empty_answer_is_asked_again_once() -> None:
    """A second request carries a reminder that is in no history; a second empty answer ends with EMPTY_REPLY."""
    empty = stream([{"d": {"reasoning_content": "hm"}}, {"d": {}, "f": "stop"}])
    async with http_agent([empty, empty, text("there")]) as (agent, provider):
        seen = await watch(agent, "go")
        again = await watch(agent, "and now?")
    assert seen.types.count("MODEL_CALL_START") == 2
    assert seen.result.reason is GenerateReason.EMPTY_REPLY
    assert condense(seen.events) == seen.result
    assert "empty" in provider.requests[1].body["messages"][-1]["content"]
    assert again.result.text == "there"
    assert [message["content"] for message in provider.requests[2].body["messages"]] == ["go", "and now?"]


async def test_an_interrupt_ends_with_a_result() -> None:
    """interrupt: open blocks are closed, AGENT_RESULT says INTERRUPTED, AGENT_END, completion; the text stays."""
    async with http_agent([stream([{"d": {"content": "I will "}}, {"stall": True}]), text("fine")]) as (
        agent,
        provider,
    ):
        seen = Seen()
        async for event in agent.stream_events("go"):
            seen.events.append(event)
            if isinstance(event, ev.TextBlockDelta) and event.delta == "I will ":
                assert agent.interrupt()
        assert seen.result.reason is GenerateReason.INTERRUPTED
        assert seen.types[-2:] == ["AGENT_RESULT", "AGENT_END"]
        assert balanced(seen)
        assert condense(seen.events) == seen.result
        assert (await provider.client_gone(1)).client_left
        assert not agent.interrupt()
        follow_up = await watch(agent, "go on")
    assert follow_up.result.text == "fine"
    roles = [(message["role"], message["content"]) for message in provider.requests[1].body["messages"]]
    assert roles[:2] == [("user", "go"), ("assistant", "I will ")]
    assert roles[-1] == ("user", "go on")


async def test_a_retry_is_told() -> None:
    """Each further attempt is a CUSTOM model_retry inside the one model call; Retry-After is obeyed."""
    replies = [failure(503, {"error": {"message": "busy"}}, headers={"retry-after": "0"}), text("ok")]
    from agentscope_rx.requests import ExecutionConfig

    async with http_agent(replies, execution=ExecutionConfig(max_attempts=2)) as (agent, _):
        seen = await watch(agent, "go")
    assert seen.types[:5] == ["AGENT_START", "CUSTOM", "MODEL_CALL_START", "CUSTOM", "TEXT_BLOCK_START"]
    build, custom = seen.of(ev.Custom)
    assert build.name == "context_build"
    assert (custom.name, custom.value) == ("model_retry", {"attempt": 2, "wait": 0.0, "error": "server"})
    assert seen.result.text == "ok"


async def test_a_stream_that_fails_after_it_began_is_not_repeated() -> None:
    """Once something was shown there is no second attempt."""
    from agentscope_rx.requests import ExecutionConfig

    broken = stream([{"d": {"content": "par"}}, {"error": {"message": "x", "type": "server_error"}}])
    async with http_agent([broken, text("no")], execution=ExecutionConfig(max_attempts=3)) as (agent, provider):
        seen = await watch(agent, "go")
    assert isinstance(seen.error, StreamFailed)
    assert len(provider.requests) == 1
