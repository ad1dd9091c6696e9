"""A model call beside the conversation, for the notes that take the place of older messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from agentscope_rx.attempts import attempts
from agentscope_rx.compaction.prompt import earlier_notes, in_parts, notes_of, prompt_of, quoted
from agentscope_rx.compactions import is_summary
from agentscope_rx.context.layout import lay_out
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded, ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Msg
from agentscope_rx.operators._report_context import tell_of
from agentscope_rx.reply_writer import ReplyWriter
from agentscope_rx.request_tokens import fixed_tokens, text_tokens
from agentscope_rx.requests import ExecutionConfig, GenerateOptions
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.usage import ChatUsage

_SLACK_TOKENS: Final = 64  # tags and blank lines between the parts of a prompt
_LEAST_ROOM: Final = 128
_FINISHED: Final = frozenset({None, "", "stop", "end_turn", "eos", "stop_sequence", "completed", "tool_calls"})


class SummaryRefused(Exception):
    """A summary came and cannot be used; the message is a short code."""


@frozen
class Notes:
    """What a summariser has written.

    Args:
        text: The notes.
        calls: How many model calls they took.
        usage: What these consumed.
    """

    text: str
    calls: int
    usage: ChatUsage


@frozen
class Summariser:
    """Who writes summaries, and how.

    Args:
        template: The prompt, with the conversation's place in it.
        execution: Time-outs and retry.
        policy: How large a request of the agent's own model may be.
        card: The model; None = the one that the step is for.
    """

    template: str
    execution: ExecutionConfig
    policy: ContextPolicy
    card: ModelCard | None = None

    def model_for(self, step: Step) -> str:
        """Whose summary it will be."""
        return (self.card or step.card).name

    def longest_of(self, wanted: int, step: Step) -> int:
        """How long notes it is asked for: as long as is wanted, but what is summarised needs most of its window."""
        window = (self.card or step.card).window
        return wanted if window is None else max(1, min(wanted, window // 4))

    async def notes_on(self, step: Step, exchanges: Sequence[Exchange], *, max_tokens: int) -> Notes:
        """Summarise exchanges, in as many calls as it takes; each is told what the one before has written.

        Args:
            step: The step; its System zone is part of each request, its tools are not.
            exchanges: What is summarised; where the first is an earlier summary, it is brought up to date.
            max_tokens: How long the notes may be.

        Raises:
            SummaryRefused: What came is empty or unfinished.
            ContextBudgetExceeded: The model's window has no room for any of it.
            ProviderError: The model could not be asked, or failed.
        """
        beside = self._beside(step, max_tokens)
        counter = beside.card.counter
        assert counter is not None  # a compaction is decided by counting
        earlier = [notes_of(exchange) for exchange in exchanges if _is_notes(exchange)]
        fresh = [*_worded(step, [exchange for exchange in exchanges if not _is_notes(exchange)])]
        if beside.card.counter is not step.card.counter:
            await counter.ready()
        written = "\n\n".join(earlier)
        for function in step.run.wording:
            written = function(written)
        parts = in_parts(fresh, counter, self._room(beside, written, counter, max_tokens))
        usage, text = ChatUsage(), ""
        for part in parts:
            before = [earlier_notes(written)] if written else []
            reply = await self._ask(beside, prompt_of(self.template, [*before, *part]))
            text, usage = _checked(reply), usage + (reply[0].usage or ChatUsage())
            written = quoted(text)
        return Notes(text=text, calls=len(parts), usage=usage)

    def _beside(self, step: Step, max_tokens: int) -> Step:
        """A step of its own for the requests of a summary: other events, other progress, the same session."""
        own = self.card is None
        options = step.draft.options if own else GenerateOptions()
        unwanted = {"tool_choice": None, "parallel_tool_calls": None, "response_format": None}
        draft = RequestDraft(
            system=step.draft.system,
            options=options.model_copy(update=unwanted).with_output_limit(max_tokens),
        )
        return replace(
            step,
            purpose="summary",
            card=self.card or step.card,
            draft=draft,
            changes=(),
            timings=(),
            pressed=step.pressed if own else None,
            compaction=None,
            run=step.run.aside(),
        )

    def _room(self, beside: Step, written: str, counter: TokenCounter, max_tokens: int) -> int:
        """How many tokens of conversation one request has room for."""
        limit = request_limit(beside, self._policy_of()).limit
        notes = max(max_tokens, text_tokens(written, counter)) if written else max_tokens
        fixed = fixed_tokens(beside.draft, counter) + text_tokens(self.template, counter) + notes + _SLACK_TOKENS
        if limit - fixed < _LEAST_ROOM:
            raise ContextBudgetExceeded(fixed + _LEAST_ROOM, limit, (("the frame of a summary request", fixed),))
        return limit - fixed

    def _policy_of(self) -> ContextPolicy:
        return self.policy if self.card is None else ContextPolicy()

    async def _ask(self, beside: Step, prompt: str) -> tuple[Msg, str | None]:
        """One call: its account, its events, its reply and why it ended."""
        draft = replace(beside.draft, conversation=History.of(replace(Msg.user(prompt), id="harness:summary_request")))
        step = replace(beside, call_id=beside.run.runtime.ids.new_id("call"), draft=draft)
        tell_of(step, self._policy_of(), None)
        request = replace(lay_out(step), connect_timeout=self.execution.connect_timeout)
        step.run.note_request(request, step.card.name)
        writer, clock = ReplyWriter(step), step.run.runtime.clock
        began, error = clock.monotonic(), {"class": "Interrupted", "kind": "interrupted"}
        writer.start()

        def on_retry(attempt: int, wait: float, error: ProviderError) -> None:
            step.emit(Custom(name="model_retry", value={"attempt": attempt, "wait": wait, "error": error.kind}))

        model, jitter = step.run.runtime.outside.model_for(step), step.run.runtime.jitter
        try:
            chunks = attempts(model, request, self.execution, jitter=jitter, on_retry=on_retry)
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
        return writer.message(), writer.finish_reason


def _worded(step: Step, exchanges: Sequence[Exchange]) -> History:
    """The exchanges in the words of the run's requests: what is redacted there is redacted here."""
    draft = RequestDraft(conversation=History(exchanges))
    for function in step.run.wording:
        draft = draft.map_text(function)
    return draft.conversation


def _is_notes(exchange: Exchange) -> bool:
    return is_summary(exchange.messages[0])


def _checked(reply: tuple[Msg, str | None]) -> str:
    message, finish_reason = reply
    text = message.text.strip()
    if message.tool_calls:
        raise SummaryRefused("called_tools")
    if finish_reason not in _FINISHED:
        raise SummaryRefused("unfinished" if text else "empty")
    if not text:
        raise SummaryRefused("empty")
    return text
