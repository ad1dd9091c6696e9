"""`recover_overflow`: what happens when a provider finds a request too long that we did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.context.limit import input_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import ContextOverflow, NotShortened, OutputCap, ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Attempt
from agentscope_rx.step import Pressed, Step

#: What a request may have from now on, by what the refused one was estimated at.
_SHARE: Final = 0.9
#: Below this share of the limit an estimate does not say why a request was refused.
_PLAUSIBLE: Final = 0.5
#: Where there would be room for less, it is the input that is too long.
_LEAST_OUTPUT: Final = 256


def recover_overflow(*, policy: ContextPolicy) -> Callable[[Attempt], Attempt]:
    """A guard of `request` that has one more try, with a shorter request, when the provider finds it too long.

        --s---------------|
        recover_overflow
        -----------t------|     t.pressed says how many tokens it may have
        ----o------(h|)         model
        --S-(EOS)--(bheE)       events: S MODEL_CALL_START, E MODEL_CALL_END, O overflow_recovery, b TEXT_BLOCK_START,
                                e TEXT_BLOCK_END

        --s---------------|
        recover_overflow     the second one is refused too
        -----------#
        ----o------o            model
        --S-(EOS)--E            events: S MODEL_CALL_START, E MODEL_CALL_END, O overflow_recovery

    The second request is prepared anew and under pressure: the history is compacted whatever its size. Where nothing
    can be made shorter, the provider's error is raised and no second request is sent. A provider that refuses the
    length of the *answer* gets the same request with a lower `max_tokens`. A second refusal is raised.

    Args:
        policy: How large a request may be.

    Emits:
        `CUSTOM overflow_recovery` with `failed_call_id`, `error`, and `limit` or `max_tokens`, before the second try.
    """

    def guard(attempt: Attempt) -> Attempt:
        def recovered(step: Step) -> Observable[Step]:
            def again(error: Exception, _: Observable[Step]) -> Observable[Step]:
                second = _second_try(step, error, policy)
                if second is None:
                    return reactivex.throw(error)
                return attempt(second).pipe(ops.catch(lambda later, _: reactivex.throw(_the_one(error, later))))

            return attempt(step).pipe(ops.catch(again))

        return recovered

    return guard


def _second_try(step: Step, error: Exception, policy: ContextPolicy) -> Step | None:
    if not isinstance(error, ProviderError) or step.run.answer_begun:
        return None
    failed = step.run.furthest or step
    value: dict[str, object] = {"failed_call_id": failed.call_id, "error": error.kind}
    if isinstance(error, OutputCap) and (error.limit is None or error.limit >= _LEAST_OUTPUT):
        asked = failed.draft.options.output_limit
        if error.limit is None or asked is None or asked <= error.limit:
            return None
        second = replace(step, max_output=error.limit)
        value["max_tokens"] = error.limit
    elif _is_overflow(error, failed):
        second = replace(step, pressed=_pressed(failed, error, policy))
        value["limit"] = error.limit if isinstance(error, ContextOverflow) else None
    else:
        return None
    step.run.retry_told = True
    step.emit(Custom(name="overflow_recovery", value=value))
    return second


def _is_overflow(error: ProviderError, failed: Step) -> bool:
    """Whether the request was too long: by what the provider says, or by our estimate where it says next to nothing."""
    if isinstance(error, ContextOverflow | OutputCap):
        return True
    window, tokens = failed.card.window, failed.run.estimated_tokens
    return error.may_be_overflow and window is not None and tokens is not None and tokens >= _SHARE * window


def _pressed(failed: Step, error: ProviderError, policy: ContextPolicy) -> Pressed:
    """What the refusal tells: how many tokens a request may have, by our own count."""
    tokens, options = failed.run.estimated_tokens, failed.draft.options
    limit = input_limit(failed.card.window, options.output_limit or 0, policy).limit
    known: list[int] = []
    said = error.limit if isinstance(error, ContextOverflow) else None
    if said is not None and (told := input_limit(said, options.output_limit or 0, policy).limit) < limit:
        known.append(told)
    if tokens is not None and tokens >= _PLAUSIBLE * min([limit, *known]):
        known.append(int(_SHARE * tokens))
    return Pressed(tokens=tokens, learned=min(known) if known else None)


def _the_one(first: Exception, later: Exception) -> Exception:
    """Of the errors of both tries the one that says what is wrong."""
    return first if isinstance(later, NotShortened) else later
