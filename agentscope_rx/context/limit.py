"""How many tokens a request may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.step import Step

#: A model whose window is not known.
UNKNOWN_WINDOW_LIMIT: Final = 64_000
_DEFAULT_OUTPUT: Final = 4_096
_UNKNOWN_WINDOW_MARGIN: Final = 1_024


@frozen
class InputLimit:
    """How many tokens a request may have, and why.

    Args:
        limit: The limit.
        output: What is kept for the answer.
        margin: What is kept for what the estimate misses.
        window: The model's window; None = not known.
    """

    limit: int
    output: int
    margin: int
    window: int | None


def input_limit(window: int | None, max_output: int, policy: ContextPolicy) -> InputLimit:
    """The limit of a request.

    Args:
        window: The model's window; None = not known.
        max_output: How long an answer the request asks for; 0 = it does not say.
        policy: The policy.

    Examples:
        >>> input_limit(128_000, 0, ContextPolicy()).limit, input_limit(8_000, 0, ContextPolicy()).limit
        (121344, 6840)
    """
    output = policy.reserved_output_tokens or (min(_DEFAULT_OUTPUT, max(1, window // 8)) if window else _DEFAULT_OUTPUT)
    output = max(output, max_output)
    margin = policy.safety_margin_tokens or (max(1, window // 50) if window else _UNKNOWN_WINDOW_MARGIN)
    limit = max(0, window - output - margin) if window else UNKNOWN_WINDOW_LIMIT
    if policy.max_input_tokens:
        limit = min(limit, policy.max_input_tokens)
    return InputLimit(limit=limit, output=output, margin=margin, window=window)


def check_room(window: int | None, options: GenerateOptions, policy: ContextPolicy) -> None:
    """Refuse what would leave no token for input, before anything is sent.

    Raises:
        InvalidOption: The answer and the margin take the whole window.
    """
    asked = options.output_limit or 0
    limit = input_limit(window, asked, policy)
    if limit.limit or window is None:
        return
    rule = (
        f"of the model's window of {window:,} tokens the answer may take {limit.output:,} and the margin takes "
        f"{limit.margin:,}, which leaves nothing for input"
    )
    if asked >= limit.output:
        raise InvalidOption("generate_options.max_tokens", asked, rule)
    reserves = {"reserved_output_tokens": limit.output, "safety_margin_tokens": limit.margin}
    name = max(reserves, key=lambda each: reserves[each])
    raise InvalidOption(f"context_policy.{name}", reserves[name], rule)


def request_limit(step: Step, policy: ContextPolicy) -> InputLimit:
    """The limit of the request that a step prepares, for the model of this attempt.

    Where the provider has refused a request that was thought to fit, it is lower than the policy would have it.

    Args:
        step: The step.
        policy: The policy.
    """
    found = input_limit(step.card.window, step.draft.options.output_limit or 0, policy)
    learned = (step.state.compaction.limits.get(step.card.name), step.pressed.learned if step.pressed else None)
    lower = [each for each in learned if each is not None and each < found.limit]
    return replace(found, limit=min(lower)) if lower else found
