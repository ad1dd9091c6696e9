"""Compactions as values: what was decided and why, what gave way to a summary, and what the next decision goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

from pydantic import ConfigDict

from agentscope_rx.errors import UndoRefused
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.messages import Msg, Role

SUMMARY_VERSION_KEY: Final = "context.summary_version"
SUMMARY_NAME: Final = "__compaction_summary__"
_NO_LIMITS: Final[Mapping[str, int]] = {}


def is_summary(message: Msg) -> bool:
    """Whether a message stands for older ones that were summarised."""
    return SUMMARY_VERSION_KEY in message.metadata


class CompactionOutcome(StrEnum):
    """What became of the question whether the history has to be shorter.

    `not_needed`: nothing asks for it. `postponed`: something does, and it would not pay yet. `planned`: it would be
    done, were this not a dry run. `done`. `refused`: a summary came and was not good enough. `failed`: none came.
    """

    NOT_NEEDED = "not_needed"
    POSTPONED = "postponed"
    PLANNED = "planned"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@frozen
class CompactionDecision:
    """Whether a history was made shorter for a request, and why; a manifest holds one.

    Args:
        outcome: What was decided.
        trigger: What asked for it: `messages`, `tokens`, `over_budget` or `overflow`; empty where nothing did.
        reason: Why it was not done, as a short code; empty where it was.
        id: The compaction; empty where none was tried.
        model: Whose summary it is.
        messages_before: Messages of the history.
        messages_after: Messages of the history, afterwards.
        tokens_before: What they cost.
        tokens_after: What they cost afterwards.
        replaced_tokens: What gave way.
        summary_tokens: What came in its place.
        tail_tokens: What stayed behind it.
        budget: What the conversation may cost.
        break_even_steps: After how many steps a compaction has saved what it costs, where that was weighed.
        steps_since: Steps since the last compaction, where that was weighed.
        cooldown_steps: For how many steps the next one waits.
        failure: What went wrong, where something did; no part of any JSON.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    outcome: CompactionOutcome
    trigger: str = ""
    reason: str = ""
    id: str = ""
    model: str = ""
    messages_before: int = 0
    messages_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    replaced_tokens: int = 0
    summary_tokens: int = 0
    tail_tokens: int = 0
    budget: int = 0
    break_even_steps: float | None = None
    steps_since: int | None = None
    cooldown_steps: int = 0
    failure: Exception | None = field(default=None, compare=False, repr=False)


@frozen
class Compaction:
    """A committed compaction, with everything that gave way to it.

    Args:
        id: Its id.
        created_at: When it was committed, in the form of `Msg.timestamp`.
        model: Whose summary it is.
        trigger: What asked for it.
        tokens_before: What the history cost.
        tokens_after: What it cost afterwards.
        replaced: The exchanges that gave way, as the session held them; empty where only the session's
            log holds them.
        by: The ids of the exchanges in their place; of a strategy that has only left something out, the first one
            behind it, which is also the last of `replaced`.
    """

    id: str
    created_at: str
    model: str
    trigger: str
    tokens_before: int
    tokens_after: int
    replaced: History
    by: tuple[str, ...]

    def begins(self, history: History) -> bool:
        """Whether a history begins with what this compaction has put there."""
        return tuple(exchange.id for exchange in islice(history, len(self.by))) == self.by


def expanded(compactions: Sequence[Compaction], id: str) -> tuple[Msg, ...]:
    """The messages that a compaction has replaced, with those that its earlier summaries stand for in their place.

    Args:
        compactions: All of a session.
        id: Which one.

    Raises:
        UndoRefused: There is no such compaction.
    """
    place = {compaction.id: at for at, compaction in enumerate(compactions)}
    if id not in place:
        raise UndoRefused(f"the session has no compaction {id!r}; it has {', '.join(place) or 'none'}")
    by_first: dict[str, list[int]] = {}
    for at, compaction in enumerate(compactions):
        for first in compaction.by[:1]:
            by_first.setdefault(first, []).append(at)
    found: list[Msg] = []
    # Not by recursion: in a long session each compaction lies in the next. What an earlier one has left behind its
    # summary is part of what it replaced, and passed over where it stands again. Only an earlier one: a strategy may
    # leave an old message at the beginning, which then is part of what it replaced and of what it left.
    waiting = [(place[id], iter(compactions[place[id]].replaced), set[str]())]
    while waiting:
        at, exchanges, told = waiting[-1]
        exchange = next(exchanges, None)
        if exchange is None:
            waiting.pop()
        elif exchange.id in told:
            continue
        elif (earlier := max((each for each in by_first.get(exchange.id, ()) if each < at), default=None)) is not None:
            told.update(compactions[earlier].by)
            waiting.append((earlier, iter(compactions[earlier].replaced), set()))
        else:
            found.extend(exchange.messages)
    return tuple(found)


@frozen
class CompactionState:
    """What the next decision about a compaction goes by; part of a session's state.

    Args:
        messages: Messages of the history after the last compaction.
        replies: Replies in it, then.
        tokens: What it cost, then.
        freed: What that compaction made free.
        cooldown_until: How many replies the history must hold before the next optional compaction is tried.
        limits: How many tokens a request may have, by model, where a provider has shown that it is less than thought.
    """

    messages: int = 0
    replies: int = 0
    tokens: int = 0
    freed: int = 0
    cooldown_until: int = 0
    limits: Mapping[str, int] = field(default_factory=lambda: _NO_LIMITS)


# -- measures -----------------------------------------------------------------------------------------------


class _Count:
    """How many messages of a sort there are, as a measure."""

    def __init__(self, counts: Callable[[Msg], bool]) -> None:
        self._counts = counts

    def of(self, exchange: Exchange, /) -> int:
        return sum(map(self._counts, exchange.messages))

    def join(self, parts: Sequence[int], /) -> int:
        return sum(parts)


MESSAGES: Final[Measure[int]] = _Count(lambda _: True)
"""How many messages a history holds."""

SUMMARIES: Final[Measure[int]] = _Count(is_summary)
"""How many summaries it holds."""

REPLIES: Final[Measure[int]] = _Count(lambda message: message.role is Role.ASSISTANT)
"""How many replies of the model it holds, which is how many steps it remembers."""
