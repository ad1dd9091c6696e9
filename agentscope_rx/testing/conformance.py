"""What every operator must do, as a check that any test framework can run.

    async def checked() -> None:
        await check_operator(lambda: without_old_notes)

    run_virtual(checked)

In virtual time an operator that waits is checked at once. A rule that is not kept is named by a `ConformanceFailed`.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Final, Self, TypeAlias, cast

from pydantic import BaseModel
from reactivex.disposable import SingleAssignmentDisposable

from agentscope_rx.bridge import LoopScheduler, Scope, leave
from agentscope_rx.emitter import Emitter
from agentscope_rx.errors import ConformanceFailed, StepLost
from agentscope_rx.events import AgentEvent
from agentscope_rx.history import Exchange, History
from agentscope_rx.interactions import pending_calls
from agentscope_rx.lifting import Operator, StepOperator
from agentscope_rx.messages import Msg
from agentscope_rx.pipeline import Pipeline, stock_name
from agentscope_rx.records import CallsClosed
from agentscope_rx.session import Intake, take_in
from agentscope_rx.state import AgentState
from agentscope_rx.step import RunHandle, Step
from agentscope_rx.testing.values import a_history, a_step

MakeOperator: TypeAlias = Callable[[], StepOperator]
MakeStep: TypeAlias = Callable[[History], Step]

ONE_OUT: Final = "one step in, one step out"
ENDS: Final = "a run ends"
NOT_CHANGED: Final = "the step that goes in is not changed"
ANEW: Final = "each subscription starts anew"
FAILURE_ARRIVES: Final = "an exception in the function arrives as on_error"
COMPARISON_ARRIVES: Final = "an exception in comparison code arrives as on_error"
LEAVES_NOTHING: Final = "dispose leaves nothing behind"
NEXT_CALL: Final = "after a dispose the session takes the next call"
COSTS_WHAT_IS_NEW: Final = "a step costs what is new"
HEARD: Final = "no error reaches only the event loop"

_MOST_TURNS: Final = 32  # of the loop, after which the subscriber leaves
_MOST_EVENTS: Final = 16  # in which the subscriber leaves
_TURNS_TO_END: Final = 8  # which cancelled tasks of the operator's own may take
_TIMES: Final = frozenset({"timestamp", "time", "created_at"})
_SPARE: Final = 2  # old exchanges that a step may look at beside the new ones


def step_over(history: History) -> Step:
    """A step as it is after `begin_request`, of a session that holds `history`."""
    return a_step(history=history)


async def check_operator(
    make: MakeOperator,
    *,
    step: MakeStep = step_over,
    failing: MakeOperator | None = None,
    old_messages: int = 5_000,
    patience: float = 600.0,
) -> None:
    """Check an operator, lifted or a stock Rx operator on steps, against every rule.

    Args:
        make: Makes the operator.
        step: Makes the step that goes in, over a session of its own that holds the given history. Equal histories
            must give equal steps.
        failing: Makes the operator with a function that raises; None = it cannot be made to.
        old_messages: How long the history is over which a step may cost only what is new.
        patience: Seconds of the loop's time within which the operator must be done.

    Raises:
        ConformanceFailed: With the first rule that is not kept.

    Examples:
        >>> async def checked() -> None:
        ...     await check_operator(lambda: ops.delay(60))
        >>> run_virtual(checked)  # no answer is a good answer
    """
    case = _Case(make, step, failing, old_messages, patience)
    for check in _CHECKS:
        with _every_error_is_heard():
            await check(case)


# -- one subscription ---------------------------------------------------------------------------------------


class _Watcher:
    """One subscription of an operator, as a pipeline makes it."""

    def __init__(self, operator: StepOperator, step: Step) -> None:
        self.name = _name(operator)
        self._attempt = Pipeline.of("checked", operator).attempt
        self._step = step
        self._others = asyncio.all_tasks()
        self._scope = Scope()
        self._subscription = SingleAssignmentDisposable()
        self._subscribed = self._left = False
        self._late: list[str] = []
        self.steps: list[Step] = []
        self.error: Exception | None = None
        self.ended = asyncio.Event()

    def start(self) -> Self:
        token = self._scope.enter()
        scheduler = LoopScheduler(asyncio.get_running_loop())
        try:
            self._subscription.disposable = self._attempt(self._step).subscribe(
                self._on_next, self._on_error, self.ended.set, scheduler=scheduler
            )
        finally:
            leave(token)
        self._subscribed = True
        return self

    def _on_next(self, step: Step) -> None:
        self.steps.append(step)
        self._note("a step")

    def _on_error(self, error: Exception) -> None:
        self.error = error
        self._note(repr(error))
        self.ended.set()

    def _note(self, what: str) -> None:
        if self._left and self._subscribed:  # what is synchronous is over before anything can be disposed
            self._late.append(what)

    async def end(self, patience: float) -> Self:
        """Wait for its end, and for the end of everything below it."""
        try:
            async with asyncio.timeout(patience):
                await self.ended.wait()
        except TimeoutError:
            self.dispose()
            raise self.failed(ENDS, f"after {patience:g} s this one had not") from None
        await self.clear()
        return self

    def dispose(self) -> None:
        self._left = True
        self._subscription.dispose()

    async def clear(self) -> None:
        """Nobody waits any more: hold that nothing is left and nothing comes."""
        await self._scope.join()
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)
        if alive := asyncio.all_tasks() - self._others - {asyncio.current_task()}:
            raise self.failed(LEAVES_NOTHING, f"these tasks are alive: {', '.join(sorted(map(repr, alive)))}")
        if self._late:
            raise self.failed(LEAVES_NOTHING, f"{self._late[0]} came after it")

    def failed(self, rule: str, found: str) -> ConformanceFailed:
        return ConformanceFailed(f"{self.name}: {rule}; {found}")


@dataclass(frozen=True, slots=True)
class _Case:
    make: MakeOperator
    step: MakeStep
    failing: MakeOperator | None
    old_messages: int
    patience: float

    def watcher(self, step: Step | None = None, operator: StepOperator | None = None) -> _Watcher:
        return _Watcher(operator or self.make(), step or self.step(a_history()))

    async def outcome(self, watcher: _Watcher) -> Step:
        """The step that came out, where nothing else may."""
        await watcher.start().end(self.patience)
        if watcher.error is not None:
            found = str(watcher.error) if isinstance(watcher.error, StepLost) else f"it failed with {watcher.error!r}"
            raise watcher.failed(ONE_OUT, found) from watcher.error
        if len(watcher.steps) != 1:
            raise watcher.failed(ONE_OUT, f"{len(watcher.steps)} came out")
        return watcher.steps[0]


# -- the rules ----------------------------------------------------------------------------------------------


async def _one_step_comes_out(case: _Case) -> None:
    step = case.step(a_history())
    before = _picture(step)
    watcher = case.watcher(step)
    await case.outcome(watcher)
    after = _picture(step)
    for part, seen in before.items():
        if after[part] != seen:
            raise watcher.failed(NOT_CHANGED, f"step.{part} was")


async def _each_subscription_starts_anew(case: _Case) -> None:
    operator = case.make()

    async def picture() -> Mapping[str, object]:
        return _picture(await case.outcome(case.watcher(operator=operator)))

    if _picture(case.step(a_history())) != _picture(case.step(a_history())):
        raise ConformanceFailed("step(...) must make equal steps of equal histories")
    first = await picture()
    for again in (await picture(), *await asyncio.gather(picture(), picture())):
        for part, seen in first.items():
            if again[part] != seen:
                raise ConformanceFailed(f"{_name(operator)}: {ANEW}; step.{part} was another one the next time")


async def _a_failure_arrives(case: _Case) -> None:
    if case.failing is None:
        return
    watcher = case.watcher(operator=case.failing())
    await watcher.start().end(case.patience)
    if watcher.error is None:
        raise watcher.failed(FAILURE_ARRIVES, "none did")


async def _a_failed_comparison_arrives(case: _Case) -> None:
    step = case.step(a_history())
    watcher = case.watcher(replace(step, run=_Tripwire(step.run)))
    await watcher.start().end(case.patience)
    if not isinstance(watcher.error, _Tripped):
        raise watcher.failed(COMPARISON_ARRIVES, f"it was {watcher.error!r}")


async def _dispose_leaves_nothing(case: _Case) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        turns = events = 0
        while turns < _MOST_TURNS and await _left_after_turns(case, turns):
            turns += 1
        while events < _MOST_EVENTS and await _left_in_event(case, events):
            events += 1
        gc.collect(1)  # a coroutine that nobody awaited says so when it is collected
    for warning in warned:
        if "never awaited" in str(warning.message):
            raise ConformanceFailed(f"{_name(case.make())}: {LEAVES_NOTHING}; {warning.message}")


async def _left_after_turns(case: _Case, turns: int) -> bool:
    """Leave after some turns of the loop; whether there was still something to leave."""
    step = case.step(a_history())
    watcher = case.watcher(step).start()
    for _ in range(turns):
        await asyncio.sleep(0)
    at_work = not watcher.ended.is_set()
    watcher.dispose()
    await watcher.clear()
    await _next_call_works(case, watcher, step)
    return at_work


async def _left_in_event(case: _Case, number: int) -> bool:
    """Leave from inside an event; whether there were so many."""
    step = case.step(a_history())
    watcher = case.watcher(step)
    emit, seen = step.run.emit, 0

    def emitted(event: AgentEvent) -> AgentEvent:
        nonlocal seen
        event = emit(event)
        seen += 1
        if seen == number + 1:
            watcher.dispose()
            watcher.ended.set()
        return event

    step.run.emit = cast(Emitter, emitted)
    await watcher.start().end(case.patience)
    await _next_call_works(case, watcher, step)
    return seen > number


async def _next_call_works(case: _Case, watcher: _Watcher, step: Step) -> None:
    state, runtime = step.run.state, step.run.runtime
    intake = Intake(new_id=lambda: runtime.ids.new_id("message"), now=runtime.clock.now())
    try:
        if pending_calls(state.context):  # given up first: nothing else may come in between
            state = state.apply(CallsClosed(tuple(map(intake.closing, state.context.open_calls))))
        for record in take_in(state.context, (Msg.user("And now?"),), intake):
            state = state.apply(record)
        body = state.to_json()
        loaded = AgentState.from_json(body)
    except Exception as error:
        raise watcher.failed(NEXT_CALL, f"it was refused with {error!r}") from error
    if loaded.to_json() != body:
        raise watcher.failed(NEXT_CALL, "it was another one after it was stored and loaded")
    if state.context.open_calls:
        raise watcher.failed(NEXT_CALL, f"these tool calls stayed open: {state.context.open_calls}")
    await case.outcome(case.watcher(case.step(state.context)))


async def _a_step_costs_what_is_new(case: _Case) -> None:
    operator, watch = case.make(), _Watch()
    old = History(_WatchedExchange(watch, *exchange.messages) for exchange in a_history(case.old_messages))
    first = await case.outcome(case.watcher(case.step(old), operator))
    new = (replace(Msg.user("new question"), id="new-0"), replace(Msg.assistant("new answer"), id="new-1"))
    watcher = case.watcher(case.step(first.history.append(*new)), operator)
    watch.seen.clear()
    await case.outcome(watcher)
    allowed = len(new) + _SPARE
    if (looked := len(watch.seen)) > allowed:
        raise watcher.failed(
            COSTS_WHAT_IS_NEW,
            f"with {len(new)} new messages it looked at {looked} old exchanges of {len(old)}, not at {allowed} or "
            "less. Give map(), map_text() and measure() a function or measure that lives as long as the process",
        )


_CHECKS: Final[tuple[Callable[[_Case], Awaitable[None]], ...]] = (
    _one_step_comes_out,
    _each_subscription_starts_anew,
    _a_failure_arrives,
    _a_failed_comparison_arrives,
    _dispose_leaves_nothing,
    _a_step_costs_what_is_new,
)


# -- what they use ------------------------------------------------------------------------------------------


class _Tripped(Exception):
    """What comparison code raises over a tripwire."""


class _Tripwire(RunHandle):
    """The run of a step, with which the kernel's look at what an operator has done fails."""

    __slots__ = ("_run",)

    def __init__(self, run: RunHandle) -> None:
        self._run = run
        for name in RunHandle.__slots__:
            if name != "furthest":
                setattr(self, name, getattr(run, name))

    @property
    def furthest(self) -> Step | None:
        return self._run.furthest

    @furthest.setter
    def furthest(self, step: Step | None) -> None:  # type: ignore[reportIncompatibleVariableOverride]
        raise _Tripped("the comparison failed")


class _Watch:
    """Who was looked at."""

    def __init__(self) -> None:
        self.seen: set[int] = set()


class _WatchedExchange(Exchange):
    """An exchange that tells when somebody reads its messages; its id is free."""

    __slots__ = ("_held", "_watch")

    def __init__(self, watch: _Watch, *messages: Msg) -> None:
        self._watch = watch
        super().__init__(*messages)

    @property
    def messages(self) -> tuple[Msg, ...]:  # type: ignore[override]
        self._watch.seen.add(id(self))
        return self._held

    @messages.setter
    def messages(self, messages: tuple[Msg, ...]) -> None:
        self._held = messages

    @property
    def id(self) -> str:
        return self._held[0].id


@contextmanager
def _every_error_is_heard() -> Generator[None]:
    loop, troubles = asyncio.get_running_loop(), list[str]()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(
        lambda _, context: troubles.append(f"{context.get('message')}: {context.get('exception')!r}")
    )
    try:
        yield
    except ConformanceFailed as error:
        for trouble in troubles:
            error.add_note(f"meanwhile, in the event loop: {trouble}")
        raise
    finally:
        loop.set_exception_handler(usual)
    if troubles:
        raise ConformanceFailed(f"{HEARD}; this one did: {troubles[0]}")


def _name(operator: StepOperator) -> str:
    return operator.name if isinstance(operator, Operator) else stock_name(operator)


def _picture(step: Step) -> Mapping[str, object]:
    """The data of a step, part by part, without moments and durations: a clock goes on."""
    return {part.name: _plain(getattr(step, part.name)) for part in fields(step) if part.name not in ("run", "timings")}


def _plain(value: object) -> object:
    match value:
        case History():
            return tuple(_plain(message) for message in value.messages)
        case Exchange():
            return tuple(_plain(message) for message in value.messages)
        case BaseModel():
            return (type(value), _plain(value.model_dump()))
        case Mapping():
            return {key: _plain(each) for key, each in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return tuple(_plain(each) for each in cast("tuple[object, ...]", value))
        case _ if is_dataclass(value):
            parts = tuple(part for part in fields(value) if part.compare and part.name not in _TIMES)
            return (type(value), tuple(_plain(getattr(value, part.name)) for part in parts))
        case _:
            return value
