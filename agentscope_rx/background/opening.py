"""What runners have in common for those who use them: a block around their work, and sessions by context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from agentscope_rx.agent import Agent
from agentscope_rx.background.runner import Contexts, Worker
from agentscope_rx.background.session import AgentSession
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import AgentClosed
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SessionKey


class OpenRunner(ABC):
    """A runner with an agent of its own, at work inside its block; a base for `SessionRunner`s.

    Args:
        builder: Makes the agent; its sessions must have logs.
        contexts: As for `Worker`.

    Raises:
        InvalidOption: The agent keeps only states.
    """

    def __init__(self, builder: AgentBuilder[Any, Any], contexts: Contexts | None) -> None:
        agent: Agent[Any] = builder.build()
        agent.session_log()  # or it says that there is none
        self._worker = Worker(agent, contexts)

    @property
    def worker(self) -> Worker:
        """What does the work of one session."""
        return self._worker

    def session(self, context: RuntimeContext) -> AgentSession:
        """A session, to tell it something and to watch it; starts nothing.

        Args:
            context: For whom.

        Raises:
            InvalidIdentifier: An id of the context cannot be one.
        """
        return AgentSession(self, context)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def check_open(self) -> None:
        """See that sessions may be told something.

        Raises:
            AgentClosed: The runner has not started, or is closed.
        """
        if not self._is_open():
            raise AgentClosed("the runner is not at work; use it inside `async with`")

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether it is at work."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to work."""

    @abstractmethod
    async def close(self) -> None:
        """End, in good order."""

    @abstractmethod
    async def wake(self, key: SessionKey, /) -> None:
        """A session has something to do, or may have."""

    @abstractmethod
    async def stop(self, key: SessionKey, /) -> None:
        """Let go of a session as soon as that suits its run."""
