"""Old tool results lose their middle, old tool calls the end of long arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from agentscope_rx.compaction.config import PruneConfig, TruncateArgsConfig
from agentscope_rx.compaction.rules import signed_parts
from agentscope_rx.compactions import MESSAGES
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Leaf, Measure
from agentscope_rx.messages import Msg, Role, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.wire import to_json

PRUNED_KEY: Final = "agentscope.tool_result_pruned"
TRUNCATED_KEY: Final = "agentscope.arguments_truncated"
_PRUNED: Final = {PRUNED_KEY: True}
_KEPT_OF_ARGUMENT: Final = 20
_CONFIGS: Final = 64


@frozen(kw_only=False)
class _Sizes:
    """Tokens of tool results: of all that count, and of those that pruning would shorten."""

    all: int = 0
    prunable: int = 0


@frozen(kw_only=False)
class _Candidates:
    """Which results are looked at, and how long they may be."""

    excluded: frozenset[str]
    limit: int

    def count(self, result: ToolResultBlock) -> bool:
        """Whether a result is looked at at all."""
        return result.name not in self.excluded and bool(result.text)

    def prunable(self, result: ToolResultBlock) -> bool:
        """Whether a result is long enough to lose its middle, and still has it."""
        return self.count(result) and len(result.text) > self.limit and not result.metadata.get(PRUNED_KEY)


class _ResultSizes:
    """The sizes of tool results, as a measure."""

    def __init__(self, candidates: _Candidates, counter: TokenCounter) -> None:
        self._candidates, self._counter = candidates, counter

    def of(self, exchange: Exchange, /) -> _Sizes:
        if len(exchange.messages) == 1:
            return _NONE
        tokens = self._counter.items(exchange)
        results = [(message.tool_result, cost) for message, cost in zip(exchange.messages, tokens, strict=True)]
        sizes = [(result, cost) for result, cost in results if result is not None and self._candidates.count(result)]
        return _Sizes(
            sum(cost for _, cost in sizes),
            sum(cost for result, cost in sizes if self._candidates.prunable(result)),
        )

    def join(self, parts: Sequence[_Sizes], /) -> _Sizes:
        return _Sizes(sum(part.all for part in parts), sum(part.prunable for part in parts))


_NONE: Final = _Sizes()


@lru_cache(_CONFIGS)
def _sizes_by(candidates: _Candidates, counter: TokenCounter) -> Measure[_Sizes]:
    return _ResultSizes(candidates, counter)


def pruned(history: History, config: PruneConfig, counter: TokenCounter) -> History:
    """The history with the middle of old tool results left out; the very same where that would not pay.

    Args:
        history: The history.
        config: Which results are old, and how long they may be.
        counter: Counts tokens.
    """
    candidates = _Candidates(config.excluded_tool_names, config.max_output_chars)
    sizes = _sizes_by(candidates, counter)
    if history.measure(sizes).prunable < config.min_prune_tokens:
        return history
    protected = prunable = 0
    plan: list[tuple[int, int]] = []  # leaf, and how many of its exchanges are old
    for at in range(len(history.leaves) - 1, -1, -1):
        leaf = history.leaves[at]
        whole, old = leaf.measure(sizes), len(leaf.exchanges)
        if protected + whole.all < config.protect_tokens:
            protected += whole.all
            continue
        while old and protected < config.protect_tokens:
            old -= 1
            protected += leaf.exchanges[old].measure(sizes).all
        found = (
            whole.prunable
            if old == len(leaf.exchanges)
            else sum(exchange.measure(sizes).prunable for exchange in leaf.exchanges[:old])
        )
        prunable += found
        if found:
            plan.append((at, old))
    if not plan or prunable < config.min_prune_tokens:
        return history
    leaves = list(history.leaves)
    for at, old in plan:
        exchanges = leaves[at].exchanges
        leaves[at] = Leaf((*(_pruned(each, candidates) for each in exchanges[:old]), *exchanges[old:]))
    return History(leaves=tuple(leaves))


def _pruned(exchange: Exchange, candidates: _Candidates) -> Exchange:
    def shortened(message: Msg) -> Msg:
        result = message.tool_result
        if result is None or not candidates.prunable(result):
            return message
        return with_result_text(message, result, _without_middle(result.text, candidates.limit), **_PRUNED)

    return exchange.map(shortened)


def _without_middle(text: str, keep: int) -> str:
    half = keep // 2
    gone = len(text) - 2 * half
    return f"{text[:half]}\n[... {gone:,} characters left out ...]\n{text[-half:]}"


def with_result_text(message: Msg, result: ToolResultBlock, text: str, **marks: object) -> Msg:
    """A TOOL message whose result says something else; media, ids, state and metadata are kept.

    Args:
        message: The message.
        result: Its result.
        text: What takes the place of all its text blocks.
        marks: Further metadata of the result, which say so.
    """
    kept = [block for block in result.output if not isinstance(block, TextBlock)]
    at = next((i for i, block in enumerate(result.output) if isinstance(block, TextBlock)), 0)
    output = (*kept[:at], TextBlock(text=text), *kept[at:])
    changed = replace(result, output=output, metadata={**result.metadata, **marks})
    return replace(message, content=tuple(changed if block is result else block for block in message.content))


# -- arguments ----------------------------------------------------------------------------------------------


class _LongArguments:
    """Whether a call has an argument that is too long, as a measure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def of(self, exchange: Exchange, /) -> bool:
        head = exchange.messages[0]
        arguments = (value for call in head.tool_calls for value in _open_arguments(call).values())
        found = any(_is_long(value, self._limit) for value in arguments)
        return found and not signed_parts(head) and not exchange.open_calls

    def join(self, parts: Sequence[bool], /) -> bool:
        return any(parts)


@lru_cache(_CONFIGS)
def _long_arguments(limit: int) -> Measure[bool]:
    return _LongArguments(limit)


@lru_cache(_CONFIGS)
def _truncation(limit: int, ending: str) -> Callable[[Exchange], Exchange]:
    """The change, one for each way to cut, so that histories remember it."""

    def cut(value: object) -> object:
        return f"{value[:_KEPT_OF_ARGUMENT]}{ending}" if isinstance(value, str) and len(value) > limit else value

    def shortened(call: ToolUseBlock) -> ToolUseBlock:
        arguments = _open_arguments(call)
        if not any(_is_long(value, limit) for value in arguments.values()):
            return call
        short = {key: cut(value) for key, value in arguments.items()}
        metadata = {**call.metadata, TRUNCATED_KEY: True}
        return replace(call, input=short, content=to_json(short).decode(), metadata=metadata)

    def in_message(message: Msg) -> Msg:
        if message.role is not Role.ASSISTANT or signed_parts(message):
            return message
        content = tuple(shortened(block) if isinstance(block, ToolUseBlock) else block for block in message.content)
        same = all(a is b for a, b in zip(content, message.content, strict=True))
        return message if same else replace(message, content=content)

    # A call that waits will be made with its arguments.
    return lambda exchange: exchange if exchange.open_calls else exchange.map(in_message)


def truncated_arguments(history: History, config: TruncateArgsConfig, counter: TokenCounter) -> History:
    """The history with long arguments of old calls cut; the very same where there are none.

    Args:
        history: The history.
        config: Which calls are old, and how long arguments may be.
        counter: Counts tokens.
    """
    if not history.measure(_long_arguments(config.max_arg_length)):
        return history
    by_messages = 0 < config.trigger_messages <= history.measure(MESSAGES)
    by_tokens = 0 < config.trigger_tokens <= history.measure(counter)
    if not by_messages and not by_tokens:
        return history
    measure: Measure[int] = counter if config.keep_tokens else MESSAGES
    leaves, left = list[Leaf](), config.keep_tokens or config.keep_messages
    change = _truncation(config.max_arg_length, config.truncation_text)
    for leaf in reversed(history.leaves):
        old = len(leaf.exchanges)
        while old and left > 0:
            old -= 1
            left -= leaf.exchanges[old].measure(measure)
        if old == len(leaf.exchanges):
            leaves.append(leaf.map(change, change))
        else:
            exchanges = tuple(each.mapped(change, change) for each in leaf.exchanges[:old])
            same = all(a is b for a, b in zip(exchanges, leaf.exchanges, strict=False))
            leaves.append(leaf if same else Leaf((*exchanges, *leaf.exchanges[old:])))
    same = all(a is b for a, b in zip(reversed(leaves), history.leaves, strict=True))
    return history if same else History(leaves=tuple(reversed(leaves)))


def _open_arguments(call: ToolUseBlock) -> Mapping[str, object]:
    """The arguments that may be shortened: none of a call that was shortened before."""
    return {} if call.metadata.get(TRUNCATED_KEY) else call.input


def _is_long(value: object, limit: int) -> bool:
    return isinstance(value, str) and len(value) > limit
