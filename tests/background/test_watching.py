"""Events of sessions across stores and processes: from the log, and on as they come."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from agentscope_rx.background import AgentSession, InProcessRunner, SessionEvent
from agentscope_rx.events import AgentEnd, TextBlockDelta
from agentscope_rx.testing import ScriptedModel, text
from tests.background.support import ALICE, builder_on
from tests.stores.conftest import Place
from tests.stores.places import store_at
from tests.virtual import virtual

WORDS = [f"{n} " for n in range(60)]


async def until_the_end(session: AgentSession, *, breaking_every: int | None = None) -> list[SessionEvent]:
    """All events up to the end of a run; where it says so, each few of them by another reader that goes on."""
    seen: list[SessionEvent] = []
    after: int | str = 0
    while True:
        read = 0
        async with aclosing(aiter(session.events(after=after))) as events:
            async for each in events:
                seen.append(each)
                after, read = each.cursor, read + 1
                if isinstance(each.event, AgentEnd):
                    return seen
                if read == breaking_every:
                    break


@pytest.mark.slow
@pytest.mark.parametrize("place", ["files", "sqlite", "postgres", "redis"], indirect=True)
async def test_readers_elsewhere_miss_nothing(place: Place) -> None:
    """Whoever watches from another process, from the beginning, in the middle, or by going on behind cursors, has the
    same events in the same order, each once, and the whole text; and sees it before it is whole."""
    at = await asyncio.to_thread(place)
    model = ScriptedModel([text(*WORDS).after(0.02)])
    async with (
        InProcessRunner(builder_on(store_at(at), model)) as runner,
        InProcessRunner(builder_on(store_at(at)), work=False) as elsewhere,
    ):
        readers = [asyncio.create_task(until_the_end(elsewhere.session(ALICE), breaking_every=n)) for n in (None, 1, 3)]
        task = await runner.session(ALICE).submit("count")
        async with asyncio.timeout(40):
            await task
            results = await asyncio.gather(*readers, until_the_end(elsewhere.session(ALICE)))
    texts = ["".join(e.event.delta for e in seen if isinstance(e.event, TextBlockDelta)) for seen in results]
    assert texts == ["".join(WORDS)] * 4
    others = [[e.event.id for e in seen if not isinstance(e.event, TextBlockDelta)] for seen in results]
    assert others == [others[-1]] * 4
    assert all(len({e.event.id for e in seen}) == len(seen) for seen in results)
    assert sum(isinstance(e.event, TextBlockDelta) for e in results[0]) > 2


@virtual
async def test_a_reader_that_leaves_lets_go() -> None:
    """Leaving the stream, or being cancelled in it, ends what waits for the log; no task is left behind."""
    store = store_at("memory")
    async with InProcessRunner(builder_on(store, ["one", "two"])) as runner:
        session = runner.session(ALICE)
        await (await session.submit("go"))
        async with aclosing(aiter(session.events())) as events:
            async for _ in events:
                break
        reading = asyncio.create_task(until_the_end(session, breaking_every=1_000))
        await reading
        waiting = asyncio.create_task(anext(aiter(session.events(after=1_000))))
        await asyncio.sleep(100)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
