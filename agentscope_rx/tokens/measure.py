"""Tokens as a measure: each message is counted once, and a history is added up from what is remembered.

`chat-v1` is the framing: 3 tokens a message, 1 a name (of a speaker or a called tool) and 3 for the start of the
reply. They are those of OpenAI's published recipe for counting chat messages; other providers differ by a few.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.messages import (
    DataBlock,
    HintBlock,
    Msg,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tokens.estimators import ContextTokenEstimator, TokenEstimator
from agentscope_rx.wire import to_json

MESSAGE_TOKENS: Final = 3
"""The frame of a message."""

NAME_TOKENS: Final = 1
"""The frame of a name, beside the tokens of the name itself."""

REPLY_TOKENS: Final = 3
"""The start of the reply, once a request."""

MEDIA_TOKENS: Final = 2_048
"""An image, a sound or a file, whatever its size: the size rules of providers differ and need its dimensions."""

_TEXTS: Final = 4_096
_TOOLS: Final = 1_024
_MEASURES: Final = 64


class TokenMeasure:
    """The tokens of exchanges, messages, fixed text and tools. Get it from `token_measure`; safe from any thread.

    Args:
        estimator: What counts.
        thinking: Whether the provider wants all thinking back. What it wants back word for word is counted
            either way, other thinking is not sent and not counted.

    Examples:
        >>> from agentscope_rx.tokens import ContextTokenEstimator
        >>> measure = token_measure(ContextTokenEstimator.for_model("gpt-5"))
        >>> History.of(Msg.user("Hello, world"), Msg.assistant("Hi")).measure(measure)
        10
    """

    def __init__(self, estimator: TokenEstimator, *, thinking: bool = False) -> None:
        self.estimator: Final = estimator
        self._thinking = thinking
        self._each: Final[Measure[tuple[int, ...]]] = _EachMessage(lambda each: self._framed(each, estimator.count))
        self._texts = _Remembered(estimator.count)
        self._tools: dict[int, tuple[ToolSpec, int]] = {}

    def of(self, exchange: Exchange, /) -> int:
        """The tokens of one exchange; the estimator is asked once for each message."""
        return sum(self.items(exchange))

    def join(self, parts: Sequence[int], /) -> int:
        """The tokens of neighbours."""
        return sum(parts)

    def items(self, exchange: Exchange, /) -> tuple[int, ...]:
        """The tokens of each message of an exchange, in order; remembered with the exchange."""
        return exchange.measure(self._each)

    def message(self, message: Msg, /) -> int:
        """The tokens of one message with its frame; its text is remembered like that of a block."""
        return self._framed(message, self.block)

    def block(self, text: str, /) -> int:
        """The tokens of fixed text, without a frame; the 4,096 texts used last are remembered."""
        return self._texts(text)

    def tool(self, spec: ToolSpec, /) -> int:
        """The tokens of a tool's name, description and schema, as compact JSON; remembered.

        An over-estimate for providers that render schemas more tightly, OpenAI among them.
        """
        known = self._tools.get(id(spec))
        if known is not None:
            return known[1]
        fields = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        tokens = self.block(to_json(fields).decode())
        if len(self._tools) >= _TOOLS:
            self._tools.clear()  # at once, since dropping one by one is not safe among threads
        self._tools[id(spec)] = spec, tokens  # the tool itself keeps its identity from being used again
        return tokens

    def method_for(self, history: History, /) -> str:
        """How a history is counted: the estimator's method, and `+media-estimate` where it holds media."""
        return self.estimator.method + ("+media-estimate" if history.measure(HAS_MEDIA) else "")

    def exact_for(self, history: History, /) -> bool:
        """Whether the count of a history's texts is the model's own, and it holds no media."""
        return self.estimator.exact and not history.measure(HAS_MEDIA)

    async def ready(self) -> None:
        """Build the encoding in a thread, where there is one and that is not done yet."""
        if isinstance(self.estimator, ContextTokenEstimator):
            await self.estimator.ready()

    def _framed(self, message: Msg, count: Callable[[str], int]) -> int:
        text = "\n".join(part for part in _parts(message, self._thinking) if part)
        return _frame(message) + MEDIA_TOKENS * _media(message) + (count(text) if text else 0)


# -- one for each method ------------------------------------------------------------------------------------

_lock: Final = threading.Lock()
_measures: Final[OrderedDict[tuple[type, object, bool], TokenMeasure]] = OrderedDict()


def token_measure(estimator: TokenEstimator, *, thinking: bool = False) -> TokenMeasure:
    """Give the measure that belongs to an estimator: the same for all of its class and method in this process.

    No encoding is built before the first count.

    Args:
        estimator: What counts.
        thinking: Whether the provider wants all thinking back.
    """
    # One of ours is equal to those that count alike; its method is not known before its encoding is built.
    alike = estimator if isinstance(estimator, ContextTokenEstimator) else estimator.method
    key = (type(estimator), alike, thinking)
    with _lock:
        known = _measures.get(key)
        if known is None:
            known = _measures[key] = TokenMeasure(estimator, thinking=thinking)
            if len(_measures) > _MEASURES:
                _measures.popitem(last=False)
        else:
            _measures.move_to_end(key)
    return known


# -- media --------------------------------------------------------------------------------------------------


def _media(message: Msg) -> int:
    """How many media a message holds, those of tool results included."""
    found = 0
    for block in message.content:
        if isinstance(block, DataBlock):
            found += 1
        elif isinstance(block, ToolResultBlock):
            found += sum(isinstance(each, DataBlock) for each in block.output)
    return found


class _HasMedia:
    """Whether there are media, as a measure."""

    def of(self, exchange: Exchange, /) -> bool:
        return any(map(_media, exchange.messages))

    def join(self, parts: Sequence[bool], /) -> bool:
        return any(parts)


HAS_MEDIA: Final[Measure[bool]] = _HasMedia()
"""Whether a history holds media, whose tokens can only be estimated; a measure."""

# -- small steps --------------------------------------------------------------------------------------------


class _EachMessage:
    """The tokens of each message, as a measure."""

    def __init__(self, count: Callable[[Msg], int]) -> None:
        self._count = count

    def of(self, exchange: Exchange, /) -> tuple[int, ...]:
        return tuple(map(self._count, exchange.messages))

    def join(self, parts: Sequence[tuple[int, ...]], /) -> tuple[int, ...]:
        return tuple(chain.from_iterable(parts))


class _Remembered:
    """Counts of the texts that were used last.

    They are known by hash and length, so that the texts themselves are not kept: an old reference may be long. That
    two of four thousand share both has a chance below one in a million million.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        key = hash(text), len(text)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        tokens = self._count(text)  # without the lock: long texts take milliseconds
        with self._lock:
            self._known[key] = tokens
            if len(self._known) > _TEXTS:
                self._known.popitem(last=False)
        return tokens


def _frame(message: Msg) -> int:
    names = len(message.tool_calls) + bool(message.name and message.role is not Role.TOOL)
    hints = any(block.hint for block in message.blocks(HintBlock))  # they are sent as a message of their own
    return MESSAGE_TOKENS * (1 + hints) + NAME_TOKENS * names


def _parts(message: Msg, thinking: bool) -> Iterator[str]:
    """The texts of a message that are sent."""
    if message.name and message.role is not Role.TOOL:
        yield message.name
    for block in message.content:
        match block:
            case TextBlock():
                yield block.text
            case ThinkingBlock():
                if thinking or block.metadata:
                    yield block.thinking
            case ToolUseBlock():
                yield block.name
                yield to_json(block.input).decode() if block.content is None else block.content
            case ToolResultBlock():
                yield block.text
            case HintBlock():
                yield block.hint
            case DataBlock():
                pass  # counted as a whole
