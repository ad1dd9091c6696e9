"""DbosRunner: the work of sessions on DBOS, by any of several processes; one that dies is found out and stood in for.

The engine keeps who is to look at which session, and sees to it that only one does at a time. What there is to do, and
what was done, stands in the session's log alone: a workflow of the engine that is run again finds it there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from agentscope_rx.background.opening import OpenRunner
from agentscope_rx.background.runner import Contexts
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import InvalidOption, LeaseLost, MissingExtra, SessionBusy
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.stores import SessionKey
from agentscope_rx.stores.store import Lease

if TYPE_CHECKING:
    from dbos import DBOS, DBOSClient

#: A run of the engine that was begun by another version is not taken over: this changes with what it is given.
VERSION: Final = "agentscope-rx-1"
WORKFLOW: Final = "agentscope_rx.work"
_WORKERS: Final = "agentscope-rx workers"
_BEATS: Final = 3  # in the time after which a process counts as dead
_running: dict[str, DbosRunner] = {}


@frozen
class DbosOptions:
    """How a `DbosRunner` works.

    Args:
        queue: The engine's queue; runners of one queue do each other's work, and so must have the same agent.
        at_once: How many sessions a process works on at the same time.
        dead_after: Seconds after which a process that says nothing counts as dead, and others do its work.
        poll: Seconds between two looks at the queue.
        grace: Seconds that runs have at the end to come to where they can stop.
        contexts: As for `InProcessRunner`.
        version: The engine's application version, which must be the same for all who tell and work; where the
            application hands over its own DBOS, that one's is taken.
        work: Whether it does any work. False = sessions are only told and watched here, and other processes do it.

    Raises:
        InvalidOption: A number is out of range.
    """

    queue: str = "agentscope-rx"
    at_once: int = 16
    dead_after: float = 10.0
    poll: float = 0.1
    grace: float = 5.0
    contexts: Contexts | None = None
    version: str = VERSION
    work: bool = True

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise InvalidOption("at_once", self.at_once, "at least 1")
        for name in ("dead_after", "poll"):
            if not getattr(self, name) > 0:
                raise InvalidOption(name, getattr(self, name), "a positive number of seconds")
        if not self.grace >= 0:
            raise InvalidOption("grace", self.grace, "a number of seconds, not negative")


class DbosRunner(OpenRunner):
    """Does what sessions are told on the engine DBOS, so that any of several processes does it.

    DBOS is one per process, and so is this: it starts it at the beginning of the block and ends it with it, unless the
    application hands over its own, which must not be launched yet. Where a process dies, another one finds out after
    `dead_after` seconds and goes on with its sessions; nothing that was committed is done twice.

    Args:
        builder: Makes the agent; its sessions must have logs, in a store that all processes reach.
        url: The engine's own database: `sqlite:///...` for the processes of one machine, or `postgresql://...`.
        options: How it works.
        dbos: The application's DBOS. Default None: one of its own.

    Raises:
        MissingExtra: The package dbos is not installed.
        InvalidOption: The agent keeps only states.

    Examples:
        async with DbosRunner(builder, "postgresql://app@db.example/agents") as runner:
            task = await runner.session(ctx).submit("Fix the report export failure.", key="request-17")
    """

    def __init__(
        self,
        builder: AgentBuilder[Any, Any],
        url: str,
        *,
        options: DbosOptions | None = None,
        dbos: DBOS | None = None,
    ) -> None:
        if find_spec("dbos") is None:
            raise MissingExtra("DbosRunner", "durable")
        self._url, self._options, self._dbos = url, options or DbosOptions(), dbos
        super().__init__(builder, self._options.contexts)
        self._version = self._options.version
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._client: DBOSClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: Lease | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._working: dict[SessionKey, asyncio.Task[int]] = {}
        self._closing, self._ended = False, asyncio.Event()

    async def start(self) -> None:
        """Start the engine, and begin to work.

        Raises:
            InvalidOption: A runner of this queue is at work in this process.
            StoreUnavailable: The sessions' store cannot be reached.
        """
        from dbos import DBOSClient

        self._closing = False
        if self._options.work:
            await self._begin_work()
        self._client = await asyncio.to_thread(DBOSClient, system_database_url=self._url)
        if self._options.work:
            self._tasks = (asyncio.create_task(self._keep_alive()), asyncio.create_task(self._stand_in()))

    async def _begin_work(self) -> None:
        queue = self._options.queue
        if queue in _running:
            raise InvalidOption("queue", queue, "a runner of this process works on it already")
        self._loop = asyncio.get_running_loop()
        if self._dbos is not None:  # it has a name by which others find its work, and a version of its own
            self._name, self._version = self._dbos.executor_id, self._dbos.application_version
        _running[queue] = self
        try:
            # Before the engine begins: what runs without a sign of life is taken over by others.
            self._lease = await self._alive()
            await asyncio.to_thread(self._launch)
        except BaseException:
            del _running[queue]
            if self._lease is not None:
                await self._worker.options.session_store.release(self._lease)
            raise

    def _is_open(self) -> bool:
        return self._client is not None and not self._closing

    async def wake(self, key: SessionKey, /) -> None:
        """A session has something to do, or may have; any process of the queue may do it.

        Raises:
            AgentClosed: The runner has not started, or is closed.
        """
        self.check_open()
        assert self._client is not None
        await self._client.enqueue_async(
            {
                "workflow_name": WORKFLOW,
                "workflow_id": _work_of(key) + secrets.token_hex(8),
                "queue_name": self._options.queue,
                "queue_partition_key": key.path,
                "app_version": self._version,
            },
            self._options.queue,
            key.to_json().decode(),
        )

    async def stop(self, key: SessionKey, /) -> None:
        """Let go of a session as soon as that suits its run, if that is here; it is gone on with when it is woken."""
        if self._client is not None:
            waiting = await self._client.list_workflows_async(
                status="ENQUEUED",
                queue_name=self._options.queue,
                workflow_id_prefix=_work_of(key),
                load_input=False,
                load_output=False,
            )
            # Each of them would go on with the session as soon as its run has stopped.
            await self._client.cancel_workflows_async([each.workflow_id for each in waiting])
        task = self._working.get(key)
        if task is not None:
            self._worker.stop(key)
            await asyncio.wait({task})

    async def close(self) -> None:
        """Let runs come to where they can stop, and end the engine if it is this runner's; others go on with them."""
        self._closing = True
        await self._worker.agent.close(grace=self._options.grace)
        for task in (*self._tasks, *self._working.values()):
            task.cancel()
        if others := {*self._tasks, *self._working.values()}:
            await asyncio.wait(others)
        await asyncio.to_thread(self._end)
        self._ended.set()
        if _running.get(self._options.queue) is self:
            del _running[self._options.queue]
        if self._lease is not None:
            await self._worker.options.session_store.release(self._lease)

    # -- the engine -----------------------------------------------------------------------------------------

    def _launch(self) -> None:
        from dbos import DBOS

        if self._dbos is None:
            DBOS(
                config={
                    "name": "agentscope-rx",
                    "system_database_url": self._url,
                    "executor_id": self._name,
                    "application_version": self._version,
                    "log_level": "WARNING",
                }
            )
        _register()
        DBOS.launch()
        DBOS.register_queue(
            self._options.queue,
            partition_concurrency=1,
            worker_concurrency=self._options.at_once,
            polling_interval_sec=self._options.poll,
        )

    def _end(self) -> None:
        from dbos import DBOS

        if self._client is not None:
            self._client.destroy()
            self._client = None
        if self._options.work and self._dbos is None:
            DBOS.destroy()

    async def work(self, key: SessionKey) -> int:
        """Do what there is to do in a session; called on the engine's loop."""
        assert self._loop is not None  # it has started
        done = asyncio.run_coroutine_threadsafe(self._work(key), self._loop)
        return await asyncio.wrap_future(done)

    async def _work(self, key: SessionKey) -> int:
        task = self._working[key] = asyncio.create_task(self._worker.work(key))
        await asyncio.wait({task})
        del self._working[key]
        if self._closing:
            # What was stopped here is not done: a workflow that never returns is left to another process.
            await self._ended.wait()
        return await task

    # -- who is alive ---------------------------------------------------------------------------------------

    async def _alive(self) -> Lease:
        key = _worker_key(self._name)
        return await self._worker.options.session_store.acquire(key, self._name, ttl=self._options.dead_after)

    async def _keep_alive(self) -> None:
        store, ttl = self._worker.options.session_store, self._options.dead_after
        while True:
            await asyncio.sleep(ttl / _BEATS)
            try:
                assert self._lease is not None
                await store.renew(self._lease, ttl=ttl)
            except LeaseLost:  # this process had stopped, and others do its work; from now on it is there again
                logger().warning("background_stood_in_for", worker=self._name)
                await self._begin_again()
            except Exception as error:
                logger().warning("background_not_alive", error=type(error).__name__)

    async def _begin_again(self) -> None:
        try:
            self._lease = await self._alive()
        except SessionBusy:
            return  # who stands in for it has it for a moment

    async def _stand_in(self) -> None:
        while True:
            try:
                for worker, workflows in (await self._work_of_others()).items():
                    await self._take_over(worker, workflows)
            except Exception as error:
                logger().warning("background_not_stood_in", error=type(error).__name__)
            await asyncio.sleep(self._options.dead_after / _BEATS)

    async def _work_of_others(self) -> Mapping[str, list[str]]:
        """What other processes have begun, by their names."""
        assert self._client is not None
        found = await self._client.list_workflows_async(
            status="PENDING", queue_name=self._options.queue, load_input=False, load_output=False
        )
        others: dict[str, list[str]] = {}
        for each in found:
            if each.executor_id is not None and each.executor_id != self._name:
                others.setdefault(each.executor_id, []).append(each.workflow_id)
        return others

    async def _take_over(self, worker: str, workflows: list[str]) -> None:
        """Put the work of a process that is dead back into the queue."""
        assert self._client is not None
        store = self._worker.options.session_store
        try:
            lease = await store.acquire(_worker_key(worker), self._name, ttl=self._options.dead_after)
        except SessionBusy:
            return  # it lives
        try:
            # With the queue: without it the work would run beside that of the same session.
            await self._client.resume_workflows_async(workflows, queue_name=self._options.queue)
            logger().warning("background_stands_in", worker=worker, sessions=len(workflows))
        finally:
            await store.release(lease)


def _work_of(key: SessionKey) -> str:
    """What the ids of all workflows of a session begin with."""
    return f"{hashlib.sha256(key.path.encode()).hexdigest()[:32]}-"


def _worker_key(name: str) -> SessionKey:
    """Where the lease of a process lies that says that it is alive; nothing is ever kept there."""
    return SessionKey(agent_id=_WORKERS, user_id=None, session_id=name)


_registered: list[object] = []


def _register() -> None:
    """Make the one workflow known to the engine, once in a process."""
    from dbos import DBOS

    if _registered:
        return

    @DBOS.workflow(name=WORKFLOW)
    async def work(queue: str, key: str) -> int:
        return await _running[queue].work(SessionKey.from_json(key.encode()))

    _registered.append(work)
