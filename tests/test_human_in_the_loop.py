"""Tool calls that wait for somebody outside: asked, answered, resumed, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.errors import (
    InteractionMismatch,
    InteractionPending,
    InvalidOption,
    ProviderTimeout,
    StateConflict,
)
from agentscope_rx.interactions import PendingCall, approve, pending_calls, reject
from agentscope_rx.messages import (
    GenerateReason,
    Msg,
    TextBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.permissions import PermissionDecision
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore, SessionKey
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import tool
from tests.support import Seen, watch

ALLOW, DENY, ASK = PermissionRule.allow, PermissionRule.deny, PermissionRule.ask
CTX = RuntimeContext(session_id="s")
PAY, LOOK, GATE = ("b", "pay", '{"n": 5}'), ("a", "look", "{}"), ("x", "gate", "{}")
RULES = (ASK("pay"), ALLOW("look"), ALLOW("gate"))


class Shop:
    """Tools that count, one that is run elsewhere, and the store that agents share."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.paid: list[int] = []
        self.looked = 0

    @tool
    async def pay(self, n: int) -> str:
        """Pay."""
        self.paid.append(n)
        return "paid"

    @tool
    async def look(self) -> str:
        """Look."""
        self.looked += 1
        return "1"

    @tool(external=True)
    async def gate(self) -> str:
        """Open the gate."""
        return "never"

    def agent(self, *script: Any, rules: tuple[PermissionRule, ...] = RULES, **options: Any) -> ReActAgent:
        """An agent of a Runtime of its own: as if in another process."""
        options.setdefault("execution", ExecutionConfig(max_attempts=1))
        builder = ReActAgent.builder(name="a", model=ScriptedModel(script), state_store=self.store, **options)
        return builder.tools([self.pay, self.look, self.gate]).permission_rules(rules).build()

    async def stored(self) -> AgentState:
        """What the store holds now."""
        stored = await self.store.get(SessionKey(agent_id="a", user_id=None, session_id="s"))
        assert stored is not None
        return AgentState.from_json(stored.body)


def results(state: AgentState) -> dict[str, tuple[ToolResultState, str]]:
    found = (message.tool_result for message in state.context.messages)
    return {result.id: (result.state, result.text) for result in found if result is not None}


def ids(waiting: tuple[PendingCall, ...]) -> list[tuple[str, str]]:
    return [(each.id, each.kind) for each in waiting]


async def answered(agent: ReActAgent, answers: Any) -> Seen:
    """Answer, and keep everything."""
    seen = Seen()
    try:
        async for event in agent.respond(CTX, answers):
            seen.events.append(event)
    except Exception as error:
        seen.error = error
    return seen


# -- confirmation -------------------------------------------------------------------------------------------


async def test_a_call_that_is_asked_about_pauses_its_batch() -> None:
    """None of the batch runs; the request is told, then the stop, then the message with the states of its calls."""
    shop = Shop()
    seen = await watch(shop.agent(calls(LOOK, PAY, text="I buy")), "buy", CTX)
    assert seen.types[-5:] == ["MODEL_CALL_END", "REQUIRE_USER_CONFIRM", "REQUEST_STOP", "AGENT_RESULT", "AGENT_END"]
    assert (shop.looked, shop.paid) == (0, [])
    assert (seen.result.reason, seen.result.text) == (GenerateReason.PERMISSION_ASKING, "I buy")
    assert [call.state for call in seen.result.tool_calls] == [ToolCallState.ALLOWED, ToolCallState.ASKING]
    (asked,) = seen.of(ev.RequireUserConfirm)
    assert [call.id for call in asked.tool_calls] == ["b"]
    (waiting,) = pending_calls((await shop.stored()).context)
    assert (waiting.call, waiting.kind) == (asked.tool_calls[0], "confirmation")
    assert waiting.message == "the rule 'ask pay' has a person asked"


async def test_a_yes_runs_the_batch_and_goes_on() -> None:
    """The answer is told first, under the id of the request; then tools and model go on as ever."""
    shop = Shop()
    paused = await watch(shop.agent(calls(LOOK, PAY)), "buy", CTX)
    agent = shop.agent("done")
    assert ids(await agent.pending(CTX)) == [("b", "confirmation")]
    seen = await answered(agent, {"b": True})
    assert (seen.result.text, shop.looked, shop.paid) == ("done", 1, [5])
    assert seen.types[:4] == ["AGENT_START", "USER_CONFIRM_RESULT", "TOOL_RESULT_START", "TOOL_RESULT_START"]
    (told,) = seen.of(ev.UserConfirmResult)
    assert told.reply_id == paused.of(ev.RequireUserConfirm)[0].reply_id != ""
    assert [(each.confirmed, each.tool_call.id) for each in told.confirm_results] == [(True, "b")]
    assert await agent.pending(CTX) == ()
    assert list(results(await agent.state(CTX))) == ["a", "b"]


async def test_a_no_runs_the_rest() -> None:
    """The refused call has a result that says so, with the reason; its tool is never reached, now or later."""
    shop = Shop()
    await shop.agent(calls(LOOK, PAY)).call("buy", CTX)
    model = ScriptedModel(["well then", "fine"])
    agent = ReActAgent.builder_from(shop.agent()).model(model).build()
    seen = await answered(agent, {"b": reject("too expensive")})
    assert (seen.result.text, shop.looked, shop.paid) == ("well then", 1, [])
    state, text = results(await agent.state(CTX))["b"]
    assert (state, "too expensive" in text) == (ToolResultState.DENIED, True)
    sent = [message.tool_result.text for message in model.requests[0].messages if message.tool_result]
    assert sent == ["1", text]
    of_b = [type(e).__name__ for e in seen.events if isinstance(e, ev.ToolEvent) and e.tool_call_id == "b"]
    assert of_b == ["ToolResultStart", "ToolResultTextDelta", "ToolResultEnd"]
    assert (await agent.call("and now?", CTX)).text == "fine"
    assert shop.paid == []


async def test_all_refused_may_stop() -> None:
    """With `stop_on_reject` a batch of which all was refused ends the call; one call that ran is enough to go on."""
    for batch, reason in (
        ((PAY,), GenerateReason.ALL_TOOLS_DENIED),
        ((LOOK, PAY), GenerateReason.MODEL_STOP),
    ):
        shop = Shop()
        await shop.agent(calls(*batch)).call("buy", CTX)
        seen = await answered(shop.agent("done", stop_on_reject=True), {"b": False})
        assert (seen.result.reason, len(seen.of(ev.AllToolsDenied))) == (reason, int(len(batch) == 1))


async def test_partial_answers() -> None:
    """What has no answer is asked again, and nothing runs before the last answer."""
    shop = Shop()
    agent = shop.agent(calls(LOOK, PAY, ("c", "pay", '{"n": 7}'), ("d", "pay", '{"n": 9}')), "done")
    await agent.call("buy", CTX)
    seen = await answered(agent, {"c": True})
    assert seen.types[1:] == [
        "USER_CONFIRM_RESULT", "REQUIRE_USER_CONFIRM", "REQUEST_STOP", "AGENT_RESULT", "AGENT_END"
    ]  # fmt: skip
    assert ids(await agent.pending(CTX)) == [("b", "confirmation"), ("d", "confirmation")]
    await answered(agent, {"d": False})
    assert (shop.looked, shop.paid, ids(await agent.pending(CTX))) == (0, [], [("b", "confirmation")])
    seen = await answered(agent, {"b": True})
    assert (seen.result.text, shop.looked, shop.paid) == ("done", 1, [5, 7])


async def test_edited_arguments() -> None:
    """The tool gets the person's arguments, and so does the model, as its own call."""
    shop = Shop()
    model = ScriptedModel([calls(PAY), "done"])
    agent = ReActAgent.builder_from(shop.agent()).model(model).build()
    await agent.call("buy", CTX)
    seen = await answered(agent, {"b": approve(input={"n": 3})})
    assert shop.paid == [3]
    assert seen.of(ev.UserConfirmResult)[0].confirm_results[0].tool_call.input == {"n": 3}
    (call,) = [call for message in model.requests[1].messages for call in message.tool_calls]
    assert (call.input, call.content) == ({"n": 3}, '{"n":3}')


async def test_edited_arguments_are_judged_again() -> None:
    """An edit is no way around a rule that denies."""
    shop = Shop()
    await shop.agent(calls(PAY)).call("buy", CTX)
    seen = await answered(shop.agent("done", rules=(DENY("pay"),)), {"b": approve(input={"n": 3})})
    assert (seen.result.text, shop.paid) == ("done", [])
    assert results(await shop.stored())["b"][0] is ToolResultState.DENIED


async def test_what_was_only_allowed_is_judged_again() -> None:
    """A sibling that nobody confirmed is asked about where that is the rule by now; a confirmed call is not."""
    shop = Shop()
    await shop.agent(calls(LOOK, PAY)).call("buy", CTX)
    agent = shop.agent("done", rules=(ASK("pay"), ASK("look")))
    seen = await answered(agent, {"b": True})
    assert (seen.result.reason, shop.looked, shop.paid) == (GenerateReason.PERMISSION_ASKING, 0, [])
    assert ids(await agent.pending(CTX)) == [("a", "confirmation")]
    assert (await agent.respond(CTX, {"a": True}).reply()).text == "done"
    assert (shop.looked, shop.paid) == (1, [5])


async def test_accepted_rules_last() -> None:
    """They are part of the session's state: in another process, too, nobody is asked again."""
    shop = Shop()
    rules = (ALLOW("look"),)
    await shop.agent(calls(PAY), rules=rules).call("buy", CTX)
    agent = shop.agent("done", rules=rules)
    (waiting,) = await agent.pending(CTX)
    assert waiting.suggestions == (ALLOW("pay", source="suggested"),)
    await agent.respond(CTX, {"b": approve(rules=waiting.suggestions)}).reply()
    assert (await shop.stored()).permission_context.allow_rules == {"pay": waiting.suggestions}
    again = await shop.agent(calls(("e", "pay", '{"n": 1}')), "done again", rules=rules).call("buy", CTX)
    assert (again.text, shop.paid) == ("done again", [5, 1])
    other = await shop.agent(calls(PAY), rules=rules).call("buy", RuntimeContext(session_id="other"))
    assert other.reason is GenerateReason.PERMISSION_ASKING


@pytest.mark.parametrize("state_only", [True, False])
async def test_rules_accepted_with_a_no_last_too(state_only: bool) -> None:
    """In a log as in a state: a rule that came with a refusal holds for later processes, and is no one's but the
    session's."""
    shop = Shop()
    rules = (ALLOW("look"),)
    await shop.agent(calls(PAY), rules=rules, state_only=state_only).call("buy", CTX)
    answers = {"b": reject("never", rules=[DENY("pay")])}
    await shop.agent("well then", rules=rules, state_only=state_only).respond(CTX, answers).reply()
    later = shop.agent(calls(("e", "pay", '{"n": 1}')), "no", rules=rules, state_only=state_only)
    assert (await later.call("buy", CTX)).text == "no"
    assert results(await later.state(CTX))["e"][0] is ToolResultState.DENIED
    other = shop.agent(calls(PAY), rules=rules, state_only=state_only)
    assert (await other.call("buy", RuntimeContext(session_id="other"))).reason is GenerateReason.PERMISSION_ASKING
    assert shop.paid == []


async def test_an_accepted_rule_answers_for_the_rest() -> None:
    """The calls that a new rule allows need no answer of their own; those that it denies do not run."""
    for rule, paid in ((ALLOW("pay"), [5, 7]), (DENY("pay"), [])):
        shop = Shop()
        agent = shop.agent(calls(PAY, ("c", "pay", '{"n": 7}')), "done", rules=(ALLOW("look"),))
        await agent.call("buy", CTX)
        reply = await agent.respond(CTX, {"b": approve(rules=[rule])}).reply()
        assert (reply.text, shop.paid) == ("done", paid)


# -- without an agent at hand -------------------------------------------------------------------------------


async def test_a_builder_answers_too() -> None:
    """Awaited or watched; each subscription is a run of an agent of its own, which is closed at the end."""
    shop = Shop()
    builder = ReActAgent.builder_from(shop.agent())
    await builder.model(ScriptedModel([calls(PAY)])).call("buy", CTX)
    waiting = builder.pending(CTX)
    assert ids(await waiting) == [("b", "confirmation")]
    events = builder.model(ScriptedModel(["done"])).respond(CTX, {"b": True})
    assert shop.paid == []
    seen = Seen(events=[event async for event in events])
    assert (seen.result.text, shop.paid) == ("done", [5])
    assert await waiting == ()
    with pytest.raises(InteractionMismatch):
        await events.reply()
    refused: list[Any] = [{}, [("b", True)]]
    for wrong in refused:
        with pytest.raises(InvalidOption, match="answers"):
            builder.respond(CTX, wrong)


def test_a_builder_answers_where_no_loop_runs() -> None:
    """Blocking: to look, to iterate, to wait for the reply."""
    shop = Shop()
    builder = ReActAgent.builder_from(shop.agent())
    assert builder.model(ScriptedModel([calls(PAY)])).call("buy", CTX).run().reason is GenerateReason.PERMISSION_ASKING
    (waiting,) = builder.pending(CTX).run()
    answered = builder.model(ScriptedModel([calls(GATE)])).respond(CTX, {waiting.id: True})
    assert [event.type for event in answered][-3:] == ["REQUEST_STOP", "AGENT_RESULT", "AGENT_END"]
    (waiting,) = builder.pending(CTX).run()
    reply = builder.model(ScriptedModel(["done"])).respond(CTX, {waiting.id: "open"}).reply().run()
    assert (reply.text, shop.paid) == ("done", [5])


# -- what may come in ---------------------------------------------------------------------------------------


async def test_an_ordinary_message_has_to_wait() -> None:
    """A typed error names what waits; nothing is changed, and what waits can still be answered."""
    shop = Shop()
    agent = shop.agent(calls(PAY), "done")
    await agent.call("buy", CTX)
    before = await shop.stored()
    for input in ("hello?", None):
        seen = await watch(agent, input, CTX)
        assert isinstance(seen.error, InteractionPending)
        assert ids(seen.error.calls) == [("b", "confirmation")]
        assert "pay (b: confirmation)" in str(seen.error)
        assert seen.types == ["AGENT_START", "AGENT_END"]
    with pytest.raises(InteractionPending):
        await agent.observe(Msg.user("by the way"), CTX)
    assert await shop.stored() == before
    assert (await agent.respond(CTX, {"b": True}).reply()).text == "done"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"zz": True}, "'zz' waits for no answer; what waits: 'b'"),
        ({"b": True, "zz": True}, "'zz' waits for no answer"),
        ({"b": "paid"}, "'b' waits for yes or no"),
        ({"b": None}, "'b' got a NoneType"),
        ({"b": [3]}, "'b' got a list"),
        ({"a": True}, "'a' waits for no answer"),
    ],
)
async def test_an_answer_that_does_not_fit(answers: Any, why: str) -> None:
    """It is an error that says what waits; nothing of it is accepted, and the pause is kept."""
    shop = Shop()
    agent = shop.agent(calls(LOOK, PAY), "done")
    await agent.call("buy", CTX)
    before = await shop.stored()
    seen = await answered(agent, answers)
    assert isinstance(seen.error, InteractionMismatch)
    assert why in str(seen.error)
    assert (await shop.stored(), shop.paid, shop.looked) == (before, [], 0)
    assert (await agent.respond(CTX, {"b": True}).reply()).text == "done"


async def test_answers_where_nothing_waits() -> None:
    """There is nothing to answer; no answer at all is refused at once."""
    agent = Shop().agent("hi")
    await agent.call("hello", CTX)
    seen = await answered(agent, {"b": True})
    assert isinstance(seen.error, InteractionMismatch)
    refused: list[Any] = [{}, [("b", True)]]
    for wrong in refused:
        with pytest.raises(InvalidOption, match="answers"):
            agent.respond(CTX, wrong)


def confirming(*entries: Any) -> Msg:
    return Msg.user("the text is not read").with_metadata(agentscope_confirm_results=list(entries))


def entry(id: str = "b", name: str = "pay", n: int = 5, confirmed: bool = True, **more: Any) -> dict[str, Any]:
    call = {"type": "tool_use", "id": id, "name": name, "input": {"n": n}}
    return {"confirmed": confirmed, "toolCall": call, **more}


async def test_answers_in_a_message() -> None:
    """A message whose metadata hold ConfirmResults, as JSON or as values, is an answer and no message."""
    rule = {"tool_name": "pay", "behavior": "deny", "rule_content": None, "source": "session"}
    for message, paid in (
        (confirming(entry()), [5]),
        (confirming(entry(n=3)), [3]),
        (confirming(entry(confirmed=False, rules=[rule])), []),
    ):
        shop = Shop()
        agent = shop.agent(calls(PAY), "done")
        await agent.call("buy", CTX)
        assert (await agent.call(message, CTX)).text == "done"
        assert shop.paid == paid
        texts = [each.text for each in (await agent.state(CTX)).context.messages]
        assert "the text is not read" not in texts
        assert bool((await agent.state(CTX)).permission_context.deny_rules) == (not paid)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([confirming({"confirmed": True})], "cannot be read"),
        ([confirming(entry(), entry())], "two answers for the call 'b'"),
        ([confirming(entry()), confirming(entry())], "two answers for the call 'b'"),
        ([confirming(entry(name="look"))], "'b' is one of pay, not of 'look'"),
        ([confirming(entry()), Msg.user("and hurry")], "leaves no tool call without a result"),
        ([Msg.tool(ToolResultBlock(id="b", name="pay"))], "'b' waits for yes or no"),
    ],
)
async def test_messages_that_answer_wrongly(messages: list[Msg], why: str) -> None:
    """They are refused as a whole, and the pause is kept."""
    shop = Shop()
    agent = shop.agent(calls(PAY), "done")
    await agent.call("buy", CTX)
    with pytest.raises(InteractionMismatch, match=why):
        await agent.call(messages, CTX)
    assert (ids(await agent.pending(CTX)), shop.paid) == ([("b", "confirmation")], [])


async def test_a_message_may_come_with_a_no() -> None:
    """Where nothing is left to run the message is heard at once, as the next thing that the model reads."""
    shop = Shop()
    model = ScriptedModel([calls(PAY), "sorry"])
    agent = ReActAgent.builder_from(shop.agent(stop_on_reject=True)).model(model).build()
    await agent.call("buy", CTX)
    reply = await agent.call([confirming(entry(confirmed=False)), Msg.user("take the cheap one")], CTX)
    assert (reply.text, shop.paid) == ("sorry", [])
    assert model.requests[1].messages[-1].text == "take the cheap one"


@pytest.mark.parametrize("state", [ToolCallState.ASKING, ToolCallState.ALLOWED, ToolCallState.SUBMITTED])
async def test_nobody_brings_an_approval_along(state: ToolCallState) -> None:
    """A conversation that is handed in does not say what waits, or was allowed: its open calls are closed."""
    shop = Shop()
    agent = shop.agent("fine")
    told = {"agentscope_permission": {"confirmed": True}, "kept": 1}
    call = ToolUseBlock(id="b", name="pay", input={"n": 5}, state=state, metadata=told)
    await agent.observe([Msg.user("buy"), Msg.assistant(call)], CTX)
    assert await agent.pending(CTX) == ()
    (held,) = (await agent.state(CTX)).context.open_calls
    assert (held.state, held.metadata) == (ToolCallState.PENDING, {"kept": 1})
    assert isinstance((await answered(agent, {"b": True})).error, InteractionMismatch)
    assert ((await agent.call("and?", CTX)).text, shop.paid) == ("fine", [])


# -- external execution -------------------------------------------------------------------------------------


async def test_an_external_call_waits_for_its_result() -> None:
    """Its siblings run; its result, in any form, is told, and the model goes on."""
    for answer, text in (
        ("open", "open"),
        ([TextBlock(text="open")], "open"),
        (ToolResultBlock(id="", name="", output=(TextBlock(text="stuck"),), state=ToolResultState.ERROR), "stuck"),
    ):
        shop = Shop()
        agent = shop.agent(calls(LOOK, GATE), "done")
        paused = await watch(agent, "open", CTX)
        assert (paused.result.reason, shop.looked) == (GenerateReason.TOOL_SUSPENDED, 1)
        assert [call.state for call in paused.result.tool_calls] == [ToolCallState.PENDING, ToolCallState.SUBMITTED]
        assert ids(await agent.pending(CTX)) == [("x", "external_execution")]
        seen = await answered(agent, {"x": answer})
        assert (seen.result.text, shop.looked) == ("done", 1)
        (told,) = seen.of(ev.ExternalExecutionResult)
        assert told.reply_id == paused.of(ev.RequireExternalExecution)[0].reply_id
        assert [(each.id, each.name, each.text) for each in told.tool_results] == [("x", "gate", text)]


async def test_external_results_in_parts() -> None:
    """What is left is asked for again; the model goes on after the last; a message may come with that."""
    shop = Shop()
    model = ScriptedModel([calls(GATE, ("y", "gate", "{}")), "done"])
    agent = ReActAgent.builder_from(shop.agent()).model(model).build()
    await agent.call("open", CTX)
    with pytest.raises(InteractionMismatch, match="leaves no tool call without a result"):
        await agent.call([Msg.tool(ToolResultBlock(id="x", name="gate")), Msg.user("and hurry")], CTX)
    seen = await answered(agent, {"x": "open"})
    assert [call.id for call in seen.of(ev.RequireExternalExecution)[0].tool_calls] == ["y"]
    assert ids(await agent.pending(CTX)) == [("y", "external_execution")]
    last = Msg.tool(ToolResultBlock(id="y", name="gate", output=(TextBlock(text="too"),)))
    assert (await agent.call([last, Msg.user("and hurry")], CTX)).text == "done"
    assert [message.text for message in model.requests[1].messages][-1] == "and hurry"
    assert {id: text for id, (_, text) in results(await shop.stored()).items()} == {"x": "open", "y": "too"}


@pytest.mark.parametrize(
    ("answers", "why"),
    [({"x": True}, "'x' waits for the result of an execution"), ({"zz": "open"}, "'zz' waits for no answer")],
)
async def test_an_external_result_that_does_not_fit(answers: Any, why: str) -> None:
    """Yes is no result."""
    shop = Shop()
    agent = shop.agent(calls(GATE), "done")
    await agent.call("open", CTX)
    seen = await answered(agent, answers)
    assert isinstance(seen.error, InteractionMismatch)
    assert why in str(seen.error)
    running = Msg.tool(ToolResultBlock(id="x", name="gate", state=ToolResultState.RUNNING))
    with pytest.raises(InteractionMismatch, match="still running"):
        await agent.call(running, CTX)
    with pytest.raises(InteractionMismatch, match="two results"):
        await agent.call([Msg.tool(ToolResultBlock(id="x", name="gate"))] * 2, CTX)
    assert ids(await agent.pending(CTX)) == [("x", "external_execution")]


async def test_first_a_person_then_the_outside() -> None:
    """A batch may wait twice: for a yes, and then for a result."""
    shop = Shop()
    agent = shop.agent(calls(PAY, GATE), "done")
    await agent.call("go", CTX)
    seen = await answered(agent, {"b": True})
    assert (shop.paid, seen.result.reason) == ([5], GenerateReason.TOOL_SUSPENDED)
    assert (await agent.respond(CTX, {"x": "open"}).reply()).text == "done"
    assert shop.paid == [5]


async def test_an_external_call_may_be_asked_about_and_denied() -> None:
    """Permissions come before the outside."""
    shop = Shop()
    agent = shop.agent(calls(GATE), "done", rules=(ASK("gate"),))
    await agent.call("go", CTX)
    assert (await answered(agent, {"x": True})).result.reason is GenerateReason.TOOL_SUSPENDED
    assert (await agent.respond(CTX, {"x": "open"}).reply()).text == "done"
    assert (await shop.agent(calls(GATE), "no gate", rules=(DENY("gate"),)).call("go", CTX)).text == "no gate"


# -- ends of a pause ----------------------------------------------------------------------------------------


async def test_who_leaves_at_the_question_keeps_the_pause() -> None:
    """The question is stored before it is told: a subscriber may leave on hearing it, and answer later."""
    shop = Shop()
    agent = shop.agent(calls(LOOK, PAY), "done")
    async for event in agent.stream_events("buy", CTX):
        if isinstance(event, ev.RequireUserConfirm):
            assert ids(pending_calls((await shop.stored()).context)) == [("b", "confirmation")]
            break
    assert ids(await agent.pending(CTX)) == [("b", "confirmation")]
    assert (await agent.respond(CTX, {"b": True}).reply()).text == "done"
    assert (shop.looked, shop.paid) == (1, [5])


async def test_who_leaves_while_calls_are_judged_keeps_the_pause() -> None:
    """What has no answer yet still waits, however slow a check is when somebody leaves."""
    judging, slow, paid = asyncio.Event(), list[int](), list[int]()

    async def check(arguments: Mapping[str, object]) -> PermissionDecision:
        if slow:
            judging.set()
            await asyncio.Event().wait()
        return PermissionDecision.ask("sure?")

    @tool(check=check)
    async def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    model = ScriptedModel([calls(PAY, ("c", "pay", '{"n": 7}')), "done"])
    agent = ReActAgent.builder(name="a", model=model, tools=[pay]).build()
    await agent.call("buy", CTX)
    slow.append(1)
    answering = asyncio.create_task(answered(agent, {"b": True}))
    await judging.wait()
    answering.cancel()
    await asyncio.wait({answering})
    slow.clear()
    assert ids(await agent.pending(CTX)) == [("c", "confirmation")]
    assert (await agent.respond(CTX, {"c": False}).reply()).text == "done"
    assert paid == [5]


@pytest.mark.parametrize("at", [ev.ModelCallEnd, ev.RequireUserConfirm])
async def test_an_interruption_gives_up_what_waits(at: type[ev.AgentEvent]) -> None:
    """A run that is interrupted at its question ends as interrupted: nothing waits, and the next message is heard."""
    shop = Shop()
    agent = shop.agent(calls(PAY), "fine")
    reasons: list[GenerateReason] = []

    def stop(event: ev.AgentEvent) -> None:
        if isinstance(event, at):
            assert agent.interrupt(CTX)
        if isinstance(event, ev.AgentResult):
            reasons.append(event.result.reason)

    await agent.stream_events("buy", CTX).pipe(ops.do_action(stop))
    assert reasons == [GenerateReason.INTERRUPTED]
    assert await agent.pending(CTX) == ()
    assert (await agent.call("never mind", CTX)).text == "fine"
    assert shop.paid == []


async def test_what_waits_can_be_given_up() -> None:
    """Afterwards every call has its result, a late answer is refused, and the conversation goes on."""
    shop = Shop()
    agent = shop.agent(calls(LOOK, PAY), "fine")
    await agent.call("buy", CTX)
    assert ids(await agent.cancel_pending(CTX)) == [("b", "confirmation")]
    assert await agent.cancel_pending(CTX) == ()
    assert {state for state, _ in results(await shop.stored()).values()} == {ToolResultState.INTERRUPTED}
    assert isinstance((await answered(agent, {"b": True})).error, InteractionMismatch)
    assert (await agent.call("never mind", CTX)).text == "fine"
    assert (shop.looked, shop.paid) == (0, [])


async def test_a_failure_after_the_answer_repeats_nothing() -> None:
    """The tools have run, and that is stored: going on asks the model only."""
    shop = Shop()
    await shop.agent(calls(LOOK, PAY)).call("buy", CTX)
    seen = await answered(shop.agent(ProviderTimeout("late")), {"b": True})
    assert isinstance(seen.error, ProviderTimeout)
    again = shop.agent("done")
    assert isinstance((await answered(again, {"b": True})).error, InteractionMismatch)
    assert (await again.call(None, CTX)).text == "done"
    assert (shop.looked, shop.paid) == (1, [5])


async def test_two_answers_at_once() -> None:
    """Two processes answer: one of them is too late, before anything runs."""
    shop = Shop()
    await shop.agent(calls(PAY)).call("buy", CTX)
    seen = await asyncio.gather(*(answered(shop.agent("done"), {"b": True}) for _ in range(2)))
    errors = [each.error for each in seen]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "StateConflict"], errors
    assert any(isinstance(error, StateConflict) for error in errors)
    assert shop.paid == [5]


async def test_two_answers_at_once_to_one_runtime() -> None:
    """They take turns: the second finds that nothing waits."""
    shop = Shop()
    agent = shop.agent(calls(PAY), "done")
    await agent.call("buy", CTX)
    first, second = await asyncio.gather(answered(agent, {"b": True}), answered(agent, {"b": True}))
    assert (first.result.text, type(second.error)) == ("done", InteractionMismatch)
    assert shop.paid == [5]


@pytest.mark.parametrize("by_rule", [False, True])
async def test_a_yes_is_stored_before_anything_runs(by_rule: bool) -> None:
    """Whoever opens the session while, or after, an approved call ran into a crash finds nothing to approve again."""
    store, seen = InMemoryStore(), list[AgentState]()

    @tool
    async def pay(n: int) -> str:
        """Pay, and look into the store."""
        stored = await store.get(SessionKey(agent_id="a", user_id=None, session_id="s"))
        assert stored is not None
        seen.append(AgentState.from_json(stored.body))
        return "paid"

    builder = ReActAgent.builder(name="a", state_store=store, tools=[pay], permission_rules=[ALLOW("look")])
    wanted = calls(PAY, ("c", "pay", '{"n": 7}'))
    agent = builder.model(ScriptedModel([wanted, "done"])).build()
    await agent.call("buy", CTX)
    answers = {"b": approve(rules=[ALLOW("pay")])} if by_rule else {"b": approve(), "c": approve()}
    await agent.respond(CTX, answers).reply()
    assert len(seen) == 2
    for state in seen:
        assert pending_calls(state.context) == ()
        assert {call.state for call in state.context.open_calls} == {ToolCallState.ALLOWED}
    crashed = InMemoryStore()
    await crashed.put(SessionKey(agent_id="a", user_id=None, session_id="s"), seen[0].to_json(), expected_version=0)
    after = builder.state_store(crashed).model(ScriptedModel(["sorry"])).build()
    assert (await after.call("and?", CTX)).text == "sorry"
    assert {state for state, _ in results(await after.state(CTX)).values()} == {ToolResultState.INTERRUPTED}
    assert len(seen) == 2
