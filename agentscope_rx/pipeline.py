"""Pipeline: named operators in groups, as a value that can be printed, changed and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from reactivex import Observable, abc
from reactivex import operators as ops

from agentscope_rx.draft import TextFunction
from agentscope_rx.errors import PipelineError, StepLost
from agentscope_rx.frozen import frozen
from agentscope_rx.lifting import Attempt, Kind, Operator, StepOperator, chain, name_of, noted
from agentscope_rx.step import Step

Guard: TypeAlias = Callable[[Attempt], Attempt]
Entry: TypeAlias = "Operator | StockOperator | Pipeline"
_REQUIRED: Final = ("begin_request", "commit_history", "call_model")


@frozen
class StockOperator:
    """An Rx operator in the pipeline: its source is everything before it in its group."""

    name: str
    operator: StepOperator


@frozen
class NamedGuard:
    """What decides how a group, or one operator, is run: again, within a time, with another model."""

    name: str
    guard: Guard


@frozen
class Description:
    """One line of `print(pipeline)`.

    Args:
        name: The operator or group.
        kind: What it is; `rx` for a stock operator.
        depth: How many groups it lies in.
        guards: The names of its guards, innermost first.
        note: What else there is to say.
    """

    name: str
    kind: Kind | Literal["rx"]
    depth: int
    guards: tuple[str, ...] = ()
    note: str = ""


@frozen
class Pipeline:
    """Operators in order, under a name. Every change gives another pipeline.

    Args:
        name: The group's name.
        entries: Operators, stock operators and groups.
        guards: How the group is run, innermost first.

    Examples:
        >>> from agentscope_rx.lifting import view_operator
        >>> @view_operator
        ... def look(draft, step):
        ...     return draft
        >>> print(Pipeline.of("prepare", look))
        prepare
          look                     view
    """

    name: str
    entries: tuple[Entry, ...] = ()
    guards: tuple[NamedGuard, ...] = ()
    single: bool = False

    @classmethod
    def of(cls, name: str, *operators: StepOperator | Pipeline) -> Pipeline:
        """Make a group of operators.

        Raises:
            PipelineError: Two of them have one name.
        """
        return cls(name=name, entries=tuple(_entry(operator) for operator in operators))._checked()

    # -- changing -------------------------------------------------------------------------------------------

    def insert_before(self, anchor: str, operator: StepOperator, *, name: str | None = None) -> Pipeline:
        """Put an operator into the stream before `anchor`.

        A stock Rx operator there sees, times and repeats everything before it in its group; `around` limits it to
        one operator.

        Args:
            anchor: A name of this pipeline.
            operator: A lifted function, or any Rx operator on steps.
            name: Its name, where its own is taken already.

        Raises:
            PipelineError: No operator is called `anchor`, or the new one's name is taken.
        """
        return self._edit(anchor, lambda entry: (_entry(operator, name), entry))

    def insert_after(self, anchor: str, operator: StepOperator, *, name: str | None = None) -> Pipeline:
        """Put an operator into the stream after `anchor`; arguments and errors as in `insert_before`."""
        return self._edit(anchor, lambda entry: (entry, _entry(operator, name)))

    def replace(self, anchor: str, operator: StepOperator, *, name: str | None = None) -> Pipeline:
        """Put an operator in the place of `anchor`, under the same name unless another is given; guards stay."""
        new = _entry(operator, name or anchor)

        def change(old: Entry) -> tuple[Entry, ...]:
            if not isinstance(old, Pipeline) or not old.guards:
                return (new,)
            if isinstance(new, Pipeline):
                return (replace(new, guards=(*new.guards, *old.guards)),)
            return (replace(old, name=new.name, entries=(new,), single=True),)

        return self._edit(anchor, change)

    def remove(self, anchor: str) -> Pipeline:
        """Leave an operator out."""
        return self._edit(anchor, lambda _: ())

    def around(self, anchor: str, operator: StepOperator, *, name: str | None = None) -> Pipeline:
        """Apply an Rx operator to one operator or group alone: `around("load_sources", ops.timeout(10))`."""
        label = name or stock_name(operator)

        def guard(attempt: Attempt) -> Attempt:
            return lambda step: _stock(StockOperator(name=label, operator=operator), attempt(step), step)

        return self.guard(anchor, guard, name=label)

    def guard(self, anchor: str, guard: Guard, *, name: str | None = None) -> Pipeline:
        """Let `guard` decide how an operator or group is run; the newest guard is the outermost.

        Args:
            anchor: A name of this pipeline, its own included.
            guard: Gets the attempt (one step in, an Observable of one step out), gives another.
            name: What the pipeline shows.
        """
        named = NamedGuard(name=name or name_of(guard), guard=guard)
        if anchor == self.name:
            return replace(self, guards=(*self.guards, named))
        return self._edit(anchor, lambda entry: (_guarded(entry, named),))

    def _edit(self, anchor: str, change: Callable[[Entry], tuple[Entry, ...]]) -> Pipeline:
        found = False

        def edit(group: Pipeline) -> Pipeline:
            nonlocal found
            entries: list[Entry] = []
            for entry in group.entries:
                if entry.name == anchor and not group.single:
                    found = True
                    entries.extend(change(entry))
                else:
                    entries.append(edit(entry) if isinstance(entry, Pipeline) else entry)
            return replace(group, entries=tuple(entries))

        changed = edit(self)
        if not found:
            raise PipelineError(f"the pipeline has no operator {anchor!r}; it has {', '.join(self.names)}")
        return changed._checked()

    def _checked(self) -> Pipeline:
        names = self.names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PipelineError(f"two operators are called {', '.join(twice)}: give one of them name=...")
        return self

    def check_complete(self) -> Pipeline:
        """Raise `PipelineError` unless the operators that a step cannot do without are there, in order."""
        places = [self.names.index(name) if name in self.names else None for name in _REQUIRED]
        missing = [name for name, place in zip(_REQUIRED, places, strict=True) if place is None]
        if missing:
            raise PipelineError(f"the pipeline lacks {', '.join(missing)}, which no step can do without")
        if places != sorted(place for place in places if place is not None):
            raise PipelineError(f"{', '.join(_REQUIRED)} must come in this order; it is {', '.join(self.names)}")
        if next(iter(_operators(self))).name != _REQUIRED[0]:
            raise PipelineError("begin_request must be the first operator: it takes the snapshot that all others see")
        return self

    def group(self, name: str) -> Pipeline:
        """A group of this pipeline, with its guards.

        Raises:
            PipelineError: There is no such group.
        """
        for entry in self.entries:
            if isinstance(entry, Pipeline):
                if entry.name == name and not entry.single:
                    return entry
                if name in entry.names:
                    return entry.group(name)
        raise PipelineError(f"the pipeline has no group {name!r}; it has {', '.join(self.names)}")

    def after(self, name: str) -> Pipeline:
        """What comes behind an operator: the entries of the outermost group that follow the one which holds it."""
        held = [entry.name == name or (isinstance(entry, Pipeline) and name in entry.names) for entry in self.entries]
        return replace(self, entries=self.entries[held.index(True) + 1 :])

    # -- looking --------------------------------------------------------------------------------------------

    @property
    def wording(self) -> tuple[TextFunction, ...]:
        """The functions of its text operators, in order: how its requests word their texts."""
        found = (each.wording for each in _operators(self) if isinstance(each, Operator))
        return tuple(function for function in found if function is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all operators and groups below this one, in order."""
        return tuple(line.name for line in self.describe()[1:])

    def describe(self) -> tuple[Description, ...]:
        """The pipeline as data, line by line, as it prints."""
        return tuple(_describe(self, 0))

    def __str__(self) -> str:
        return "\n".join(_line(each) for each in self.describe())

    # -- running --------------------------------------------------------------------------------------------

    def attempt(self, step: Step) -> Observable[Step]:
        """One step through the guards and all that they guard."""
        return chain((self._as_operator(),), step) if self.guards else self._unguarded(step)

    def _as_operator(self) -> Operator:
        """This group as one operator, so that its guards, too, let one step out for one that goes in."""
        return Operator(name=self.name, kind="group", handle=self._guarded, function=self._guarded)

    def _guarded(self, step: Step) -> Observable[Step]:
        attempt: Attempt = self._unguarded
        for each in self.guards:
            attempt = each.guard(attempt)
        return attempt(step)

    def _unguarded(self, step: Step) -> Observable[Step]:
        source: Observable[Step] | None = None
        neighbours: list[Operator] = []
        for entry in self.entries:
            if isinstance(entry, StockOperator):
                source = _stock(entry, _joined(source, neighbours, step), step)
                neighbours = []
            elif isinstance(entry, Pipeline):
                neighbours.append(entry._as_operator())
            else:
                neighbours.append(entry)
        return _joined(source, neighbours, step)

    def __call__(self, source: Observable[Step]) -> Observable[Step]:
        return source.pipe(ops.concat_map(self.attempt))


def stock_name(operator: object) -> str:
    """The name of a stock Rx operator: `ops.timeout(10)` is a closure over a function called `timeout_`."""
    for cell in getattr(operator, "__closure__", None) or ():
        inner = getattr(cell.cell_contents, "__name__", "")
        if inner.endswith("_"):
            return f"rx.{inner[:-1]}"
    own = str(getattr(operator, "__qualname__", "")).split(".")[0]
    return f"rx.{own.strip('_')}" if own and own != "<lambda>" else "rx.operator"


def _entry(operator: StepOperator | Pipeline, name: str | None = None) -> Entry:
    if isinstance(operator, Pipeline):
        return operator if name is None else replace(operator, name=name)
    if isinstance(operator, Operator):
        return operator if name is None else replace(operator, name=name)
    return StockOperator(name=name or stock_name(operator), operator=operator)


def _guarded(entry: Entry, guard: NamedGuard) -> Entry:
    if isinstance(entry, StockOperator):
        raise PipelineError(
            f"{entry.name} cannot be guarded: it acts on everything before it in its group, and alone it would act on "
            "nothing. Put the guard around an operator or a group, or the stock operator around one"
        )
    group = entry if isinstance(entry, Pipeline) else Pipeline(name=entry.name, entries=(entry,), single=True)
    return replace(group, guards=(*group.guards, guard))


def _joined(source: Observable[Step] | None, operators: list[Operator], step: Step) -> Observable[Step]:
    if source is None:
        return chain(tuple(operators), step)
    if not operators:
        return source
    rest = tuple(operators)
    return source.pipe(ops.concat_map(lambda each: chain(rest, each)))


def _stock(entry: StockOperator, source: Observable[Step], entering: Step) -> Observable[Step]:
    """A stock operator, with what goes in and what comes out compared, timed and counted."""

    def subscribe(observer: abc.ObserverBase[Step], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        clock = entering.run.runtime.clock
        before, started, passed = entering, clock.monotonic(), 0

        def enter(step: Step) -> None:
            nonlocal before, started
            before, started = step, clock.monotonic()
            step.run.running = entry.name

        def on_next(step: Step) -> None:
            nonlocal passed
            passed += 1
            if passed > 1:
                lost = f"{entry.name} let a second step through: all behind it would be done, and paid, twice"
                observer.on_error(StepLost(lost))
                return
            try:
                after = noted(before, step, entry.name, clock.monotonic() - started)
            except Exception as error:  # raised here it would end in the task that has brought the step
                on_error(error)
                return
            observer.on_next(after)

        def on_error(error: Exception) -> None:
            observer.on_error(_named(error, entry.name))

        def on_completed() -> None:
            if passed:
                observer.on_completed()
            else:
                observer.on_error(StepLost(f"{entry.name} let no step through; raise an error to stop a run"))

        seen = source.pipe(ops.do_action(enter))
        return entry.operator(seen).subscribe(on_next, on_error, on_completed, scheduler=scheduler)

    return Observable(subscribe)


def named_timeout(error: Exception, name: str) -> Exception:
    """The time-out of a stock operator, which is a bare Exception, as a TimeoutError that says whose it is."""
    bare = type(error) is Exception and str(error) == "Timeout"
    return TimeoutError(f"{name}: nothing came through in time") if bare else error


def _named(error: Exception, name: str) -> Exception:
    error = named_timeout(error, name)
    if not getattr(error, "__notes__", ()) and name not in str(error):
        error.add_note(f"in the operator {name!r}")
    return error


def _operators(group: Pipeline) -> Iterator[Operator | StockOperator]:
    for entry in group.entries:
        if isinstance(entry, Pipeline):
            yield from _operators(entry)
        else:
            yield entry


def _describe(entry: Entry, depth: int) -> Iterator[Description]:
    if isinstance(entry, StockOperator):
        yield Description(name=entry.name, kind="rx", depth=depth)
        return
    if isinstance(entry, Operator):
        yield Description(name=entry.name, kind=entry.kind, depth=depth, note=entry.note)
        return
    guards = tuple(guard.name for guard in entry.guards)
    if entry.single:
        (inner,) = _describe(entry.entries[0], depth)
        yield replace(inner, guards=guards)
        return
    yield Description(name=entry.name, kind="group", depth=depth, guards=guards)
    for each in entry.entries:
        yield from _describe(each, depth + 1)


def _line(each: Description) -> str:
    indent = "  " * each.depth
    name = f"{indent}{each.name:<{29 - len(indent)}}"
    kind = "" if each.kind == "group" else f"{each.kind:<9}"
    guards = f"({', '.join(each.guards)})" if each.guards else ""
    return f"{name}{kind}{guards:<15} {each.note}".rstrip()
