"""What every runner keeps to, with processes that die, stand still and come back."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from agentscope_rx.background import AgentSession, DbosOptions, DbosRunner, SessionEvent, TaskStatus
from agentscope_rx.errors import SessionBusy
from agentscope_rx.events import AgentEnd
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SessionKey
from tests.background.serving import runner_at
from tests.background.support import ALICE, builder_on
from tests.stores.conftest import Place
from tests.stores.places import store_at

ROOT = Path(__file__).resolve().parents[2]
#: DBOS keeps its own tables in SQLite or PostgreSQL; over which store sessions lie does not matter to it.
CASES = pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("in-process", place) for place in ("files", "sqlite", "postgres", "redis")),
        *(("dbos", place) for place in ("sqlite", "postgres")),
        *(pytest.param("dbos", place, marks=pytest.mark.soak) for place in ("files", "redis")),
    ],
    indirect=["place"],
)


class Serving:
    """Another process at work."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(what)

    async def kill(self) -> None:
        """Kill it with -9."""
        self._process.kill()
        await self._process.wait()

    async def leave(self) -> None:
        """Let it leave its runner's block in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await self._process.wait() == 0


class Engine:
    """Processes of one runner over one store, and what their tools have noted."""

    def __init__(self, kind: str, place: str, engine: str, folder: Path, stack: AsyncExitStack) -> None:
        self.kind, self.place, self.engine, self.folder = kind, place, engine, folder
        self._stack = stack

    async def serve(self, name: str) -> Serving:
        """One more process."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.background.serving"),
            *(self.kind, self.place, self.engine, str(self.folder), name),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._stack.push_async_callback(_ended, process)
        assert process.stdout is not None
        assert (await process.stdout.readline()).decode().strip() == "ready"
        return Serving(process)

    def lines(self, file: str) -> list[str]:
        """What was noted."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    async def noted(self, file: str, count: int) -> None:
        """Wait until so much was noted."""
        while len(self.lines(file)) < count:  # noqa: ASYNC110 - another process notes it
            await asyncio.sleep(0.01)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    await process.wait()


@asynccontextmanager
async def engine(kind: str, place: Place, folder: Path) -> AsyncGenerator[Engine]:
    """No process yet, and a place for them; DBOS keeps its own tables in a file, or beside those of sessions."""
    at = await asyncio.to_thread(place)
    own = at.removeprefix("sql ") if "postgres" in at else f"sqlite:///{folder}/engine.db"
    async with AsyncExitStack() as stack:
        yield Engine(kind, at, own, folder, stack)


@asynccontextmanager
async def told_from_here(the: Engine) -> AsyncGenerator[AgentSession]:
    """The session, in a process that only tells and watches."""
    async with runner_at(the.kind, the.place, the.engine, the.folder, "here", work=False) as runner:
        yield runner.session(ALICE)


def check(the: Engine, events: Sequence[SessionEvent]) -> None:
    """No call of a tool has begun twice, and no event is there twice."""
    begun = Counter(line.rpartition(" ")[0] for line in the.lines("begun"))
    assert max(begun.values()) == 1, begun
    ids = [each.event.id for each in events]
    assert len(set(ids)) == len(ids)


async def ended(session: AgentSession, count: int) -> list[SessionEvent]:
    """The events up to so many ends of runs."""
    seen: list[SessionEvent] = []
    async for each in session.events():
        seen.append(each)
        count -= isinstance(each.event, AgentEnd)
        if not count:
            return seen
    raise AssertionError


@pytest.mark.slow
@pytest.mark.timeout(180)
@CASES
async def test_a_process_that_is_killed(kind: str, place: Place, tmp_path: Path) -> None:
    """Killed with -9 in a tool: another goes on with the turn, tells the model that nobody knows what became of that
    call, runs no call twice, and does what was submitted behind it; a reader misses nothing."""
    async with engine(kind, place, tmp_path) as the, told_from_here(the) as session:
        first = await the.serve("first")
        reading = asyncio.create_task(ended(session, 2))
        one, two = await session.submit("go on 8", key="one"), await session.submit("and then 1", key="two")
        await the.noted("begun", 3)
        await first.kill()
        await the.serve("second")
        reports = await asyncio.wait_for(asyncio.gather(one, two), 60)
        assert [(each.status, each.reply and each.reply.text) for each in reports] == [
            (TaskStatus.COMPLETED, "answer to go on 8"),
            (TaskStatus.COMPLETED, "answer to and then 1"),
        ]
        check(the, await asyncio.wait_for(reading, 60))
        words = [message.text for message in await session.transcript() if message.text]
        assert words == ["go on 8", "answer to go on 8", "and then 1", "answer to and then 1"]
        assert {line.split()[-1] for line in the.lines("begun")} == {"first", "second"}


@pytest.mark.slow
@pytest.mark.timeout(180)
@CASES
async def test_a_process_that_stands_still_and_comes_back(kind: str, place: Place, tmp_path: Path) -> None:
    """Stopped in a tool until another has taken over and done the work: once it goes on, it changes nothing."""
    async with engine(kind, place, tmp_path) as the, told_from_here(the) as session:
        first = await the.serve("first")
        task = await session.submit("go on 8", key="one")
        await the.noted("begun", 3)
        first.send(signal.SIGSTOP)
        await the.serve("second")
        report = await session.wait(task, timeout=60)
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "answer to go on 8")
        before = await session.inspect()
        first.send(signal.SIGCONT)
        again = await session.submit("and then 1", key="two")
        assert (await session.wait(again, timeout=60)).status is TaskStatus.COMPLETED
        records = [record async for record in session.log.scan(after=before.as_of_seq)]
        assert len({record.run_id for record in records if record.run_id}) == 1  # that of the later task alone
        check(the, [each async for each in session.events(follow=False)])


@pytest.mark.slow
@pytest.mark.timeout(180)
@CASES
async def test_a_process_that_leaves_in_good_order(kind: str, place: Place, tmp_path: Path) -> None:
    """Its run stops behind its tool; the next process ends the turn, and no call is uncertain."""
    async with engine(kind, place, tmp_path) as the, told_from_here(the) as session:
        first = await the.serve("first")
        task = await session.submit("go on 8", key="one")
        await the.noted("begun", 3)
        await first.leave()
        assert (await task.report()).status is TaskStatus.RUNNING
        await the.serve("second")
        report = await session.wait(task, timeout=60)
        assert (report.status, report.reply and report.reply.text) == (TaskStatus.COMPLETED, "answer to go on 8")
        assert [line.rpartition(" ")[0] for line in the.lines("begun")] == [f"go_on_8/{n}" for n in range(8)]
        assert [line.rpartition(" ")[0] for line in the.lines("ended")] == [f"go_on_8/{n}" for n in range(8)]


@pytest.mark.slow
@pytest.mark.timeout(180)
@CASES
async def test_several_processes_do_each_thing_once(kind: str, place: Place, tmp_path: Path) -> None:
    """Three processes, ten sessions with three tasks each, one of the processes killed: all are done, in order."""
    async with (
        engine(kind, place, tmp_path) as the,
        runner_at(the.kind, the.place, the.engine, the.folder, "here", work=False) as runner,
    ):
        serving = await asyncio.gather(*(the.serve(f"p{n}") for n in range(3)))
        sessions = [runner.session(RuntimeContext(user_id="u", session_id=f"s{n}")) for n in range(10)]
        tasks = [await session.submit(f"{n} of {session.session_id} 2") for n in range(3) for session in sessions]
        await the.noted("begun", 10)
        await serving[0].kill()
        reports = await asyncio.wait_for(asyncio.gather(*tasks), 100)
        assert {each.status for each in reports} == {TaskStatus.COMPLETED}
        for session in sessions:
            words = [message.text for message in await session.transcript() if message.text]
            asked = [f"{n} of {session.session_id} 2" for n in range(3)]
            assert words == [text for each in asked for text in (each, f"answer to {each}")]
        assert max(Counter(line.rpartition(" ")[0] for line in the.lines("begun")).values()) == 1


@pytest.mark.slow
async def test_an_application_with_an_engine_of_its_own(tmp_path: Path) -> None:
    """Its DBOS does the work, under its own name and version: the lease that says that it lives has that name."""
    from dbos import DBOS

    store = store_at(f"files {tmp_path}/store")
    url = f"sqlite:///{tmp_path}/engine.db"
    mine = DBOS(
        config={
            "name": "app",
            "system_database_url": url,
            "executor_id": "app-1",
            "application_version": "app-9",
            "log_level": "ERROR",
        }
    )
    try:
        options = DbosOptions(poll=0.05, grace=0.1)
        async with DbosRunner(builder_on(store, ["done"]), url, options=options, dbos=mine) as runner:
            task = await runner.session(ALICE).submit("go")
            report = await asyncio.wait_for(task, 40)
            assert report.status is TaskStatus.COMPLETED
            alive = SessionKey(agent_id="agentscope-rx workers", user_id=None, session_id="app-1")
            with pytest.raises(SessionBusy):
                await store.acquire(alive, "somebody", ttl=1)
    finally:
        await asyncio.to_thread(DBOS.destroy)
