"""What a store may do beside keeping sessions: tell which of them hold some terms, without their being read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol, cast

from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.store import SessionStore

#: A term of what holds more terms than are told: it is found by each query.
EVERYTHING: Final = "everything"


class SearchIndex(Protocol):
    """Terms of the logs of sessions, as far as somebody has told them.

    A term is 8 hexadecimal digits, or `EVERYTHING`. A store that has an index has it as its attribute `search_index`.
    Deleting a session deletes its terms.
    """

    async def behind(self, *, user_id: str | None, agent_id: str | None = None) -> Sequence[tuple[SessionKey, int]]:
        """Sessions whose terms are not all told, each with the last record whose terms are.

        Args:
            user_id: Whose; None = nobody's.
            agent_id: Only those of this agent; None = of all.
        """
        ...

    async def index(self, key: SessionKey, terms: Collection[str], /, *, after: int, through: int) -> None:
        """Tell the terms of the records behind `after`, up to `through`; nothing happens where somebody was faster."""
        ...

    async def holding(
        self, terms: Sequence[Collection[str]], /, *, user_id: str | None, agent_id: str | None = None
    ) -> Sequence[SessionKey]:
        """Sessions in whose logs all terms of one of these collections were told together, and those without a log.

        Args:
            terms: At least one collection, each of at least one term.
            user_id: Whose; None = nobody's.
            agent_id: Only those of this agent; None = of all.
        """
        ...


def search_index_of(store: SessionStore) -> SearchIndex | None:
    """The index of a store; None = it has none."""
    return cast("SearchIndex | None", getattr(store, "search_index", None))
