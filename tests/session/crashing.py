"""Kills workers at random moments: `-m tests.session.crashing <place> <folder> <rounds> <seed>`.

Each round forks a worker, which looks at what the one before has left, goes on with its session, and is killed with -9
somewhere on its way: between two of its steps, or in one. A worker that finds anything wrong ends by itself, and the
whole with it. What others have to know of is added to files in the folder: what a worker was told is written to the
log, and which tools have begun. The last line that is printed counts what was seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import pytest

from agentscope_rx.errors import UncertainToolCalls
from agentscope_rx.events import AgentResult, Custom
from agentscope_rx.logs import logger
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import LogRecord, UncertainCalls
from agentscope_rx.stores import InMemoryStore, Lease, SessionKey, SessionStore
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import ToolContext, tool
from tests.session.support import KEY, agent_on
from tests.stores.places import store_at

CONTEXT: Final = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
LEASE: Final = 0.1
#: How many steps a worker takes at most, and seconds after the last.
MOST_STEPS: Final = 24
LONGEST: Final = 0.003
STOPPED: Final = -signal.SIGKILL


class Witness:
    """A store that notes what it has said is written, and tells of each step that it takes for the holder.

    Args:
        inner: The store.
        folder: Where to note it.
        told: A pipe to the one that kills.
    """

    def __init__(self, inner: SessionStore, folder: Path, told: int) -> None:
        self._inner, self._folder, self._told = inner, folder, told
        self.held = False

    def __getattr__(self, name: str) -> Any:
        if name in ("get", "put", "read_after", "release"):
            self.tell()
        return getattr(self._inner, name)

    def tell(self) -> None:
        """Tell of a step."""
        if self.held:
            os.write(self._told, b".")

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Get the session, and begin to tell."""
        lease = await self._inner.acquire(key, holder, ttl=ttl)
        self.held = True
        self.tell()
        return lease

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Write, and note it."""
        self.tell()
        last = await self._inner.append(key, records, expected_seq=expected_seq, fence=fence)
        note(self._folder / "written", *(f"{n} {mark(body)}" for n, body in enumerate(records, expected_seq + 1)))
        return last


def mark(body: bytes) -> str:
    """What a record is known by."""
    return sha256(body).hexdigest()


def note(file: Path, *lines: str) -> None:
    """Add lines to a file, all at once; the system keeps them when the process dies."""
    with file.open("ab", buffering=0) as out:
        out.write("".join(f"{line}\n" for line in lines).encode())


def noted(file: Path) -> list[str]:
    """The lines of a file."""
    return file.read_text().splitlines() if file.exists() else []


# -- one worker ---------------------------------------------------------------------------------------------


class Worker:
    """A process that works on the session until it is killed.

    Args:
        place: Where the store is.
        folder: Where the files are.
        number: Which worker it is.
        told: As for `Witness`.
    """

    def __init__(self, place: str, folder: Path, number: int, told: int) -> None:
        self.folder, self.number = folder, number
        self.store: Any = Witness(store_at(place), folder, told)
        self.refuses = number % 2 == 1

        @tool
        async def work(context: ToolContext) -> str:
            """Note that it has begun, and take a while."""
            note(folder / "begun", context.call.id)
            self.store.tell()
            await asyncio.sleep(2 * LONGEST)  # long enough to be killed in
            return "done"

        ids = (f"w{number}-{n}" for n in count(1))
        script = chain.from_iterable(
            (calls((next(ids), "work", "{}"), (next(ids), "work", "{}")), "done") for _ in count()
        )
        what = UncertainCalls.REFUSE if self.refuses else UncertainCalls.TELL
        self.agent: ReActAgent = agent_on(
            self.store,
            ScriptedModel(script, keep_requests=False),
            tools=[work],
            lease_seconds=LEASE,
            uncertain_calls=what,
            wait_timeout=10,
        )

    async def go_on(self, turns: int | None) -> None:
        """Look at what is there, and make calls; None = until the end."""
        lost, uncertain = await self.look()
        begun = Counter(noted(self.folder / "begun"))
        if uncertain and self.refuses:
            recovered = await self.refused(uncertain)
        else:
            recovered = await self.call()
        expected: list[Any] = [{"run_id": lost, "uncertain_tool_calls": uncertain}] if lost else []
        assert recovered == expected, (recovered, expected)
        after = Counter(noted(self.folder / "begun"))
        assert all(after[id] == begun[id] for id in uncertain), "an uncertain tool was run again"
        note(self.folder / "seen", *(["recovery"] if lost else ()), *("uncertain" for _ in uncertain))
        for _ in count() if turns is None else range(turns):
            assert await self.call() == []

    async def refused(self, uncertain: list[str]) -> list[Any]:
        """No run begins, however often it is tried, until somebody says what became of the calls."""
        found: list[Any] = []
        for _ in range(2):
            with pytest.raises(UncertainToolCalls) as refused:
                await self.call()
            assert list(refused.value.calls) == uncertain
            found += self.recovered
        await self.agent.reconcile(CONTEXT, dict.fromkeys(uncertain, "it was done"), reason="looked it up")
        assert await self.call() == []
        return found

    async def call(self) -> list[Any]:
        """Ask once; the values of its `recovery` events."""
        self.recovered = list[Any]()
        asked = f"{self.number} {time.monotonic_ns()}"
        async for event in self.agent.stream_events(asked, CONTEXT):
            if isinstance(event, Custom) and event.name == "recovery":
                self.recovered.append(event.value)
            if isinstance(event, AgentResult):
                assert event.result.text == "done"
                note(self.folder / "answered", asked)
        return self.recovered

    # -- what is there --------------------------------------------------------------------------------------

    async def look(self) -> tuple[str, list[str]]:
        """Check the log against what was noted; the run that died in it, and its calls without an end."""
        bodies = await self.bodies()
        for line in noted(self.folder / "written"):
            seq, body = line.split()
            assert mark(bodies[int(seq) - 1]) == body, f"record {seq} was lost"
        records = [LogRecord.from_json(body) for body in bodies]
        assert [record.seq for record in records] == list(range(1, len(bodies) + 1))
        dispatched = [id for each in records if each.type == "tool/dispatch" for id in each.payload["call_ids"]]
        begun = Counter(noted(self.folder / "begun"))
        assert max(begun.values(), default=0) <= 1, "a tool ran twice"
        assert set(begun) <= set(dispatched), "a tool ran before it was written that it would"
        log = self.agent.session_log(CONTEXT)
        transcript = [message.text for message in await log.transcript()]
        assert set(noted(self.folder / "answered")) <= set(transcript)
        ended = {block["id"] for record in records for block in _results(record)}
        lost = _lost(records)
        uncertain = [id for id in dispatched if id not in ended]
        found = await log.project()
        assert (found.active_run, list(found.uncertain_tool_calls)) == (lost, uncertain), (found, lost, uncertain)
        return lost, uncertain

    async def bodies(self) -> list[bytes]:
        """The whole log."""
        found = list[bytes]()
        while page := await self.store.read_after(KEY, len(found)):
            found += page
        return found


def _results(record: LogRecord) -> list[Any]:
    messages = [*record.payload.get("messages", ()), *record.payload.get("results", ())]
    return [block for message in messages for block in message["content"] if block["type"] == "tool_result"]


def _lost(records: Sequence[LogRecord]) -> str:
    run = ""
    for record in records:
        match record.type:
            case "run/start":
                run = record.payload["run_id"]
            case "run/end" | "recovery/applied":
                run = ""
            case _:
                pass
    return run


# -- the one that kills -------------------------------------------------------------------------------------


def fork(place: str, folder: Path, number: int, *, turns: int | None) -> tuple[int, int]:
    """Start a worker; its process, and the pipe through which it tells of its steps."""
    told, telling = os.pipe()
    worker = os.fork()
    if worker:
        os.close(telling)
        return worker, told
    try:
        asyncio.run(Worker(place, folder, number, telling).go_on(turns))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(place: str, folder: Path, rounds: int, seed: str) -> None:
    """Kill so many workers, and let one more end."""
    chance = random.Random(seed)
    # Once, and not in each worker:
    asyncio.run(agent_on(InMemoryStore(), ["ready"]).acall("ready?"))
    logger()
    for module in ("sqlalchemy.ext.asyncio", "aiosqlite", "asyncpg", "redis.asyncio", "agentscope_rx.stores.sql_rows"):
        import_module(module)
    for number in range(rounds):
        worker, told = fork(place, folder, number, turns=None)
        for _ in range(chance.randint(1, MOST_STEPS)):
            os.read(told, 1)
        time.sleep(chance.uniform(0, LONGEST))
        os.kill(worker, signal.SIGKILL)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == STOPPED, f"worker {number} found something wrong"
        os.close(told)
    worker, told = fork(place, folder, rounds, turns=1)
    _, status = os.waitpid(worker, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the last worker found something wrong"
    os.close(told)
    counts = {name: len(noted(folder / name)) for name in ("written", "begun", "answered")}
    print(json.dumps(counts | Counter(noted(folder / "seen"))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
