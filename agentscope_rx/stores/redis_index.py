"""The index of a `RedisStore`: two sorted sets with the paths of all sessions, read in ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agentscope_rx.frozen import frozen
from agentscope_rx.stores.keys import SessionKey, folder_name, user_folder
from agentscope_rx.stores.store import Anybody

BY_AGENT: Final = "{index}:by-agent"
BY_USER: Final = "{index}:by-user"


def by_user(path: str) -> str:
    """The path of a session with the user in front, and back."""
    first, second, session = path.split("/")
    return f"{second}/{first}/{session}"


@frozen
class Span:
    """A part of the index.

    Args:
        index: Which of the two sets.
        low: Where it begins, as Redis writes limits: `[` includes, `(` does not.
        high: Where it ends.
    """

    index: str
    low: str
    high: str

    @classmethod
    def of(cls, agent_id: str | None, user_id: str | Anybody | None, after: SessionKey | None) -> Span:
        """The sessions of an agent, of a user, of both, or all."""
        names = [] if agent_id is None else [folder_name(agent_id)]
        if not isinstance(user_id, Anybody):
            names.append(user_folder(user_id))
        index = BY_USER if agent_id is None and names else BY_AGENT
        begin = "".join(f"{name}/" for name in names)
        high = f"({begin[:-1]}0" if begin else "+"  # 0 comes behind /
        span = cls(index=index, low=f"[{begin}" if begin else "-", high=high)
        return span if after is None else span.behind(after.path)

    def behind(self, path: str) -> Span:
        """What comes behind a session."""
        member = self.path(path)
        return replace(self, low=f"({member}") if member >= self.low[1:] else self

    def path(self, member: str) -> str:
        """The path of an entry, and back."""
        return by_user(member) if self.index == BY_USER else member
