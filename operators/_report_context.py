"""`report_context`: the `context_build` event and its manifest, for requests that are sent and for those refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import reactivex
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import (
    AgentScopeError,
    ContextBudgetExceeded,
    HistoryConflict,
    InvalidToolPairs,
    PreparationLeft,
    StateConflict,
    StepLost,
)
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Attempt
from agentscope_rx.logs import logger
from agentscope_rx.manifest import ContextManifest, Validation
from agentscope_rx.request_tokens import draft_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.tokens import MeasuredRatio

CONTEXT_BUILD: Final = "context_build"
_HYSTERESIS: Final = 0.05
_VALIDATIONS: Final = {
    ContextBudgetExceeded: Validation.BUDGET_EXCEEDED,
    InvalidToolPairs: Validation.INVALID_TOOL_PAIRS,
    StateConflict: Validation.STATE_CONFLICT,
    HistoryConflict: Validation.HISTORY_CONFLICT,
}


def report_context(*, policy: ContextPolicy | None) -> Callable[[Attempt], Attempt]:
    """A guard of `prepare` that tells what the request holds and how it came about.

        --s-------|
        report_context
        ----t-----|     t is what preparation gave
        ----C           events: C context_build

        --s-------|
        report_context     preparation fails
        ----#
        ----C           events: C context_build

    Args:
        policy: The limits that were kept; None = there were none.

    Emits:
        `CUSTOM context_build` with `model_call_id`, `purpose`, `status`, `context_manifest` and, for a failure,
        `error_type`; before any request goes out. A preparation that is left, by a time-out around it or an
        interruption, is a failure, of type `PreparationLeft`.
        `CUSTOM context_pressure` with `level`, `previous_level`, `pressure`, `estimated_tokens` and `limit`, when a
        request is nearer to its limit than the one before by a level, or no longer near to it: a level ends 5 % below
        the share at which it begins.
    """

    def guard(attempt: Attempt) -> Attempt:
        def reported(step: Step) -> Observable[Step]:
            return Observable(partial(_subscribe, attempt, step, policy))

        return reported

    return guard


def _subscribe(
    attempt: Attempt,
    step: Step,
    policy: ContextPolicy | None,
    observer: abc.ObserverBase[Step],
    scheduler: abc.SchedulerBase | None = None,
) -> abc.DisposableBase:
    """Prepare, tell of it, and only then hand the step on: one step, one account."""
    before, passed = step.run.furthest, list[Step]()
    told = False

    def tell(error: Exception) -> None:
        nonlocal told
        told, reached = True, step.run.furthest
        tell_of(step if reached is None or reached is before else reached, policy, error)

    def fail(error: Exception) -> None:
        tell(error)
        observer.on_error(error)

    def complete() -> None:
        nonlocal told
        try:
            if len(passed) != 1:
                raise StepLost(f"preparation let {len(passed)} steps through, and one is the law")
            tell_of(passed[0], policy, None)
            told = True
        except Exception as error:
            fail(error)
            return
        observer.on_next(passed[0])
        observer.on_completed()

    try:
        source = attempt(step)
    except Exception as error:  # from a guard of the user's
        source = reactivex.throw(error)
    preparing = source.subscribe(passed.append, fail, complete, scheduler=scheduler)

    def leave() -> None:
        preparing.dispose()
        if not told:
            tell(PreparationLeft("the request was not prepared to the end: what is around it timed out, or was left"))

    return Disposable(leave)


def _manifest_of(step: Step, policy: ContextPolicy | None, error: Exception | None = None) -> ContextManifest:
    """The account of the request that a step has prepared.

    Args:
        step: The step, as far as it got.
        policy: The limits; None = there are none.
        error: Why it failed; None = it passed.
    """
    card, run = step.card, step.run
    limit = None if policy is None else request_limit(step, policy).limit
    return ContextManifest(
        call_id=step.call_id,
        purpose=step.purpose,
        model=card.name,
        draft=step.draft,
        counter=card.counter if error is None else _able(card.counter, step.draft),
        input_limit=limit,
        window=card.window,
        window_origin=card.window_origin,
        validation=Validation.PASSED if error is None else _validation(error),
        changes=step.changes,
        timings=tuple((timing.operator, timing.seconds) for timing in step.timings),
        previous=run.previous_request,
        task_revision=step.state.tasks_context.revision,
        failed_in="" if error is None else run.running,
        error_code="" if error is None else _code(error),
        pressure_levels=(policy or ContextPolicy()).pressure,
        compaction=step.compaction,
        measured_ratio=run.runtime.single(MeasuredRatio).ratio(card.name),
    )


def _able(counter: TokenCounter | None, draft: RequestDraft) -> TokenCounter | None:
    """The counter, where it can count a request that failed: it may be what has failed."""
    try:
        return None if counter is None or draft_tokens(draft, counter) < 0 else counter
    except Exception:
        return None


def tell_of(step: Step, policy: ContextPolicy | None, error: Exception | None) -> None:
    """Publish the account of a request that a step has prepared; arguments as for `_manifest_of`."""
    manifest = _manifest_of(step, policy, error)
    value: dict[str, object] = {
        "model_call_id": step.call_id,
        "purpose": step.purpose.upper(),
        "status": "passed" if error is None else "failed",
        "context_manifest": manifest,
    }
    if error is not None:
        value["error_type"] = type(error).__name__
    if error is None:
        step.run.manifest = manifest
    if policy is not None and policy.observer is not None:
        _tell(policy.observer, manifest)
    if error is None and step.purpose == "reasoning":
        step.run.previous_request = step.draft
        step.run.estimated_tokens = None if policy is None else manifest.estimated_input_tokens
        step.emit(Custom(name=CONTEXT_BUILD, value=value))
        if policy is not None:
            _tell_pressure(step, manifest)
    else:
        step.emit(Custom(name=CONTEXT_BUILD, value=value))


def _tell_pressure(step: Step, manifest: ContextManifest) -> None:
    before, shares = step.run.pressure_level, manifest.pressure_levels
    held = sum(manifest.pressure >= share - _HYSTERESIS for share in shares[:before])
    level = max(manifest.pressure_level, held)
    if level != before:
        step.run.pressure_level = level
        value = {
            "model_call_id": step.call_id,
            "level": level,
            "previous_level": before,
            "pressure": manifest.pressure,
            "estimated_tokens": manifest.estimated_input_tokens,
            "limit": manifest.input_limit,
        }
        step.emit(Custom(name="context_pressure", value=value))


def _tell(observer: Callable[[ContextManifest], object], manifest: ContextManifest) -> None:
    try:
        observer(manifest)
    except Exception as failure:
        logger().warning("manifest_observer_failed", error=type(failure).__name__)


def _validation(error: Exception) -> Validation:
    return next((each for kind, each in _VALIDATIONS.items() if isinstance(error, kind)), Validation.BUILD_FAILED)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, AgentScopeError) else "build_failed"
