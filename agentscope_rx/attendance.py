"""What goes on beside a run whose events are kept: they are written as they come, and others are listened to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from agentscope_rx.logs import logger
from agentscope_rx.session import EventJournal, LoggedSession

#: Seconds: what is said may be seen elsewhere so much later. Each writing is one more record of the log.
WRITTEN_EVERY: Final = 0.25


@asynccontextmanager
async def attended(
    session: LoggedSession, journal: EventJournal, *, told: Callable[[], None] | None
) -> AsyncGenerator[None]:
    """Inside the block events are written as they come, and what others tell the session reaches the run.

    Args:
        session: The session.
        journal: Takes the events.
        told: Called when somebody has told the session something; None = nobody is listened to.
    """
    session.journals.append(journal)
    session.on_told = told
    work: list[Coroutine[Any, Any, None]] = [_write(session, journal)]
    if told is not None:
        work.append(_listen(session))
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _write(session: LoggedSession, journal: EventJournal) -> None:
    while True:
        await asyncio.sleep(WRITTEN_EVERY)
        if journal.filled:
            try:
                await session.barrier()
            except Exception as error:  # the run's own barrier will say it, too
                logger().warning("events_not_written", error=type(error).__name__)
                return


async def _listen(session: LoggedSession) -> None:
    async for _ in session.changes():
        try:
            await session.catch_up()
        except Exception as error:  # the run's own writing will say it, too
            logger().warning("session_not_heard", error=type(error).__name__)
            return
