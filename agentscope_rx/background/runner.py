"""What does the work of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from agentscope_rx.agent import Agent
from agentscope_rx.background.telling import Teller, context_of
from agentscope_rx.errors import AgentClosed, CommandGone, LeaseLost, SessionBusy, StoreUnavailable
from agentscope_rx.inbox import Command, Sender
from agentscope_rx.interactions import pending_calls
from agentscope_rx.live import LiveRuns
from agentscope_rx.logs import logger
from agentscope_rx.options import AgentOptions
from agentscope_rx.pulling import last
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SessionKey

#: Makes the context of a run from what was kept of the one with which its command was given.
Contexts: TypeAlias = Callable[[Sender], RuntimeContext]
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 30.0


@runtime_checkable
class SessionRunner(Protocol):
    """Sees to it that what sessions are told is done: in each session one command after the other, each of them once.

    What is to be done stands in the session's log, and what has been done too: a runner only has to call
    `Worker.work` for a session that was woken, and for those whose process has died. `OpenRunner` is a base for it, and
    `agentscope_rx.testing.check_runner` checks an implementation.
    """

    @property
    def worker(self) -> Worker:
        """What does the work of one session."""
        ...

    def check_open(self) -> None:
        """See that sessions may be told something.

        Raises:
            AgentClosed: The runner has not started, or is closed.
        """
        ...

    async def wake(self, key: SessionKey, /) -> None:
        """A session has something to do, or may have."""
        ...

    async def stop(self, key: SessionKey, /) -> None:
        """Let go of a session as soon as that suits its run; it is gone on with when it is woken."""
        ...


class Worker:
    """Does what sessions were told to do, with one agent.

    Args:
        agent: The agent.
        contexts: Makes the contexts of runs; default: the ids and attributes that were kept.
    """

    def __init__(self, agent: Agent[Any], contexts: Contexts | None = None) -> None:
        self.agent = agent
        self.options: AgentOptions = agent.options
        self._contexts = contexts or context_of

    def teller(self, key: SessionKey) -> Teller:
        """Reads and tells a session."""
        return Teller(self.agent, key)

    def stop(self, key: SessionKey) -> None:
        """Let the run of a session end where that suits it; it can be gone on with."""
        run = self.options.runtime.single(LiveRuns).find(self.options.store, key)
        if run is not None:
            run.stop(AgentClosed("the session was let go of while this run waited for its turn"))

    async def work(self, key: SessionKey) -> int:
        """Do what a session was told, until there is nothing more that can be done now.

        Returns:
            The number of the last record of its log.
        """
        teller, wait = self.teller(key), _FIRST_WAIT
        while True:
            try:
                folded = await teller.read()
                command = folded.state.inbox.next(waiting=bool(pending_calls(folded.state.context)))
                if command is None or not await self._done(teller, key, command):
                    return folded.seq
                wait = _FIRST_WAIT
            except (StoreUnavailable, SessionBusy, LeaseLost) as error:
                logger().warning("background_waits", session=key.session_id, error=type(error).__name__)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)

    async def _done(self, teller: Teller, key: SessionKey, command: Command) -> bool:
        """Run a command; whether there may be more to do."""
        context = self._contexts(command.sender)
        if self.options.key_of(context) != key:
            logger().error("background_sender_unknown", session=key.session_id, command=command.id)
            return False
        try:
            await last(self.agent.carry_out(context, command))
        except CommandGone:
            return True
        except (StoreUnavailable, SessionBusy, LeaseLost):
            raise
        except Exception as error:
            logger().warning("background_failed", session=key.session_id, error=type(error).__name__)
        after = (await teller.read()).state.inbox
        begun = after.begun
        stopped = begun is not None and begun.command.id == command.id
        return not stopped and all(each.id != command.id for each in after.queued)
