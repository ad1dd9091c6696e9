"""Cases O25 and O39 to O47: tools, empty replies, limits, long loops, failing stores."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.messages import GenerateReason, ToolResultState
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.stores import InMemoryStore, SessionKey, Stored
from agentscope_rx.testing import ScriptedModel, calls, text
from agentscope_rx.testing.fake_provider import FakeProvider, from_case, tool_calls
from agentscope_rx.testing.fake_provider import text as reply_text
from agentscope_rx.tools import tool
from tests.cases import case
from tests.cases.playing import calls_of, check_pairs, playing
from tests.support import builder_for, stack_depth, watch


async def test_o25_stopped_between_the_reply_and_its_tools() -> None:
    """Calls whose tools never began get interrupted results right behind them; no tool runs."""
    the = case("O25")
    async with playing(the["model"], the["tools"]) as played:

        def stop(event: ev.AgentEvent) -> None:
            if isinstance(event, ev.ModelCallEnd):
                played.agent.interrupt()

        await played.agent.stream_events("go").pipe(ops.do_action(stop))
        results = [m.tool_result for m in (await played.agent.state()).context.messages if m.tool_result]
        assert [(result.id, result.state) for result in results] == [
            ("t1", ToolResultState.INTERRUPTED),
            ("t2", ToolResultState.INTERRUPTED),
        ]
        assert (await watch(played.agent, the["then"]["content"])).result.text == "fine"
        check_pairs(played.bodies[1])
    assert played.tools["slow"].calls == []


@pytest.mark.parametrize("variant", range(4))
async def test_o39_empty_replies(variant: int) -> None:
    """An empty reply is asked again at most once and never sent back; empty text beside a call is null."""
    replies = case("O39")["model_variants"][variant]
    asked_again = [replies[0], *replies] if variant < 3 else replies
    async with playing([*asked_again, {"text": "third"}], case("O39")["tools"]) as played:
        seen = await watch(played.agent, "go")
        last = await watch(played.agent, case("O39")["then"]["content"])
        for body in played.bodies:
            assistants = [message for message in body["messages"] if message["role"] == "assistant"]
            assert all(message.get("content") or message.get("tool_calls") for message in assistants)
        if variant < 3:
            assert seen.result.reason is GenerateReason.EMPTY_REPLY
            assert seen.types.count("MODEL_CALL_START") == 2
            assert last.result.text == "second"
        else:
            assert seen.result.text == "second"
            assert calls_of(played.bodies[1]) == [("c1", "look", "{}")]
            assert played.bodies[1]["messages"][1]["content"] is None


async def test_o40_names_that_were_never_offered() -> None:
    """Unknown names get error results that list the real tools; on the wire all names are valid; events keep theirs."""
    the = case("O40")
    async with playing(the["model"], the["tools"]) as played:
        seen = await watch(played.agent, "go")
        check_pairs(played.bodies[1])
        assert len(calls_of(played.bodies[1])) == 5
        outputs = [m["content"] for m in played.bodies[1]["messages"] if m["role"] == "tool"]
        assert all("look" in output for output in outputs[:4])
        assert outputs[4] == "1"
    assert [event.state for event in seen.of(ev.ToolResultEnd)] == [ToolResultState.ERROR] * 4 + [
        ToolResultState.SUCCESS
    ]
    names = [event.tool_call_name for event in seen.of(ev.ToolCallStart)]
    assert names == ["browser.tabs.open", "", "$lookup", "n" * 80, "look"]
    assert len(played.tools["look"].calls) == 1


class OwnBaseException(BaseException):
    """Neither an Exception nor one that the interpreter knows."""


RAISES: list[Callable[[], BaseException]] = [
    asyncio.CancelledError,
    lambda: ValueError(""),
    TimeoutError,
    lambda: SystemExit(3),
    GeneratorExit,
    OwnBaseException,
    StopIteration,
    RecursionError,
]


@pytest.mark.parametrize("bad_raises", RAISES, ids=lambda make: type(make()).__name__)
async def test_o41_one_of_several_tools_fails(bad_raises: Callable[[], BaseException]) -> None:
    """Siblings keep their results, the failed one says what it was, order and run are as if nothing had been."""
    others_done = asyncio.Event()

    @tool
    async def ok1() -> str:
        """Fine."""
        return "1"

    @tool
    async def bad() -> str:
        """Fails."""
        raise bad_raises()

    @tool
    async def slow_ok() -> str:
        """Ends after the failure."""
        for _ in range(5):
            await asyncio.sleep(0)
        others_done.set()
        return "3"

    replies = [from_case(reply) for reply in case("O41")["model"]]
    async with FakeProvider(replies) as provider:
        agent = builder_for(provider, tools=[ok1, bad, slow_ok]).build()
        seen = await watch(agent, "go")
        results = [m["content"] for m in provider.requests[1].body["messages"] if m["role"] == "tool"]
        assert provider.refusals == []
    assert seen.result.text == "fin"
    assert others_done.is_set()
    assert (results[0], results[2]) == ("1", "3")
    assert type(bad_raises()).__name__ in results[1]
    states = [event.state for event in seen.of(ev.ToolResultEnd)]
    assert states == [ToolResultState.SUCCESS, ToolResultState.ERROR, ToolResultState.SUCCESS]


async def test_o41_a_real_cancel_stops_all_of_them() -> None:
    """Cancelling the run ends every tool, leaves no task, and closes the open calls."""
    started = asyncio.Event()
    ended: list[int] = []

    @tool
    async def hang(n: int) -> str:
        """Wait for ever."""
        try:
            if n == 2:
                started.set()
            await asyncio.Event().wait()
        finally:
            ended.append(n)
        return "never"

    wanted = [(f"c{n}", "hang", json.dumps({"n": n})) for n in range(3)]
    with FakeProvider.in_thread([tool_calls(*wanted), reply_text("fine")]) as provider:
        agent = builder_for(provider, tools=[hang]).build()
        before = asyncio.all_tasks()
        task = asyncio.create_task(agent.acall("go"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == [0, 1, 2]
        assert asyncio.all_tasks() == before
        assert (await agent.call("again")).text == "fine"
        check_pairs(provider.requests[1].body)


class Unprintable:
    """Raises when it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def _itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = value
    return value


async def _late() -> str:
    return "awaited"


def _generator() -> Iterator[str]:
    yield from ("a", "b")


RETURNS: list[tuple[str, Callable[[], object]]] = [
    ("set", lambda: {1, 2}),
    ("bytes", lambda: b"\xff\x00ok"),
    ("none", lambda: None),
    ("datetime", lambda: dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    ("nan", lambda: float("nan")),
    ("unprintable", Unprintable),
    ("generator", _generator),
    ("odd keys", lambda: {1: "a", (2, 3): "b"}),
    ("contains itself", _itself),
    ("blank", lambda: ""),
    ("ansi", lambda: "\x1b[31mred\x1b[0m"),
    ("huge number", lambda: 10**5000),
    ("decimal", lambda: Decimal("1.5")),
    ("exception instance", lambda: ValueError("as a value")),
    ("coroutine", _late),
]


@pytest.mark.parametrize("make", [make for _, make in RETURNS], ids=[name for name, _ in RETURNS])
async def test_o42_outputs_that_are_no_text(make: Callable[[], object]) -> None:
    """Whatever a tool returns is one non-empty text for the provider, the same in request and state."""

    @tool
    async def t() -> object:
        """Return something."""
        return make()

    async with FakeProvider([tool_calls(("c1", "t", "{}")), reply_text("ok")]) as provider:
        agent = builder_for(provider, tools=[t]).build()
        seen = await watch(agent, "go")
        (output,) = [m["content"] for m in provider.requests[1].body["messages"] if m["role"] == "tool"]
        stored = next(m.tool_result for m in (await agent.state()).context.messages if m.tool_result)
        assert provider.refusals == []
    assert seen.result.text == "ok"
    assert isinstance(output, str)
    assert output.strip()
    assert output == stored.text
    assert not {"\x1b", "\x00"} & set(output)
    json.loads((await agent.state()).to_json())


async def test_o43_the_limit_with_open_calls() -> None:
    """The limit is told, one call without tools follows, every call has its result, and the next turn is fresh."""
    the = case("O43")
    async with playing([*the["model"], {"text": "fresh"}], the["tools"], **the["config"]) as played:
        seen = await watch(played.agent, "go")
        assert len(seen.of(ev.ExceedMaxIters)) == 1
        assert seen.result.text == "summary of work"
        assert seen.result.reason is GenerateReason.MAX_ITERATIONS
        assert (await watch(played.agent, the["then"]["content"])).result.text == "fresh"
        check_pairs(played.bodies[-1])
        assert "tools" in played.bodies[-1]


@pytest.mark.parametrize(
    "closing", [{"status": 500, "body": {"error": {"message": "boom"}}}, {"call": [["c9", "look", "{}"]]}]
)
async def test_o43_the_closing_call_fails(closing: dict[str, Any]) -> None:
    """If no summary comes the run still ends with the limit as its reason, and the next turn works."""
    the = case("O43")
    replies = [*the["model"][:2], closing, {"text": "fresh"}]
    async with playing(replies, the["tools"], **the["config"]) as played:
        seen = await watch(played.agent, "go")
        assert seen.error is None
        assert seen.result.reason is GenerateReason.MAX_ITERATIONS
        assert (await watch(played.agent, "more")).result.text == "fresh"
        check_pairs(played.bodies[-1])


async def test_o46_a_long_loop_does_not_recurse() -> None:
    """2,001 model calls at the default recursion limit; the stack at the last equals that at the twentieth."""
    depths: list[int] = []

    @tool
    async def tick() -> str:
        """Tick."""
        depths.append(stack_depth())
        return "t"

    def script() -> Iterator[Any]:
        yield from (calls((f"c{n}", "tick", "{}")) for n in range(2000))
        yield text("end")

    model = ScriptedModel(script(), keep_requests=False)
    agent = ReActAgent.builder(name="a", model=model, tools=[tick], max_iters=5000).build()
    assert (await agent.call("go")).text == "end"
    assert model.asked == 2001
    assert len(depths) == 2000
    assert depths[19] == depths[-1]


async def test_o46_twenty_thousand_deltas_in_one_read() -> None:
    """A stream that lies ready in the socket is delivered whole and in order."""
    async with FakeProvider([reply_text("x" * 20_000, deltas=20_000)]) as provider:
        seen = await watch(builder_for(provider).build(), "go")
    assert len(seen.of(ev.TextBlockDelta)) == 20_000
    assert seen.result.text == "x" * 20_000


async def test_o46_left_during_a_late_step() -> None:
    """Leaving during step 1,000 ends the run there; the next call goes on from it."""
    reached = asyncio.Event()

    @tool
    async def tick(n: int) -> str:
        """Tick."""
        if n == 1000:
            reached.set()
            await asyncio.Event().wait()
        return "t"

    def script() -> Iterator[Any]:
        yield from (calls((f"c{n}", "tick", json.dumps({"n": n}))) for n in range(1, 1001))
        yield text("went on")

    model = ScriptedModel(script(), keep_requests=False)
    agent = ReActAgent.builder(name="a", model=model, tools=[tick], max_iters=5000).build()
    task = asyncio.create_task(agent.acall("go"))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.asked == 1000
    assert (await agent.call("go on")).text == "went on"


class FullDisk(InMemoryStore):
    """A store whose disk is full at one of its verbs."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self._verb = verb

    async def get(self, key: SessionKey, /) -> Stored | None:
        if self._verb == "load":
            raise OSError(28, "No space left on device")
        return await super().get(key)

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        if self._verb == "save":
            raise OSError(28, "No space left on device")
        return await super().put(key, body, expected_version=expected_version, fence=fence)


async def by_waiting(agent: ReActAgent) -> list[str]:
    await agent.call("go")
    return []


async def by_iterating(agent: ReActAgent) -> list[str]:
    return [str(event.type) async for event in agent.stream_events("go")]  # type: ignore[attr-defined]


async def by_subscribing(agent: ReActAgent) -> list[str]:
    ended: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    seen: list[str] = []
    agent.stream_events("go").subscribe(
        lambda event: seen.append(str(event.type)),  # type: ignore[attr-defined]
        ended.set_exception,
        lambda: ended.set_result(seen),
    )
    return await ended


@pytest.mark.parametrize("verb", ["load", "save"])
@pytest.mark.parametrize("consume", [by_waiting, by_iterating, by_subscribing])
async def test_o47_a_store_that_fails(verb: str, consume: Callable[[ReActAgent], Any]) -> None:
    """The failure reaches every kind of consumer; nothing that is not stored is reported as done; no task is left."""
    model = ScriptedModel([calls(("c1", "look", "{}")), "ok"])

    @tool
    async def look() -> str:
        """Look."""
        return "1"

    agent = ReActAgent.builder(name="a", model=model, tools=[look], state_store=FullDisk(verb)).build()
    before = asyncio.all_tasks()
    with pytest.raises(OSError, match="No space left"):
        await consume(agent)
    assert asyncio.all_tasks() == before
    assert model.asked == (0 if verb == "load" else 2)
