"""A model call beside the conversation, for the notes that take the place of older messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentscope_rx.compaction.prompt import earlier_notes, in_parts, notes_of, prompt_of, quoted
from agentscope_rx.compactions import is_summary
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange
from agentscope_rx.operators._aside_call import AnswerRefused, answer_to, beside, worded, worded_text
from agentscope_rx.request_tokens import fixed_tokens, text_tokens
from agentscope_rx.requests import ExecutionConfig, GenerateOptions
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.usage import ChatUsage

_SLACK_TOKENS: Final = 64  # tags and blank lines between the parts of a prompt
_LEAST_ROOM: Final = 128


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
            AnswerRefused: What came is empty or unfinished.
            ContextBudgetExceeded: The model's window has no room for any of it.
            ProviderError: The model could not be asked, or failed.
        """
        aside = self._aside(step, max_tokens)
        counter = aside.card.counter
        assert counter is not None  # a compaction is decided by counting
        earlier = [notes_of(exchange) for exchange in exchanges if _is_notes(exchange)]
        fresh = [*worded(step, [exchange for exchange in exchanges if not _is_notes(exchange)])]
        if aside.card.counter is not step.card.counter:
            await counter.ready()
        written = worded_text(step, "\n\n".join(earlier))
        parts = in_parts(fresh, counter, self._room(aside, written, counter, max_tokens))
        usage, text = ChatUsage(), ""
        for part in parts:
            before = [earlier_notes(written)] if written else []
            prompt = prompt_of(self.template, [*before, *part])
            answer = await answer_to(aside, prompt, execution=self.execution, policy=self._policy_of())
            if not answer.text:
                raise AnswerRefused("empty")
            text, usage = answer.text, usage + answer.usage
            written = quoted(text)
        return Notes(text=text, calls=len(parts), usage=usage)

    def _aside(self, step: Step, max_tokens: int) -> Step:
        """The step of its requests."""
        options = step.draft.options if self.card is None else GenerateOptions()
        draft = RequestDraft(system=step.draft.system, options=options.with_output_limit(max_tokens))
        return beside(step, "summary", draft, card=self.card)

    def _room(self, aside: Step, written: str, counter: TokenCounter, max_tokens: int) -> int:
        """How many tokens of conversation one request has room for."""
        limit = request_limit(aside, self._policy_of()).limit
        notes = max(max_tokens, text_tokens(written, counter)) if written else max_tokens
        fixed = fixed_tokens(aside.draft, counter) + text_tokens(self.template, counter) + notes + _SLACK_TOKENS
        if limit - fixed < _LEAST_ROOM:
            raise ContextBudgetExceeded(fixed + _LEAST_ROOM, limit, (("the frame of a summary request", fixed),))
        return limit - fixed

    def _policy_of(self) -> ContextPolicy:
        return self.policy if self.card is None else ContextPolicy()


def _is_notes(exchange: Exchange) -> bool:
    return is_summary(exchange.messages[0])
