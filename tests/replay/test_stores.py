"""Recordings over every store: as a file while the agent works, and from the log afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentscope_rx.replay import Recorder, SessionRecorder, record_session, replay, what_if
from agentscope_rx.stores import SessionStore
from tests.replay.life import ALICE, Stores, life_builder, live
from tests.stores.conftest import Place
from tests.stores.places import store_at


def stores_of(place: Place) -> Stores:
    """Opens one store again and again, as processes do that follow one another."""
    where = place()
    one: SessionStore = store_at(where)
    return (lambda: one) if where == "memory" else (lambda: store_at(where))


def test_a_whole_life_is_recorded_and_replayed(place: Place, tmp_path: Path) -> None:
    """Whatever store it lies in, and over restarts, each run replays: requests and events are the same."""
    path = tmp_path / "life.jsonl"
    with Recorder(path) as recorder:
        asyncio.run(live(stores_of(place), lambda builder: recorder.watch(builder.state_only(False))))
    replayed = replay(path, life_builder())
    replayed.check()
    assert len(replayed.runs) == 7


def test_a_whole_life_is_in_its_log(place: Place, tmp_path: Path) -> None:
    """The recording that is made of the log, later and elsewhere, replays as one that was made at work; and each of
    its requests can be prepared again."""
    stores, path = stores_of(place), tmp_path / "life.jsonl"
    asyncio.run(live(stores, lambda builder: SessionRecorder().watch(builder)))

    async def copy() -> str:
        return str(await record_session(life_builder(stores()).build().session_log(ALICE), path))

    assert asyncio.run(copy()) == f"{path}: 7 runs"
    replayed = replay(path, life_builder())
    replayed.check()
    outcome = what_if(life_builder(stores()).build().session_log(ALICE), life_builder(), run=-1, step=1)
    assert (outcome.tokens, outcome.notes, len(outcome.kept)) == (0, (), len(outcome.before.items))
    asked = [request.purpose for run in replayed.runs for request in run.requests]
    assert asked.count("summary") >= 2
    assert len(replayed.runs) == 7
