"""InProcessRunner: the work of sessions as tasks of this process's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from agentscope_rx.background.opening import OpenRunner
from agentscope_rx.background.runner import Contexts
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import InvalidOption
from agentscope_rx.logs import logger
from agentscope_rx.stores import SessionKey

_PAGE: Final = 100


class InProcessRunner(OpenRunner):
    """Does what sessions are told, in this process, with an agent of its own. It needs no server.

    When it starts it takes up what processes that have died left undone: it waits until their leases have run out.
    Inside the block sessions can be told something; leaving it lets each run come to where it can stop, and the next
    process goes on with it.

    Args:
        builder: Makes the agent; its sessions must have logs.
        at_once: How many sessions are worked on at the same time. 64 by default.
        contexts: Makes the context of a run from what was kept of the one with which its command was given, for
            things that cannot be kept. Default None: ids and attributes.
        take_up_every: Seconds between two looks for work that died in other processes, where several share a store.
            Default None: only at the start. Each look reads every session of the agent.
        grace: Seconds that runs have at the end to come to where they can stop. 5 by default.
        work: Whether it does any work. False = sessions are only told and watched here, and other processes, which
            `take_up_every` so many seconds, do it.

    Raises:
        InvalidOption: A number is out of range, or the agent keeps only states.

    Examples:
        async with InProcessRunner(builder) as runner:
            task = await runner.session(ctx).submit("Fix the report export failure.")
            report = await task
    """

    def __init__(
        self,
        builder: AgentBuilder[Any, Any],
        *,
        at_once: int = 64,
        contexts: Contexts | None = None,
        take_up_every: float | None = None,
        grace: float = 5.0,
        work: bool = True,
    ) -> None:
        if at_once < 1:
            raise InvalidOption("at_once", at_once, "at least 1")
        if take_up_every is not None and not take_up_every > 0:
            raise InvalidOption("take_up_every", take_up_every, "a positive number of seconds, or None")
        if not grace >= 0:
            raise InvalidOption("grace", grace, "a number of seconds, not negative")
        super().__init__(builder, contexts)
        self._at_once, self._take_up_every, self._grace = asyncio.Semaphore(at_once), take_up_every, grace
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: dict[SessionKey, asyncio.Task[None]] = {}
        self._woken: set[SessionKey] = set()
        self._open, self._does_work = False, work

    async def start(self) -> None:
        """Begin to work, and take up what was left undone."""
        self._open = True
        self._working.clear()  # what was cancelled by an earlier close did not come to its end
        if self._does_work:
            self._spawn(self._take_up())

    def _is_open(self) -> bool:
        return self._open

    async def wake(self, key: SessionKey, /) -> None:
        """A session has something to do, or may have.

        Raises:
            AgentClosed: The runner has not started, or is closed.
        """
        self.check_open()
        if not self._does_work:
            return
        self._woken.add(key)
        if key not in self._working:
            self._working[key] = self._spawn(self._work(key))

    async def stop(self, key: SessionKey, /) -> None:
        """Let go of a session as soon as that suits its run; it is gone on with when it is woken."""
        self._woken.discard(key)
        task = self._working.get(key)
        if task is not None:
            self._worker.stop(key)
            await asyncio.wait({task})

    async def close(self) -> None:
        """Let runs come to where they can stop, interrupt those that do not, and wait for them."""
        self._open = False
        self._woken.clear()
        await self._worker.agent.close(grace=self._grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, key: SessionKey) -> None:
        async with self._at_once:
            while key in self._woken:
                self._woken.discard(key)
                try:
                    await self._worker.work(key)
                except Exception as error:  # a log that cannot be read, say: other sessions go on
                    logger().error("background_stopped", session=key.session_id, error=type(error).__name__)
            del self._working[key]  # in one go with the last look: who is woken from now on needs another task

    async def _take_up(self) -> None:
        while True:
            try:
                async for key in self._undone():
                    await self.wake(key)
            except Exception as error:
                logger().warning("background_not_taken_up", error=type(error).__name__)
            if self._take_up_every is None:
                return
            await asyncio.sleep(self._take_up_every)

    async def _undone(self) -> AsyncGenerator[SessionKey]:
        options, after = self._worker.options, None
        while True:
            page = await options.session_store.list(agent_id=options.id, after=after, limit=_PAGE)
            for key in page:
                inbox = (await self._worker.teller(key).read()).state.inbox
                if inbox.begun is not None or inbox.queued:
                    yield key
            if len(page) < _PAGE:
                return
            after = page[-1]
