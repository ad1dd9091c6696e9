"""`offer_output`: a structured answer is asked for, natively or by a tool; `_settle_output` takes it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import BadRequest
from agentscope_rx.lifting import Attempt, Operator, view_operator
from agentscope_rx.step import Mode, Step
from agentscope_rx.tools.outputs import OUTPUT_TOOL, OutputSpec
from agentscope_rx.wire import to_json

_REFUSED: Final = "output_format_refused"
_BY_TOOL: Final = f"When your work is done, give the final answer by calling {OUTPUT_TOOL}. Plain text is no answer."
_AS_TEXT: Final = "Answer with nothing but a JSON value that fits this schema:\n{}"
_CORRECTED: Final = "Your last answer has not the form that is asked for:\n{}\nGive it again, in that form."


def offer_output(*, output: OutputSpec) -> Operator:
    """Say in which form the answer is wanted: as the provider's format where it has one, else by a tool.

        --s-------|
        offer_output
        --t-------|     t.draft asks for the form

    Args:
        output: The form.
    """

    @view_operator
    def offer_output(draft: RequestDraft, step: Step) -> RequestDraft:
        native = is_native(output, step)
        words = [_CORRECTED.format(step.correction)] if step.correction else []
        if native:
            tools = tuple(tool for tool in draft.tools if tool.name != OUTPUT_TOOL)
            options = draft.options.model_copy(update={"response_format": output.response_format})
            draft = replace(draft, tools=tools, options=options)
        elif step.mode is Mode.CONCLUDE:
            words.append(_AS_TEXT.format(to_json(output.schema).decode()))
        else:
            words.append(_BY_TOOL)
        return draft.add_transient(_reminder(words)) if words else draft

    return offer_output


def _reminder(words: list[str]) -> ContextBlock:
    text = "\n\n".join(words)
    return ContextBlock(id="harness:output_reminder", kind="output_reminder", text=text, required=True)


def is_native(output: OutputSpec, step: Step) -> bool:
    """Whether the provider of a step's model holds it to the form."""
    return step.card.json_schema and output.is_object and _REFUSED not in step.run.materials


def without_output_format(*, output: OutputSpec) -> Callable[[Attempt], Attempt]:
    """A guard of `request` that asks again without the format, where the provider refuses a request that has it.

        --s---------------|
        without_output_format
        -----------t------|     t.draft asks for the form in words
        ----o------(h|)         model
        --S-(ERS)--(bheE)       events: S MODEL_CALL_START, E MODEL_CALL_END, R request_retry, b TEXT_BLOCK_START,
                                e TEXT_BLOCK_END

    Args:
        output: The form of the answer.
    """

    def guard(attempt: Attempt) -> Attempt:
        def guarded(step: Step) -> Observable[Step]:
            def again(error: Exception, _: Observable[Step]) -> Observable[Step]:
                if not isinstance(error, BadRequest) or error.may_be_overflow or not is_native(output, step):
                    return reactivex.throw(error)
                step.run.materials[_REFUSED] = True
                return attempt(step)

            return attempt(step).pipe(ops.catch(again))

        return guarded

    return guard
