"""What a log costs: each step what is new in it, and never what was there before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.requests import CallDelta, ModelChunk, ModelRequest
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import InMemoryStore, SessionKey
from agentscope_rx.tools import tool
from agentscope_rx.workspace import InMemoryWorkspace
from tests.session.support import input_of as heard
from tests.session.support import opened, said

STEPS = 1_000
ALICE = RuntimeContext(user_id="alice", session_id="s1")


class Weighed(InMemoryStore):
    """A store that knows how many bytes were appended, append by append."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[int] = []

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Append, and weigh."""
        self.appended.append(sum(map(len, records)))
        return await super().append(key, records, expected_seq=expected_seq, fence=fence)


class Working:
    """A model that calls the same tool at each step, and sums up where it is asked to."""

    name, context_window, max_output_tokens = "working", 1_000_000, None

    def __init__(self, store: Weighed) -> None:
        self._store = store
        self.before: list[int] = []
        """Bytes of the log before each step."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Answer."""
        if request.purpose == "summary":
            yield ModelChunk(text="## SESSION INTENT\nWork.\n## SUMMARY\nWorked.\n## NEXT STEPS\nWork.")
            return
        self.before.append(sum(self._store.appended))
        if len(self.before) > STEPS:
            yield ModelChunk(text="done")
        else:
            yield ModelChunk(calls=(CallDelta(0, f"c{len(self.before)}", "work", "{}"),))


@tool
async def work() -> str:
    """Work."""
    return "worked " * 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trigger", [0, 40])
async def test_a_late_step_appends_what_an_early_one_does(trigger: int) -> None:
    """Step 1,000 appends at most 1.2 times the bytes of step 100, where nothing is compacted and where much is."""
    store = Weighed()
    model = Working(store)
    options: dict[str, Any] = {"compaction": {"trigger_messages": trigger, "keep_tokens": 0, "keep_messages": 10}}
    builder = HarnessAgent.builder(
        name="worker", model=model, tools=[work], workspace=InMemoryWorkspace(), state_store=store, max_iters=2 * STEPS
    )
    async with builder.configured(options).build() as agent:  # type: ignore[arg-type]
        await agent.call("work", ALICE)
        compactions = len(await agent.compactions(ALICE))
    assert (compactions > 20) == bool(trigger)
    early, late = (model.before[end] - model.before[end - 90] for end in (100, STEPS))
    assert 0 < late <= 1.2 * early


async def test_an_append_writes_only_what_is_new() -> None:
    """A barrier after a thousand messages writes one record of the same size as after one; a second writes nothing."""
    store = Weighed()
    session = await opened(store)
    for n in range(1_000):
        session.record(heard(said(f"m{n:04}")))
        await session.barrier()
        await session.barrier()
    assert len(store.appended) == 1_000
    assert store.appended[-1] - store.appended[0] == len("1000") - len("1")
    await session.close()
