"""`offload_to_fit`: results that are small one by one and too large together, once nothing else has helped."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Final

from agentscope_rx.compaction.config import ToolResultEvictionConfig
from agentscope_rx.compaction.offloading import is_evicted, pointing_to, without_preview
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.history import Exchange, History
from agentscope_rx.lifting import Operator, proposed
from agentscope_rx.messages import Msg, ToolResultBlock, ToolUseBlock
from agentscope_rx.operators._moved_results import OFFLOADED, Found, ResultMover
from agentscope_rx.request_tokens import draft_tokens
from agentscope_rx.step import Step
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.workspace import WorkspaceFS

_NAME: Final = "offload_to_fit"
_ANY_PATH: Final = "large_tool_results/agent/0123456789abcdef/call-0123456789abcdef"  # as long as they are


def offload_to_fit(*, config: ToolResultEvictionConfig, policy: ContextPolicy, workspace: WorkspaceFS) -> Operator:
    """Move tool results into files, the largest first, while the request is too large; the last resort before refusal.

        --s---------|
        offload_to_fit
        ------t-----|     t.draft fits, or no result is left that could move

        --s---------|
        offload_to_fit     all fits
        --s---------|

    What stays of a result gets shorter where that is needed. Results of excluded tools go last.

    Args:
        config: Where files go, and what stays of results.
        policy: How large a request may be.
        workspace: Where the files go.
    """
    mover = ResultMover(config, workspace, operator=_NAME)

    def offload_to_fit(step: Step) -> Step | Awaitable[Step]:
        counter = step.card.counter
        if step.purpose != "reasoning" or counter is None or _over(step, counter, policy) <= 0:
            return step
        return fitted(step, counter)

    async def fitted(step: Step, counter: TokenCounter) -> Step:
        for preview_chars in dict.fromkeys((config.preview_chars, 0)):
            over = _over(step, counter, policy)
            waiting = _largest_first(step.history, config, counter)
            while over > 0 and (batch := _enough(waiting, counter, over, preview_chars)):
                step = await mover.move(step, batch, preview_chars=preview_chars)
                over = _over(step, counter, policy)
        return _with_fewer_previews(step, counter, policy)

    note = "the largest first, while over budget"
    return Operator(
        name=_NAME,
        kind="history",
        handle=offload_to_fit,
        function=offload_to_fit,
        note=note,
        reason=OFFLOADED,
        for_window=True,
    )


def _over(step: Step, counter: TokenCounter, policy: ContextPolicy) -> int:
    return draft_tokens(step.draft, counter) - request_limit(step, policy).limit


def _largest_first(
    history: History, config: ToolResultEvictionConfig, counter: TokenCounter
) -> Iterator[tuple[Found, int]]:
    found = [
        ((message, result), tokens)
        for exchange in history
        for message, result, tokens in _results(exchange, counter)
        if not is_evicted(result)
    ]
    found.sort(key=lambda each: (each[0][1].name in config.excluded_tool_names, -each[1]))
    return iter(found)


def _results(exchange: Exchange, counter: TokenCounter) -> Iterator[tuple[Msg, ToolResultBlock, int]]:
    if len(exchange.messages) == 1:
        return
    for message, tokens in zip(exchange.messages, counter.items(exchange), strict=True):
        if (result := message.tool_result) is not None:
            yield message, result, tokens


def _enough(waiting: Iterator[tuple[Found, int]], counter: TokenCounter, over: int, preview_chars: int) -> list[Found]:
    """As many as bring the request down to its limit, of those that get smaller."""
    batch: list[Found] = []
    for (message, result), tokens in waiting:
        saved = tokens - _tokens(pointing_to(message, result, _ANY_PATH, preview_chars=preview_chars), counter)
        if saved > 0:
            batch.append((message, result))
            over -= saved
        if over <= 0:
            break
    return batch


def _with_fewer_previews(step: Step, counter: TokenCounter, policy: ContextPolicy) -> Step:
    """The step without the previews of the results that moved, the largest first, while it is too large."""
    over = _over(step, counter, policy)
    if over <= 0:
        return step
    moved = [found for exchange in step.history for found in _results(exchange, counter) if is_evicted(found[1])]
    bare: list[Msg] = []
    for message, result, tokens in sorted(moved, key=lambda found: -found[2]):
        short = without_preview(message, result)
        saved = tokens - _tokens(short, counter)
        if over > 0 and saved > 0:
            bare.append(short)
            over -= saved
    return proposed(step, step.history.with_messages(*bare), _NAME) if bare else step


def _tokens(message: Msg, counter: TokenCounter) -> int:
    """What a TOOL message costs, its media too; it is no exchange by itself."""
    calls = (ToolUseBlock(id=result.id, name=result.name) for result in message.blocks(ToolResultBlock))
    return counter.items(Exchange(Msg.assistant(*calls), message))[1]
