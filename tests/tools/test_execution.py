"""One call, run: whether the tool is called at all, and with what."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools import Injected, Tool, ToolContext, Toolkit, schema_tool, tool
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.execution import run_call
from agentscope_rx.tools.tool import SchemaTool
from tests.tools.calls import ERROR, SUCCESS, run, summary

VARIABLE: ContextVar[str] = ContextVar("VARIABLE")


@tool
async def echo(text: str, times: int = 1) -> str:
    """Say it."""
    return text * times


# -- before the tool runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["browser.tabs.open", "", "$lookup", "n" * 80, "n" * 200])
async def test_an_unknown_name_is_answered_with_the_real_ones(name: str) -> None:
    """The result keeps the invented name, is an error and lists what there is."""
    toolkit = Toolkit.of(echo).group("web", "The web.", tool(echo.function, name="hidden"))
    call = ToolUseBlock(id="c1", name=name)
    outcome = await run_call(toolkit, call, ToolContext(call=call))
    assert (outcome.result.name, outcome.result.state, outcome.error) == (name, ERROR, None)
    assert outcome.result.text.endswith("The tools are: echo.")
    assert len(outcome.result.text) < 250


async def test_a_tool_of_an_inactive_group_is_not_run() -> None:
    """The model is told which group it belongs to, and how to activate it where it can."""
    toolkit = Toolkit.of().group("talk", "Speak.", echo)
    state, text = summary(await run(toolkit, "echo", text="x"))
    assert (state, text) == (ERROR, "The tool 'echo' belongs to the group 'talk', which is not active.")
    assert (await run(toolkit.with_meta_tool(), "echo")).result.text.endswith("Activate it by reset_equipped_tools.")
    call = ToolUseBlock(id="c1", name="echo", input={"text": "x"})
    active = await run_call(toolkit, call, ToolContext(call=call), active_groups={"talk"})
    assert summary(active) == (SUCCESS, "x")


@pytest.mark.parametrize(
    ("raw", "why"),
    [('{"text": "x"', "EOF"), ("[1]", "not an array"), ('"x"', "not a string"), ("null", "not null"), ("3", "number")],
)
async def test_arguments_that_are_no_json_object_are_shown(raw: str, why: str) -> None:
    """The model sees what was wrong, and what it wrote."""
    call = ToolUseBlock(id="c1", name="echo", metadata={"invalid_arguments": raw})
    state, text = summary(await run_call(Toolkit.of(echo), call, ToolContext(call=call)))
    assert state is ERROR
    assert text.endswith(f"They were: {raw}")
    assert why in text or "line 1" in text


async def test_wrong_arguments_are_listed_and_the_tool_is_not_run() -> None:
    """One line for each violation: where, what, and what was given."""
    outcome = await run(Toolkit.of(echo), "echo", times="many", more=1)
    expected = (
        "The arguments of echo are not valid:\n"
        "- text: Field required\n"
        '- times: Input should be a valid integer, unable to parse string as an integer, got "many"\n'
        "- more: there is no such argument; there are: text, times"
    )
    assert summary(outcome) == (ERROR, expected)
    assert outcome.error is None


async def test_presets_win_over_the_model() -> None:
    """What the model says about a preset argument does not count."""
    toolkit = Toolkit.of(echo).preset("echo", times=3)
    assert summary(await run(toolkit, "echo", text="x")) == (SUCCESS, "xxx")
    assert summary(await run(toolkit, "echo", text="x", times=9)) == (SUCCESS, "xxx")


PAY = schema_tool(
    "pay",
    "Pay.",
    {
        "properties": {
            "to": {"type": "string"},
            "sums": {"type": "array", "items": {"type": "number"}},
            "how": {"enum": ["now", "later"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "required": ["to"],
        "additionalProperties": False,
    },
)


async def test_an_external_call_is_suspended() -> None:
    """Nothing is run; the placeholder says that the result is still to come."""
    external = tool(echo.function, name="outside", external=True)
    toolkit = Toolkit.of(PAY, external)
    for name, arguments in {"pay": {"to": "x", "sums": [1, 2.5], "how": None}, "outside": {"text": "x"}}.items():
        outcome = await run(toolkit, name, **arguments)
        assert outcome.suspended
        assert outcome.result.state is ToolResultState.RUNNING
        assert outcome.result.text
    assert summary(await run(toolkit, "outside")) == (
        ERROR,
        "The arguments of outside are not valid:\n- text: Field required",
    )


async def test_a_schema_alone_is_enough_to_find_wrong_arguments() -> None:
    """Where no Python signature is known, types, required, unknown and enumerated values are looked at."""
    wrong = {"sums": [1, "2"], "how": "never", "note": True, "more": 1}
    state, text = summary(await run(Toolkit.of(PAY), "pay", **wrong))
    assert state is ERROR
    assert text.splitlines()[1:] == [
        "- to: Field required",
        '- sums.1: should be number, got "2"',
        '- how: should be one of ["now","later"], got "never"',
        "- note: fits none of the alternatives, got true",
        "- more: there is no such argument; there are: to, sums, how, note",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None, "required": None, "type": 5},
        {"properties": {"to": True}, "anyOf": [True], "enum": 3},
        {"properties": {"to": {"type": ["string", "null"], "items": False, "oneOf": 1}}, "required": "to"},
    ],
)
async def test_a_strange_schema_refuses_nothing(schema: dict[str, object]) -> None:
    """Schemas come from elsewhere; what cannot be read in one is no reason to fail."""
    remote = SchemaTool(ToolSpec(name="remote", description="Far away.", parameters=schema))
    assert (await run(Toolkit.of(remote), "remote", to="x")).suspended


@pytest.mark.parametrize("made", [echo, PAY])
async def test_names_that_the_model_made_up_are_shown_clean(made: Tool) -> None:
    """Whatever a model writes as a name of an argument, the answer can be stored."""
    arguments = {"text": "x", "to": "x", "\x1b[1m\0\ud800": "\ud800"}
    state, text = summary(await run(Toolkit.of(made), made.spec.name, **arguments))
    assert state is ERROR
    assert "- \ufffd\ufffd: there is no such argument; there are: " in text
    assert not set(text) & set("\0\x1b\ud800")


async def test_a_tool_cannot_change_what_the_model_said() -> None:
    """Arguments are a copy, however deep: the history keeps the call as it was."""

    async def take(items: list[Any]) -> int:
        items[0]["a"].append(2)
        return len(items[0]["a"])

    call = ToolUseBlock(id="c1", name="take", input={"items": [{"a": [1]}]})
    for _ in range(2):
        outcome = await run_call(Toolkit.of(take), call, ToolContext(call=call))
        assert summary(outcome) == (SUCCESS, "2")
    assert call.input == {"items": [{"a": [1]}]}


async def test_the_meta_tool_gives_the_chosen_groups_as_data() -> None:
    """The list is the complete new set; an unknown group is an error, and nothing changes."""
    toolkit = Toolkit.of().group("a", "One.", echo, active=True).group("b", "Two.").with_meta_tool()
    chosen = await run(toolkit, "reset_equipped_tools", to_activate=["b"])
    assert summary(chosen) == (SUCCESS, "Active groups:\n- b: Two.")
    assert chosen.activated_groups == ("b",)
    none = await run(toolkit, "reset_equipped_tools", to_activate=[])
    assert (none.result.text, none.activated_groups) == ("No group is active.", ())
    unknown = await run(toolkit, "reset_equipped_tools", to_activate=["c"])
    assert (unknown.result.state, unknown.activated_groups) == (ERROR, None)
    assert '["a","b"]' in unknown.result.text


# -- the tool itself ----------------------------------------------------------------------------------------


async def test_a_function_that_is_not_async_runs_in_the_given_pool() -> None:
    """Its thread is one of the pool; context variables are those of the call."""

    @tool
    def where() -> list[str]:
        return [threading.current_thread().name.split("_")[0], VARIABLE.get()]

    call = ToolUseBlock(id="c1", name="where")
    VARIABLE.set("kept")
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
        outcome = await run_call(Toolkit.of(where), call, ToolContext(call=call), executor=executor)
    assert summary(outcome) == (SUCCESS, '["mine","kept"]')


async def test_an_async_function_runs_on_the_loop() -> None:
    """It sees the context variables of the call, and the context names that call."""

    @tool
    async def where(context: ToolContext, told: str) -> list[str]:
        return [threading.current_thread().name, VARIABLE.get(), context.call.id, told]

    VARIABLE.set("kept")
    outcome = await run(Toolkit.of(where), "where", told="x")
    assert summary(outcome) == (SUCCESS, '["MainThread","kept","c1","x"]')


async def test_a_result_block_is_given_the_calls_id_and_name() -> None:
    """What the tool wrote there does not count; its state, output and metadata do."""

    async def fail() -> ToolResultBlock:
        output = (TextBlock(text="no"),)
        return ToolResultBlock(id="x", name="y", output=output, metadata={"a": 1}, state=ERROR)

    outcome = await run(Toolkit.of(fail), "fail")
    expected = ToolResultBlock(id="c1", name="fail", output=(TextBlock(text="no"),), metadata={"a": 1}, state=ERROR)
    assert (outcome.result, outcome.error, outcome.suspended) == (expected, None, False)


async def test_a_tool_may_suspend_its_own_call() -> None:
    """A result in state `running` waits for somebody outside, as an external tool does."""

    async def ask() -> ToolResultBlock:
        return ToolResultBlock(id="", name="", output=(TextBlock(text="asked"),), state=ToolResultState.RUNNING)

    assert (await run(Toolkit.of(ask), "ask")).suspended


async def test_a_long_result_is_cut_to_the_toolkits_limit() -> None:
    """Results and error texts are no longer than `max_result_chars`."""

    async def long(fails: bool) -> str:
        if fails:
            raise ValueError("x" * 5000)
        return "x" * 5000

    toolkit = Toolkit.of(long, max_result_chars=1000)
    for fails in (False, True):
        outcome = await run(toolkit, "long", fails=fails)
        assert len(outcome.result.text) <= 1000
        assert "characters cut" in outcome.result.text


async def test_a_class_of_ones_own_can_be_a_tool() -> None:
    """It is called with checked arguments, and may refuse them itself."""

    class Remote:
        spec = ToolSpec(
            name="remote",
            description="Far away.",
            parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
        )
        read_only = True
        concurrency_safe = True
        external = False

        async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
            if arguments["n"] == 0:
                raise InvalidArguments("n: not 0")
            return {"n": arguments["n"], "call": context.call.id}

    toolkit = Toolkit.of(Remote())
    assert summary(await run(toolkit, "remote", n=2)) == (SUCCESS, '{"n":2,"call":"c1"}')
    for wrong, told in ((0, "n: not 0"), ("x", 'n: should be integer, got "x"')):
        text = f"The arguments of remote are not valid:\n- {told}"
        assert summary(await run(toolkit, "remote", n=wrong)) == (ERROR, text)


async def test_a_missing_injected_value_is_an_error_result() -> None:
    """The application forgot it: the model is told, and the run goes on."""

    @tool
    async def ask(tenant: Annotated[str, Injected("tenant")]) -> str:
        return tenant

    state, text = summary(await run(Toolkit.of(ask), "ask"))
    assert (state, text.split(":")[0]) == (ERROR, "LookupError")
