"""Cases O26 and O33, and what many sessions in one process must hold: no turn is lost, however many write."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentscope_rx.errors import AgentScopeError, StateConflict
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import SessionStore
from agentscope_rx.testing import ScriptedModel
from tests.cases import case
from tests.session.support import KEY, agent_on
from tests.stores.conftest import Place
from tests.stores.places import store_at

ROOT = Path(__file__).resolve().parents[2]
ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
EACH = pytest.mark.parametrize("place", ["files", "sqlite", "redis", "postgres"], indirect=True)


class Meeting(ScriptedModel):
    """Answers when both have asked, or when it is clear that only one can."""

    def __init__(self, answer: str, both: asyncio.Barrier) -> None:
        super().__init__([answer])
        self._both = both

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Wait for the other, and answer."""
        await self._both.wait()
        async for chunk in super().stream(request):
            yield chunk


async def both_at_once(store: SessionStore, *, state_only: bool) -> list[str]:
    """Two agents that know nothing of one another; what became of each call."""
    the = case("O26")
    both = asyncio.Barrier(2 if state_only else 1)  # with a log the second call waits for its turn
    made = [Meeting(answer["text"], both) for answer in the["model"]]
    agents = [agent_on(store, model, own=Runtime(), state_only=state_only, wait_timeout=50) for model in made]
    calls = [agent.acall(text["content"], ALICE) for agent, text in zip(agents, the["inputs"], strict=True)]
    found: list[str] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, AgentScopeError)
            found.append(outcome.code)
        else:
            found.append(outcome.text)
    return found


@EACH
async def test_o26_two_callers_of_one_session_with_a_log(place: Place) -> None:
    """Both succeed, one after the other, and both turns are there; the numbers of the log have no gap."""
    store = store_at(await asyncio.to_thread(place))
    assert sorted(await both_at_once(store, state_only=False)) == ["ra", "rb"]
    fresh = agent_on(store)
    said = [message.text for message in (await fresh.state(ALICE)).context.messages]
    assert said in (["A", "ra", "B", "rb"], ["B", "rb", "A", "ra"])
    numbers = [record.seq async for record in fresh.session_log(ALICE).scan()]
    assert numbers == list(range(1, len(numbers) + 1))


@EACH
async def test_o26_two_callers_of_one_state(place: Place) -> None:
    """Both are in their model calls at once: one succeeds, the other is told of the conflict, and the turn of the one
    that succeeded is there."""
    store = store_at(await asyncio.to_thread(place))
    outcomes = await both_at_once(store, state_only=True)
    (answer,) = [each for each in outcomes if each != StateConflict.code]
    said = [message.text for message in (await agent_on(store, state_only=True).state(ALICE)).context.messages]
    assert said == [{"ra": "A", "rb": "B"}[answer], answer]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
async def test_a_thousand_sessions_of_one_database(place: Place) -> None:
    """1,000 sessions of one process at once: each has all of what was said in it, and nothing of another."""
    store = store_at(await asyncio.to_thread(place))

    class Echo(ScriptedModel):
        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
            yield ModelChunk(text=f"heard {[*request.messages][-1].text}")
            yield ModelChunk(finish_reason="stop")

    agent = agent_on(store, Echo([]), wait_timeout=200)
    contexts = [RuntimeContext(user_id="u", session_id=f"s{n}") for n in range(1_000)]
    await asyncio.gather(*(agent.acall(f"hello {n}", each) for n, each in enumerate(contexts)))
    fresh = agent_on(store)
    for n in range(1_000):
        said = [message.text for message in (await fresh.state(contexts[n])).context.messages]
        assert said == [f"hello {n}", f"heard hello {n}"]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", ["files", "sqlite"], indirect=True)
async def test_o33_a_session_of_hundreds_of_megabytes(place: Place) -> None:
    """Another process opens it and calls once, without reading it whole: by its memory, and by what it has to read."""
    at = await asyncio.to_thread(place)
    command = [sys.executable, "-m", "tests.cases.huge_session", at]
    for part in ("write", "call"):
        done = await asyncio.to_thread(
            subprocess.run, [*command, part], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
