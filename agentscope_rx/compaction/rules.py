"""What no shortening of a history may break: small rules with names, asked before a cut and after a proposal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from agentscope_rx.compactions import is_summary
from agentscope_rx.condensing import OPAQUE_KEY
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.messages import MetadataKey, Msg, Role, ThinkingBlock

# -- asked before a cut -------------------------------------------------------------------------------------


def pending_calls(history: History) -> Iterator[str]:
    """Exchanges whose calls wait for a result or an approval stay."""
    if history.open_calls:
        yield from (exchange.id for exchange in history if exchange.open_calls)


def latest_user_input(history: History) -> Iterator[str]:
    """What the user said last stays, word for word."""
    if (said := history.measure(_LAST_SAID)) is not None:
        yield said


def says_the_user(exchange: Exchange) -> bool:
    """Whether an exchange is something that the user said, and neither a summary nor in the library's own words."""
    head = exchange.messages[0]
    return head.role is Role.USER and not is_summary(head) and not head.metadata.get(MetadataKey.SYNTHETIC)


class _LastSaid:
    """The id of what the user said last, as a measure: in a long run that is long ago."""

    def of(self, exchange: Exchange, /) -> str | None:
        return exchange.id if says_the_user(exchange) else None

    def join(self, parts: Sequence[str | None], /) -> str | None:
        return next((part for part in reversed(parts) if part is not None), None)


_LAST_SAID: Final[Measure[str | None]] = _LastSaid()
_KEPT: Final = (pending_calls, latest_user_input)


def must_stay(history: History) -> frozenset[str]:
    """The ids of the exchanges that no cut may take out."""
    return frozenset(id for rule in _KEPT for id in rule(history))


# -- asked after a proposal ---------------------------------------------------------------------------------

#: Says what is wrong with what a history has become; None = nothing.
Rule: TypeAlias = Callable[[History, History], str | None]


def something_is_left(before: History, after: History) -> str | None:
    """A history that held something is not empty afterwards."""
    return "nothing is left of the history" if before.leaves and not after.leaves else None


def calls_keep_their_results(before: History, after: History) -> str | None:
    """A batch of calls and its results stay together, in order, or go together."""
    return _first_difference(before, after, _pairs, "has lost or gained a call or a result")


def signed_reasoning_is_untouched(before: History, after: History) -> str | None:
    """What a provider wants back word for word is not changed in an exchange that stays."""
    return _first_difference(before, after, _signed, "holds signed reasoning in other words")


def pending_calls_stay(before: History, after: History) -> str | None:
    """No call that waits is taken out, answered or put in other words by a shortening."""
    waiting = before.open_calls
    return None if waiting == after.open_calls else f"the calls {[call.id for call in waiting]} waited"


def latest_user_input_stays(before: History, after: History) -> str | None:
    """What the user said last is there, word for word."""
    kept = _by_id(after)
    for id in latest_user_input(before):
        said = next(exchange for exchange in before if exchange.id == id)
        if kept.get(id) != said:
            return f"message {id!r} is what the user said last"
    return None


RULES: Final[tuple[Rule, ...]] = (
    something_is_left,
    calls_keep_their_results,
    signed_reasoning_is_untouched,
    pending_calls_stay,
    latest_user_input_stays,
)


def broken_rules(before: History, after: History) -> tuple[str, ...]:
    """The rules that a shortening has broken, with what it did.

    Args:
        before: The history.
        after: What became of it.

    Examples:
        >>> from agentscope_rx.messages import Msg
        >>> broken_rules(History.of(Msg.user("Hello")), History())[0]
        'something_is_left: nothing is left of the history'
    """
    if before is after:
        return ()
    found = ((rule.__name__, rule(before, after)) for rule in RULES)
    return tuple(f"{name}: {what}" for name, what in found if what is not None)


def _first_difference(before: History, after: History, look: Callable[[Exchange], object], what: str) -> str | None:
    old = _by_id(before)
    for exchange in after:
        known = old.get(exchange.id)
        if known is not None and known is not exchange and look(known) != look(exchange):
            return f"exchange {exchange.id!r} {what}"
    return None


def _by_id(history: History) -> Mapping[str, Exchange]:
    return {exchange.id: exchange for exchange in history}


def _pairs(exchange: Exchange) -> object:
    calls = [(call.id, call.name) for call in exchange.messages[0].tool_calls]
    results = [message.tool_result for message in exchange.messages[1:]]
    return calls, [(result.id, result.name, result.state) for result in results if result is not None]


def signed_parts(message: Msg) -> tuple[object, ...]:
    """What a provider wants back word for word: signed thinking, and what came with calls or with the message.

    A call that came with something is part of it, arguments and all, since the signature may be over them.
    """
    thoughts = [block for block in message.blocks(ThinkingBlock) if block.metadata]
    calls = [block for block in message.tool_calls if OPAQUE_KEY in block.metadata]
    own = message.metadata.get(MetadataKey.OPAQUE)
    return (*thoughts, *calls, *([] if own is None else [own]))


def _signed(exchange: Exchange) -> object:
    return signed_parts(exchange.messages[0])
