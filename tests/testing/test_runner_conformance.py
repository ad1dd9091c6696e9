"""The suite for runners passes those that ship, over several stores, and names the rule that a broken one breaks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.background import AgentSession, DbosOptions, DbosRunner, InProcessRunner, TaskStatus, Worker
from agentscope_rx.background.telling import context_of
from agentscope_rx.errors import ConformanceFailed
from agentscope_rx.interactions import pending_calls
from agentscope_rx.records import EventsEmitted, InterruptAsked
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import EventJournal
from agentscope_rx.stores import SessionKey, SessionStore
from agentscope_rx.testing import check_runner
from agentscope_rx.testing import runner_conformance as module
from tests.stores.conftest import Place, mysql, place, postgres, redis_server, redis_url
from tests.stores.places import store_at
from tests.virtual import virtual

__all__ = ["mysql", "place", "postgres", "redis_server", "redis_url"]  # fixtures


def kept_at(place: Place) -> Callable[[], AbstractAsyncContextManager[SessionStore]]:
    @asynccontextmanager
    async def made() -> AsyncGenerator[SessionStore]:
        store = store_at(await asyncio.to_thread(place))
        yield store
        close = getattr(store, "close", None)
        if close is not None:
            await close()

    return made


@virtual
async def test_the_runner_of_a_process_keeps_the_rules() -> None:
    """All of them, in virtual time."""
    await check_runner(InProcessRunner)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)
async def test_it_keeps_them_over_every_store(place: Place) -> None:
    """In real time, where the work waits for files, databases and servers."""
    await check_runner(InProcessRunner, kept_at(place), moment=0.2)


#: The engine may look into its queue once more while it ends; what it then cannot begin is begun by another process.
ENDING = "ignore:coroutine 'execute_dequeued_workflow:RuntimeWarning"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings(ENDING)
@pytest.mark.parametrize("place", ["memory", "sqlite"])
async def test_the_runner_on_dbos_keeps_them(place: str, tmp_path: Path) -> None:
    """With its engine in a file; a later runner takes over what an earlier one has left."""
    number = count()
    options = DbosOptions(dead_after=1.5, poll=0.02)

    def a_place() -> str:
        return "memory" if place == "memory" else f"sql sqlite+aiosqlite:///{tmp_path}/store-{next(number)}.db"

    await check_runner(
        lambda builder: DbosRunner(builder, f"sqlite:///{tmp_path}/engine.db", options=options), kept_at(a_place)
    )
    gc.collect()  # such a coroutine is none of the next test's


# -- runners that break a rule ------------------------------------------------------------------------------


class Bent(Worker):
    """Does something else before or after its work."""

    before: Callable[[SessionKey], Awaitable[None]]
    after: Callable[[SessionKey], Awaitable[None]]

    async def work(self, key: SessionKey) -> int:
        await self.before(key)
        seq = await super().work(key)
        await self.after(key)
        return seq


class Working(InProcessRunner):
    """One that does something else before or after its work."""

    async def before(self, key: SessionKey) -> None:
        """What it does before the work."""

    async def after(self, key: SessionKey) -> None:
        """What it does behind it."""

    def __init__(self, builder: Any) -> None:
        super().__init__(builder)
        self._worker = Bent(self._worker.agent)
        self._worker.before, self._worker.after = self.before, self.after

    async def inbox(self, key: SessionKey) -> Any:
        return (await self._worker.teller(key).read()).state.inbox


def context_of_key(key: SessionKey) -> RuntimeContext:
    return RuntimeContext(user_id=key.user_id, session_id=key.session_id)


class AlwaysOpen(InProcessRunner):
    def check_open(self) -> None:
        pass


class NeverClosed(InProcessRunner):
    async def close(self) -> None:
        await super().close()
        self._open = True


class Forgetful(InProcessRunner):
    async def wake(self, key: SessionKey, /) -> None:
        self.check_open()


class Raising(InProcessRunner):
    async def wake(self, key: SessionKey, /) -> None:
        raise RuntimeError("no")


class Unordered(Working):
    """Does the newest of several first, past the log."""

    async def before(self, key: SessionKey) -> None:
        queued = (await self.inbox(key)).queued
        if len(queued) > 1:
            await self._worker.agent.call(list(queued[-1].messages), context_of(queued[-1].sender))


class Lonely(InProcessRunner):
    def __init__(self, builder: Any) -> None:
        super().__init__(builder, at_once=1)


class Eager(Working):
    """Answers once more where there is nothing to do."""

    async def before(self, key: SessionKey) -> None:
        inbox = await self.inbox(key)
        if not inbox.queued and inbox.begun is None and inbox.settled:
            await self._worker.agent.call("say it again", context_of_key(key))


class Chatty(Working):
    async def before(self, key: SessionKey) -> None:
        await self._worker.teller(key).tell(lambda _: InterruptAsked("nobody"))


class Stubborn(Working):
    """Goes on with what somebody has interrupted."""

    async def after(self, key: SessionKey) -> None:
        for each in (await self.inbox(key)).settled:
            if each.status is TaskStatus.INTERRUPTED:
                await self._worker.agent.call("work 2", context_of_key(key))


class Approving(Working):
    async def after(self, key: SessionKey) -> None:
        waiting = pending_calls((await self._worker.teller(key).read()).state.context)
        if waiting:
            await AgentSession(self, context_of_key(key)).respond({waiting[0].id: True})


class Resentful(Working):
    """Does nothing more for a session one of whose tasks has failed."""

    async def wake(self, key: SessionKey, /) -> None:
        settled = (await self.inbox(key)).settled
        if all(each.status is not TaskStatus.FAILED for each in settled):
            await super().wake(key)


class Clinging(InProcessRunner):
    async def stop(self, key: SessionKey, /) -> None:
        pass


class Rude(InProcessRunner):
    async def stop(self, key: SessionKey, /) -> None:
        for task in self._tasks:
            task.cancel()


class Abrupt(InProcessRunner):
    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await super().close()


class Patient(InProcessRunner):
    """Waits for all work at its end."""

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
        await super().close()


class Careless(InProcessRunner):
    async def _take_up(self) -> None:
        pass


class Wary(InProcessRunner):
    """Leaves alone what died in the hands of another process."""

    async def wake(self, key: SessionKey, /) -> None:
        begun = (await self._worker.teller(key).read()).state.inbox.begun
        if begun is None or begun.run_id != "died":
            await super().wake(key)


class Losing(InProcessRunner):
    """Takes a task for one at work until it is seen to have ended."""

    async def wake(self, key: SessionKey, /) -> None:
        self.check_open()
        self._woken.add(key)
        if key not in self._working:
            task = self._working[key] = self._spawn(self._all(key))
            task.add_done_callback(lambda _: self._working.pop(key, None))

    async def _all(self, key: SessionKey) -> None:
        while key in self._woken:
            self._woken.discard(key)
            await self._worker.work(key)


class Leaky(InProcessRunner):
    async def start(self) -> None:
        await super().start()
        asyncio.get_running_loop().create_task(asyncio.sleep(10_000))


BROKEN = [
    (AlwaysOpen, f"{module.OPEN_INSIDE}; before its block"),
    (NeverClosed, f"{module.OPEN_INSIDE}; behind its block"),
    (Forgetful, module.IN_TIME),
    (Raising, f"{module.OPEN_INSIDE}; something raised RuntimeError"),
    (Unordered, module.ONCE),
    (Lonely, f"{module.NOT_HELD_UP}; {module.IN_TIME}"),
    (Eager, module.SAME_KEY),
    (Stubborn, module.INTERRUPTED),
    (Approving, module.ANSWERED),
    (Resentful, f"{module.FAILED}; {module.IN_TIME}"),
    (Clinging, module.LET_GO),
    (Rude, module.LET_GO),
    (Abrupt, module.GOOD_ORDER),
    (Patient, f"{module.GOOD_ORDER}; the run was waited for"),
    (Careless, f"{module.GOOD_ORDER}; {module.IN_TIME}"),
    (Wary, f"{module.LEFT}; {module.IN_TIME}"),
    (Chatty, module.IDLE),
    (Losing, f"{module.NO_WAKE_LOST}; {module.IN_TIME}"),
    (Leaky, module.NO_TASK),
]


@contextmanager
def cleared() -> Generator[None]:
    """Whatever a broken runner has left is cancelled."""
    others = asyncio.all_tasks()
    try:
        yield
    finally:
        for task in asyncio.all_tasks() - others:
            task.cancel()


@pytest.mark.parametrize(("make", "rule"), BROKEN, ids=[make.__name__ for make, _ in BROKEN])
@virtual
async def test_a_runner_that_breaks_a_rule_is_found(make: type[InProcessRunner], rule: str) -> None:
    """Each is found, and the rule that it does not keep is named."""
    with cleared(), pytest.raises(ConformanceFailed) as caught:
        await check_runner(make)
    assert str(caught.value).startswith(rule) or (rule == module.IN_TIME and rule in str(caught.value))


def _nothing(_: EventJournal) -> EventsEmitted:
    return EventsEmitted(())


@virtual
async def test_events_that_are_lost_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner whose sessions tell nothing of their runs does not pass."""
    monkeypatch.setattr(EventJournal, "record", _nothing)
    with pytest.raises(ConformanceFailed, match=module.EVENTS):
        await check_runner(InProcessRunner)
