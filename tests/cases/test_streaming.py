"""Cases O18 to O24: what providers really send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentscope_rx.events as ev
from agentscope_rx.errors import ProviderError, StreamIncomplete
from tests.cases import case
from tests.cases.playing import calls_of, check_pairs, playing
from tests.support import watch


async def test_o18_empty_ids_and_names_on_later_deltas() -> None:
    """A later delta with an empty id or name changes neither."""
    the = case("O18")
    async with playing(the["model"], the["tools"]) as played:
        seen = await watch(played.agent, "go")
        assert calls_of(played.bodies[1]) == [("call_a1", "bash", '{"cmd": "ls"}')]
    assert played.tools["bash"].calls == [{"cmd": "ls"}]
    assert seen.result.text == "ok"


async def test_o19_two_calls_with_one_index() -> None:
    """A new id opens a new call whatever its index; finish_reason stop does not hide calls."""
    the = case("O19")
    async with playing(the["model"], the["tools"]) as played:
        await watch(played.agent, "go")
        assert [(id, arguments) for id, _, arguments in calls_of(played.bodies[1])] == [
            ("call_a", '{"path":"a"}'),
            ("call_b", '{"path":"b"}'),
        ]
        check_pairs(played.bodies[1])
    assert played.tools["read_file"].calls == [{"path": "a"}, {"path": "b"}]


async def test_o20_interleaved_fragments() -> None:
    """Fragments go to the call of their index; numbering from 1 makes no phantom call; events stay balanced."""
    the = case("O20")
    async with playing(the["model"], the["tools"]) as played:
        seen = await watch(played.agent, "go")
        assert calls_of(played.bodies[1]) == [("x1", "add", '{"a":1}'), ("x2", "mul", '{"b":2}')]
    written: dict[str, str] = {}
    open_calls: set[str] = set()
    for event in seen.events:
        match event:
            case ev.ToolCallStart(tool_call_id=id):
                open_calls.add(id)
            case ev.ToolCallDelta(tool_call_id=id, delta=delta):
                assert id in open_calls
                written[id] = written.get(id, "") + delta
            case ev.ToolCallEnd(tool_call_id=id):
                open_calls.remove(id)
            case _:
                pass
    assert written == {"x1": '{"a":1}', "x2": '{"b":2}'}
    assert not open_calls


async def test_o21_noise_that_is_valid() -> None:
    """Empty choices, usage alone, comments, retry blocks, blank data: nothing of it is an event."""
    the = case("O21")
    async with playing(the["model"]) as played:
        seen = await watch(played.agent, "go")
    assert seen.result.text == "hello"
    assert seen.result.usage is not None
    assert (seen.result.usage.input_tokens, seen.result.usage.output_tokens) == (5, 2)
    assert [event.delta for event in seen.of(ev.TextBlockDelta)] == ["he", "llo"]
    assert not seen.of(ev.ToolCallStart)


@pytest.mark.parametrize("variant", case("O22")["model_variants"], ids=range(5))
async def test_o22_an_error_inside_a_good_stream(variant: dict[str, Any]) -> None:
    """It is a ProviderError of its kind; nothing of the half reply enters history; the next call works."""
    async with playing([variant, {"text": "next ok"}]) as played:
        seen = await watch(played.agent, "go")
        assert isinstance(seen.error, ProviderError)
        assert seen.error.kind == variant["kind"]
        assert "AGENT_RESULT" not in seen.types
        assert (await watch(played.agent, "next")).result.text == "next ok"
        assert [message["role"] for message in played.bodies[1]["messages"]] == ["user", "user"]


@pytest.mark.parametrize("variant", case("O23")["model_variants"], ids=range(5))
async def test_o23_the_connection_ends_in_the_middle(variant: dict[str, Any]) -> None:
    """Never a silent success: StreamIncomplete, no tool runs, no call without result, the next call works."""
    async with playing([variant, {"text": "next ok"}], case("O23")["tools"]) as played:
        seen = await watch(played.agent, "go")
        assert isinstance(seen.error, StreamIncomplete)
        assert all(not tool.calls for tool in played.tools.values())
        assert (await watch(played.agent, "next")).result.text == "next ok"
        check_pairs(played.bodies[1])


async def test_o24_stopped_in_the_middle_of_arguments() -> None:
    """Half-written arguments leave no trace in the history; the text that was seen may stay."""
    the = case("O24")
    first, then = the["model"]
    first["stream"][2:2] = [{"stall": True}]
    async with playing([first, then], the["tools"]) as played:

        async def wait() -> None:
            async for event in played.agent.stream_events("go"):
                if isinstance(event, ev.ToolCallDelta):
                    stopped.set()

        stopped = asyncio.Event()
        task = asyncio.create_task(wait())
        await stopped.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await watch(played.agent, the["then"]["content"])).result.text == "next ok"
        assert calls_of(played.bodies[1]) == []
        assert [message["content"] for message in played.bodies[1]["messages"]] == ["go", "I will ", "go on"]
    assert played.tools["write_file"].calls == []
