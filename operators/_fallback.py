"""`fallback`: another model for a call that the own one cannot answer, with a request for its own window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.errors import ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Attempt
from agentscope_rx.step import ModelCard, Step


def fallback(*, card: ModelCard) -> Callable[[Attempt], Attempt]:
    """A guard of `request` that asks another model when the agent's own cannot answer; it is kept for the whole call.

        --s---------------|
        fallback
        -----------t------|     t.reply is the other model's
        ----o                   model
        --S-(EFS)--(bheE)       events: S MODEL_CALL_START, E MODEL_CALL_END, F model_fallback, b TEXT_BLOCK_START,
                                e TEXT_BLOCK_END

        --s---------------|
        fallback     the answer has begun
        --------#
        ----h---o               model
        --S-(bh)(eE)            events: S MODEL_CALL_START, b TEXT_BLOCK_START, e TEXT_BLOCK_END, E MODEL_CALL_END

    An answer that had begun is not asked for again. The other model gets a request of its own, prepared for its
    window. What was shortened only for that stays out of the session's history.

    Args:
        card: The other model.

    Emits:
        `CUSTOM model_fallback` with `failed_call_id`, `error`, `from` and `to`, before the other model's request.

    Raises:
        ProviderError: The other model's; the first model's is its cause.
    """

    def guard(attempt: Attempt) -> Attempt:
        def with_another(step: Step) -> Observable[Step]:
            def again(error: Exception, _: Observable[Step]) -> Observable[Step]:
                if not isinstance(error, ProviderError) or not step.card.own or step.run.answer_begun:
                    return reactivex.throw(error)
                failed = step.run.furthest or step
                names = {"from": step.card.name, "to": card.name}
                value = {"failed_call_id": failed.call_id, "error": error.kind, **names}
                step.run.retry_told = True
                step.emit(Custom(name="model_fallback", value=value))
                return attempt(replace(step, card=card)).pipe(ops.catch(lambda later, _: _caused(later, error)))

            return attempt(step).pipe(ops.catch(again))

        return with_another

    return guard


def _caused(later: Exception, first: ProviderError) -> Observable[Step]:
    if later.__cause__ is None:
        later.__cause__ = first
    return reactivex.throw(later)
