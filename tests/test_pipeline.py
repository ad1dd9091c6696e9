"""The pipeline as a value: changing it, printing it, running it, and what stock Rx operators mean in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import PipelineError, RetryRefused, ServerFailed, StepLost
from agentscope_rx.lifting import Attempt, Operator, StepOperator, effect_operator, text_operator, view_operator
from agentscope_rx.options import AgentOptions, Arrangement
from agentscope_rx.pipeline import Description, Pipeline, stock_name
from agentscope_rx.pipelines import react_pipeline
from agentscope_rx.pulling import last
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.step import Step
from agentscope_rx.testing import ScriptedModel, a_run, a_step, calls, marbles, record, text
from agentscope_rx.tools import tool
from tests.support import Seen, watch
from tests.virtual import virtual


def effect(name: str) -> Operator:
    """An operator that says that it was there."""

    @effect_operator
    def say(step: Step) -> Step:
        step.emit(ev.Custom(name=name))
        return step

    return replace(say, name=name)


def said(run: Any) -> list[str]:
    """Which operators were there, in order."""
    return [event.name for event in run.events if isinstance(event, ev.Custom)]


@view_operator
def with_note(draft: RequestDraft, step: Step) -> RequestDraft:
    return draft.add_reference(ContextBlock.reference(f"note {len(draft.references)}", "text"))


def abc() -> Pipeline:
    """A small pipeline of two groups."""
    return Pipeline.of("step", Pipeline.of("request", effect("a"), effect("b")), effect("c"))


# -- changing -----------------------------------------------------------------------------------------------


def test_operators_are_put_in_taken_out_and_exchanged() -> None:
    """insert_before, insert_after, replace and remove work at any depth, and give another pipeline."""
    pipeline = abc()
    assert pipeline.names == ("request", "a", "b", "c")
    assert pipeline.insert_before("b", effect("x")).names == ("request", "a", "x", "b", "c")
    assert pipeline.insert_after("b", effect("x")).names == ("request", "a", "b", "x", "c")
    assert pipeline.insert_after("request", effect("x")).names == ("request", "a", "b", "x", "c")
    assert pipeline.insert_before("request", effect("x")).names == ("x", "request", "a", "b", "c")
    assert pipeline.replace("a", effect("x")).names == ("request", "a", "b", "c")
    assert pipeline.replace("a", effect("x"), name="x").names == ("request", "x", "b", "c")
    assert pipeline.remove("b").names == ("request", "a", "c")
    assert pipeline.remove("request").names == ("c",)
    assert pipeline.names == ("request", "a", "b", "c")


def test_a_group_can_be_put_in() -> None:
    """A pipeline is itself something to insert."""
    pipeline = abc().insert_after("a", Pipeline.of("mine", effect("x"), effect("y")))
    assert pipeline.names == ("request", "a", "mine", "x", "y", "b", "c")


@virtual
async def test_a_step_goes_through_in_order() -> None:
    """Groups and operators run in the order in which they print."""
    run = a_run()
    pipeline = abc().insert_before("c", Pipeline.of("mine", effect("x"), effect("y"))).replace("a", effect("z"))
    await last(pipeline.attempt(a_step(run=run)))
    assert said(run) == ["z", "b", "x", "y", "c"]


UNKNOWN: list[Arrangement] = [
    lambda p: p.insert_before("nothing", effect("x")),
    lambda p: p.insert_after("nothing", effect("x")),
    lambda p: p.replace("nothing", effect("x")),
    lambda p: p.remove("nothing"),
    lambda p: p.around("nothing", ops.retry(2)),
    lambda p: p.guard("nothing", lambda attempt: attempt),
]


@pytest.mark.parametrize("change", UNKNOWN)
def test_an_unknown_name_lists_the_known_ones(change: Arrangement) -> None:
    """The error says which name was wrong and which there are."""
    with pytest.raises(PipelineError, match="no operator 'nothing'; it has request, a, b, c"):
        change(abc())


@pytest.mark.parametrize(
    "change",
    [
        lambda: abc().insert_before("c", effect("a")),
        lambda: abc().insert_before("c", Pipeline.of("a")),
        lambda: abc().replace("c", effect("x"), name="a"),
        lambda: abc().insert_before("c", ops.delay(1)).insert_before("c", ops.delay(2), name="rx.delay"),
        lambda: Pipeline.of("step", effect("a"), effect("a")),
    ],
)
def test_two_of_one_name_are_refused(change: Callable[[], Pipeline]) -> None:
    """The error asks for another name, and `name=` gives it."""
    with pytest.raises(PipelineError, match="give one of them name="):
        change()
    assert "second" in abc().insert_before("c", effect("a"), name="second").names


def test_a_pipeline_is_complete_with_the_three_operators_in_order() -> None:
    """begin_request (first of all), commit_history and call_model are needed; each error says what is wrong."""
    default = react_pipeline(AgentOptions())
    assert default.check_complete() is default
    for name in ("begin_request", "commit_history", "call_model"):
        with pytest.raises(PipelineError, match=f"lacks {name}"):
            default.remove(name).check_complete()
    with pytest.raises(PipelineError, match="lacks begin_request, commit_history, call_model"):
        Pipeline.of("step").check_complete()
    with pytest.raises(PipelineError, match="must come in this order"):
        abc().replace("a", effect("x"), name="begin_request").replace("b", effect("x"), name="call_model").replace(
            "c", effect("x"), name="commit_history"
        ).check_complete()
    with pytest.raises(PipelineError, match="must be the first"):
        default.insert_before("begin_request", effect("x")).check_complete()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["before", "after", "remove"]), st.integers(0, 20)), max_size=12))
def test_changes_keep_all_other_operators_in_order(changes: list[tuple[str, int]]) -> None:
    """Invariant: a change puts in or takes out one name, at its place; the others stay as they were."""
    pipeline = abc()
    for number, (verb, at) in enumerate(changes):
        names = list(pipeline.names)
        leaves = [name for name in names if name != "request"]
        if verb == "remove" and len(leaves) == 1:
            continue
        anchor = leaves[at % len(leaves)]
        place = names.index(anchor)
        if verb == "remove":
            pipeline = pipeline.remove(anchor)
            del names[place]
        else:
            insert = pipeline.insert_before if verb == "before" else pipeline.insert_after
            pipeline = insert(anchor, effect(f"x{number}"))
            names.insert(place + (verb == "after"), f"x{number}")
        assert list(pipeline.names) == names


# -- looking ------------------------------------------------------------------------------------------------


def _patient(attempt: Attempt) -> Attempt:
    return attempt


def test_a_pipeline_prints() -> None:
    """Groups are indented, kinds and guards in columns, guards innermost first; `describe` has the same as data."""
    pipeline = (
        Pipeline.of("step", Pipeline.of("request", effect("a"), with_note), effect("c"))
        .guard("request", _patient, name="patient")
        .around("request", ops.retry(2), name="again")
        .around("with_note", ops.timeout(10))
        .insert_before("c", ops.delay(1))
        .insert_after("a", replace(with_note, name="noted", note="from the wall"))
    )
    assert [" ".join(line.split()) for line in str(pipeline).splitlines()] == [
        "step",
        "request (patient, again)",
        "a effect",
        "noted view from the wall",
        "with_note view (rx.timeout)",
        "rx.delay rx",
        "c effect",
    ]
    lines = str(pipeline).splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4, 4, 4, 2, 2]
    kinds = ("effect", "view", "view", "rx", "effect")
    columns = {line.rindex(f" {kind}") for line, kind in zip(lines[2:], kinds, strict=True)}
    assert len(columns) == 1
    described = pipeline.describe()
    assert described[1] == Description(name="request", kind="group", depth=1, guards=("patient", "again"))
    assert described[4] == Description(name="with_note", kind="view", depth=2, guards=("rx.timeout",))
    assert [line.name for line in described[1:]] == list(pipeline.names)


NAMELESS: StepOperator = lambda source: source  # noqa: E731  # that is the point


def my_own(source: Observable[Step]) -> Observable[Step]:
    return source


def test_stock_operators_are_named_after_their_function() -> None:
    """`rx.` and the name of the Rx function; a function of the user's by its own name; a lambda is an operator."""

    named: list[tuple[StepOperator, str]] = [
        (ops.timeout(1), "rx.timeout"),
        (ops.retry(2), "rx.retry"),
        (ops.delay(1), "rx.delay"),
        (ops.map(lambda step: step), "rx.map"),
        (ops.filter(lambda step: True), "rx.filter"),
        (ops.catch(lambda error, source: source), "rx.catch"),
        (ops.do_action(print), "rx.do_action"),
        (ops.take(1), "rx.take"),
        (ops.repeat(2), "rx.repeat"),
        (ops.finally_action(print), "rx.finally_action"),
        (my_own, "rx.my_own"),
        (NAMELESS, "rx.operator"),
    ]
    assert [stock_name(operator) for operator, _ in named] == [name for _, name in named]


# -- guards -------------------------------------------------------------------------------------------------


def logging_guard(name: str, log: list[str]) -> Callable[[Attempt], Attempt]:
    def guard(attempt: Attempt) -> Attempt:
        def guarded(step: Step) -> Observable[Step]:
            log.append(f"{name} begins")
            return attempt(step).pipe(ops.do_action(on_completed=lambda: log.append(f"{name} ends")))

        return guarded

    return guard


@virtual
async def test_the_newest_guard_is_the_outermost() -> None:
    """Of a group, of one operator, and of the whole pipeline by its own name."""
    for anchor in ("request", "a", "step"):
        log: list[str] = []
        pipeline = abc().guard(anchor, logging_guard("inner", log)).guard(anchor, logging_guard("outer", log))
        after = await last(pipeline.attempt(a_step()))
        assert log == ["outer begins", "inner begins", "inner ends", "outer ends"]
        assert after.number == 0


@virtual
async def test_a_guarded_operator_keeps_its_place_and_its_guards() -> None:
    """What is inserted beside it is not guarded; what replaces it is; a group may replace it."""
    guarded = abc().around("b", ops.delay(60))
    for pipeline, seconds, order in (
        (guarded.insert_before("b", effect("x")), 60.0, ["a", "x", "b", "c"]),
        (guarded.insert_after("b", effect("x")), 60.0, ["a", "b", "x", "c"]),
        (guarded.replace("b", effect("x")), 60.0, ["a", "x", "c"]),
        (guarded.replace("b", Pipeline.of("mine", effect("x"), effect("y"))), 60.0, ["a", "x", "y", "c"]),
        (guarded.remove("b"), 0.0, ["a", "c"]),
    ):
        run, started = a_run(), asyncio.get_running_loop().time()
        await last(pipeline.attempt(a_step(run=run)))
        assert said(run) == order
        assert asyncio.get_running_loop().time() - started == seconds
        assert str(pipeline)


@virtual
async def test_a_guard_that_cannot_begin_fails_the_step() -> None:
    """An exception of the guard itself arrives as on_error, with the name of what it guards."""

    def guard(attempt: Attempt) -> Attempt:
        raise LookupError("no guard")

    recorded = await record(abc().guard("b", guard).attempt(a_step())).ended()
    assert repr(recorded.error) == "LookupError('no guard')"
    recorded = await record(abc().guard("request", guard).attempt(a_step())).ended()
    assert repr(recorded.error) == "LookupError('no guard')"


def test_a_stock_operator_cannot_be_guarded() -> None:
    """Its source is the stream before it: taken out of the stream it would silently do nothing."""
    pipeline = abc().insert_after("b", ops.timeout(10))
    for change in (lambda: pipeline.around("rx.timeout", ops.delay(1)), lambda: pipeline.guard("rx.timeout", _patient)):
        with pytest.raises(PipelineError, match="rx.timeout cannot be guarded"):
            change()


@pytest.mark.parametrize("anchor", ["b", "request", "step"])
@virtual
async def test_a_guard_that_loses_or_doubles_a_step_ends_the_run(anchor: str) -> None:
    """One step in, one step out holds for guards as well, that of the whole pipeline included."""
    for lose, found in ((ops.ignore_elements(), "let no step through"), (ops.repeat(2), "let a second step through")):

        def guard(attempt: Attempt, lose: StepOperator = lose) -> Attempt:
            return lambda step: attempt(step).pipe(lose)

        recorded = await record(abc().guard(anchor, guard).attempt(a_step())).ended()
        assert isinstance(recorded.error, StepLost)
        assert f"{anchor} {found}" in str(recorded.error)


@pytest.mark.parametrize("anchor", ["b", "request", "step"])
@virtual
async def test_a_guard_that_gives_something_else_ends_the_run(anchor: str) -> None:
    """Where a task has brought the step as well: the error arrives, and says what came."""

    def guard(attempt: Attempt) -> Attempt:
        return lambda step: attempt(step).pipe(ops.delay(1), ops.map(lambda _: None))  # type: ignore[return-value]

    recorded = await record(abc().guard(anchor, guard).attempt(a_step())).ended()
    assert isinstance(recorded.error, TypeError)
    assert "it gave None" in str(recorded.error)


# -- what is noted -------------------------------------------------------------------------------------------


@virtual
async def test_changes_and_times_are_noted_once() -> None:
    """Whether an operator stands alone, in a group of the user's, or under a guard: one change, and one time each."""
    plain = Pipeline.of("step", with_note, effect("c"))
    grouped = Pipeline.of("step", Pipeline.of("mine", with_note), effect("c"))
    guarded = Pipeline.of("step", with_note, effect("c")).around("with_note", ops.delay(60))
    for pipeline, names in ((plain, []), (grouped, []), (guarded, ["rx.delay"])):
        after = await last(pipeline.attempt(a_step()))
        assert [(each.operator, each.item_id) for each in after.changes] == [("with_note", "note 0")]
        assert [each.operator for each in after.timings] == ["with_note", *names, "c"]


@virtual
async def test_what_a_stock_operator_changes_is_noted_under_its_name() -> None:
    """The draft is compared before and after it, and its time is its own, not that of what is before it."""

    async def slow(step: Step) -> Step:
        await asyncio.sleep(5)
        return step

    def add(step: Step) -> Step:
        return replace(step, draft=step.draft.add_reference(ContextBlock.reference("x", "y")))

    pipeline = Pipeline.of("step", effect_operator(slow), ops.map(add), ops.delay(3), with_note)
    after = await last(pipeline.attempt(a_step()))
    assert [(each.operator, each.item_id) for each in after.changes] == [("rx.map", "x"), ("with_note", "note 1")]
    assert [(each.operator, each.seconds) for each in after.timings] == [
        ("slow", 5.0),
        ("rx.map", 0.0),
        ("rx.delay", 3.0),
        ("with_note", 0.0),
    ]


@virtual
async def test_an_exception_in_the_comparison_of_a_stock_operator_arrives() -> None:
    """A stock operator that gives no step at all, or one that cannot be compared, fails the run and never hangs it."""

    async def later(step: Step) -> Step:
        await asyncio.sleep(1)
        return step

    pipeline = Pipeline.of("step", effect_operator(later), ops.map(lambda step: None), effect("c"))  # type: ignore[arg-type]
    recorded = await record(pipeline.attempt(a_step())).ended()
    assert isinstance(recorded.error, TypeError)
    assert recorded.error.__notes__ == ["in the operator 'rx.map'"]


# -- stock operators in an agent -------------------------------------------------------------------------------


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def run_of(arrange: Arrangement, *script: Any) -> tuple[Seen, ScriptedModel]:
    """A run of an agent whose pipeline is arranged."""
    model = ScriptedModel(script)
    agent = ReActAgent.builder(
        name="a", model=model, tools=[look], pipeline=arrange, execution=ExecutionConfig(max_attempts=1)
    ).build()
    return await watch(agent, "hi"), model


async def late(step: Step) -> Step:
    await asyncio.sleep(60)
    return step


@virtual
async def test_a_time_out_around_one_operator_times_that_one() -> None:
    """It becomes a TimeoutError that names both; what is further down is not timed."""
    slow = effect_operator(late)
    seen, model = await run_of(
        lambda default: default.insert_before("validate_request", slow).around("late", ops.timeout(10)), "hello"
    )
    assert isinstance(seen.error, TimeoutError)
    assert "rx.timeout" in str(seen.error)
    assert "'late'" in " ".join([str(seen.error), *seen.error.__notes__])
    assert asyncio.get_running_loop().time() == 10
    assert model.asked == 0
    seen, model = await run_of(
        lambda default: default.insert_after("call_model", slow).around("validate_request", ops.timeout(10)), "hello"
    )
    assert (seen.error, seen.result.text) == (None, "hello")


@virtual
async def test_a_time_out_in_the_stream_times_everything_before_it_in_its_group() -> None:
    """insert_after: all that is upstream in the group counts, and nothing downstream."""
    slow = effect_operator(late)
    seen, _ = await run_of(
        lambda default: default.insert_before("validate_request", slow).insert_before(
            "commit_history", ops.timeout(10)
        ),
        "hello",
    )
    assert isinstance(seen.error, TimeoutError)
    assert "rx.timeout" in str(seen.error)


@virtual
async def test_a_delay_takes_loop_time() -> None:
    """An hour passes on the loop's timers, with no scheduler named by anyone."""
    seen, _ = await run_of(lambda default: default.insert_before("call_model", ops.delay(3_600)), "hello")
    assert (seen.error, asyncio.get_running_loop().time()) == (None, 3_600)


LOSING: list[tuple[StepOperator, str]] = [
    (ops.filter(lambda step: False), "rx.filter let no step through"),
    (ops.take(0), "rx.take let no step through"),
    (ops.catch(reactivex.empty()), "rx.catch let no step through"),
    (ops.repeat(2), "rx.repeat let a second step through"),
    (ops.repeat(), "rx.repeat let a second step through"),
    (ops.start_with(a_step()), "rx.start_with let a second step through"),
]


@pytest.mark.parametrize(("operator", "found"), LOSING)
@virtual
async def test_a_stock_operator_that_loses_or_doubles_steps_ends_the_run(operator: StepOperator, found: str) -> None:
    """StepLost names it; before the model there is nothing to pay for."""
    failing = [ServerFailed("x")] if "catch" in found else ["hello"] * 3
    anchor = "run_tools" if "catch" in found else "validate_request"
    seen, _ = await run_of(lambda default: default.insert_before(anchor, operator), *failing)
    assert isinstance(seen.error, StepLost)
    assert found in str(seen.error)
    assert seen.types[-1] == "AGENT_END"


@virtual
async def test_a_retry_around_the_request_begins_afresh() -> None:
    """A new request id and a fresh snapshot for each attempt, told by a request_retry that names the failed one; one
    answer is stored."""
    seen, model = await run_of(
        lambda default: default.around("request", ops.retry(3)), ServerFailed("1"), ServerFailed("2"), "hello"
    )
    assert seen.error is None
    assert model.asked == 3
    starts = [event.reply_id for event in seen.of(ev.ModelCallStart)]
    assert len(set(starts)) == 3
    told = [event for event in seen.of(ev.Custom) if event.name == "request_retry"]
    assert [event.value["failed_call_id"] for event in told] == starts[:2]
    assert [[message.text for message in request.messages] for request in model.requests] == [["hi"]] * 3
    assert seen.result.text == "hello"


@virtual
async def test_a_retry_around_the_call_asks_the_same_request_again() -> None:
    """around("call_model", ...): the request is prepared once, and no request_retry is told."""
    seen, model = await run_of(lambda default: default.around("call_model", ops.retry(2)), ServerFailed("1"), "hello")
    assert seen.error is None
    starts = [event.reply_id for event in seen.of(ev.ModelCallStart)]
    assert (model.asked, len(set(starts))) == (2, 1)
    assert "request_retry" not in [event.name for event in seen.of(ev.Custom)]


@virtual
async def test_a_retry_behind_run_tools_is_refused() -> None:
    """It would pay for the model and run the tools again. The error says where a retry belongs; tools ran once."""
    ran: list[int] = []

    @tool
    async def act() -> str:
        """Act."""
        ran.append(1)
        return "done"

    def fail_once(step: Step) -> Step:
        raise LookupError("after the tools")

    model = ScriptedModel([calls(("c1", "act", "{}")), "never"])
    agent = ReActAgent.builder(
        name="a",
        model=model,
        tools=[act],
        pipeline=lambda default: default.insert_after("run_tools", ops.map(fail_once)).insert_after(
            "rx.map", ops.retry(2)
        ),
    ).build()
    seen = await watch(agent, "hi")
    assert isinstance(seen.error, RetryRefused)
    assert 'around("request", ops.retry(2))' in str(seen.error)
    assert (ran, model.asked) == ([1], 1)
    assert seen.types.count("AGENT_END") == 1


@virtual
async def test_an_error_of_a_stock_operator_keeps_its_class() -> None:
    """A foreign exception passes as it is, with a note that names the operator."""

    def boom(step: Step) -> Step:
        raise LookupError("boom")

    seen, _ = await run_of(lambda default: default.insert_before("call_model", ops.map(boom)), "hello")
    assert repr(seen.error) == "LookupError('boom')"
    assert seen.error is not None
    assert "in the operator 'rx.map'" in seen.error.__notes__


@virtual
async def test_operators_are_shared_by_runs_and_keep_nothing() -> None:
    """One pipeline, two runs at once: a stock operator in it is subscribed anew for each step."""
    pipeline = Pipeline.of("step", ops.take(1), ops.delay(5), effect("c"))
    runs = [a_run(), a_run()]
    recorded = [record(pipeline.attempt(a_step(run=run, number=number))) for number, run in enumerate(runs)]
    for number, each in enumerate(recorded):
        assert [step.number for step in (await each.ended()).values] == [number]
    assert [said(run) for run in runs] == [["c"], ["c"]]


# -- cost ---------------------------------------------------------------------------------------------------


def test_a_step_makes_ten_subscriptions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default pipeline with a tool call, sources and stock operators apart: 10 subscriptions a step, no more at
    step 8 than at step 2."""
    made = [0]
    subscribe: Any = getattr(Observable, "subscribe")  # noqa: B009  # its type has no end

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made[0] += 1
        return subscribe(self, *args, **kwargs)

    @virtual
    async def run() -> None:
        seen, _ = await run_of(
            lambda default: default.insert_before("call_model", text_operator(str.strip)),
            *[calls((f"c{number}", "look", "{}")) for number in range(8)],
            text("done"),
        )
        assert seen.error is None

    at: list[int] = []
    start = ev.ModelCallStart.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        at.append(made[0])
        start(self, *args, **kwargs)

    monkeypatch.setattr(Observable, "subscribe", counted)
    monkeypatch.setattr(ev.ModelCallStart, "__init__", noted)
    run()
    steps = [after - before for before, after in pairwise(at)]
    assert len(steps) == 8
    assert max(steps) <= 10
    assert len(set(steps)) == 1


@virtual
async def test_marbles_of_a_pipeline() -> None:
    """A pipeline is a step operator: steps that come one after the other go through it one after the other."""
    steps = {"a": a_step(number=1), "b": a_step(number=2)}
    pipeline = Pipeline.of("step", ops.delay(3))
    recorded = await record(pipeline(marbles("-a-b|", steps))).ended()
    assert [(each.time, each.kind) for each in recorded.signals] == [(4.0, "next"), (7.0, "next"), (7.0, "completed")]
    assert [step.number for step in recorded.values] == [1, 2]
