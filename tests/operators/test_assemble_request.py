"""assemble_request: prompt, tools and options go into the draft."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.lifting import Operator, chain
from agentscope_rx.operators import SystemPrompt, assemble_request
from agentscope_rx.pulling import last
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState, ToolContextState
from agentscope_rx.step import Mode, Step
from agentscope_rx.testing import a_history, a_run, a_step, check_operator, record, run_virtual
from agentscope_rx.tools import Toolkit, tool
from tests.virtual import virtual

CONTEXT = RuntimeContext(user_id="alice")


@tool
def look() -> str:
    """Look."""
    return ""


@tool
def search() -> str:
    """Search."""
    return ""


TOOLKIT = Toolkit.of(look).group("web", "Search the web.", search)


def assembling(sys_prompt: SystemPrompt = "Be brief.", options: GenerateOptions | None = None) -> Operator:
    return assemble_request(sys_prompt=sys_prompt, toolkit=TOOLKIT, options=options or GenerateOptions())


async def assembled(step: Step, sys_prompt: SystemPrompt = "Be brief.") -> Step:
    return await last(chain((assembling(sys_prompt),), step))


async def prompt_later(context: RuntimeContext) -> str:
    await asyncio.sleep(1)
    return "Be brief."


def prompt_fails(context: RuntimeContext) -> str:
    raise LookupError("no prompt")


def prompt_now(context: RuntimeContext) -> str:
    return "Be brief."


@pytest.mark.parametrize("sys_prompt", ["Be brief.", prompt_now, prompt_later])
@virtual
async def test_it_keeps_the_rules_of_operators(sys_prompt: SystemPrompt) -> None:
    """What holds for every operator, with each sort of prompt."""
    await check_operator(lambda: assembling(sys_prompt), failing=lambda: assembling(prompt_fails))


@virtual
async def test_prompt_tools_and_options_are_in_the_draft() -> None:
    """And nothing else is changed; what changed is noted by item."""
    options, step = GenerateOptions(temperature=0.5), a_step()
    after = await last(chain((assembling(options=options),), step))
    assert [block.text for block in after.draft.system] == ["Be brief."]
    assert [spec.name for spec in after.draft.tools] == ["look"]
    assert after.draft.options is options
    assert after.draft.conversation is step.draft.conversation
    assert (after.draft.transient, after.draft.references) == ((), ())
    assert [(each.zone, each.item_id) for each in after.changes] == [("system", "system_prompt"), ("tools", "look")]


@virtual
async def test_the_prompt_comes_before_what_others_put_there() -> None:
    """Instructions that are in the System zone already stay behind it; a blank prompt adds nothing."""
    rule = ContextBlock(id="rule", kind="instruction", text="Stay calm.")
    step = a_step(draft=RequestDraft(system=(rule,)))
    assert [block.text for block in (await assembled(step)).draft.system] == ["Be brief.", "Stay calm."]
    assert (await assembled(step, "  \n")).draft.system == (rule,)


@virtual
async def test_a_prompt_function_is_called_once_a_call() -> None:
    """With the context of the call; later steps of the run and repeated requests use what it gave."""
    asked: list[RuntimeContext] = []

    async def prompt(context: RuntimeContext) -> str:
        asked.append(context)
        await asyncio.sleep(1)
        return f"You serve {context.user_id}, prompt {len(asked)}."

    operator, run = assembling(prompt), a_run(context=CONTEXT)
    for number in range(3):
        step = await last(chain((operator,), a_step(run=run, number=number)))
        assert step.draft.system[0].text == "You serve alice, prompt 1."
    assert asked == [CONTEXT]
    other = await last(chain((operator,), a_step(run=a_run(context=CONTEXT))))
    assert other.draft.system[0].text == "You serve alice, prompt 2."


@virtual
async def test_a_prompt_function_that_fails_is_asked_again() -> None:
    """Its exception fails the request with its own class; nothing wrong is remembered."""
    asked: list[int] = []

    def prompt(context: RuntimeContext) -> str:
        asked.append(1)
        if len(asked) == 1:
            raise LookupError("no prompt")
        return "Be brief."

    run = a_run()
    recorded = await record(chain((assembling(prompt),), a_step(run=run))).ended()
    assert isinstance(recorded.error, LookupError)
    assert (await assembled(a_step(run=run), prompt)).draft.system[0].text == "Be brief."


@virtual
async def test_groups_decide_which_tools_are_on_offer() -> None:
    """Those of switched-off groups are left out, by the state of the session."""
    state = AgentState(context=a_history(), tool_context=ToolContextState(activated_groups=("web",)))
    assert [spec.name for spec in (await assembled(a_step(state=state))).draft.tools] == ["look", "search"]
    assert [spec.name for spec in (await assembled(a_step())).draft.tools] == ["look"]


@virtual
async def test_the_step_after_an_empty_answer_says_so() -> None:
    """In this request only, with the tools."""
    after = await assembled(a_step(mode=Mode.ASK_AGAIN))
    (block,) = after.draft.transient
    assert (block.kind, block.required) == ("empty_response", True)
    assert "empty" in block.text
    assert after.draft.tools
    assert after.history == a_history()


@virtual
async def test_the_last_step_asks_for_a_conclusion_without_tools() -> None:
    """After the limit of steps there is one more call, and no tool on offer."""
    after = await assembled(a_step(mode=Mode.CONCLUDE))
    (block,) = after.draft.transient
    assert (block.kind, block.required) == ("conclude", True)
    assert after.draft.tools == ()


@settings(deadline=None)
@given(prompt=st.text(max_size=30), mode=st.sampled_from(Mode))
def test_the_prompt_arrives_word_for_word(prompt: str, mode: Mode) -> None:
    """Invariant: whatever it says it is the System zone's first block, unless it is blank."""
    after = run_virtual(lambda: assembled(a_step(mode=mode), prompt))
    assert [block.text for block in after.draft.system] == ([prompt] if prompt.strip() else [])
