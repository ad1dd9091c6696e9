"""What a log costs: opening a session of 100,000 records, and appending one record to a short and to a long log.

    .bench/agentscope_rx/bin/python benchmarks/sessions.py --reps 5     (`make bench` makes this environment)

The session is kept in files, and in SQLite where its packages are there. It is a conversation with tools that was
compacted every hundred turns. It is opened from its checkpoint and, without one, by folding its whole log; both as a
process does that has not seen it before. Opening and folding are measured in CPU time of all threads, appends in wall
time, since most of it is the disk's; figures are the least of the repetitions, since other work on the machine only
adds. The exit code is 1 where opening from the checkpoint takes over 100 ms or folding over 3 s, or where an append to
100,000 records takes over twice what one to 1,000 takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from agentscope_rx import Msg, Runtime
from agentscope_rx.compactions import CompactionDecision, CompactionOutcome
from agentscope_rx.edits import edits_between
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.records import HistoryEdited, InputAccepted, ReplyRecorded, ResultsRecorded, ToolsDispatched
from agentscope_rx.session import FoldCache, Holder, LoggedSession
from agentscope_rx.session.folding import fold, fold_whole
from agentscope_rx.stores import JsonFileStore, SessionKey, SessionStore, SqlStore

FEW: Final = 1_000
MANY: Final = 100_000
A_TURN: Final = 5  # records
TURNS_KEPT: Final = 20
TURNS_BETWEEN: Final = 100  # two compactions
APPENDS: Final = 100
MOST_OPEN: Final = 0.1
MOST_FOLD: Final = 3.0
MOST_RATIO: Final = 2.0
SAID: Final = "The order of seven notes was read twice today and kept. " * 3
KEY: Final = SessionKey(agent_id="bench", user_id="alice", session_id="bench")
HOLDER: Final = Holder(name="bench", run_id="run", turn_id="turn")


@dataclass(slots=True)
class Sample:
    """Seconds, by repetition."""

    opened: list[float] = field(default_factory=list[float])
    folded: list[float] = field(default_factory=list[float])
    appends: dict[int, list[float]] = field(default_factory=dict[int, list[float]])


# -- a session ----------------------------------------------------------------------------------------------


async def opened(store: SessionStore) -> LoggedSession:
    """The session, in a process that does not know it."""
    return await LoggedSession.open(KEY, store=store, runtime=Runtime(), cache=FoldCache(), holder=HOLDER)


def one_turn(session: LoggedSession, number: int) -> None:
    """A question, a call, its result and an answer."""
    call = ToolUseBlock(id=f"c{number}", name="look", input={"key": SAID})
    result = ToolResultBlock(id=call.id, name="look", output=(TextBlock(text=SAID),))
    session.record(InputAccepted((replace(Msg.user(SAID), id=f"q{number}"),)))
    session.record(ReplyRecorded(replace(Msg.assistant(call), id=f"a{number}")))
    session.record(ToolsDispatched((call.id,)))
    session.record(ResultsRecorded((replace(Msg.tool(result), id=f"r{number}"),)))
    session.record(ReplyRecorded(replace(Msg.assistant(SAID), id=f"b{number}")))


def compact(session: LoggedSession, number: int) -> None:
    """Put a summary in the place of all but the last turns."""
    history = session.state.context
    after = history.replace_first(len(history) - 3 * TURNS_KEPT, replace(Msg.user(SAID), id=f"s{number}"))
    decision = CompactionDecision(outcome=CompactionOutcome.DONE, id=f"k{number}", trigger="messages")
    session.record(HistoryEdited(edits_between(history, after), decision, "2026-01-01 00:00:00.000"))


async def grow(store: SessionStore, records: int) -> None:
    """Fill the log up to so many records, and keep a checkpoint."""
    session = await opened(store)
    folded = await fold(store, KEY, FoldCache())
    for number in range(folded.seq // A_TURN, records // A_TURN):
        one_turn(session, number)
        if number % TURNS_BETWEEN == TURNS_BETWEEN - 1:
            compact(session, number)
            await session.barrier()
    await session.save()
    await session.close()


# -- what is measured ---------------------------------------------------------------------------------------


async def appending(store: SessionStore) -> float:
    """Seconds of one append, in a session that is open."""
    session, seen = await opened(store), list[float]()
    for _ in range(APPENDS):
        session.record(ToolsDispatched(()))
        began = time.perf_counter()
        await session.barrier()
        seen.append(time.perf_counter() - began)
    await session.close()
    return min(seen)


async def measured(store: SessionStore, reps: int) -> Sample:
    """Grow a session, and open it at its end."""
    sample = Sample()
    for records in (FEW, MANY):
        await grow(store, records)
        sample.appends[records] = [await appending(store) for _ in range(reps)]
    await grow(store, MANY)  # the checkpoint of what was appended
    for _ in range(reps):
        gc.collect()
        began = time.process_time()
        session = await opened(store)
        sample.opened.append(time.process_time() - began)
        await session.close()
        began = time.process_time()
        folded = await fold_whole(store, KEY)
        sample.folded.append(time.process_time() - began)
        if folded.seq < MANY or folded.state.to_json(with_replaced=False) != session.state.to_json(with_replaced=False):
            raise RuntimeError("the session that was opened is not the one that was written")
    return sample


def stores(folder: Path) -> Mapping[str, Callable[[], SessionStore]]:
    """The stores that need no server."""
    made: dict[str, Callable[[], SessionStore]] = {"files": lambda: JsonFileStore(folder / "files")}
    if find_spec("sqlalchemy") is not None and find_spec("aiosqlite") is not None:
        made["sqlite"] = lambda: SqlStore(f"sqlite:///{folder}/bench.db")
    return made


# -- the answer ---------------------------------------------------------------------------------------------


def checks(name: str, sample: Sample) -> Iterator[tuple[str, float, float]]:
    """What must hold: what it is, what was measured, and what it may be at most."""
    few, many = (min(sample.appends[records]) for records in (FEW, MANY))
    yield f"{name}: opening {MANY:,} records from a checkpoint, s", min(sample.opened), MOST_OPEN
    yield f"{name}: folding {MANY:,} records, s", min(sample.folded), MOST_FOLD
    yield f"{name}: an append to {MANY:,} records by one to {FEW:,} ({few * 1e3:.2f} ms)", many / few, MOST_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    reps, good = parser.parse_args().reps, True
    with tempfile.TemporaryDirectory() as folder:
        for name, make in stores(Path(folder)).items():
            for what, found, most in checks(name, asyncio.run(measured(make(), reps))):
                good = good and found <= most
                print(f"{'ok    ' if found <= most else 'MISSED'} {what}: {found:.3f}, at most {most:g}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
