"""What becomes of a state that somebody else was faster than, and under which keys sessions are kept."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.edits import Edit
from agentscope_rx.errors import InvalidIdentifier, InvalidOption, StateConflict, StateUnreadable
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.records import ContextCleared, HistoryEdited, InputAccepted, LimitLearned, ReplyRecorded
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import ConflictPolicy
from agentscope_rx.session.stored import StateCache, StoredSession
from agentscope_rx.stores import InMemoryStore, JsonFileStore, RedisStore, SessionKey, SqlStore, StateStore
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import tool
from agentscope_rx.workspace import HidingWorkspace, InMemoryWorkspace, OverlayWorkspace, ScopedWorkspace, WorkspaceFS
from tests.cli.command import ROOT
from tests.strategies import result_of

KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
CTX = RuntimeContext(user_id="alice", session_id="s1")
FAIL, OVERWRITE, MERGE = ConflictPolicy.FAIL, ConflictPolicy.OVERWRITE, ConflictPolicy.APPEND_MERGE


def said(text: str) -> InputAccepted:
    return InputAccepted((replace(Msg.user(text), id=f"m-{text}"),))


async def opened(store: StateStore, policy: ConflictPolicy = FAIL) -> StoredSession:
    return await StoredSession.open(KEY, store=store, cache=StateCache(), policy=policy)


async def kept(store: StateStore) -> list[str]:
    """What a session says, as a process reads it that knows nothing of it."""
    return [message.text for message in (await opened(store)).state.context.messages]


async def saved(store: StateStore, *texts: str) -> StoredSession:
    session = await opened(store)
    for text in texts:
        session.record(said(text))
    await session.save()
    return session


# -- two that work on one session ---------------------------------------------------------------------------


def agent_over(store: StateStore, model: ScriptedModel, **options: Any) -> ReActAgent:
    """An agent of a Runtime of its own, as another process would have it."""
    return ReActAgent.builder(name="a1", model=model, state_store=store, **options).build()


def interfering(other: ReActAgent) -> Callable[[], Awaitable[str]]:
    """A tool during which somebody else answers in the same session."""

    @tool
    async def wait_for_it() -> str:
        """Wait."""
        return (await asyncio.create_task(other.acall("theirs?", CTX))).text

    return wait_for_it


async def conflicting(store: StateStore, policy: ConflictPolicy) -> ReActAgent:
    """An agent whose first call meets a conflict."""
    other = agent_over(store, ScriptedModel(["theirs."]))
    model = ScriptedModel([calls(("c1", "wait_for_it", "{}")), "ours.", "again."])
    return agent_over(store, model, tools=[interfering(other)], conflict_policy=policy)


async def test_a_conflict_fails_and_overwrites_nothing(tmp_path: Path) -> None:
    """By default who is slower gets `StateConflict`, and what the other has saved stays; the next call goes on."""
    store = JsonFileStore(tmp_path)
    agent = await conflicting(store, FAIL)
    with pytest.raises(StateConflict):
        await agent.call("ours?", CTX)
    assert await kept(store) == ["theirs?", "theirs."]
    assert (await agent.call("once more", CTX)).text == "again."
    assert await kept(store) == ["theirs?", "theirs.", "once more", "again."]


async def test_a_conflict_overwrites_where_that_was_chosen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`overwrite` keeps what was said here alone, and says so once for each version that is lost."""
    store = JsonFileStore(tmp_path)
    agent = await conflicting(store, OVERWRITE)
    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        assert (await agent.call("ours?", CTX)).text == "ours."
    assert await kept(store) == ["ours?", "", "", "ours."]
    assert [(r.msg, r.__dict__["session"], r.__dict__["lost"]) for r in caplog.records] == [
        ("state_overwritten", "s1", 1)
    ]


async def test_a_conflict_merges_where_that_was_chosen(tmp_path: Path) -> None:
    """`append_merge` puts what was said here behind what the other has saved, calls with their results."""
    store = JsonFileStore(tmp_path)
    agent = await conflicting(store, MERGE)
    assert (await agent.call("ours?", CTX)).text == "ours."
    assert await kept(store) == ["theirs?", "theirs.", "ours?", "", "", "ours."]
    assert (await agent.state(CTX)).context.open_calls == ()
    assert (await agent.call("more?", CTX)).text == "again."


async def test_processes_that_merge_lose_nothing(tmp_path: Path) -> None:
    """Processes that add to one session at the same time: everything is there once, each one's in its own order."""
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.session.observing", str(tmp_path), name, "12", cwd=ROOT
        )
        for name in ("p", "q", "r")
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]
    texts = await kept(JsonFileStore(tmp_path))
    assert len(texts) == 36
    for name in ("p", "q", "r"):
        assert [text for text in texts if text[0] == name] == [f"{name}{number}" for number in range(12)]


# -- merging ------------------------------------------------------------------------------------------------


async def test_shortening_is_not_merged() -> None:
    """What was shortened here is whole in the merged state; what was learned here is in it."""
    store = InMemoryStore()
    await saved(store, "one", "two")
    ours = await opened(store, MERGE)
    gone = tuple(ours.state.context)
    ours.record(HistoryEdited((Edit(gone[:1], ()),)))
    ours.record(LimitLearned("m", 1_000))
    ours.record(said("ours"))
    await saved(store, "theirs")
    await ours.save()
    assert await kept(store) == ["one", "two", "theirs", "ours"]
    assert ours.state.compaction.limits == {"m": 1_000}
    await saved(store, "theirs again")
    ours.record(said("later"))
    await ours.save()
    assert await kept(store) == ["one", "two", "theirs", "ours", "theirs again", "later"]


async def test_a_history_that_was_cleared_is_not_merged() -> None:
    """Whoever empties a history has seen what is in it: what came meanwhile is not emptied too."""
    store = InMemoryStore()
    await saved(store, "one")
    ours = await opened(store, MERGE)
    ours.record(ContextCleared())
    await saved(store, "theirs")
    with pytest.raises(StateConflict, match="replaces the history"):
        await ours.save()
    assert await kept(store) == ["one", "theirs"]


async def test_two_results_of_one_call_are_not_merged() -> None:
    """A call that both have answered keeps the first result; the second is a conflict and no broken history."""
    store, call = InMemoryStore(), ToolUseBlock(id="c1", name="look")
    first = await opened(store)
    first.record(ReplyRecorded(replace(Msg.assistant(call), id="m1")))
    await first.save()
    ours, theirs = await opened(store, MERGE), await opened(store)
    for session, id in ((ours, "m2"), (theirs, "m3")):
        session.record(InputAccepted((replace(result_of(call), id=id),)))
    await theirs.save()
    with pytest.raises(StateConflict, match="answers no open call"):
        await ours.save()
    assert [message.id for message in (await opened(store)).state.context.messages] == ["m1", "m3"]


class Racing(InMemoryStore):
    """A store in which somebody else is faster, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        if self.left:
            self.left -= 1
            stored = await self.get(key)
            other = (await opened(self)).state.apply(said(f"other{self.left}")).to_json()
            await super().put(key, other, expected_version=0 if stored is None else stored.version)
        return await super().put(key, body, expected_version=expected_version, fence=fence)


async def test_a_second_conflict_fails() -> None:
    """Merging is tried once; nothing is lost when it fails, and it can be tried again."""
    store = Racing(2)
    ours = await opened(store, MERGE)
    ours.record(said("ours"))
    with pytest.raises(StateConflict):
        await ours.save()
    assert await kept(store) == ["other1", "other0"]
    await ours.save()
    assert await kept(store) == ["other1", "other0", "ours"]


async def test_overwriting_goes_on_until_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """Who overwrites is not beaten by those who are faster several times."""
    store = Racing(5)
    ours = await opened(store, OVERWRITE)
    ours.record(said("ours"))
    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        await ours.save()
    assert await kept(store) == ["ours"]
    assert [r.__dict__["lost"] for r in caplog.records] == [5]


class Refusing(InMemoryStore):
    """A store that refuses every state."""

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        raise StateConflict("never")


async def test_overwriting_ends_where_nobody_was_faster() -> None:
    """A store that refuses for a reason of its own is not asked for ever."""
    ours = await opened(Refusing(), OVERWRITE)
    ours.record(said("ours"))
    with pytest.raises(StateConflict, match="never"):
        await ours.save()


@pytest.mark.parametrize("policy", [OVERWRITE, MERGE])
async def test_a_log_is_never_overwritten(policy: ConflictPolicy) -> None:
    """A session that has got a log meanwhile is left as it is: its checkpoint is no state."""
    store = InMemoryStore()
    ours = await opened(store, policy)
    ours.record(said("ours"))
    checkpoint = b'{"checkpoint":1,"seq":0,"mark":"","state":{}}'
    await store.put(KEY, checkpoint, expected_version=0)
    with pytest.raises(StateUnreadable, match="has a log"):
        await ours.save()
    stored = await store.get(KEY)
    assert stored is not None
    assert stored.body == checkpoint


def test_a_policy_for_sessions_with_a_log_is_refused() -> None:
    """A session with a log has one writer at a time: a policy there would be an option that nobody reads."""
    builder = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace=InMemoryWorkspace())
    with pytest.raises(InvalidOption, match="conflict_policy"):
        builder.conflict_policy(MERGE).build()
    assert builder.conflict_policy(MERGE).state_only(True).build()
    with pytest.raises(InvalidOption, match="one of fail, overwrite, append_merge"):
        builder.conflict_policy("merge")  # type: ignore[arg-type]


# -- keys ---------------------------------------------------------------------------------------------------


def by_tenant(context: RuntimeContext, agent_id: str) -> SessionKey:
    user = f"{context.attributes['tenant']:d}/{context.user_id or ''}"
    return SessionKey(agent_id=agent_id, user_id=user, session_id=context.session_id or "")


async def test_tenants_do_not_share_sessions(tmp_path: Path) -> None:
    """The same user and session of two tenants are two sessions: in the store, for readers and for their turns."""
    store = JsonFileStore(tmp_path)
    model = ScriptedModel(["one", "two"])
    agent = ReActAgent.builder(
        name="a1", model=model, state_store=store, session_key=by_tenant, default_session_id="s0"
    ).build()
    first, second = (RuntimeContext(user_id="alice", attributes={"tenant": number}) for number in (7, 8))
    await agent.call("first", first)
    await agent.call("second", second)
    assert [message.text for message in model.requests[1].messages if message.role == "USER"] == ["second"]
    assert [(key.user_id, key.session_id) for key in await store.list()] == [("7/alice", "s0"), ("8/alice", "s0")]
    assert [message.text for message in (await agent.state(first)).context.messages] == ["first", "one"]
    await agent.clear_context(first)
    assert list((await agent.state(first)).context.messages) == []
    assert [message.text for message in (await agent.state(second)).context.messages] == ["second", "two"]


@pytest.mark.parametrize("id", ["", " ", "x" * 513, "a\nb", "\ud800", 7])
def test_what_a_function_gives_keeps_the_rules(tmp_path: Path, id: Any) -> None:
    """An id that is none is refused before anything is touched, also where a function has made it."""
    made = {"agent_id": "a", "user_id": "u", "session_id": "s"}
    for name in made:
        agent = ReActAgent.builder(
            name="a",
            model=ScriptedModel([]),
            state_store=JsonFileStore(tmp_path / "store"),
            session_key=lambda _context, _agent, name=name: SessionKey(**made | {name: id}),
        ).build()
        with pytest.raises(InvalidIdentifier, match=name):
            agent.call("x", CTX)
    assert not (tmp_path / "store").exists()


def test_what_is_no_key_is_refused() -> None:
    """A function that gives something else is named, and so is what it gave."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel([]), session_key=lambda *_: "s1")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="gave 's1'; it must give a SessionKey"):
        builder.build().call("x", CTX)
    with pytest.raises(InvalidOption, match="session_key"):
        ReActAgent.builder(session_key="tenant")  # type: ignore[arg-type]


# -- where sessions are -------------------------------------------------------------------------------------


class Remote(InMemoryWorkspace):
    """Files that other machines work on too."""

    shared = True


@pytest.mark.parametrize(
    "workspace",
    [
        Remote(),
        ScopedWorkspace(Remote(), "a"),
        HidingWorkspace(Remote(), "a", but="a/b"),
        OverlayWorkspace(Remote(), InMemoryWorkspace()),
    ],
)
def test_a_shared_workspace_wants_a_shared_store(tmp_path: Path, workspace: WorkspaceFS) -> None:
    """Sessions that only this machine finds are refused where others work on the same files; others are not."""
    builder = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace=workspace)
    for store in (InMemoryStore(), JsonFileStore(tmp_path), SqlStore("sqlite:///x.db")):
        with pytest.raises(InvalidOption, match="others share the workspace"):
            builder.state_store(store).build()
    with pytest.raises(InvalidOption, match="others share the workspace"):
        builder.build()
    assert builder.state_store(SqlStore("postgresql://h/d")).build()
    assert builder.state_store(RedisStore("redis://h/0")).build()
    assert builder.workspace(OverlayWorkspace(InMemoryWorkspace(), Remote())).build()
