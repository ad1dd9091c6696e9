"""Other futures of a session: what they begin with, what they share, and what they never do twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import InvalidOption, StateConflict, UndoRefused
from agentscope_rx.events import ModelCallStart, ToolResultEnd
from agentscope_rx.history import History
from agentscope_rx.messages import Msg, ToolResultState
from agentscope_rx.past import REUSED_KEY, PastPoint
from agentscope_rx.records import CompactionUndone, ReplyRecorded, ResultsRecorded, SessionForked, ToolsDispatched
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import FoldCache, LoggedSession, SessionLog, fold
from agentscope_rx.session.folding import fold_whole
from agentscope_rx.session.forking import branch_at
from agentscope_rx.session.lineage import mark_of, point_at
from agentscope_rx.session.log_record import written
from agentscope_rx.session.reading import said_in
from agentscope_rx.session.request_reader import LoggedRequest
from agentscope_rx.session.transfer import exported, imported
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore, SessionKey, SessionStore
from agentscope_rx.testing import ScriptedModel, calls, run_virtual
from agentscope_rx.tools import Tool, tool
from tests.session.support import ASKED, KEY, ORIGIN, RESULTS, agent_on, opened, said
from tests.session.support import input_of as heard
from tests.session.talking import PAUSES, WAYS, Talk
from tests.stores.conftest import Place
from tests.stores.places import store_at

ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)
FORK = replace(KEY, session_id="fork")
OTHER = RuntimeContext(user_id=KEY.user_id, session_id=FORK.session_id)


async def forked(
    store: SessionStore,
    at: int | str | None = None,
    *,
    key: SessionKey = KEY,
    to: SessionKey = FORK,
    reuse: bool = True,
) -> AgentState:
    """A fork as an agent makes it, left as a run leaves it that only began."""
    branch = await branch_at(store, key, at, reuse_tool_effects=reuse)
    session = await opened(store, key=to)
    for record in branch.forked():
        session.record(record)
    await session.barrier()
    await session.close()
    return session.state


def plain(state: AgentState) -> bytes:
    """What any two sessions can have in common: not whose they are, nor what is at work on them, or ran elsewhere."""
    tools = replace(state.tool_context, effects=())
    same = replace(state, session_id="", user_id=None, active_run="", tool_context=tools)
    return same.to_json(with_replaced=False)


async def lines(store: SessionStore, key: SessionKey) -> list[bytes]:
    return [line async for line in exported(store, key)]


# -- any session, forked and rewound anywhere ---------------------------------------------------------------

STORIES = st.lists(st.tuples(st.sampled_from(WAYS), st.sampled_from(PAUSES)), max_size=12)


async def told(
    store: SessionStore, story: Sequence[tuple[str, str]], key: SessionKey = KEY, first: int = 1
) -> list[AgentState]:
    """Let a session happen, and give the state after each of its records."""
    talk = Talk(await opened(store, key=key), numbers=count(first))
    for what, pause in story:
        if what == "undo" and talk.session.state.compactions:
            await talk.session.barrier()
            await talk.session.close()
            talk.session = await opened(store, key=key, whole=True)
            if talk.session.state.compactions[-1].begins(talk.session.state.context):
                talk.session.record(CompactionUndone(talk.session.state.compactions[-1].id, 3))
        else:
            talk.happen(what)
        if pause == "save":
            await talk.session.save()
    await talk.session.barrier()
    await talk.session.close()
    states = [(await fold_whole(store, key, 0)).state]
    async for record in SessionLog(store, key).scan():
        states.append(record.applied_to(states[-1]))
    return states


@settings(max_examples=40, deadline=None)
@given(story=STORIES, data=st.data(), more=STORIES)
def test_a_fork_begins_as_its_source_was(
    story: list[tuple[str, str]], data: st.DataObject, more: list[tuple[str, str]]
) -> None:
    """Forked at any record: the state is that of the prefix, the source is untouched, and both go on by themselves."""

    async def tried() -> None:
        store = InMemoryStore()
        states = await told(store, [("say", ""), *story])
        before = await lines(store, KEY)
        at = data.draw(st.integers(1, len(states) - 1))
        await forked(store, at, reuse=False)
        for found in (await fold(store, FORK, FoldCache()), await fold_whole(store, FORK)):
            assert plain(found.state) == plain(states[at])
            assert (found.state.session_id, found.state.active_run, found.seq) == (FORK.session_id, "", 1)
        assert await lines(store, KEY) == before
        after = await told(store, more, FORK, first=100)
        assert await lines(store, KEY) == before
        assert plain((await fold(store, FORK, FoldCache())).state) == plain(after[-1])
        await told(store, more, first=200)
        assert plain((await fold_whole(store, FORK)).state) == plain(after[-1])

    run_virtual(tried)


@settings(max_examples=40, deadline=None)
@given(story=STORIES, data=st.data(), more=STORIES)
def test_a_session_goes_back(story: list[tuple[str, str]], data: st.DataObject, more: list[tuple[str, str]]) -> None:
    """Rewound to any record: the state is the one after it, its log has lost nothing, and every reader agrees."""

    async def tried() -> None:
        store, cache = InMemoryStore(), FoldCache()
        states = await told(store, [("say", ""), *story])
        before = await lines(store, KEY)
        to = data.draw(st.integers(1, len(states) - 1))
        session = await opened(store, cache=cache)
        for record in (await branch_at(store, KEY, to, reuse_tool_effects=False)).rewound(session.state):
            session.record(record)
        await session.save() if data.draw(st.booleans()) else await session.barrier()
        await session.close()
        for each in (cache, FoldCache()):
            assert plain((await fold(store, KEY, each)).state) == plain(states[to])
        whole = (await fold_whole(store, KEY)).state
        assert plain(whole) == plain(states[to])
        assert [c.replaced for c in whole.compactions] == [c.replaced for c in states[to].compactions]
        assert (await lines(store, KEY))[: len(before)] == before
        await told(store, more, first=200)

    run_virtual(tried)


# -- in every store -----------------------------------------------------------------------------------------


async def test_forks_in_every_store(place: Place) -> None:
    """A fork of a fork goes on wherever sessions are kept, and knows every word that was ever said before it."""
    store = store_at(place())
    agent = agent_on(store, ["one", "two", "three", "four"])
    await agent.call("first", ALICE)
    second = await agent.call("second", ALICE)
    await agent.fork(ALICE, to=OTHER, at=second.id)
    assert (await agent.call(None, OTHER)).text == "three"
    again = RuntimeContext(user_id="bob", session_id="again")
    await agent_on(store).fork(OTHER, to=again)
    assert (await agent.call("fourth", again)).text == "four"
    texts = [message.text for message in await agent.session_log(again).transcript()]
    assert texts == ["first", "one", "second", "three", "fourth", "four"]
    assert [message.text for message in (await agent.state(again)).context.messages] == texts
    assert [message.text for message in (await agent.state(ALICE)).context.messages] == [
        "first", "one", "second", "two"
    ]  # fmt: skip
    past = await agent.session_log(again).forked_from()
    assert past is not None
    assert (past.session_id, past.user_id) == ("fork", "alice")
    assert (await agent.state(again)).user_id == "bob"
    for gone in (KEY, FORK):
        await store.delete(gone)
    fresh = agent_on(store, ["five"])
    assert (await fresh.call("fifth", again)).text == "five"
    assert [m.text for m in await fresh.session_log(again).transcript()] == [*texts, "fifth", "five"]


async def compacted(store: SessionStore) -> LoggedSession:
    """A session with a compaction behind it."""
    talk = Talk(await opened(store))
    for what in ("say", "reply", "say", "reply", "compact", "say"):
        talk.happen(what)
    await talk.session.save()
    await talk.session.close()
    return talk.session


async def test_the_past_of_a_fork_is_shared() -> None:
    """A fork costs what the model sees and not what came before; what was summarised is read where it was said."""
    store = InMemoryStore()
    source = await compacted(store)
    await forked(store)
    assert len(await store.read_after(FORK, 0)) == 1
    assert [m.id for m in await SessionLog(store, FORK).transcript()] == ["u1", "a2", "u3", "a4", "u6"]
    said_there = await said_in(store, FORK)
    assert said_there is not None
    assert (said_there.as_of_seq, len(said_there.messages)) == (1, 5)
    session = await opened(store, key=FORK, whole=True)
    state = session.record(CompactionUndone(source.state.compactions[0].id, 3))
    await session.barrier()
    await session.close()
    assert [m.id for m in state.context.messages] == ["u1", "a2", "u3", "a4", "u6"]
    assert (await fold(store, FORK, FoldCache())).state.context == state.context


async def test_a_fork_outlives_its_source() -> None:
    """Deleted, or deleted and begun anew: the fork goes on; only what it had as a summary is a summary for good."""
    store = InMemoryStore()
    source = await compacted(store)
    state = await forked(store)
    before, ids = plain(state), [message.id for message in state.context.messages]
    await store.delete(KEY)
    for _ in range(2):
        assert plain((await fold(store, FORK, FoldCache())).state) == before
        assert [m.id for m in await SessionLog(store, FORK).transcript()] == ids
        session = await opened(store, key=FORK, whole=True)
        with pytest.raises(UndoRefused, match="is in the session's log"):
            session.record(CompactionUndone(source.state.compactions[0].id, 3))
        await session.close()
        other = await opened(store)
        for number in range(9):
            other.record(heard(said(f"x{number}")))
        await other.barrier()
        await other.close()


async def test_requests_of_every_future_are_told() -> None:
    """What models were asked in a fork, and in a session that went back, is made again as it was."""
    store, model = InMemoryStore(), ScriptedModel(["one", "two", "three", "four", "five"])
    agent = agent_on(store, model)
    await agent.call("first", ALICE)
    reply = await agent.call("second", ALICE)
    await agent.fork(ALICE, to=OTHER, at=reply.id)
    await agent.call(None, OTHER)
    await agent.rewind(ALICE, to=reply.id)
    await agent.call(None, ALICE)
    await agent_on(store, model).call("third", ALICE)
    logged: list[LoggedRequest] = []
    for context in (ALICE, OTHER):
        logged += [each async for each in agent.session_log(context).requests()]
    asked = {request.call_id: request.messages for request in model.requests}
    assert {each.request.call_id: each.request.messages for each in logged} == asked
    assert len(asked) == 5


async def test_no_record_makes_the_log_of_another_session_ones_own() -> None:
    """A session that was imported names the log of somebody else: nothing of it is read, as nobody knew its record."""
    store, elsewhere = InMemoryStore(), InMemoryStore()
    secret = await opened(store)
    secret.record(heard(said("secret")))
    await secret.barrier()
    session = await opened(elsewhere, key=FORK)
    point = PastPoint(agent_id=KEY.agent_id, user_id=KEY.user_id, session_id=KEY.session_id, seq=1, mark="?")
    session.record(SessionForked(point, AgentState().to_json().decode()))
    await session.barrier()
    await imported(store, FORK, await lines(elsewhere, FORK))
    assert await SessionLog(store, FORK).transcript() == ()
    assert (await fold_whole(store, FORK)).state.context == History()


async def test_pasts_that_name_each_other() -> None:
    """Two sessions that were made up to be each other's past are read to an end."""
    store, nothing = InMemoryStore(), AgentState().to_json().decode()
    words = written(2, heard(said("u1")), ORIGIN)
    ours = written(1, SessionForked(point_at(FORK, 2, mark_of(words)), nothing), ORIGIN)
    theirs = written(1, SessionForked(point_at(KEY, 1, mark_of(ours)), nothing), ORIGIN)
    await store.append(KEY, [ours], expected_seq=0)
    await store.append(FORK, [theirs, words], expected_seq=0)
    assert [message.id for message in await SessionLog(store, KEY).transcript()] == ["u1"]
    assert [message.id for message in await SessionLog(store, FORK).transcript()] == ["u1"]


async def test_where_a_fork_cannot_begin() -> None:
    """No such record or step, a session that is not there, one that is, and agents without logs: said, not guessed."""
    store = InMemoryStore()
    agent = agent_on(store, ["one"])
    with pytest.raises(InvalidOption, match="at=None: session 's1' has no log"):
        await agent.fork(ALICE, to=OTHER)
    await agent.call("first", ALICE)
    for at in (0, -1, 99, "", "no such step"):
        with pytest.raises(InvalidOption, match="the number of a record, from 1 to the last one; the id of a step"):
            await agent.fork(ALICE, to=OTHER, at=at)
    before = await lines(store, KEY)
    with pytest.raises(StateConflict, match="session 's1' is there already"):
        await agent.fork(ALICE, to=ALICE)
    assert await lines(store, KEY) == before
    assert await store.read_after(FORK, 0) == ()
    with pytest.raises(InvalidOption, match="state_only"):
        await agent_on(store, state_only=True).fork(ALICE, to=OTHER)


# -- tools --------------------------------------------------------------------------------------------------


class Post:
    """Tools with an effect, and one without."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.looked = 0

    def tools(self) -> list[Tool]:
        @tool
        def send(to: str, times: int = 1) -> str:
            """Send it."""
            self.sent.append(to)
            return f"sent number {len(self.sent)} to {to}"

        @tool(read_only=True)
        def look() -> str:
            """Look."""
            self.looked += 1
            return f"look {self.looked}"

        return [send, look]


SEND = '{"to": "ann", "times": 2}'
SAME = '{"times": 2, "to": "ann"}'


def sending(id: str, arguments: str = SEND) -> Any:
    return calls((id, "send", arguments))


async def ended(agent: Any, context: RuntimeContext, say: str | None = None) -> list[ToolResultEnd]:
    """The ends of the tool calls of a run."""
    return [event async for event in agent.stream_events(say, context) if isinstance(event, ToolResultEnd)]


async def steps(agent: Any, say: str) -> list[str]:
    """The ids of the steps of a run."""
    return [event.reply_id async for event in agent.stream_events(say, ALICE) if isinstance(event, ModelCallStart)]


@pytest.fixture
def post() -> Post:
    return Post()


async def test_what_was_sent_is_not_sent_again(post: Post) -> None:
    """In the other future the same call gets the recorded result once, in any order of its arguments; tools that only
    read, calls with other arguments and a second such call run."""
    store = InMemoryStore()
    agent = agent_on(store, [sending("c1"), "done"], tools=post.tools())
    first, _ = await steps(agent, "send it")
    script = [
        calls(("d1", "send", SAME), ("d2", "look", "{}"), ("d3", "send", '{"to": "bob"}')),
        sending("d4"),
        "done",
    ]
    model = ScriptedModel(script)
    agent = agent_on(store, model, tools=post.tools())
    await agent.fork(ALICE, to=OTHER, at=first)
    ends = await ended(agent, OTHER)
    assert post.sent == ["ann", "bob", "ann"]
    assert post.looked == 1
    reused = {event.tool_call_id: (event.metadata or {}).get(REUSED_KEY) for event in ends}
    assert reused == {"d1": {"session_id": "s1", "tool_call_id": "c1"}, "d2": None, "d3": None, "d4": None}
    results = {m.tool_result.id: m.tool_result.text for m in model.requests[1].messages if m.tool_result}
    assert results == {"d1": "sent number 1 to ann", "d2": "look 1", "d3": "sent number 2 to bob"}
    assert (await agent.state(OTHER)).tool_context.effects == ()
    dispatched = [r.payload["call_ids"] async for r in agent.session_log(OTHER).scan() if r.type == "tool/dispatch"]
    assert dispatched == [["d2", "d3"], ["d4"]]


async def test_tools_run_anew_where_that_is_wanted(post: Post) -> None:
    """`reuse_tool_effects=False`: as if nothing had ever run."""
    store = InMemoryStore()
    agent = agent_on(store, [sending("c1"), "done", sending("d1"), "done"], tools=post.tools())
    reply = await agent.call("send it", ALICE)
    assert reply.text == "done"
    await agent.fork(ALICE, to=OTHER, at=3, reuse_tool_effects=False)
    await agent.call("again", OTHER)
    assert post.sent == ["ann", "ann"]


async def test_rewinding_repeats_nothing(post: Post) -> None:
    """A session that goes back, twice, knows what has run in each of its futures, also in another process."""
    store = InMemoryStore()
    agent = agent_on(store, [sending("c1"), "done"], tools=post.tools())
    first, _ = await steps(agent, "send it")
    for turn in range(2):
        agent = agent_on(store, [sending(f"d{turn}"), f"done {turn}"], tools=post.tools())
        state = await agent.rewind(ALICE, to=first)
        assert [message.text for message in state.context.messages] == ["send it"]
        assert (await agent.call(None, ALICE)).text == f"done {turn}"
        assert post.sent == ["ann"]
    kept = [message.text for message in await agent.session_log(ALICE).transcript()]
    assert [text for text in kept if text.startswith("done")] == ["done", "done 0", "done 1"]


async def test_tools_of_the_session_run_again() -> None:
    """What a call changes of the session itself, such as its to-do list, is changed in the fork too."""
    store = InMemoryStore()
    todo = calls(("c1", "todo_write", '{"todos": [{"content": "look", "status": "pending"}]}'))
    agent = agent_on(store, [todo, "done", todo, "done"], enable_task_list=True)
    first, _ = await steps(agent, "plan it")
    begun = await agent.fork(ALICE, to=OTHER, at=first)
    assert (len(begun.tasks_context.tasks), len(begun.tool_context.effects)) == (0, 1)
    await agent.call(None, OTHER)
    assert [task.subject for task in (await agent.state(OTHER)).tasks_context.tasks] == ["look"]


async def test_a_fork_of_a_fork_knows_all_futures(post: Post) -> None:
    """Forked from the past that a fork shares: what its source did behind both points is not done again either."""
    store = InMemoryStore()
    to_bob = sending("e1", '{"to": "bob"}')
    agent = agent_on(store, [sending("c1"), "done", to_bob, "done"], tools=post.tools())
    [first, _] = await steps(agent, "send it")
    [second, _] = await steps(agent, "and to bob")
    await agent.fork(ALICE, to=OTHER, at=second)
    third = RuntimeContext(user_id=KEY.user_id, session_id="third")
    agent = agent_on(store, [sending("f1"), sending("f2", '{"to": "bob"}'), "done"], tools=post.tools())
    await agent.fork(OTHER, to=third, at=first)
    assert (await agent.call(None, third)).text == "done"
    assert post.sent == ["ann", "bob"]


@pytest.mark.parametrize("state", ToolResultState)
async def test_what_counts_as_run(state: ToolResultState) -> None:
    """A call that failed or was interrupted may have had an effect; one that was denied has had none."""
    store = InMemoryStore()
    session = await opened(store)
    session.record(heard(said("u1")))
    session.record(ReplyRecorded(ASKED))
    session.record(ToolsDispatched(("c1", "c2")))
    session.record(ResultsRecorded(tuple(with_state(result, state) for result in RESULTS)))
    await session.barrier()
    await session.close()
    effects = (await branch_at(store, KEY, 1)).state.tool_context.effects
    assert [effect.call_id for effect in effects] == ([] if state is ToolResultState.DENIED else ["c1", "c2"])


def with_state(message: Msg, state: ToolResultState) -> Msg:
    result = message.tool_result
    assert result is not None
    return replace(message, content=(replace(result, state=state),))


async def test_a_fork_in_the_middle_of_a_call(post: Post) -> None:
    """Forked between call and result: the fork has the recorded result at once; without reuse it is told that nobody
    knows, or that the call was not run."""
    store = InMemoryStore()
    agent = agent_on(store, [sending("c1"), "done"], tools=post.tools())
    await agent.call("send it", ALICE)
    types = [record.type async for record in agent.session_log(ALICE).scan()]
    asked, dispatched = types.index("message/assistant") + 1, types.index("tool/dispatch") + 1
    texts = ["sent number 1 to ann", "not known", "interrupted before it was run"]
    for number, (at, reuse) in enumerate(((dispatched, True), (dispatched, False), (asked, False))):
        to = RuntimeContext(session_id=f"fork-{number}")
        model = ScriptedModel(["well"])
        other = agent_on(store, model, tools=post.tools())
        await other.fork(ALICE, to=to, at=at, reuse_tool_effects=reuse)
        await other.call("go on", to)
        results = [message.tool_result for message in model.requests[0].messages if message.tool_result]
        assert [texts[number] in result.text for result in results] == [True]
        assert (await other.state(to)).tool_context.effects == ()
    assert post.sent == ["ann"]


async def test_a_result_that_is_gone_with_its_session(post: Post) -> None:
    """The source was deleted: what it has sent is still not sent again, and the model is told that nobody knows."""
    store = InMemoryStore()
    agent = agent_on(store, [sending("c1"), "done", sending("d1"), "done"], tools=post.tools())
    await agent.call("send it", ALICE)
    await agent.fork(ALICE, to=OTHER, at=2)
    await store.delete(KEY)
    ends = await ended(agent, OTHER)
    assert [event.state for event in ends] == [ToolResultState.INTERRUPTED]
    assert post.sent == ["ann"]


@pytest.mark.parametrize("reuse", [True, False])
async def test_a_fork_of_a_run_that_is_at_work(reuse: bool) -> None:
    """A tool forks the session that it runs in: what runs now is not run again there, and the run goes on."""
    store = InMemoryStore()
    seen: list[int] = []

    @tool
    async def deploy() -> str:
        """Deploy."""
        seen.append(len(seen))
        if len(seen) == 1:
            await agent.fork(ALICE, to=OTHER, at=2, reuse_tool_effects=reuse)
        return "deployed"

    script = [calls(("c1", "deploy", "{}")), "done", calls(("d1", "deploy", "{}")), "and done"]
    agent = agent_on(store, script, tools=[deploy])
    assert (await agent.call("go", ALICE)).text == "done"
    assert (await agent.call(None, OTHER)).text == "and done"
    assert len(seen) == (1 if reuse else 2)
