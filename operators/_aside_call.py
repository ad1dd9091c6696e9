"""A model call beside the conversation: the same run, and an account, events and progress of its own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from agentscope_rx.attempts import attempts
from agentscope_rx.context.layout import lay_out
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Msg
from agentscope_rx.operators._report_context import tell_of
from agentscope_rx.reply_writer import ReplyWriter
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, Purpose
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.usage import ChatUsage

_FINISHED: Final = frozenset({None, "", "stop", "end_turn", "eos", "stop_sequence", "completed", "tool_calls"})
#: What answers of the conversation are asked for with, and no others.
_UNWANTED: Final = {"tool_choice": None, "parallel_tool_calls": None, "response_format": None}


class AnswerRefused(Exception):
    """An answer came and cannot be used; the message is a short code."""


@frozen
class Answer:
    """What a model has answered.

    Args:
        text: The text, stripped; may be empty.
        usage: What the call consumed.
    """

    text: str
    usage: ChatUsage


def beside(step: Step, purpose: Purpose, draft: RequestDraft, *, card: ModelCard | None) -> Step:
    """A step of its own for requests beside the conversation: other events, other progress, the same session.

    Args:
        step: The step that they belong to.
        purpose: What they are for.
        draft: What each of them holds; of its options those that are for the conversation only are left out.
        card: The model; None = the one that the step is for.
    """
    return replace(
        step,
        purpose=purpose,
        card=card or step.card,
        draft=replace(draft, options=_plain(draft.options)),
        changes=(),
        timings=(),
        pressed=step.pressed if card is None else None,
        compaction=None,
        run=step.run.aside(),
    )


def worded(step: Step, exchanges: Iterable[Exchange]) -> History:
    """The exchanges in the words of the run's requests: what is redacted there is redacted here."""
    draft = RequestDraft(conversation=History(exchanges))
    for function in step.run.wording:
        draft = draft.map_text(function)
    return draft.conversation


def worded_text(step: Step, text: str) -> str:
    """A text in the words of the run's requests."""
    for function in step.run.wording:
        text = function(text)
    return text


async def answer_to(step: Step, prompt: str, *, execution: ExecutionConfig, policy: ContextPolicy) -> Answer:
    """Ask once: the account of the request, its events, and its answer.

    Args:
        step: One that `beside` has made.
        prompt: What the user says in it.
        execution: Time-outs and retry.
        policy: How large a request may be.

    Raises:
        AnswerRefused: What came calls a tool, or is unfinished.
        ProviderError: The model could not be asked, or failed.
    """
    said = replace(Msg.user(prompt), id=f"harness:{step.purpose}_request")
    draft = replace(step.draft, conversation=History.of(said))
    step = replace(step, call_id=step.run.runtime.ids.new_id("call"), draft=draft)
    tell_of(step, policy, None)
    request = replace(lay_out(step), connect_timeout=execution.connect_timeout)
    step.run.note_request(request, step.card.name)
    writer, clock = ReplyWriter(step), step.run.runtime.clock
    began, error = clock.monotonic(), {"class": "Interrupted", "kind": "interrupted"}
    writer.start()

    def on_retry(attempt: int, wait: float, error: ProviderError) -> None:
        step.emit(Custom(name="model_retry", value={"attempt": attempt, "wait": wait, "error": error.kind}))

    model, jitter = step.run.runtime.outside.model_for(step), step.run.runtime.jitter
    try:
        chunks = attempts(model, request, execution, jitter=jitter, on_retry=on_retry)
        async with aclosing(chunks):
            async for chunk in chunks:
                writer.take(chunk)
        error = None
    except Exception as failure:
        kind = failure.kind if isinstance(failure, ProviderError) else "error"
        error = {"class": type(failure).__name__, "kind": kind}
        raise
    finally:
        writer.end(time=clock.monotonic() - began, error=error)
    return _checked(writer.message(), writer.finish_reason)


def _plain(options: GenerateOptions) -> GenerateOptions:
    return options.model_copy(update=_UNWANTED)


def _checked(message: Msg, finish_reason: str | None) -> Answer:
    text = message.text.strip()
    if message.tool_calls:
        raise AnswerRefused("called_tools")
    if finish_reason not in _FINISHED:
        raise AnswerRefused("unfinished" if text else "empty")
    return Answer(text=text, usage=message.usage or ChatUsage())
