"""What all agents of a builder share, and the context that a call hands along."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from agentscope_rx.runtime import Runtime, SystemClock, UniqueIds
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing.virtual_loop import run_virtual

ROOT = Path(__file__).resolve().parents[1]
THREADS = 8
T = TypeVar("T")

# -- ids ----------------------------------------------------------------------------------------------------


def together(action: Callable[[], T], *, count: int = THREADS) -> list[T]:
    """What a function gives in several threads that begin in the same moment."""
    start = threading.Barrier(count)

    def work() -> T:
        start.wait(timeout=30)
        return action()

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(count)]]


def test_ids_are_unique_across_threads() -> None:
    """Ids have 32 hexadecimal digits, and no two are the same, from however many threads they are drawn."""
    ids = UniqueIds()
    drawn = [id for part in together(lambda: [ids.new_id("event") for _ in range(2_000)]) for id in part]
    assert len(set(drawn)) == len(drawn) == THREADS * 2_000
    assert all(len(id) == 32 and set(id) <= set("0123456789abcdef") for id in drawn)


def test_ids_of_two_runtimes_differ() -> None:
    """Two processes, and two Runtimes of one, do not draw the same ids."""
    assert len({Runtime().ids.new_id("run")[:20] for _ in range(50)}) == 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_draws_other_ids() -> None:
    """A process that was forked, while another thread drew an id or not, goes on with ids of its own."""
    code = (
        "import os\n"
        "from agentscope_rx.runtime import UniqueIds\n"
        "ids = UniqueIds()\n"
        "ids.new_id('a')\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "os.write(1, ids.new_id('b').encode() + b'\\n')\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    one, other = done.stdout.split()
    assert len(one) == len(other) == 32
    assert one[:20] != other[:20]


# -- time ---------------------------------------------------------------------------------------------------


def test_the_wall_clock_has_its_zone() -> None:
    """Moments are in UTC, and are those of the computer."""
    before, now, after = datetime.now(UTC), SystemClock().now(), datetime.now(UTC)
    assert before <= now <= after
    assert now.tzinfo is UTC


def test_time_outs_go_by_the_loop() -> None:
    """Inside a loop `monotonic` is the loop's time, so that virtual time holds for it too."""

    async def main() -> list[float]:
        clock = SystemClock()
        first = clock.monotonic()
        await asyncio.sleep(3600)
        return [first, clock.monotonic()]

    assert run_virtual(main) == [0.0, 3600.0]


def test_without_a_loop_the_computers_time_goes() -> None:
    """Outside of a loop `monotonic` is the computer's."""
    before, now, after = time.monotonic(), SystemClock().monotonic(), time.monotonic()
    assert before <= now <= after


# -- what is shared -----------------------------------------------------------------------------------------


class Frozen:
    """A clock that stands, and ids that are all the same."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 7.0

    def new_id(self, kind: str, /) -> str:
        return kind


def test_time_ids_and_chance_can_be_given() -> None:
    """A test or a recording replaces all three; without, jitter is from 0 to 1."""
    frozen = Frozen()
    runtime = Runtime(clock=frozen, ids=frozen, jitter=lambda: 0.25)
    assert (runtime.clock, runtime.ids, runtime.jitter()) == (frozen, frozen, 0.25)
    assert all(0 <= Runtime().jitter() <= 1 for _ in range(20))
    assert abs(Runtime().clock.now() - datetime.now(UTC)) < timedelta(hours=1)


def test_tools_share_one_pool_of_threads() -> None:
    """There is one pool of the size that was asked for, made on first use; its threads say whose they are."""
    runtime = Runtime(tool_threads=2)
    pools = together(lambda: runtime.threads)
    assert len(set(map(id, pools))) == 1
    with runtime.threads as pool:
        meeting = threading.Barrier(2)
        names = {future.result() for future in [pool.submit(_meet, meeting) for _ in range(2)]}
    assert {name.rpartition("_")[0] for name in names} == {"agentscope-rx-tool"}
    assert len(names) == 2


def _meet(meeting: threading.Barrier) -> str:
    meeting.wait(timeout=30)
    return threading.current_thread().name


def test_single_things_are_made_once() -> None:
    """A Runtime has one thing of each kind, from however many threads it is asked for; another has its own."""
    made: list[list[int]] = []

    def make() -> list[int]:
        made.append([])
        return made[-1]

    runtime = Runtime()
    things = together(lambda: runtime.single(make))
    assert len(made) == 1
    assert all(thing is made[0] for thing in things)
    assert runtime.single(dict) is runtime.single(dict) is not runtime.single(set)
    assert Runtime().single(make) is not made[0]


# -- the context of a call ----------------------------------------------------------------------------------


class Tenant:
    """Something that an application hands along."""


class Customer(Tenant):
    """A special one."""


def test_things_are_found_by_name() -> None:
    """`get` with a name looks among the attributes, and knows nothing of what is not there."""
    context = RuntimeContext(user_id="alice", session_id="s1", attributes={"tenant": 7})
    assert (context.get("tenant"), context.get("user_id")) == (7, None)


def test_things_are_found_by_type() -> None:
    """`get` with a type gives exactly that type before a subclass, the newest of several, else None."""
    old, new, special = Tenant(), Tenant(), Customer()
    context = RuntimeContext(values=(old, new, special))
    assert context.get(Tenant) is new
    assert context.get(Customer) is special
    assert RuntimeContext(values=(special,)).get(Tenant) is special
    assert context.get(str) is None


def test_a_context_is_extended_by_copies() -> None:
    """`with_` adds and overrides; None removes an attribute; the context itself stays as it was."""
    context = RuntimeContext(user_id="alice", session_id="s1", attributes={"a": 1, "b": 2}, values=(3.5,))
    other = context.with_(True, session_id="s2", a=None, c=3)
    assert (other.user_id, other.session_id, other.attributes) == ("alice", "s2", {"b": 2, "c": 3})
    assert (other.get(float), other.get(bool)) == (3.5, True)
    assert context == RuntimeContext(user_id="alice", session_id="s1", attributes={"a": 1, "b": 2}, values=(3.5,))
