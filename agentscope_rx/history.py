"""The conversation as an immutable value that grows, shrinks and is measured cheaply.

A `History` is a sequence of *exchanges* in leaves of 64. An exchange is what must stay together: a user message,
or an assistant message with the results of all its tool calls. Histories that come from one another share their
leaves, so "what changed?" looks at what is new, and a fact about the whole (a `Measure`) is remembered for each
exchange and each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol, TypeVar, cast

from agentscope_rx.errors import InvalidToolPairs
from agentscope_rx.messages import Msg, Role, ToolResultBlock, ToolUseBlock

A = TypeVar("A")

LEAF_SIZE: Final = 64
_REMEMBERED_FUNCTIONS: Final = 16


class Measure(Protocol[A]):
    """A fact about a history that is a fold: how to take it of one exchange, and how to join parts.

    Measures are remembered under the measure itself, for as long as the history lives: make one per fact and
    process, never one per agent or call.
    """

    def of(self, exchange: Exchange, /) -> A:
        """The fact about one exchange."""
        ...

    def join(self, parts: Sequence[A], /) -> A:
        """The fact about several neighbours, from the facts about each."""
        ...


class Exchange:
    """What must stay together: a message, with the results of its tool calls.

    Args:
        messages: The first message, then a TOOL message for each call that has its result.

    Raises:
        InvalidToolPairs: A result answers no call of the first message, or answers one twice.
    """

    __slots__ = ("_id", "_mapped", "_measured", "messages")

    def __init__(self, *messages: Msg) -> None:
        head, results = messages[0], messages[1:]
        if results or head.role is Role.TOOL:
            _check_pairs(head, results)
        self.messages, self._id = messages, head.id
        self._measured: dict[object, object] = {}
        self._mapped: dict[object, Exchange] = {}

    @property
    def id(self) -> str:
        """The id of the first message; it survives when the exchange is rewritten."""
        return self._id

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls that have no result yet."""
        calls = self.messages[0].tool_calls
        if not calls:
            return ()
        answered = {_result_id(message) for message in self.messages[1:]}
        return tuple(call for call in calls if call.id not in answered)

    def mapped(self, change: Callable[[Exchange], Exchange], key: object) -> Exchange:
        """What `change` makes of this exchange, remembered under `key`."""
        known = self._mapped.get(key)
        return _remember(self._mapped, key, change(self)) if known is None else known

    def map(self, change: Callable[[Msg], Msg]) -> Exchange:
        """Change message by message; this very exchange where nothing changes."""
        after = tuple(change(message) for message in self.messages)
        return self if same_objects(after, self.messages) else Exchange(*after)

    def measure(self, by: Measure[A]) -> A:
        """A fact about this exchange, taken once."""
        try:
            return cast(A, self._measured[by])
        except KeyError:
            fact = by.of(self)
            self._measured[by] = fact
            return fact

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exchange) and self.messages == other.messages

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Exchange({', '.join(f'{m.role}:{m.text[:20]!r}' for m in self.messages)})"


class Leaf:
    """Up to 64 exchanges, with what is known about them. Never changed; a growing history replaces its last leaf."""

    __slots__ = ("_mapped", "_measured", "exchanges")

    def __init__(self, exchanges: tuple[Exchange, ...]) -> None:
        self.exchanges = exchanges
        self._measured: dict[object, object] = {}
        self._mapped: dict[object, Leaf] = {}

    def measure(self, by: Measure[A]) -> A:
        try:
            return cast(A, self._measured[by])
        except KeyError:
            fact = by.join([exchange.measure(by) for exchange in self.exchanges])
            self._measured[by] = fact
            return fact

    def map(self, change: Callable[[Exchange], Exchange], key: object) -> Leaf:
        known = self._mapped.get(key)
        if known is not None:
            return known
        after = tuple(exchange.mapped(change, key) for exchange in self.exchanges)
        return _remember(self._mapped, key, self if same_objects(after, self.exchanges) else Leaf(after))

    @property
    def has_nameless(self) -> bool:
        return self.measure(_NAMELESS)

    def without(self, ids: frozenset[str]) -> Leaf:
        kept = tuple(x for x in self.exchanges if not any(message.id in ids for message in x.messages))
        return self if len(kept) == len(self.exchanges) else Leaf(kept)


class History:
    """An immutable sequence of exchanges; every method returns a history that shares its unchanged leaves.

    Args:
        exchanges: The exchanges, oldest first.

    Examples:
        >>> history = History.of(Msg.user("Hello"), Msg.assistant("Hi"))
        >>> [message.text for message in history.messages]
        ['Hello', 'Hi']
    """

    __slots__ = ("leaves",)

    def __init__(self, exchanges: Iterable[Exchange] = (), *, leaves: tuple[Leaf, ...] = ()) -> None:
        items = tuple(exchanges)
        if len(items) > LEAF_SIZE:
            new = tuple(Leaf(items[start : start + LEAF_SIZE]) for start in range(0, len(items), LEAF_SIZE))
        else:  # one more message, which is nearly always
            new = (Leaf(items),) if items else ()
        self.leaves = leaves + new

    @classmethod
    def of(cls, *messages: Msg) -> History:
        """Make a history of messages, oldest first."""
        return cls().append(*messages)

    def __iter__(self) -> Iterator[Exchange]:
        return chain.from_iterable(leaf.exchanges for leaf in self.leaves)

    def __len__(self) -> int:
        return sum(len(leaf.exchanges) for leaf in self.leaves)

    @property
    def messages(self) -> Iterator[Msg]:
        """The messages, oldest first."""
        return chain.from_iterable(exchange.messages for exchange in self)

    @property
    def last(self) -> Exchange | None:
        """The newest exchange."""
        return self.leaves[-1].exchanges[-1] if self.leaves else None

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls of the whole history that have no result."""
        return self.measure(OPEN_CALLS)

    def append(self, *messages: Msg) -> History:
        """Add messages; a TOOL message joins the exchange whose call it answers.

        Raises:
            InvalidToolPairs: A TOOL message answers no open call.
        """
        if not self.leaves:
            done: tuple[Leaf, ...] = ()
            growing: list[Exchange] = []
        else:
            done, growing = self.leaves[:-1], list(self.leaves[-1].exchanges)
        for message in messages:
            if message.role is not Role.TOOL:
                growing.append(Exchange(message))
            elif (at := _waiting(growing, message)) is not None:
                growing[at] = Exchange(*_in_call_order(growing[at], message))
            else:
                return History(growing, leaves=done)._answer_earlier(message).append(*_after(messages, message))
        return History(growing, leaves=done)

    def extended(self, exchanges: Iterable[Exchange]) -> History:
        """Add exchanges at the end."""
        if not self.leaves:
            return History(exchanges)
        return History((*self.leaves[-1].exchanges, *exchanges), leaves=self.leaves[:-1])

    def _answer_earlier(self, result: Msg) -> History:
        """Put a late result where its call is, however long ago that was."""
        for i in range(len(self.leaves) - 1, -1, -1):
            exchanges = list(self.leaves[i].exchanges)
            if (at := _waiting(exchanges, result)) is not None:
                exchanges[at] = Exchange(*_in_call_order(exchanges[at], result))
                return History(leaves=(*self.leaves[:i], Leaf(tuple(exchanges)), *self.leaves[i + 1 :]))
        raise InvalidToolPairs(f"the result {_result_id(result)!r} answers no open call of this history")

    def map(self, change: Callable[[Exchange], Exchange], *, key: object = None) -> History:
        """Rewrite exchange by exchange.

        Args:
            change: Gives the new exchange, or the very same one.
            key: What the outcome is remembered under, for each leaf; the function itself by default. A function
                made anew for each call is never found again: give it a name, or a key.
        """
        leaves = tuple(leaf.map(change, key or change) for leaf in self.leaves)
        return self if same_objects(leaves, self.leaves) else History(leaves=leaves)

    def with_messages(self, *messages: Msg) -> History:
        """Put messages in the place of those that have their ids; leaves without one of these are shared.

        Raises:
            ValueError: No message has one of the ids.
        """
        waiting = {message.id: message for message in messages}
        leaves: list[Leaf] = []
        for leaf in reversed(self.leaves):
            if waiting and any(each.id in waiting for exchange in leaf.exchanges for each in exchange.messages):
                leaf = Leaf(tuple(_with_messages(exchange, waiting) for exchange in leaf.exchanges))
            leaves.append(leaf)
        if waiting:
            raise ValueError(f"the history holds no message {next(iter(waiting))!r}")
        return History(leaves=tuple(reversed(leaves)))

    def with_exchange(self, old: Exchange, new: Exchange) -> History:
        """Put an exchange in the place of one that the history holds; no other is looked at."""
        for i in range(len(self.leaves) - 1, -1, -1):
            exchanges = self.leaves[i].exchanges
            if any(each is old for each in exchanges):
                leaf = Leaf(tuple(new if each is old else each for each in exchanges))
                return History(leaves=(*self.leaves[:i], leaf, *self.leaves[i + 1 :]))
        raise ValueError(f"the history does not hold the exchange {old.id!r}")

    def without(self, ids: frozenset[str]) -> History:
        """Leave out the exchanges that hold one of these message ids."""
        leaves = tuple(kept for leaf in self.leaves if (kept := leaf.without(ids)).exchanges)
        return self if same_objects(leaves, self.leaves) else History(leaves=leaves)

    def identified(self, new_id: Callable[[], str]) -> History:
        """Give an id to each message that has none: what an operator has made, a summary for instance."""

        def named(message: Msg) -> Msg:
            return message if message.id else replace(message, id=new_id())

        leaves = tuple(
            Leaf(tuple(exchange.map(named) for exchange in leaf.exchanges)) if leaf.has_nameless else leaf
            for leaf in self.leaves
        )
        return self if same_objects(leaves, self.leaves) else History(leaves=leaves)

    def replace_first(self, count: int, *by: Msg) -> History:
        """Put messages in the place of the first `count` exchanges."""
        kept: list[Leaf] = []
        for leaf in self.leaves:
            if count >= len(leaf.exchanges):
                count -= len(leaf.exchanges)
            elif count:
                kept.append(Leaf(leaf.exchanges[count:]))
                count = 0
            else:
                kept.append(leaf)
        return History(leaves=(*History.of(*by).leaves, *kept))

    def first(self, count: int) -> History:
        """The first `count` exchanges; all leaves but the last are shared."""
        leaves: list[Leaf] = []
        for leaf in self.leaves:
            if count <= 0:
                break
            leaves.append(leaf if count >= len(leaf.exchanges) else Leaf(leaf.exchanges[:count]))
            count -= len(leaf.exchanges)
        return self if len(leaves) == len(self.leaves) and count >= 0 else History(leaves=tuple(leaves))

    def after(self, count: int) -> Iterator[Exchange]:
        """The exchanges behind the first `count`; leaves that are passed over are not looked into."""
        for leaf in self.leaves:
            yield from leaf.exchanges[count:] if count < len(leaf.exchanges) else ()
            count = max(0, count - len(leaf.exchanges))

    def measure(self, by: Measure[A]) -> A:
        """A fact about the whole, from what is remembered about its leaves."""
        return by.join([leaf.measure(by) for leaf in self.leaves])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return same_objects(self.leaves, other.leaves) or list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History({len(self)} exchanges)"


class _OpenCalls:
    """The open tool calls, as a measure."""

    def of(self, exchange: Exchange, /) -> tuple[ToolUseBlock, ...]:
        return exchange.open_calls

    def join(self, parts: Sequence[tuple[ToolUseBlock, ...]], /) -> tuple[ToolUseBlock, ...]:
        return tuple(chain.from_iterable(parts)) if any(parts) else ()


OPEN_CALLS: Final[Measure[tuple[ToolUseBlock, ...]]] = _OpenCalls()


class _Nameless:
    """Whether a message has no id, as a measure."""

    def of(self, exchange: Exchange, /) -> bool:
        return not all(message.id for message in exchange.messages)

    def join(self, parts: Sequence[bool], /) -> bool:
        return any(parts)


_NAMELESS: Final[Measure[bool]] = _Nameless()


# -- small steps --------------------------------------------------------------------------------------------


def _result_id(message: Msg) -> str:
    results = message.blocks(ToolResultBlock)
    if len(results) != 1:
        raise InvalidToolPairs(f"message {message.id!r} holds {len(results)} tool results; a TOOL message holds one")
    return results[0].id


def _check_pairs(head: Msg, results: Sequence[Msg]) -> None:
    calls = {call.id for call in head.tool_calls}
    answered = [_result_id(message) for message in results]
    if head.role is Role.TOOL:
        raise InvalidToolPairs(f"the result {_result_id(head)!r} has no call before it")
    if not calls.issuperset(answered) or len(set(answered)) != len(answered):
        raise InvalidToolPairs(f"results {answered} do not answer the calls {sorted(calls)} of message {head.id!r}")


def _waiting(exchanges: Sequence[Exchange], result: Msg) -> int | None:
    """Where the newest exchange is that waits for this result."""
    wanted = _result_id(result)
    for at in range(len(exchanges) - 1, -1, -1):
        if any(call.id == wanted for call in exchanges[at].open_calls):
            return at
    return None


def _in_call_order(exchange: Exchange, result: Msg) -> tuple[Msg, ...]:
    head, *results = exchange.messages
    place = {call.id: at for at, call in enumerate(head.tool_calls)}
    return (head, *sorted((*results, result), key=lambda message: place[_result_id(message)]))


def _with_messages(exchange: Exchange, waiting: dict[str, Msg]) -> Exchange:
    return exchange.map(lambda message: waiting.pop(message.id, message))


def _after(messages: Sequence[Msg], message: Msg) -> Sequence[Msg]:
    return messages[next(i for i, each in enumerate(messages) if each is message) + 1 :]


def _remember(memo: dict[object, A], key: object, value: A) -> A:
    """Keep the newest few: functions that are made anew for each request must not pile up."""
    if len(memo) >= _REMEMBERED_FUNCTIONS:
        memo.pop(next(iter(memo)), None)  # another thread may have been faster
    memo[key] = value
    return value


def same_objects(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether two sequences hold the very same objects."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
