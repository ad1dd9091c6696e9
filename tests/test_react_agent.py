"""Sessions, builders and loops, through the public API."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.errors import (
    ConsumerFailed,
    InvalidIdentifier,
    InvalidOption,
    MissingApiKey,
    PipelineError,
    ReentrantCall,
    RunningLoopError,
    SessionBusy,
    UnknownProvider,
)
from agentscope_rx.messages import Msg
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import InMemoryStore, JsonFileStore
from agentscope_rx.testing import ScriptedModel, calls, text
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tools import Toolkit, tool
from tests.support import MODELS, builder_for
from tests.virtual import virtual

ALICE = RuntimeContext(user_id="alice", session_id="s1")
BOB = RuntimeContext(user_id="bob", session_id="s1")


async def test_a_conversation_goes_on() -> None:
    """Calls on one session see what was said before; other users and sessions do not."""
    model = ScriptedModel(["one", "two", "three"])
    agent = ReActAgent.builder(name="a", model=model).build()
    await agent.call("first", ALICE)
    await agent.call("second", ALICE)
    await agent.call("mine", BOB)
    said = [[message.text for message in request.messages] for request in model.requests]
    assert said == [["first"], ["first", "one", "second"], ["mine"]]


async def test_agents_of_one_builder_share_sessions() -> None:
    """An agent lives for a request, the session for longer."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel(["one", "two"]))
    await builder.call("first", ALICE)
    async with builder.build() as agent:
        await agent.call("second", ALICE)
        assert [message.text for message in (await agent.state(ALICE)).context.messages] == [
            "first",
            "one",
            "second",
            "two",
        ]


async def test_builders_are_immutable() -> None:
    """Every method gives a new builder; what the old one builds is unchanged."""
    plain = ReActAgent.builder(name="a", model=ScriptedModel(["x", "y"], name="m"))
    prompted = plain.sys_prompt("Be brief.")
    model = ScriptedModel(["x", "y"])
    await plain.model(model).call("hi")
    assert model.requests[0].system == ""
    await prompted.model(model).call("hi", ALICE)
    assert model.requests[1].system == "Be brief."


async def test_the_prompt_may_be_a_function_called_once_a_call() -> None:
    """sys_prompt(fn): sync or async, with the context, once a call however many steps it takes."""
    asked: list[RuntimeContext] = []

    async def prompt(context: RuntimeContext) -> str:
        asked.append(context)
        return f"You serve {context.user_id}."

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([calls(("c1", "look", "{}")), "done"])
    await ReActAgent.builder(name="a", model=model, sys_prompt=prompt, tools=[look]).call("hi", ALICE)
    assert asked == [ALICE]
    assert [request.system for request in model.requests] == ["You serve alice."] * 2


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("max_iters", 0, InvalidOption),
        ("wait_timeout", -1, InvalidOption),
        ("name", " ", InvalidIdentifier),
        ("model", "nobody:nothing", UnknownProvider),
        ("model", "openai:gpt-5-mini", MissingApiKey),
        ("colour", "red", InvalidOption),
        ("max_iters", 2.5, InvalidOption),
        ("tools", print, InvalidOption),
        ("toolkit", [], InvalidOption),
        ("model", 3, InvalidOption),
        ("sys_prompt", None, InvalidOption),
        ("execution", None, InvalidOption),
        ("generate_options", {"temperature": 1}, InvalidOption),
        ("chunk_operators", [5], InvalidOption),
        ("pipeline", 5, InvalidOption),
        ("state_store", "folder", InvalidOption),
        ("runtime", 3, InvalidOption),
    ],
)
def test_wrong_values_fail_at_the_builder(
    option: str, value: object, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong value is refused where it is given, with the option's name, the value and what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(error) as caught:
        ReActAgent.builder(**{option: value})  # type: ignore[arg-type]
    assert option in str(caught.value) or str(value).split(":")[0].strip().upper() in str(caught.value).upper()


def test_a_store_that_is_not_hashable_is_refused() -> None:
    """Sessions are told apart by their store; a plain dataclass with eq is not hashable, and is told so at once."""

    @dataclass
    class Rows(InMemoryStore):
        rows: int = 0

    with pytest.raises(InvalidOption, match="hashable"):
        ReActAgent.builder(state_store=Rows())


@pytest.mark.parametrize("input", [5, ["a"], [Msg.user("a"), None]])
def test_a_wrong_input_is_refused_by_the_call(input: Any) -> None:
    """What is no message is refused before anything runs, and so is what is no context."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel([]))
    with pytest.raises(InvalidOption, match="input"):
        builder.stream_events(input)
    wrong: Any = "session"
    with pytest.raises(InvalidOption, match="RuntimeContext"):
        builder.stream_events("hi", wrong)


def test_a_pipeline_function_must_give_a_pipeline() -> None:
    """A function that forgets its return is named."""

    def nothing(_: Any) -> Any:
        return None

    with pytest.raises(InvalidOption, match="must give a Pipeline"):
        ReActAgent.builder(name="a", model=ScriptedModel([]), pipeline=nothing).build()


def test_an_agent_needs_name_and_model() -> None:
    """build() says what is missing."""
    with pytest.raises(InvalidOption, match="model"):
        ReActAgent.builder(name="a").build()
    with pytest.raises(InvalidOption, match="name"):
        ReActAgent.builder(model=ScriptedModel([])).build()


def test_a_pipeline_that_cannot_work_is_refused_at_build() -> None:
    """begin_request, commit_history and call_model must be there, in this order."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel([]))
    with pytest.raises(PipelineError, match="call_model"):
        builder.pipeline(lambda default: default.remove("call_model")).build()


def test_ids_are_refused_before_anything_is_touched() -> None:
    """An id that cannot be one is refused by the call itself, not by the stream."""
    agent = ReActAgent.builder(name="a", model=ScriptedModel([])).build()
    with pytest.raises(InvalidIdentifier):
        agent.call("hi", RuntimeContext(session_id="a\x00b"))
    with pytest.raises(InvalidOption, match="SYSTEM"):
        agent.call(Msg.system("obey"))


async def test_options_reach_the_request() -> None:
    """What the builder says about answers is what the provider is told."""
    options = GenerateOptions(temperature=0.5, seed=7, additional_body={"x_custom": 1})
    async with FakeProvider([fake.text("ok")]) as provider:
        await builder_for(provider, generate_options=options, sys_prompt="P").call("hi")
        body = provider.requests[0].body
    assert (body["temperature"], body["seed"], body["x_custom"]) == (0.5, 7, 1)
    assert body["messages"][0] == {"role": "system", "content": "P"}


async def test_observe_adds_without_an_answer() -> None:
    """observe takes its turn, adds messages, and asks nobody."""
    model = ScriptedModel(["yes"])
    agent = ReActAgent.builder(name="a", model=model).build()
    await agent.observe([Msg.user("It rains."), Msg.assistant("Noted.")], ALICE)
    assert model.asked == 0
    await agent.call("Does it rain?", ALICE)
    assert [message.text for message in model.requests[0].messages] == ["It rains.", "Noted.", "Does it rain?"]


async def test_calls_on_one_session_take_turns_in_order() -> None:
    """FIFO per session, across agents of one Runtime."""
    model = ScriptedModel([text("r").after(0.001) for _ in range(20)])
    builder = ReActAgent.builder(name="a", model=model)
    await asyncio.gather(*(builder.build().acall(f"m{i}", ALICE) for i in range(20)))
    said = [m.text for m in (await builder.build().state(ALICE)).context.messages]
    assert said == [word for i in range(20) for word in (f"m{i}", "r")]


async def test_a_busy_session() -> None:
    """wait_timeout=0 does not wait; a call from inside a call that holds the session is refused at once."""
    inner: list[BaseException] = []
    builder = ReActAgent.builder(name="a", model=ScriptedModel([calls(("c1", "nested", "{}")), "done"]))

    @tool
    async def nested() -> str:
        """Call the agent's own session."""
        try:
            await builder.build().call("inside", ALICE)
        except ReentrantCall as error:
            inner.append(error)
        return "tried"

    outer = builder.tools([nested])
    assert (await outer.call("go", ALICE)).text == "done"
    assert len(inner) == 1

    stuck = ReActAgent.builder(name="b", model=ScriptedModel([text("slow").after(3600)]), wait_timeout=0)
    agent = stuck.build()
    first = asyncio.create_task(agent.acall("one", ALICE))
    await asyncio.sleep(0)
    with pytest.raises(SessionBusy):
        await agent.call("two", ALICE)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_two_stores_of_one_folder_are_one(tmp_path: Path) -> None:
    """Agents with stores of their own for one folder take turns, and may interrupt each other's runs."""
    runtime = Runtime()
    model = ScriptedModel([text("a").after(0.001) for _ in range(10)])
    builder = ReActAgent.builder(name="a", model=model, runtime=runtime)
    agents = [builder.state_store(JsonFileStore(tmp_path)).build() for _ in range(10)]
    await asyncio.gather(*(agent.acall("go", ALICE) for agent in agents))
    assert len([*(await agents[0].state(ALICE)).context.messages]) == 20
    store = next(iter(tmp_path.rglob("state.json")))
    assert store.stat().st_mode & 0o777 == 0o600


async def test_a_subscriber_that_raises_ends_its_own_run_once() -> None:
    """O45: one ConsumerFailed, one model call, a valid session; a retry below never sees the failure."""
    model = ScriptedModel([text("a", "b", "c"), "next"])
    agent = ReActAgent.builder(name="a", model=model, pipeline=lambda p: p.around("request", ops.retry(3))).build()
    errors: list[Exception] = []
    ended = asyncio.Event()

    def on_next(event: ev.AgentEvent) -> None:
        if isinstance(event, ev.TextBlockDelta) and event.delta == "b":
            raise ValueError("in the subscriber")

    def on_error(error: Exception) -> None:
        errors.append(error)
        ended.set()

    agent.stream_events("go", ALICE).subscribe(on_next, on_error)
    await ended.wait()
    assert [type(error) for error in errors] == [ConsumerFailed]
    assert isinstance(errors[0].__cause__, ValueError)
    assert (await agent.call("more", ALICE)).text == "next"
    assert model.asked == 2


@virtual
async def test_a_failed_subscriber_of_a_builders_stream_is_told_at_once() -> None:
    """The agent that was made for the call closes without waiting for the very run that tells of the failure."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel([text("a", "b")]))
    ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def on_next(event: ev.AgentEvent) -> None:
        if isinstance(event, ev.TextBlockDelta):
            raise ValueError("in the subscriber")

    before = asyncio.get_running_loop().time()
    builder.stream_events("go", ALICE).subscribe(on_next, ended.set_result)
    assert isinstance(await ended, ConsumerFailed)
    assert asyncio.get_running_loop().time() == before


async def test_a_groups_activation_reaches_the_next_step_and_the_next_call() -> None:
    """What the model equips is part of the session: the requests after it offer the group's tools."""

    @tool
    def browse() -> str:
        """Browse."""
        return "seen"

    toolkit = Toolkit().group("web", "The web.", browse).with_meta_tool()
    switch = calls(("c1", "reset_equipped_tools", '{"to_activate":["web"]}'))
    model = ScriptedModel([switch, "done", "next"])
    builder = ReActAgent.builder(name="a", model=model, toolkit=toolkit)
    await builder.call("go", ALICE)
    await builder.call("more", ALICE)
    offered = ["browse" in {spec.name for spec in request.tools} for request in model.requests]
    assert offered == [False, True, True]


async def test_tools_are_added_to_the_toolkit_in_any_order() -> None:
    """Keywords have no order: `toolkit=` never drops what `tools=` adds."""

    @tool
    def one() -> str:
        """One."""
        return "1"

    @tool
    def two() -> str:
        """Two."""
        return "2"

    for keywords in ({"tools": [one], "toolkit": Toolkit().add(two)}, {"toolkit": Toolkit().add(two), "tools": [one]}):
        model = ScriptedModel(["done"])
        await ReActAgent.builder(name="a", model=model, **keywords).call("hi")  # type: ignore[arg-type]
        assert {spec.name for spec in model.requests[0].tools} == {"one", "two"}


async def test_each_subscription_is_a_run_and_a_shared_run_is_one() -> None:
    """O45: cold streams run per subscription; share_run isolates its watchers and gives each event once."""
    model = ScriptedModel([text("a", "b"), text("a", "b"), text("a", "b")])
    agent = ReActAgent.builder(name="a", model=model).build()
    events = agent.stream_events("go")
    assert [await events.pipe(ops.last()), await events.pipe(ops.last())].__len__() == 2
    assert model.asked == 2
    shared = agent.stream_events("go").share_run(history=None)
    good = [event async for event in shared]
    late = [event async for event in shared]
    assert good == late
    assert model.asked == 3


def test_blocking_forms() -> None:
    """run() and plain iteration work where no loop runs, for calls and for piped streams."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel([text("a", "b"), text("c"), "d"]))
    assert builder.call("hi").run().text == "ab"
    assert [e.delta for e in builder.stream_events("hi") if isinstance(e, ev.TextBlockDelta)] == ["c"]
    assert builder.stream_events("hi").pipe(ops.count()).run() == 9


async def test_blocking_on_a_running_loop_is_refused() -> None:
    """A call that would block the loop says so instead of doing it."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel(["x"]))
    with pytest.raises(RunningLoopError):
        builder.call("hi").run()
    with pytest.raises(RunningLoopError):
        next(iter(builder.stream_events("hi")))


@pytest.mark.parametrize("model", MODELS)
def test_one_builder_on_many_loops(model: type[HttpxChatModel] | type[OpenAIChatModel]) -> None:
    """run(), asyncio.run twice, then two threads with a loop each, fifty calls on one session: strict order."""
    with FakeProvider.in_thread(lambda request, n: fake.text(f"r{n}")) as provider:
        builder = builder_for(provider, model)
        builder.call("m0", ALICE).run()
        for i in (1, 2):
            asyncio.run(builder.build().acall(f"m{i}", ALICE))
        failures: list[BaseException] = []

        def one_thread(start: int) -> None:
            async def main() -> None:
                async with builder.build() as agent:
                    for i in range(25):
                        await agent.call(f"m{start + i}", ALICE)

            try:
                asyncio.run(main())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=one_thread, args=(start,)) for start in (100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        messages = [*asyncio.run(builder.build().state(ALICE)).context.messages]
    assert len(messages) == 2 * 53
    assert [m.text for m in messages[1::2]] == [f"r{n}" for n in range(1, 54)]
    asked = [m.text for m in messages[::2]]
    for start in (100, 200):
        mine = [text for text in asked if text.startswith(f"m{start // 100}") and len(text) == 4]
        assert mine == [f"m{start + i}" for i in range(25)]
    assert provider.refusals == []


async def test_pipeline_of_an_agent_prints() -> None:
    """print(agent.pipeline) shows what a step does."""
    agent = ReActAgent.builder(name="a", model=ScriptedModel([])).build()
    assert str(agent.pipeline).splitlines() == [
        "step",
        "  request",
        "    prepare                  (report_context)",
        "      begin_request          effect",
        "      assemble_request       view",
        "      validate_request       view",
        "      commit_history         effect",
        "    call_model               effect",
        "  run_tools                  effect",
    ]
