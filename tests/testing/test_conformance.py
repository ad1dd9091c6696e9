"""`check_operator` finds what is wrong with an operator, says which rule it breaks, and leaves sound ones alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.bridge import from_coroutine
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ConformanceFailed
from agentscope_rx.events import Custom
from agentscope_rx.history import Exchange, History
from agentscope_rx.lifting import StepOperator, effect_operator, history_operator, text_operator, view_operator
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.state import AgentState
from agentscope_rx.step import Step
from agentscope_rx.testing import a_step, check_operator, marbles
from agentscope_rx.testing import conformance as rules
from tests.virtual import virtual

STOCK: list[StepOperator] = [
    ops.delay(60),
    ops.timeout(10),
    ops.retry(3),
    ops.map(lambda step: step),
    ops.filter(lambda step: True),
    ops.do_action(lambda step: None),
    ops.catch(lambda error, source: source),
    ops.take(1),
    ops.first(),
    ops.concat_map(lambda step: marbles("-s|", {"s": step})),
]


@pytest.mark.parametrize("operator", STOCK)
@virtual
async def test_stock_operators_that_keep_the_rules_pass(operator: StepOperator) -> None:
    """An operator need not be ours."""
    await check_operator(lambda: operator)


def _rewrite(exchange: Exchange) -> Exchange:
    return exchange.map(lambda message: message.with_text("x") if message.text == "question 7" else message)


@virtual
async def test_lifted_operators_that_keep_the_rules_pass() -> None:
    """Also one that emits, waits, fails in its function where it is told to, and rewrites an old message."""

    @effect_operator
    async def work(step: Step) -> Step:
        for number in range(5):
            step.emit(Custom(name=str(number)))
            await asyncio.sleep(1)
        return step

    @effect_operator
    async def fails(step: Step) -> Step:
        await asyncio.sleep(1)
        raise LookupError

    await check_operator(lambda: work, failing=lambda: fails)
    await check_operator(lambda: history_operator(lambda history, step: history.map(_rewrite)))


# -- operators that break a rule ----------------------------------------------------------------------------


def loses() -> StepOperator:
    return ops.filter(lambda step: False)


def doubles() -> StepOperator:
    return ops.repeat(2)


def never_ends() -> StepOperator:
    return ops.concat(reactivex.never())


def gives_something_else() -> StepOperator:
    return effect_operator(lambda step: None)  # type: ignore[arg-type,return-value]


def fails_on_a_sound_step() -> StepOperator:
    return view_operator(lambda draft, step: draft.replace("no such message", Msg.user("x")))


def changes_its_input() -> StepOperator:
    @effect_operator
    def scribble(step: Step) -> Step:
        call = next(iter(list(step.history)[1].messages[0].tool_calls))
        call.input["scribbled"] = True  # type: ignore[index]
        return step

    return scribble


def step_with_a_call(history: History) -> Step:
    reply = replace(Msg.assistant(ToolUseBlock(id="c", name="look", input={})), id="asking")
    return a_step(history=History.of(Msg.user("hi"), reply))


def keeps_state_in_the_factory() -> StepOperator:
    numbers = count()

    def numbered(draft: RequestDraft, step: Step) -> RequestDraft:
        return draft.add_reference(ContextBlock.reference(f"note {next(numbers)}", "x"))

    return view_operator(numbered)


def keeps_state_while_it_works() -> StepOperator:
    at_work: list[int] = []

    async def counted(draft: RequestDraft, step: Step) -> RequestDraft:
        at_work.append(1)
        await asyncio.sleep(1)
        many = len(at_work)
        at_work.pop()
        return draft.add_reference(ContextBlock.reference(f"note of {many}", "x"))

    return view_operator(counted)


def starts_a_task_and_leaves_it() -> StepOperator:
    tasks: set[asyncio.Task[None]] = set()

    async def work(step: Step) -> Step:
        task = asyncio.create_task(asyncio.sleep(5))
        tasks.add(task)
        await asyncio.sleep(5)
        return step

    return effect_operator(work)


class Unwritable(AgentState):
    def to_json(self, *, with_replaced: bool = True) -> bytes:
        raise ValueError("not to be written")


class Spoilt:
    """A record that leaves a state which nobody can store."""

    def apply(self, state: AgentState) -> AgentState:
        return Unwritable(session_id=state.session_id, context=state.context)


def leaves_a_state_that_cannot_be_stored() -> StepOperator:
    async def work(step: Step) -> Step:
        try:
            await asyncio.sleep(1)
        finally:
            step.run.record(Spoilt())
        return step

    return effect_operator(work)


def makes_a_coroutine_and_forgets_it() -> StepOperator:
    async def one(step: Step) -> Step:
        return step

    def work(step: Step) -> Observable[Step]:
        first, second = one(step), one(step)
        first.close()
        return from_coroutine(lambda: second)

    return effect_operator(work)


def raises_only_in_the_loop() -> StepOperator:
    def work(step: Step) -> Step:
        def boom() -> None:
            raise LookupError("nobody hears this")

        asyncio.get_running_loop().call_soon(boom)
        return step

    return effect_operator(work)


def reads_the_whole_history() -> StepOperator:
    @view_operator
    def count_words(draft: RequestDraft, step: Step) -> RequestDraft:
        words = sum(len(message.text) for message in draft.conversation.messages)
        return draft.add_reference(ContextBlock.reference("words", str(words)))

    return count_words


def maps_with_a_function_made_anew() -> StepOperator:
    return view_operator(lambda draft, step: draft.map_text(lambda text: text))


def measures_with_a_measure_made_anew() -> StepOperator:
    class Words:
        def of(self, exchange: Exchange, /) -> int:
            return sum(len(message.text) for message in exchange.messages)

        def join(self, parts: object, /) -> int:
            return 0

    def look(draft: RequestDraft, step: Step) -> RequestDraft:
        draft.conversation.measure(Words())
        return draft

    return view_operator(look)


BROKEN: dict[Callable[[], StepOperator], str] = {
    loses: rules.ONE_OUT,
    doubles: rules.ONE_OUT,
    never_ends: rules.ENDS,
    gives_something_else: rules.ONE_OUT,
    fails_on_a_sound_step: rules.ONE_OUT,
    keeps_state_in_the_factory: rules.ANEW,
    keeps_state_while_it_works: rules.ANEW,
    starts_a_task_and_leaves_it: rules.LEAVES_NOTHING,
    makes_a_coroutine_and_forgets_it: rules.LEAVES_NOTHING,
    leaves_a_state_that_cannot_be_stored: rules.NEXT_CALL,
    raises_only_in_the_loop: rules.HEARD,
    reads_the_whole_history: rules.COSTS_WHAT_IS_NEW,
    maps_with_a_function_made_anew: rules.COSTS_WHAT_IS_NEW,
    measures_with_a_measure_made_anew: rules.COSTS_WHAT_IS_NEW,
}


@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
@virtual
async def test_a_broken_rule_is_named(make: Callable[[], StepOperator]) -> None:
    """Each rule has an operator that breaks it, and the message says which."""
    with pytest.raises(ConformanceFailed) as caught:
        await check_operator(make)
    assert BROKEN[make] in str(caught.value)
    await asyncio.sleep(10)  # what such an operator leaves behind ends some time


@virtual
async def test_a_changed_input_is_found() -> None:
    """Values are frozen, but what lies in their mappings can still be written to."""
    with pytest.raises(ConformanceFailed, match=rules.NOT_CHANGED):
        await check_operator(changes_its_input, step=step_with_a_call)


@virtual
async def test_a_failure_that_does_not_arrive_is_found() -> None:
    """`failing` has to fail."""
    with pytest.raises(ConformanceFailed, match=rules.FAILURE_ARRIVES):
        await check_operator(lambda: ops.delay(1), failing=lambda: ops.delay(1))


@virtual
async def test_a_step_factory_that_is_not_steady_is_found() -> None:
    """Comparing outcomes needs equal steps to begin with."""
    numbers = count()
    with pytest.raises(ConformanceFailed, match="equal steps"):
        await check_operator(lambda: ops.delay(1), step=lambda history: a_step(history=history, number=next(numbers)))


@virtual
async def test_the_check_itself_changes_nothing() -> None:
    """The loop's handler is the old one afterwards, also where the check failed."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    checks: list[Awaitable[None]] = [check_operator(lambda: ops.delay(1))]
    with pytest.raises(ConformanceFailed):
        await check_operator(loses)
    for check in checks:
        await check
    assert loop.get_exception_handler() is before


def _loudly(text: str) -> str:
    return text.replace("question 7", "QUESTION 7")


@virtual
async def test_a_text_operator_passes() -> None:
    """Texts are remembered per message."""
    await check_operator(lambda: text_operator(_loudly))
