"""Permissions at work: what an agent does with calls that may not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import agentscope_rx.events as ev
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.interactions import approve, reject
from agentscope_rx.messages import GenerateReason, Msg, Role, ToolResultState
from agentscope_rx.permission_context import PermissionContextState, PermissionMode, PermissionRule
from agentscope_rx.permissions import PermissionDecision, commands
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import CallDelta, ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import InMemoryStore
from agentscope_rx.testing import ScriptedModel, calls, run_virtual
from agentscope_rx.tools import ToolContext, Toolkit, tool
from agentscope_rx.workspace import InMemoryWorkspace
from tests.support import watch

ALLOW, DENY, ASK = PermissionRule.allow, PermissionRule.deny, PermissionRule.ask
CTX = RuntimeContext(session_id="s")


class Shop:
    """Tools that count."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looked = 0
        self.ran: list[str] = []

    @tool
    async def pay(self, n: int) -> str:
        """Pay."""
        self.paid.append(n)
        return "paid"

    @tool(read_only=True)
    async def look(self) -> str:
        """Look."""
        self.looked += 1
        return "1"

    @tool(target=commands("command"))
    async def execute(self, command: str) -> str:
        """Run."""
        self.ran.append(command)
        return "ok"

    @property
    def tools(self) -> list[Any]:
        return [self.pay, self.look, self.execute]


def agent(shop: Shop, *script: Any, **options: Any) -> ReActAgent:
    return ReActAgent.builder(name="a", model=ScriptedModel(script), tools=shop.tools, **options).build()


PAY = ("b", "pay", '{"n": 5}')
LOOK = ("a", "look", "{}")


def results(messages: Any) -> dict[str, tuple[ToolResultState, str]]:
    found = (message.tool_result for message in messages)
    return {result.id: (result.state, result.text) for result in found if result is not None}


async def test_a_denied_call_never_reaches_its_tool() -> None:
    """Its sibling runs; the model is told, and so are those who watch, in one piece before what runs."""
    shop = Shop()
    asked = agent(shop, calls(LOOK, PAY), "fine", permission_rules=[DENY("pay"), ALLOW("look")])
    seen = await watch(asked, "buy", CTX)
    assert (seen.result.text, shop.paid, shop.looked) == ("fine", [], 1)
    state, text = results((await asked.state(CTX)).context.messages)["b"]
    assert state is ToolResultState.DENIED
    assert "permission was denied: the rule 'deny pay' forbids it" in text
    told = [(e.tool_call_id, type(e).__name__) for e in seen.events if isinstance(e, ev.ToolEvent)]
    assert told[-6:] == [
        ("b", "ToolResultStart"),
        ("b", "ToolResultTextDelta"),
        ("b", "ToolResultEnd"),
        ("a", "ToolResultStart"),
        ("a", "ToolResultTextDelta"),
        ("a", "ToolResultEnd"),
    ]


async def test_all_denied_goes_on_unless_it_is_to_stop() -> None:
    """`ALL_TOOLS_DENIED` is told; with `stop_on_reject` the call ends with that reason, and the next one works."""
    for stop, reason in ((False, GenerateReason.MODEL_STOP), (True, GenerateReason.ALL_TOOLS_DENIED)):
        shop = Shop()
        asked = agent(shop, calls(PAY), "fine", permission_rules=[DENY("pay")], stop_on_reject=stop)
        seen = await watch(asked, "buy", CTX)
        (denied,) = seen.of(ev.AllToolsDenied)
        assert [call.id for call in denied.denied_tool_calls] == ["b"]
        assert (seen.result.reason, shop.paid) == (reason, [])
        if stop:
            assert [event.generate_reason for event in seen.of(ev.RequestStop)] == [reason]
            assert (await asked.call("and now?", CTX)).text == "fine"


async def test_some_denied_is_not_all() -> None:
    """One call that ran is enough to go on."""
    shop = Shop()
    asked = agent(shop, calls(LOOK, PAY), "fine", permission_rules=[DENY("pay"), ALLOW("look")], stop_on_reject=True)
    seen = await watch(asked, "buy", CTX)
    assert (seen.of(ev.AllToolsDenied), seen.result.text) == ([], "fine")


async def test_nothing_is_asked_without_configuration() -> None:
    """An agent that nobody said anything about runs its tools."""
    shop = Shop()
    assert (await agent(shop, calls(LOOK, PAY), "fine").call("buy", CTX)).text == "fine"
    assert (shop.paid, shop.looked) == ([5], 1)


async def test_modes() -> None:
    """What each mode does to a tool that changes something."""
    for mode, paid, reason in (
        ("bypass", [5], GenerateReason.MODEL_STOP),
        ("EXPLORE", [], GenerateReason.MODEL_STOP),
        ("dont_ask", [], GenerateReason.MODEL_STOP),
        ("accept_edits", [], GenerateReason.PERMISSION_ASKING),
    ):
        shop = Shop()
        result = await agent(shop, calls(PAY), "fine", permission_mode=mode).call("buy", CTX)
        assert (shop.paid, result.reason) == (paid, reason), mode


async def test_the_mode_of_a_session() -> None:
    """It wins over the agent's, lasts, holds for its session alone, and None gives the agent's back."""
    shop = Shop()
    asked = agent(shop, *[calls(PAY), "fine"] * 4, permission_mode="explore")
    await asked.set_permission_mode(CTX, "bypass")
    await asked.call("buy", CTX)
    await asked.call("buy", RuntimeContext(session_id="other"))
    assert shop.paid == [5]
    await asked.call("buy", CTX)
    assert shop.paid == [5, 5]
    await asked.set_permission_mode(CTX, None)
    await asked.call("buy", CTX)
    assert shop.paid == [5, 5]
    with pytest.raises(InvalidOption, match="mode='yolo'"):
        await asked.set_permission_mode(CTX, "yolo")


async def test_what_a_session_may_do_can_be_said_anew() -> None:
    """The session's rules are replaced; those of the agent stay, whatever the session says."""
    shop = Shop()
    asked = agent(shop, *[calls(LOOK, PAY), "fine"] * 2, permission_rules=[DENY("look")])
    await asked.replace_permissions(CTX, PermissionContextState().with_rules([ALLOW("pay"), ALLOW("look")]))
    await asked.call("buy", CTX)
    assert (shop.paid, shop.looked) == ([5], 0)
    await asked.replace_permissions(CTX, PermissionContextState().with_rules([DENY("pay")]))
    await asked.call("buy", CTX)
    assert (shop.paid, shop.looked) == ([5], 0)


async def test_rules_compare_commands() -> None:
    """A rule with a content speaks of the calls that fit it."""
    shop = Shop()
    lines = ["git status -s", "git push", "git status && rm x"]
    wanted = calls(*((f"c{i}", "execute", f'{{"command": "{line}"}}') for i, line in enumerate(lines)))
    rules = [ALLOW("execute", "git status"), DENY("execute", "git push"), DENY("execute", "rm")]
    assert (await agent(shop, wanted, "fine", permission_rules=rules).call("go", CTX)).text == "fine"
    assert shop.ran == ["git status -s"]


async def test_calls_that_cannot_run_are_not_asked_about() -> None:
    """Unknown tools, broken JSON and arguments that do not fit fail as ever; nobody is asked, no tool is reached."""
    shop = Shop()
    wanted = calls(("x", "nope", "{}"), ("y", "pay", "{broken"), ("z", "pay", '{"n": "five"}'))
    seen = await watch(agent(shop, wanted, "fine", permission_rules=[ASK("pay"), ASK("nope")]), "buy", CTX)
    assert seen.of(ev.RequireUserConfirm) == []
    assert {event.state for event in seen.of(ev.ToolResultEnd)} == {ToolResultState.ERROR}
    assert shop.paid == []


async def test_a_preset_is_what_is_judged() -> None:
    """The arguments that count are those that the tool would get."""
    seen: list[Mapping[str, object]] = []

    def check(arguments: Mapping[str, object]) -> PermissionDecision:
        seen.append(arguments)
        return PermissionDecision.allow()

    @tool(check=check)
    async def send(to: str, text: str) -> str:
        """Send."""
        return "sent"

    toolkit = Toolkit.of(send).preset("send", to="alice")
    model = ScriptedModel([calls(("c", "send", '{"text": "hi", "to": "mallory"}')), "fine"])
    await ReActAgent.builder(name="a", model=model, toolkit=toolkit).build().call("go")
    assert seen == [{"to": "alice", "text": "hi"}]


async def test_a_check_that_waits_can_be_interrupted() -> None:
    """A run that is interrupted while a call is judged leaves it closed and told of in balance, and nothing ran."""
    ran: list[int] = []
    judging = asyncio.Event()

    async def check(arguments: Mapping[str, object]) -> PermissionDecision:
        judging.set()
        await asyncio.Event().wait()
        return PermissionDecision.allow()

    @tool(check=check)
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    asked = ReActAgent.builder(name="a", model=ScriptedModel([calls(("c", "pay", "{}")), "fine"]), tools=[pay]).build()

    async def interrupt() -> None:
        await judging.wait()
        asked.interrupt(CTX)

    seen, _ = await asyncio.gather(watch(asked, "buy", CTX), interrupt())
    assert (seen.result.reason, ran) == (GenerateReason.INTERRUPTED, [])
    assert (await asked.state(CTX)).context.open_calls == ()
    assert seen.types.count("TOOL_RESULT_START") == seen.types.count("TOOL_RESULT_END")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("permission_mode", "yolo"),
        ("permission_rules", ["deny pay"]),
        ("permission_rules", 3),
        ("working_directories", "src"),
        ("working_directories", ["../x"]),
        ("working_directories", [3]),
        ("working_directories", 3),
        ("stop_on_reject", 1),
    ],
)
def test_wrong_options(option: str, value: Any) -> None:
    """A wrong value is refused by the method that gets it, by name."""
    with pytest.raises(InvalidOption, match=option):
        getattr(ReActAgent.builder(), option)(value)


# -- whatever is said ---------------------------------------------------------------------------------------

RULES = st.lists(
    st.builds(
        PermissionRule,
        tool_name=st.sampled_from(["pay", "spend", "write", "look", "plan_exit"]),
        behavior=st.sampled_from(["allow", "ask", "deny"]),
        rule_content=st.sampled_from([None, "x"]),
    ),
    max_size=4,
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("mode"), st.sampled_from(PermissionMode)),
        st.tuples(st.just("rules"), RULES),
        st.tuples(st.just("call"), st.none()),
        st.tuples(st.just("approve"), RULES),
        st.tuples(st.just("reject"), RULES),
        st.tuples(st.just("plan"), st.booleans()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=8,
)


class Counting:
    """A shop and its model. The agent's policy denies one tool and has a person asked about another; the shop knows
    which calls ran, which of them while the session planned, and what somebody has said yes to."""

    name, context_window, max_output_tokens = "buyer", None, None

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ran_in_plan: list[str] = []
        self.approved: set[str] = set()
        self.planning = False
        self.store = InMemoryStore()
        self.asked = 0

        def counted(name: str, **options: Any) -> Any:
            async def run(context: ToolContext) -> str:
                """Do it."""
                if self.planning and not options:
                    self.ran_in_plan.append(context.call.id)
                self.ran.append(context.call.id)
                return "done"

            return tool(run, name=name, **options)

        self.tools = [counted("pay"), counted("spend"), counted("write"), counted("look", read_only=True)]

    def agent(self) -> HarnessAgent:
        """As if in a process of its own."""
        builder = HarnessAgent.builder(name="a", model=self, workspace=InMemoryWorkspace(), filesystem_tools=False)
        builder = builder.state_store(self.store).tools(self.tools).enable_plan_mode()
        return builder.permission_rules([DENY("pay"), ASK("spend")]).build()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Call everything, under ids that tell the tools; then be content."""
        if request.messages[-1].role is Role.TOOL:
            yield ModelChunk(text="fine", finish_reason="stop")
            return
        self.asked += 1
        names = ("look", "pay", "spend", "plan_exit", "write")
        made = (CallDelta(at, f"{name} {self.asked}", name, "{}") for at, name in enumerate(names))
        yield ModelChunk(calls=tuple(made), finish_reason="tool_calls")


@given(ACTS)
@example(
    [
        ("rules", [PermissionRule(tool_name="spend", behavior="deny", rule_content=None)]),
        ("plan", True),
        ("call", None),
        ("mode", PermissionMode.BYPASS),
        ("approve", []),
    ]
)
def test_nothing_lets_a_denied_call_run(acts: list[tuple[str, Any]]) -> None:
    """No sequence of modes, rules, planning, restarts, calls and answers, with rules too, lets a call run that the
    agent denies, that waits, that changes something while the session plans, or that nobody has said yes to where a
    person has to; and none runs twice."""
    shop = Counting()

    async def play() -> None:
        asked = shop.agent()
        for act, value in [*acts, ("call", None)]:
            asked = await _act(shop, asked, act, value)
            waiting = {each.id for each in await asked.pending(CTX)}
            assert not waiting & set(shop.ran)

    run_virtual(play)
    names = [id.partition(" ")[0] for id in shop.ran]
    assert "pay" not in names
    assert {id for id in shop.ran if id.startswith("spend")} <= shop.approved
    assert shop.ran_in_plan == []
    assert len(set(shop.ran)) == len(shop.ran)


async def _act(shop: Counting, asked: HarnessAgent, act: str, value: Any) -> HarnessAgent:
    waiting = await asked.pending(CTX)
    assert all(each.call.name != "pay" for each in waiting)
    match act:
        case "mode":
            await asked.set_permission_mode(CTX, value)
        case "rules":
            await asked.replace_permissions(CTX, PermissionContextState().with_rules(value))
        case "plan":
            await (asked.enter_plan_mode(CTX) if value else asked.exit_plan_mode(CTX))
        case "restart":
            asked = shop.agent()
        case "approve" | "reject" if waiting:
            answer = approve(rules=value) if act == "approve" else reject(rules=value)
            shop.approved |= {each.id for each in waiting} if act == "approve" else set()
            await asked.respond(CTX, {each.id: answer for each in waiting}).reply()
        case _ if not waiting:
            await asked.call(Msg.user("buy"), CTX)
        case _:
            pass
    shop.planning = await asked.is_plan_mode_active(CTX)
    if act == "approve" and not shop.planning:
        # Planning has ended with that yes, and the same run may go on to change something.
        ended = max((number_of(each.id) for each in waiting), default=0)
        shop.ran_in_plan = [id for id in shop.ran_in_plan if number_of(id) <= ended]
    return asked


def number_of(id: str) -> int:
    """Which batch of calls a call is of."""
    return int(id.partition(" ")[2])
