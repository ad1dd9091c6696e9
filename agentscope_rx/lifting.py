"""Operators: how a function of the author's becomes a step of the pipeline.

Here, and only here, an exception becomes `on_error`, drafts are compared, time is taken, and one step in = one step
out is held.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar

from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import SerialDisposable, SingleAssignmentDisposable

from agentscope_rx.bridge import from_awaitable
from agentscope_rx.draft import RequestDraft, changes_between, versions_kept
from agentscope_rx.edits import apply_edits, edits_between
from agentscope_rx.errors import EditRefused, StepLost
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.step import Step, Timing

T = TypeVar("T")
StepOperator: TypeAlias = Callable[[Observable[Step]], Observable[Step]]
Attempt: TypeAlias = Callable[[Step], Observable[Step]]
Kind: TypeAlias = Literal["view", "history", "effect", "group"]
Outcome: TypeAlias = "Step | Awaitable[Step] | Observable[Step]"
ViewFunction: TypeAlias = Callable[[RequestDraft, Step], "RequestDraft | Awaitable[RequestDraft]"]
HistoryFunction: TypeAlias = Callable[[History, Step], "History | Awaitable[History]"]
EffectFunction: TypeAlias = Callable[[Step], Outcome]


@frozen
class Operator:
    """A step operator with a name and a kind. Neighbours in a pipeline run in one subscription.

    Args:
        name: How the pipeline, manifests and errors call it.
        kind: `view` changes this request only, `history` proposes a new working history, `effect` talks to the
            world.
        handle: What it does with one step.
        function: The author's plain function.
        note: What `print(pipeline)` says about its options.
        reason: The code under which manifests give its changes; empty = its name.
        for_window: Whether a history operator shortens only for the model's window: what it did for a model that
            stands in for the agent's own is not kept.
        wording: The function of a text operator; None = it is no text operator.
    """

    name: str
    kind: Kind
    handle: Callable[[Step], Outcome]
    function: Callable[..., Any]
    note: str = ""
    reason: str = ""
    for_window: bool = False
    wording: Callable[[str], str] | None = None

    def __call__(self, source: Observable[Step]) -> Observable[Step]:
        return source.pipe(ops.concat_map(lambda step: chain((self,), step)))

    def noted(self, before: Step, after: Step, seconds: float) -> Step:
        """What it gave, with a note of what it did; the operators of a group have made theirs."""
        if self.kind == "group":
            return expected(Step, after)
        after = noted(before, after, self.name, seconds, reason=self.reason)
        if self.kind == "history" and not after.card.own and after.history is not before.history:
            return replace(after, lasting=self._lasting(before, after))
        return after

    def _lasting(self, before: Step, after: Step) -> History:
        """What stays of the history when the agent's own model is back."""
        kept = before.history if before.lasting is None else before.lasting
        return kept if self.for_window else apply_edits(edits_between(before.history, after.history), kept)


def view_operator(function: ViewFunction) -> Operator:
    """Lift a function, plain or async, that changes this request only.

        --s----|
        view_operator
        --t----|     t is s with another draft

        --s----|
        view_operator     the function is async
        ----t--|          t is s with another draft

    Args:
        function: Gets the draft and the step; gives a draft.

    Examples:
        >>> @view_operator
        ... def without_references(draft: RequestDraft, step: Step) -> RequestDraft:
        ...     return draft.without((block.id for block in draft.references), reason="too_much")
        >>> without_references.kind
        'view'
    """

    def handle(step: Step) -> Outcome:
        return _then(
            function(step.draft, step),
            RequestDraft,
            lambda draft: step if draft is step.draft else replace(step, draft=draft),
        )

    return Operator(name=name_of(function), kind="view", handle=handle, function=function)


def text_operator(function: Callable[[str], str]) -> Operator:
    """Lift a function of one text: a view operator that is remembered per message.

        --s----|
        text_operator
        --t----|     t is s with other texts in its draft

    Args:
        function: Gets a text, gives a text. A module-level function: it is remembered by its identity.

    Examples:
        >>> @text_operator
        ... def without_tabs(text: str) -> str:
        ...     return text.expandtabs()
        >>> without_tabs.function("a\\tb")
        'a       b'
    """

    def handle(step: Step) -> Step:
        return replace(step, draft=step.draft.map_text(function))

    return Operator(name=name_of(function), kind="view", handle=handle, function=function, wording=function)


def history_operator(function: HistoryFunction) -> Operator:
    """Lift a function, plain or async, that proposes a new working history.

        --s----|
        history_operator
        --t----|     t.history is the proposal, and t.draft shows it

        --s----|
        history_operator     the proposal reorders exchanges
        --#

    The proposal is made of whole exchanges: some may give way to others, none may be reordered or added where none
    was. It is applied to this request at once and to the session by `commit_history`. A message that a view
    operator has already put in other words keeps them in this request.

    Args:
        function: Gets the history and the step; gives a history.

    Raises:
        EditRefused: Through the stream, when the proposal breaks a rule.
    """
    name = name_of(function)

    def handle(step: Step) -> Outcome:
        return _then(function(step.history, step), History, lambda history: proposed(step, history, name))

    return Operator(name=name, kind="history", handle=handle, function=function)


def effect_operator(function: EffectFunction) -> Operator:
    """Lift a function that talks to the world: it gives a step, an awaitable of one, or an Observable of one.

        --s----|
        effect_operator
        ----t--|     t is the step that it gave
        --ab         events: a first, b second

        --s----|
        effect_operator     its Observable gives a second step
        -----#

    Args:
        function: Gets the step; may call `step.emit(event)`.
    """
    return Operator(name=name_of(function), kind="effect", handle=function, function=function)


def name_of(function: object) -> str:
    """The name of a function, of what a partial holds, or of a callable's class."""
    while (inner := getattr(function, "func", None)) is not None:
        function = inner
    return str(getattr(function, "__name__", type(function).__name__))


def chain(operators: Sequence[Operator], first: Step) -> Observable[Step]:
    """One step through neighbouring operators, in one subscription.

    What is synchronous is a loop; what is not is subscribed when its turn comes. A step that asks to finish goes
    past all that is left.

    Args:
        operators: The operators, in order.
        first: The step that enters.
    """

    def subscribe(observer: abc.ObserverBase[Step], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        passing = _Passing(operators, observer, scheduler)
        passing.advance(first, 0)
        return passing.waiting

    return Observable(subscribe)


class _Passing:
    """One subscription of a chain."""

    __slots__ = ("observer", "operators", "scheduler", "waiting")

    def __init__(
        self,
        operators: Sequence[Operator],
        observer: abc.ObserverBase[Step],
        scheduler: abc.SchedulerBase | None,
    ) -> None:
        self.operators, self.observer, self.scheduler = operators, observer, scheduler
        self.waiting = SerialDisposable()

    def advance(self, step: Step, index: int) -> None:
        operators, clock = self.operators, step.run.runtime.clock
        started = clock.monotonic()
        try:
            while index < len(operators) and step.finished is None:
                operator = operators[index]
                step.run.running = operator.name
                outcome = operator.handle(step)
                if not isinstance(outcome, Step):
                    self.wait(step, index, outcome, started)
                    return
                now = clock.monotonic()
                step = operator.noted(step, outcome, now - started)
                started, index = now, index + 1
        except Exception as error:
            self.fail(error, operators[index].name)
            return
        self.observer.on_next(step)
        self.observer.on_completed()

    def wait(self, step: Step, index: int, outcome: Awaitable[Step] | Observable[Step], started: float) -> None:
        operator, name = self.operators[index], self.operators[index].name
        passed: list[Step] = []

        def on_next(after: Step) -> None:
            passed.append(after)
            if len(passed) == 2:
                self.fail(StepLost(f"{name} let a second step through: all behind it would be done twice"), name)
                self.waiting.dispose()

        def on_completed() -> None:
            if len(passed) != 1:
                self.fail(StepLost(f"{name} let no step through; raise an error to stop a run"), name)
                return
            try:
                after = operator.noted(step, passed[0], step.run.runtime.clock.monotonic() - started)
            except Exception as error:
                self.fail(error, name)
                return
            self.advance(after, index + 1)

        def on_error(error: Exception) -> None:
            self.fail(error, name)

        subscription = SingleAssignmentDisposable()
        self.waiting.disposable = subscription
        if isinstance(outcome, Observable):
            source = outcome
        elif inspect.isawaitable(outcome):
            source = from_awaitable(outcome, lambda after: expected(Step, after))
        else:
            raise TypeError(f"a Step, an awaitable or an Observable was expected of it, and it gave {outcome!r:.80}")
        subscription.disposable = source.subscribe(on_next, on_error, on_completed, scheduler=self.scheduler)

    def fail(self, error: Exception, name: str) -> None:
        note = f"in the operator {name!r}"
        if not any(each.startswith("in the operator") for each in getattr(error, "__notes__", ())):
            error.add_note(note)
        self.observer.on_error(error)


def expected(kind: type[T], result: object) -> T:
    """What an author's function gave, if it is what it has to give."""
    if not isinstance(result, kind):
        raise TypeError(f"a {kind.__name__} was expected of it, and it gave {result!r:.80}")
    return result


def noted(before: Step, after: Step, name: str, seconds: float, *, reason: str = "") -> Step:
    """Write down what an operator did: its changes, its time, and that the run has come this far.

    A step with a new `call_id` is a new request: there is nothing to compare it with.

    Args:
        before: The step that it got.
        after: What it gave.
        name: Its name.
        seconds: How long it took.
        reason: The code for its changes; empty = its name.
    """
    changes = expected(Step, after).changes
    if after.draft is not before.draft and after.call_id == before.call_id:
        changes = (*changes, *changes_between(before.draft, after.draft, name, reason or name))
    after = replace(after, changes=changes, timings=(*after.timings, Timing(name, seconds)))
    after.run.furthest = after
    return after


def _then(result: T | Awaitable[T], kind: type[T], use: Callable[[T], Step]) -> Outcome:
    if not inspect.isawaitable(result):
        return use(expected(kind, result))
    return from_awaitable(result, lambda later: use(expected(kind, later)))


def proposed(step: Step, history: History, name: str) -> Step:
    """The step with another working history, which its request shows at once.

    Args:
        step: The step.
        history: The proposal.
        name: Whose it is.

    Raises:
        EditRefused: It breaks a rule.
    """
    if history is step.history:
        return step
    history = history.identified(lambda: step.run.runtime.ids.new_id("message"))
    try:
        edits = edits_between(step.history, history)
    except ValueError as error:
        raise EditRefused(name, str(error)) from error
    view, changes = history, step.changes
    if step.draft.conversation is not step.history:
        view = apply_edits(edits, step.draft.conversation)
        changes = (*changes, *versions_kept(edits, view, name))
    return replace(step, history=history, draft=replace(step.draft, conversation=view), changes=changes)
