"""How a function becomes an operator: the kinds, one step in and one out, where exceptions go, what is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import reactivex
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import EditRefused, StepLost
from agentscope_rx.events import Custom
from agentscope_rx.history import Exchange, History
from agentscope_rx.lifting import (
    Operator,
    chain,
    effect_operator,
    history_operator,
    name_of,
    text_operator,
    view_operator,
)
from agentscope_rx.messages import GenerateReason, Msg
from agentscope_rx.pulling import last
from agentscope_rx.step import Step
from agentscope_rx.testing import a_history, a_run, a_step, check_operator, marbles, record, run_virtual
from tests.virtual import virtual

NOTE = ContextBlock.reference("source/notes/1", "old note")


@view_operator
def with_note(draft: RequestDraft, step: Step) -> RequestDraft:
    return draft.add_reference(NOTE)


@view_operator
async def with_note_later(draft: RequestDraft, step: Step) -> RequestDraft:
    await asyncio.sleep(60)
    return draft.add_reference(NOTE)


@text_operator
def loudly(text: str) -> str:
    return text.replace("question 7", "QUESTION 7")


def _shorter(exchange: Exchange) -> Exchange:
    return exchange.map(lambda message: message.with_text(message.text[:3]) if len(message.text) > 3 else message)


@history_operator
def shorten(history: History, step: Step) -> History:
    return history.map(_shorter)


@history_operator
async def forget_the_first(history: History, step: Step) -> History:
    await asyncio.sleep(1)
    return history.replace_first(2)


@effect_operator
def announce(step: Step) -> Step:
    step.emit(Custom(name="announced", value={"number": step.number}))
    return step


@effect_operator
async def announce_later(step: Step) -> Step:
    await asyncio.sleep(1)
    step.emit(Custom(name="announced", value={"number": step.number}))
    return step


@effect_operator
def announce_by_rx(step: Step) -> Observable[Step]:
    return marbles("--s|", {"s": step})


def failing(kind: str) -> Operator:
    """An operator of each kind whose function raises."""

    def raises(*_: object) -> Any:
        raise LookupError("no such thing")

    async def raises_later(*_: object) -> Any:
        await asyncio.sleep(1)
        raise LookupError("no such thing")

    lift: dict[str, Callable[[Any], Operator]] = {
        "view": view_operator,
        "history": history_operator,
        "effect": effect_operator,
        "text": text_operator,
    }
    name, _, later = kind.partition(", ")
    return lift[name](raises_later if later else raises)


KINDS = {
    "view": (lambda: with_note, lambda: failing("view")),
    "view, later": (lambda: with_note_later, lambda: failing("view, later")),
    "text": (lambda: loudly, lambda: failing("text")),
    "history": (lambda: shorten, lambda: failing("history")),
    "history, later": (lambda: forget_the_first, lambda: failing("history, later")),
    "effect": (lambda: announce, lambda: failing("effect")),
    "effect, later": (lambda: announce_later, lambda: failing("effect, later")),
    "effect by Rx": (lambda: announce_by_rx, None),
}


async def through(step: Step, *operators: Operator) -> Step:
    """A step through neighbours in one subscription."""
    return await last(chain(operators, step))


# -- every kind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@virtual
async def test_every_kind_keeps_the_rules_of_operators(kind: str) -> None:
    """What `check_operator` checks holds for each kind, plain, async, and by an Observable."""
    make, fails = KINDS[kind]
    await check_operator(make, failing=fails)


@virtual
async def test_a_view_operator_changes_this_request_only() -> None:
    """The draft is another one; history, state and session are as before."""
    step = a_step()
    after = await through(step, with_note)
    assert after.draft.references == (NOTE,)
    assert step.draft.references == ()
    assert (after.history, after.state, after.run.state) == (step.history, step.state, step.state)
    assert [(each.operator, each.action, each.item_id) for each in after.changes] == [("with_note", "added", NOTE.id)]


@virtual
async def test_a_text_operator_changes_texts_of_this_request() -> None:
    """Texts of the conversation and of blocks are in other words; the history keeps its own."""
    step = a_step(history=a_history(["ask about question 7", "no"]))
    after = await through(step, with_note, text_operator(str.upper))
    assert [message.text for message in after.draft.conversation.messages] == ["ASK ABOUT QUESTION 7", "NO"]
    assert after.draft.references[0].text == "OLD NOTE"
    assert after.history is step.history


@virtual
async def test_a_history_operator_proposes_for_request_and_session() -> None:
    """Candidate and view both change; nothing is recorded: that is for commit_history."""
    run = a_run(a_history(["a long question", "a long answer"]))
    after = await through(a_step(run=run), shorten)
    assert [message.text for message in after.history.messages] == ["a l", "a l"]
    assert after.draft.conversation is after.history
    assert [(each.operator, each.action, each.item_id) for each in after.changes] == [
        ("shorten", "rewritten", "m0"),
        ("shorten", "rewritten", "m1"),
    ]
    assert run.records == []


@virtual
async def test_an_effect_operator_may_emit() -> None:
    """Its events go out at once, with ids and moments of the run."""
    run = a_run()
    await through(a_step(run=run, number=3), announce, announce_later)
    assert [event.value for event in run.events if isinstance(event, Custom)] == [{"number": 3}] * 2
    assert [event.id for event in run.events] == ["event-1", "event-2"]


def test_an_operator_keeps_the_authors_function() -> None:
    """`.function` is the plain function, for tests of its own; the name is the function's, in a partial too."""
    assert loudly.function("question 7") == "QUESTION 7"
    assert (with_note.name, with_note.kind) == ("with_note", "view")
    assert (loudly.kind, shorten.kind, announce.kind) == ("view", "history", "effect")
    assert name_of(partial(partial(_shorter))) == "_shorter"

    class Redact:
        def __call__(self, text: str) -> str:
            return text

    assert text_operator(Redact()).name == "Redact"


# -- one step in, one step out -----------------------------------------------------------------------------


@virtual
async def test_an_operator_that_gives_no_step_loses_it() -> None:
    """StepLost names the operator; nothing behind it runs."""
    run = a_run()

    @effect_operator
    def swallow(step: Step) -> Observable[Step]:
        return reactivex.empty()

    recorded = await record(chain((swallow, announce), a_step(run=run))).ended()
    assert recorded.kinds == ["error"]
    assert isinstance(recorded.error, StepLost)
    assert "swallow let no step through" in str(recorded.error)
    assert run.events == []


@pytest.mark.parametrize("count", [2, 3])
@virtual
async def test_an_operator_that_gives_two_steps_loses_them(count: int) -> None:
    """A second step is an error before anything behind the operator is done, let alone paid, twice."""
    run = a_run()

    @effect_operator
    def double(step: Step) -> Observable[Step]:
        return reactivex.of(*[step] * count)

    recorded = await record(chain((double, announce), a_step(run=run))).ended()
    assert recorded.kinds == ["error"]
    assert isinstance(recorded.error, StepLost)
    assert "double let a second step through" in str(recorded.error)
    assert run.events == []


@virtual
async def test_a_second_step_disposes_its_source() -> None:
    """What would go on giving steps is left."""
    log: list[str] = []

    @effect_operator
    def tick(step: Step) -> Observable[Step]:
        return reactivex.interval(1).pipe(ops.map(lambda _: step), ops.finally_action(lambda: log.append("left")))

    recorded = await record(chain((tick,), a_step())).ended()
    assert (recorded.kinds, recorded.signals[0].time, log) == (["error"], 2.0, ["left"])


@pytest.mark.parametrize(
    ("lift", "kind"), [(view_operator, "RequestDraft"), (history_operator, "History"), (effect_operator, "Step")]
)
@pytest.mark.parametrize("later", [False, True])
@virtual
async def test_a_function_that_gives_something_else_is_told_so(
    lift: Callable[[Any], Operator], kind: str, later: bool
) -> None:
    """A forgotten `return` is the usual case: the error says what was expected, what came, and of whom."""

    def forgetful(*_: object) -> None:
        return None

    async def forgetful_later(*_: object) -> None:
        return None

    recorded = await record(chain((lift(forgetful_later if later else forgetful),), a_step())).ended()
    assert isinstance(recorded.error, TypeError)
    assert f"a {kind}" in str(recorded.error)
    assert "it gave None" in str(recorded.error)
    assert "forgetful" in recorded.error.__notes__[0]


# -- neighbours ---------------------------------------------------------------------------------------------


@pytest.fixture
def subscriptions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    subscribe: Any = getattr(Observable, "subscribe")  # noqa: B009  # its type has no end

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(type(self).__name__)
        return subscribe(self, *args, **kwargs)

    monkeypatch.setattr(Observable, "subscribe", counted)
    return made


@virtual
async def _ten_neighbours(*operators: Operator) -> None:
    after = await asyncio.wait_for(record(chain(operators, a_step())).ended(), 600)
    assert after.kinds == ["next", "completed"]


def test_synchronous_neighbours_run_in_one_subscription(subscriptions: list[str]) -> None:
    """Ten operators, one subscription; an asynchronous one adds its own."""
    _ten_neighbours(*[announce] * 10)
    assert len(subscriptions) == 1
    subscriptions.clear()
    _ten_neighbours(*[announce] * 5, with_note_later, *[announce] * 4)
    assert len(subscriptions) == 2


@settings(deadline=None)
@given(st.lists(st.sampled_from(["now", "later", "by Rx"]), max_size=12))
def test_every_operator_sees_the_step_of_the_one_before_it(kinds: list[str]) -> None:
    """Invariant: however synchronous and asynchronous neighbours mix, each runs once, in order, on the last step."""
    seen: list[int] = []

    def operator(at: int, kind: str) -> Operator:
        def handle(step: Step) -> Step | Awaitable[Step] | Observable[Step]:
            seen.append(step.number)
            after = replace(step, number=step.number + 1)
            if kind == "now":
                return after
            return asyncio.sleep(1, after) if kind == "later" else marbles("-s-|", {"s": after})

        return Operator(name=f"operator_{at}", kind="effect", handle=handle, function=handle)

    async def main() -> Step:
        return await through(a_step(number=0), *(operator(at, kind) for at, kind in enumerate(kinds)))

    after = run_virtual(main)
    assert (after.number, seen) == (len(kinds), list(range(len(kinds))))
    assert [each.operator for each in after.timings] == [f"operator_{at}" for at in range(len(kinds))]
    assert [each.seconds for each in after.timings] == [
        {"now": 0.0, "later": 1.0, "by Rx": 3.0}[kind] for kind in kinds
    ]


@virtual
async def test_a_step_that_asks_to_finish_goes_past_the_rest() -> None:
    """`step.finish` skips later operators, synchronous or not."""
    run = a_run()

    @effect_operator
    def enough(step: Step) -> Step:
        return step.finish("That will do.", GenerateReason.REASONING_STOP_REQUESTED)

    after = await through(a_step(run=run), announce, enough, announce, with_note_later, announce)
    assert after.finished is not None
    assert after.finished.message == Msg.assistant("That will do.")
    assert len(run.events) == 1
    assert [each.operator for each in after.timings] == ["announce", "enough"]


@virtual
async def test_finish_without_a_message_needs_a_reply() -> None:
    """Before call_model there is none, and the error says what to give."""
    with pytest.raises(ValueError, match="give it a message"):
        a_step().finish(None, GenerateReason.REASONING_STOP_REQUESTED)
    assert a_step(reply=Msg.assistant("x")).finish(None, GenerateReason.MODEL_STOP).finished is not None


@virtual
async def test_a_run_knows_how_far_it_has_come() -> None:
    """`running` names the operator at work, and `furthest` is the newest step that left one."""
    run = a_run()
    at_work: list[str] = []

    @effect_operator
    def look(step: Step) -> Step:
        at_work.append(run.running)
        return step

    after = await through(a_step(run=run), look, with_note)
    assert at_work == ["look"]
    assert run.running == "with_note"
    assert run.furthest is after
    with pytest.raises(LookupError):
        await through(after, with_note, failing("effect"), with_note)
    assert run.running == "raises"
    assert run.furthest is not None
    assert len(run.furthest.draft.references) == 2


# -- exceptions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind, (_, fails) in KINDS.items() if fails])
@virtual
async def test_an_exception_arrives_as_on_error_and_names_its_operator(kind: str) -> None:
    """It keeps its class and gets one note; operators behind it do not run, and subscribe() does not raise."""
    run = a_run()
    recorded = await record(chain((failing(kind), announce), a_step(run=run))).ended()
    assert recorded.kinds == ["error"]
    assert isinstance(recorded.error, LookupError)
    (note,) = recorded.error.__notes__
    assert note.startswith("in the operator 'raises")
    assert run.events == []


@virtual
async def test_an_error_gets_one_note_however_many_operators_it_passes() -> None:
    """The innermost operator is the one that is named."""
    inner = Operator(
        name="inner", kind="effect", handle=lambda step: chain((failing("effect"),), step), function=failing
    )
    outer = Operator(name="outer", kind="effect", handle=lambda step: chain((inner,), step), function=failing)
    recorded = await record(chain((outer,), a_step())).ended()
    assert isinstance(recorded.error, LookupError)
    assert recorded.error.__notes__ == ["in the operator 'raises'"]


class Incomparable:
    """A zone that cannot be looked at."""

    def __iter__(self) -> Any:
        raise RuntimeError("not to be looked at")


@pytest.mark.parametrize("how", ["now", "later", "by Rx"])
@virtual
async def test_an_exception_in_comparison_arrives_as_on_error(how: str) -> None:
    """Comparing drafts is kernel code that runs inside on_next: there, too, nothing is raised."""

    def unlike(step: Step) -> Any:
        after = replace(step, draft=replace(step.draft, references=Incomparable()))  # type: ignore[arg-type]
        if how == "now":
            return after
        return asyncio.sleep(1, after) if how == "later" else marbles("s|", {"s": after})

    recorded = await record(chain((effect_operator(unlike), announce), a_step())).ended()
    assert recorded.kinds == ["error"]
    assert isinstance(recorded.error, RuntimeError)
    assert recorded.error.__notes__ == ["in the operator 'unlike'"]


# -- history operators ---------------------------------------------------------------------------------------


def _numbered(*ids: str) -> History:
    return History.of(*(replace(Msg.user(f"text of {id}"), id=id) for id in ids))


@virtual
async def test_an_edit_that_is_no_replacement_is_refused() -> None:
    """Reordering and bare insertion are EditRefused with the operator's name; the step goes no further."""
    a, b = _numbered("a", "b")
    for proposal in (History([b, a]), History([a, *_numbered("new"), b])):
        refused = history_operator(lambda history, step, proposal=proposal: proposal)
        recorded = await record(chain((refused, announce), a_step(history=History([a, b])))).ended()
        assert isinstance(recorded.error, EditRefused)
        assert recorded.error.operator == "<lambda>"


@virtual
async def test_the_views_version_stays() -> None:
    """Where a view operator has put a message in other words, a later history operator cannot bring them back;
    drops and summaries apply to both."""

    @view_operator
    def redact(draft: RequestDraft, step: Step) -> RequestDraft:
        return draft.replace("a", Msg.user("[redacted]"))

    @history_operator
    def summarise_the_rest(history: History, step: Step) -> History:
        first, *_ = history
        return History([first, *_numbered("summary")])

    step = a_step(history=_numbered("a", "b", "c"))
    after = await through(step, redact, shorten)
    assert [message.text for message in after.history.messages] == ["tex"] * 3
    assert [message.text for message in after.draft.conversation.messages] == ["[redacted]", "tex", "tex"]
    after = await through(step, redact, summarise_the_rest)
    assert [message.id for message in after.history.messages] == ["a", "summary"]
    assert [message.text for message in after.draft.conversation.messages] == ["[redacted]", "text of summary"]


@virtual
async def test_a_proposal_that_is_the_history_costs_nothing() -> None:
    """The very same history back: the draft stays the same object, and there is no change."""
    step = a_step()
    after = await through(step, history_operator(lambda history, step: history))
    assert after.draft is step.draft
    assert after.changes == ()


# -- as an Rx operator --------------------------------------------------------------------------------------


@virtual
async def test_a_lifted_operator_is_an_rx_operator() -> None:
    """It can stand in any pipe of steps, takes them one after the other, and mixes with stock operators."""
    source = reactivex.of(a_step(number=1), a_step(number=2)).pipe(ops.delay(10), with_note_later, with_note)
    recorded = await record(source).ended()
    assert [(each.time, each.kind) for each in recorded.signals] == [
        (70.0, "next"),
        (130.0, "next"),
        (130.0, "completed"),
    ]
    assert [len(step.draft.references) for step in recorded.values] == [2, 2]


async def test_messages_that_an_operator_makes_get_an_id() -> None:
    """A summary is made without an id and gets one; two of them are never taken for one that was rewritten."""

    @history_operator
    def summarise(history: History, step: Step) -> History:
        return history.replace_first(2, Msg.user("in short: one"), Msg.user("in short: two"))

    run = a_run(a_history(["a", "b", "c"]))
    after = await last(summarise(reactivex.of(a_step(run=run))))
    ids = [message.id for message in after.history.messages]
    assert len({*ids}) == 3
    assert all(ids)
    assert [message.text for message in after.history.messages] == ["in short: one", "in short: two", "c"]
