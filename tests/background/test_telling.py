"""What others write into a log while a run holds it: nothing is lost, and the state is the same everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.background.telling import Teller
from agentscope_rx.errors import StateConflict
from agentscope_rx.inbox import Command, CommandKind, QueuedInput
from agentscope_rx.messages import Msg
from agentscope_rx.records import (
    CommandBegun,
    CommandQueued,
    CommandRejected,
    InputAccepted,
    InputQueued,
    InputsTaken,
    InterruptAsked,
    ReplyRecorded,
    RunEnded,
    RunStarted,
)
from agentscope_rx.session.folding import FoldCache, fold, fold_whole
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import InMemoryStore
from tests.background.support import builder_on
from tests.session.support import KEY, answered, input_of, opened, said
from tests.stores.conftest import Place
from tests.stores.places import store_at
from tests.virtual import virtual


def queued(id: str) -> CommandQueued:
    return CommandQueued(Command(id=id, kind=CommandKind.SUBMIT, turn_id=f"t-{id}", digest=id, messages=(said(id),)))


def put_in(id: str) -> InputQueued:
    return InputQueued(QueuedInput(id=id, messages=(said(f"m-{id}"),)))


# -- order --------------------------------------------------------------------------------------------------

BEFORE = [queued("k1"), queued("k2"), put_in("i1"), RunStarted("run1", "t-k1")]
_THEIRS = st.lists(
    st.sampled_from([queued("k3"), queued("k4"), queued("k1"), put_in("i2"), put_in("i3"), InterruptAsked("run1")]),
    max_size=5,
    unique_by=repr,
)
_OURS = st.lists(
    st.sampled_from(
        [
            CommandBegun("k1", "run1"),
            CommandRejected("k2", "CRASHED"),
            InputAccepted((said("x"),)),
            InputsTaken(("i1",), (said("m-i1"),)),
            ReplyRecorded(answered("y")),
            RunEnded("run1", "completed", "MODEL_STOP"),
            RunEnded("run1", "interrupted", "SHUTDOWN"),
        ]
    ),
    max_size=6,
    unique_by=repr,
)


def after(records: Sequence[Record]) -> AgentState:
    state = AgentState(session_id="s1")
    for record in records:
        state = state.apply(record)
    return state


@given(_OURS, _THEIRS, st.integers(0, 6))
def test_what_is_told_commutes_with_what_a_run_records(ours: list[Record], theirs: list[Record], at: int) -> None:
    """Wherever among the records of a run those of others come to stand, the state at the end is the same."""
    expected = after([*BEFORE, *theirs, *ours])
    assert after([*BEFORE, *ours[:at], *theirs, *ours[at:]]) == expected
    assert after([*BEFORE, *ours, *theirs]) == expected


@virtual
async def test_a_run_takes_in_what_was_told_between_its_writes() -> None:
    """Its write goes behind theirs; its state in memory is what the log gives, with what it had noted meanwhile."""
    store = InMemoryStore()
    session = await opened(store)
    teller = Teller(builder_on(store).build(), KEY)
    heard: list[int] = []
    session.on_told = lambda: heard.append(len(session.state.inbox.queued))
    session.begin()
    session.record(input_of(said("a")))
    await teller.tell(lambda _: queued("k1"))
    await session.barrier()
    await teller.tell(lambda _: queued("k2"))
    session.record(input_of(said("b")))
    await teller.tell(lambda _: put_in("i1"))
    assert len(session.state.inbox.queued) == 1
    await session.catch_up()
    assert len(session.state.inbox.queued) == 2
    session.end("completed", "MODEL_STOP")
    await teller.tell(lambda _: queued("k3"))
    await session.save()  # and keep the state that is made of all of it
    kept = session.state
    await session.close()
    folded = await fold_whole(store, KEY)
    assert folded.state == kept
    assert (await fold(store, KEY, FoldCache())).state == kept
    assert [each.id for each in kept.inbox.queued] == ["k1", "k2", "k3"]
    assert [message.id for message in kept.context.messages] == ["a", "b"]
    assert heard == [1, 2, 3]


@virtual
async def test_what_only_the_holder_may_write_is_a_conflict() -> None:
    """A record of another kind that nobody who held the session wrote: the run writes nothing any more."""
    store = InMemoryStore()
    session = await opened(store)
    session.begin()
    await session.barrier()
    await Teller(builder_on(store).build(), KEY).tell(lambda _: input_of(said("intruder")))
    session.record(input_of(said("a")))
    with pytest.raises(StateConflict):
        await session.barrier()
    with pytest.raises(StateConflict):
        await session.save()
    await session.close()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "files", "sqlite", "postgres", "redis"], indirect=True)
async def test_many_tell_while_a_run_writes(place: Place) -> None:
    """Twenty who tell and one who holds, at once: all is in the log, in one order, and folds to one state."""
    at = await asyncio.to_thread(place)
    store = store_at(at)
    session = await opened(store)
    session.begin()

    async def tell(n: int) -> None:
        teller = Teller(builder_on(store).build(), KEY)
        for each in range(3):
            await teller.tell(lambda _, each=each: queued(f"{n}-{each}"))

    async def write() -> None:
        for n in range(20):
            session.record(InputAccepted((replace(Msg.user(str(n)), id=f"m{n}"),)))
            await session.barrier()

    async with asyncio.timeout(50):
        await asyncio.gather(write(), *(tell(n) for n in range(20)))
        await session.catch_up()
    session.end("completed")
    await session.save()
    kept = session.state
    await session.close()
    folded = await fold_whole(store, KEY)
    assert folded.state == kept
    ids = [each.id for each in kept.inbox.queued]
    assert sorted(ids) == sorted(f"{n}-{each}" for n in range(20) for each in range(3))
    assert all(ids.index(f"{n}-0") < ids.index(f"{n}-1") < ids.index(f"{n}-2") for n in range(20))
    assert [message.id for message in kept.context.messages] == [f"m{n}" for n in range(20)]
