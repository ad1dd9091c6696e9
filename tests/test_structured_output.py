"""Answers with a form: by the provider's format or by a tool, with another try for a wrong one, and a clean history."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from agentscope_rx import GenerateReason, Msg, PermissionRule, ReActAgent, ToolContext, condense, tool
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import InvalidOption, MissingExtra, OutputInvalid, ProviderError
from agentscope_rx.events import Custom, RequestStop, ToolResultEnd
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.models.providers import OPENAI
from agentscope_rx.operators import offer_output, settle_output
from agentscope_rx.requests import ModelRequest
from agentscope_rx.testing import ScriptedModel, calls, check_operator, text
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tools.outputs import OUTPUT_TOOL, OutputSpec
from agentscope_rx.usage import ChatUsage
from tests.context.support import ALICE, manifests, scripted
from tests.support import ONE_ATTEMPT
from tests.virtual import virtual


class Invoice(BaseModel):
    total: int
    currency: str = Field(default="CHF")

    @field_validator("total")
    @classmethod
    def _positive(cls, total: int) -> int:
        if total <= 0:
            raise ValueError("a total is above 0")
        return total


@dataclass
class Line:
    article: str
    amount: int


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "integer", "minimum": 1}},
    "required": ["total"],
    "additionalProperties": False,
}


def answer(value: object, id: str = "g1", usage: ChatUsage | None = None) -> Any:
    return calls((id, OUTPUT_TOOL, json.dumps({"response": value})), usage=usage)


def react(*script: Any, json_schema: bool = False, **options: Any) -> tuple[AgentBuilder[ReActAgent], ScriptedModel]:
    model = ScriptedModel(script, json_schema=json_schema)
    return ReActAgent.builder(name="tester", model=model, **options), model


async def said(agent: Any) -> list[str]:
    """Roles and texts of the session."""
    return [f"{m.role}:{m.text}" for m in (await agent.state(ALICE)).context.messages]


async def watch_output(agent: Any, output: Any, input: str = "go") -> list[Any]:
    return [event async for event in agent.stream_events(input, ALICE, output=output)]


def reminders(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.tail)


@tool
async def look() -> str:
    """Look at the invoice."""
    return "12 francs"


# -- after a pause ------------------------------------------------------------------------------------------


@virtual
async def test_an_answer_to_a_question_keeps_the_form() -> None:
    """A call with a form that had to ask goes on with the same form: by an agent and by a builder, and a call that
    waits beside the answer itself is settled first."""
    rules = [PermissionRule.ask("look")]
    for asking in (calls(("c1", "look", "{}")), calls(("c1", "look", "{}"), ("g0", OUTPUT_TOOL, '{"response":{}}'))):
        for by_builder in (False, True):
            builder, model = react(asking, answer({"total": 12}), tools=[look], permission_rules=rules)
            agent = builder.build()
            paused = await agent.call("go", ALICE, output=Invoice)
            assert paused.reason is GenerateReason.PERMISSION_ASKING
            events = (builder if by_builder else agent).respond(ALICE, {"c1": True}, output=Invoice)
            reply = await events.reply()
            assert reply.output(Invoice) == Invoice(total=12)
            assert model.asked == 2
    refused: Any = 3
    for who in (builder, agent):
        with pytest.raises(InvalidOption, match="output"):
            who.respond(ALICE, {"c1": True}, output=refused)


# -- by a tool ----------------------------------------------------------------------------------------------


@virtual
async def test_the_answer_comes_by_a_tool_where_the_provider_has_no_format() -> None:
    """A typed answer; the history holds the question, real calls, and the answer alone."""
    builder, model = react(calls(("c1", "look", "{}")), answer({"total": 12}), tools=[look])
    agent = builder.build()
    seen = await watch_output(agent, Invoice, "How much?")
    reply = seen[-2].result
    assert condense(seen) == condense(seen[:-2]) == reply
    assert [
        event.value["output"] for event in seen if isinstance(event, Custom) and event.name == "structured_output"
    ] == [{"total": 12}]
    assert reply.output(Invoice) == Invoice(total=12)
    assert reply.output(dict[str, int]) == {"total": 12}
    assert reply.text == '{"total":12}'
    assert reply.reason is GenerateReason.STRUCTURED_OUTPUT
    assert not any(isinstance(event, RequestStop) for event in seen)
    assert await said(agent) == ["USER:How much?", "ASSISTANT:", "TOOL:", 'ASSISTANT:{"total":12}']
    stored = list((await agent.state(ALICE)).context.messages)[-1]
    assert stored == reply
    first, second = model.requests
    assert [spec.name for spec in first.tools] == ["look", OUTPUT_TOOL]
    assert first.options.response_format is None
    assert OUTPUT_TOOL in reminders(first)
    assert OUTPUT_TOOL in reminders(second)
    assert Msg.from_json(reply.to_json()).output(Invoice) == Invoice(total=12)


@virtual
async def test_the_next_call_knows_nothing_of_it() -> None:
    """No tool, no reminder; the strict pairs hold."""
    builder, model = react(answer({"total": 12}), "thanks")
    agent = builder.build()
    await agent.call("How much?", ALICE, output=Invoice)
    reply = await agent.call("Thanks.", ALICE)
    assert model.requests[1].tools == ()
    assert model.requests[1].tail == ()
    assert [message.text for message in model.requests[1].messages] == ["How much?", '{"total":12}', "Thanks."]
    with pytest.raises(OutputInvalid, match="output="):
        reply.output(Invoice)


@virtual
async def test_what_is_wrong_is_told_and_leaves_no_trace() -> None:
    """A wrong type, a rule of the user's, a plain text: each is told; usages add up; thinking of the last stays."""
    usage = ChatUsage(input_tokens=10, output_tokens=2)
    builder, model = react(
        answer({"total": "twelve"}, "g1", usage),
        answer({"total": -1}, "g2", usage),
        text("It is 12.", usage=usage),
        answer({"total": 12}, "g3", usage),
    )
    agent = builder.build()
    seen = await watch_output(agent, Invoice)
    assert [event.state for event in seen if isinstance(event, ToolResultEnd)] == ["error", "error", "success"]
    results = [[m.tool_result.text for m in request.messages if m.tool_result] for request in model.requests]
    assert "total" in results[1][0]
    assert "above 0" in results[2][1]
    assert "a JSON value was expected" in reminders(model.requests[3])
    assert await said(agent) == ["USER:go", 'ASSISTANT:{"total":12}']
    reply = seen[-2].result
    assert condense(seen[:-2]) == reply
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (40, 8)


@virtual
async def test_a_text_that_is_the_answer_is_taken() -> None:
    """JSON as text, in a fence or not, needs no further call."""
    for said_by_model in ('{"total": 3}', '```json\n{"total": 3}\n```'):
        builder, model = react(said_by_model)
        reply = await builder.build().call("go", ALICE, output=Invoice)
        assert (reply.output(Invoice).total, reply.text, model.asked) == (3, said_by_model, 1)


@virtual
async def test_other_calls_of_the_same_reply_stay() -> None:
    """They ran; their call and result are history."""
    both = calls(("c1", "look", "{}"), ("g1", OUTPUT_TOOL, '{"response":{"total":12}}'), text="Both.")
    builder, _ = react(both, tools=[look])
    agent = builder.build()
    reply = await agent.call("go", ALICE, output=Invoice)
    messages = list((await agent.state(ALICE)).context.messages)
    assert [call.name for call in messages[1].tool_calls] == ["look"]
    assert [m.tool_result.text for m in messages if m.tool_result] == ["12 francs"]
    assert messages[-1] == reply
    assert len({message.id for message in messages}) == len(messages) == 4


@virtual
async def test_four_wrong_answers_are_enough() -> None:
    """OutputInvalid, and a history without them, in which the next call works."""
    builder, model = react(*[answer({"total": 0}, f"g{n}") for n in range(3)], "no JSON", "fine")
    agent = builder.build()
    with pytest.raises(OutputInvalid, match="4 answers"):
        await agent.call("go", ALICE, output=Invoice)
    assert model.asked == 4
    assert await said(agent) == ["USER:go"]
    assert (await agent.call(None, ALICE)).text == "fine"


@virtual
async def test_the_last_step_may_answer_in_text() -> None:
    """At the limit of steps there are no tools: the request shows the schema, and JSON is an answer; else it fails."""
    script = [calls(("c1", "look", "{}")), '{"total": 5}']
    builder, model = react(*script, tools=[look], max_iters=1)
    assert (await builder.build().call("go", ALICE, output=Invoice)).output(Invoice).total == 5
    assert '"total"' in reminders(model.requests[1])
    assert model.requests[1].tools == ()
    builder, _ = react(calls(("c1", "look", "{}")), "I looked.", tools=[look], max_iters=1)
    agent = builder.build()
    with pytest.raises(OutputInvalid, match="limit of steps"):
        await agent.call("go", ALICE, output=Invoice)
    assert await said(agent) == ["USER:go", "ASSISTANT:", "TOOL:"]


@virtual
async def test_what_is_no_object_goes_by_the_tool() -> None:
    """Lists, numbers, dataclasses with their definitions."""
    builder, model = react(answer([{"article": "pen", "amount": 2}]), json_schema=True)
    reply = await builder.build().call("go", ALICE, output=list[Line])
    assert reply.output(list[Line]) == [Line("pen", 2)]
    parameters = model.requests[0].tools[0].parameters
    assert "Line" in parameters["$defs"]  # type: ignore[operator]
    assert model.requests[0].options.response_format is None


# -- by the provider's format -------------------------------------------------------------------------------


@virtual
async def test_a_provider_with_a_format_is_asked_for_it() -> None:
    """No tool on offer; the text is the answer, under the id under which it was streamed."""
    builder, model = react(calls(("c1", "look", "{}")), '{"total": 7}', "again", json_schema=True, tools=[look])
    agent = builder.build()
    reply = await agent.call("go", ALICE, output=Invoice)
    assert reply.output(Invoice).total == 7
    asked = model.requests[0]
    assert [spec.name for spec in asked.tools] == ["look"]
    assert asked.tail == ()
    form: Any = asked.options.response_format
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == (
        "json_schema",
        OUTPUT_TOOL,
        False,
    )
    assert list((await agent.state(ALICE)).context.messages)[-1] == reply
    await agent.call("and now?", ALICE)
    assert model.requests[2].options.response_format is None


@virtual
async def test_a_wrong_native_answer_is_asked_for_again() -> None:
    """The findings stand in the request alone; the wrong text is no part of the history afterwards."""
    builder, model = react('{"total": 0}', "", '{"total": 7}', json_schema=True)
    agent = builder.build()
    assert (await agent.call("go", ALICE, output=Invoice)).output(Invoice).total == 7
    assert "above 0" in reminders(model.requests[1])
    assert "a JSON value" in reminders(model.requests[2])
    assert await said(agent) == ["USER:go", 'ASSISTANT:{"total": 7}']


def test_a_strict_schema_is_said_to_be_one() -> None:
    """Strict only where nothing is optional and nothing unknown, at any depth."""

    class Inner(BaseModel, extra="forbid"):
        a: int

    class Strict(BaseModel, extra="forbid"):
        inner: Inner

    class Loose(BaseModel, extra="forbid"):
        inner: Invoice

    def strict(output: Any) -> object:
        return OutputSpec.of(output).response_format["json_schema"]["strict"]  # type: ignore[index]

    assert [strict(output) for output in (Strict, Loose, Invoice)] == [True, False, False]


async def test_over_http_a_refused_format_gives_way_to_the_tool() -> None:
    """The provider gets `response_format`; where it answers 400, the same step is asked again with the tool."""
    async with FakeProvider(
        [
            fake.failure(
                400, {"error": {"message": "response_format is not supported", "type": "invalid_request_error"}}
            ),
            fake.tool_calls(("g1", OUTPUT_TOOL, '{"response":{"total":9}}')),
        ]
    ) as provider:
        model = HttpxChatModel("m", provider=OPENAI, base_url=provider.base_url, api_key="k")
        builder = ReActAgent.builder(name="tester", model=model, execution=ONE_ATTEMPT)
        async with builder.build() as agent:
            reply = await agent.call("go", ALICE, output=Invoice)
    assert reply.output(Invoice).total == 9
    first, second = provider.requests
    assert first.body["response_format"]["json_schema"]["schema"]["properties"]["total"]["type"] == "integer"
    assert "tools" not in first.body
    assert "response_format" not in second.body
    assert [each["function"]["name"] for each in second.body["tools"]] == [OUTPUT_TOOL]


@virtual
async def test_another_failure_is_the_callers() -> None:
    """A provider's error that has nothing to do with the format is raised, once."""
    builder, model = react(ProviderError("down"), json_schema=True, execution=ONE_ATTEMPT)
    with pytest.raises(ProviderError, match="down"):
        await builder.build().call("go", ALICE, output=Invoice)
    assert model.asked == 1


# -- schemas, options ---------------------------------------------------------------------------------------


@virtual
async def test_a_schema_is_as_good_as_a_type() -> None:
    """Checked by draft 2020-12, `minimum` included."""
    builder, model = react(answer({"total": 0}, "g1"), answer({"total": 2}, "g2"))
    reply = await builder.build().call("go", ALICE, output=SCHEMA)
    assert reply.output(dict[str, int]) == {"total": 2}
    (told,) = [m.tool_result.text for m in model.requests[1].messages if m.tool_result]
    assert "minimum" in told


@pytest.mark.parametrize("output", [{"type": "nothing"}, 3, "Invoice", lambda: None])
def test_what_is_no_form_is_refused(output: Any) -> None:
    """InvalidOption, where the call is made and not in its stream."""
    builder, _ = react("never")
    for callee in (builder, builder.build()):
        with pytest.raises(InvalidOption, match="output="):
            callee.call("go", ALICE, output=output)


async def test_a_reference_is_never_fetched() -> None:
    """A `$ref` to the network leads nowhere, and nobody there is asked."""
    asked: list[object] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(reader)
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        spec = OutputSpec.of({"type": "object", "properties": {"a": {"$ref": f"http://127.0.0.1:{port}/x.json"}}})
        with pytest.raises(InvalidOption, match="leads nowhere"):
            await asyncio.to_thread(spec.check, {"a": 1})
    assert asked == []


def test_a_schema_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jsonschema a type still works, and a schema names what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert OutputSpec.of(Invoice).is_object
    with pytest.raises(MissingExtra, match=r"agentscope-rx\[schema\]"):
        OutputSpec.of(SCHEMA)


@virtual
async def test_a_harness_agent_counts_and_accounts_for_it() -> None:
    """Tool and reminder are items of the manifest; the builder takes the option too; its pipeline is left alone."""
    builder = scripted(answer({"total": 1}), enable_task_list=True)
    async with builder.build() as agent:
        events = await watch_output(agent, Invoice)
        assert "settle_output" not in agent.pipeline.names
    assert events[-2].result.output(Invoice).total == 1
    (manifest,) = manifests(events)
    kinds = {item.id: item.kind for item in manifest.items}
    assert kinds[OUTPUT_TOOL] == "tool_schema"
    assert kinds["harness:output_reminder"] == "output_reminder"
    assert (await scripted(answer({"total": 2})).call("go", ALICE, output=Invoice)).output(Invoice).total == 2


@virtual
async def test_an_interrupted_answer_is_none() -> None:
    """A tool that interrupts its own agent: the result says so, and holds no answer."""

    @tool
    async def stop(context: ToolContext) -> str:
        """Stop."""
        agent.interrupt(ALICE)
        return "stopped"

    builder, _ = react(calls(("c1", "stop", "{}")), answer({"total": 1}), tools=[stop])
    agent = builder.build()
    reply = await agent.call("go", ALICE, output=Invoice)
    assert reply.reason is GenerateReason.INTERRUPTED
    with pytest.raises(OutputInvalid):
        reply.output(Invoice)


async def test_the_operators_keep_the_rules() -> None:
    """One in, one out, and the rest."""
    spec = OutputSpec.of(Invoice)
    await check_operator(lambda: offer_output(output=spec))
    await check_operator(lambda: settle_output(output=spec))


def test_a_stored_answer_of_another_form_is_refused() -> None:
    """A reply whose stored form no longer fits is refused with the type's name."""
    reply = Msg.assistant("x").with_metadata(_structured_output={"total": "many"})
    with pytest.raises(OutputInvalid, match="Invoice"):
        reply.output(Invoice)
