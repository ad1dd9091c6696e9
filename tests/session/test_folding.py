"""Reading a session: from memory, from its checkpoint and from the beginning, whatever became of each meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import LogUnreadable, StateConflict, StateUnreadable, StoreUnavailable
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.records import CompactionUndone, HistoryEdited, SessionRewound
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import FoldCache, LoggedSession, SessionLog, fold
from agentscope_rx.session.folding import checkpoint_json, fold_whole
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.log_record import written as body_of
from agentscope_rx.session.transcript import Transcript
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import InMemoryStore, SessionKey, Stored
from agentscope_rx.testing import run_virtual
from agentscope_rx.testing.values import a_runtime
from tests.session.support import KEY, ORIGIN, SAMPLES, agent_on, opened, said
from tests.session.support import input_of as heard
from tests.session.talking import PAUSES, WAYS, Talk

ALICE = RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id)


def plain(state: AgentState) -> bytes:
    """A state without what compactions have replaced, which only the log must hold."""
    return state.to_json(with_replaced=False)


# -- any session, read in any way ---------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(WAYS), st.sampled_from(PAUSES)), max_size=30))
def test_every_way_of_reading_gives_the_same_state(story: list[tuple[str, str]]) -> None:
    """Whatever happened: memory, cache, checkpoint and log agree, and the transcript holds every word (I2)."""

    async def told() -> None:
        store, ours, theirs = InMemoryStore(), FoldCache(), FoldCache()
        talk = Talk(await opened(store, cache=ours))
        for what, pause in story:
            if what == "undo" and talk.session.state.compactions:
                await reopened(talk, store, ours, whole=True)
                if talk.session.state.compactions[-1].begins(talk.session.state.context):
                    talk.session.record(CompactionUndone(talk.session.state.compactions[-1].id, 3))
            else:
                talk.happen(what)
            if pause in ("barrier", "save"):
                await getattr(talk.session, pause)()
            elif pause:
                await reopened(talk, store, ours if pause == "restart" else theirs)
        await talk.session.barrier()
        state = talk.session.state
        found = await fold_whole(store, KEY)
        assert plain(found.state) == plain(state)
        for cache in (ours, theirs, FoldCache()):
            folded = await fold(store, KEY, cache)
            assert (plain(folded.state), folded.seq, folded.mark) == (plain(state), found.seq, found.mark)
        assert [record.seq async for record in SessionLog(store, KEY).scan()] == list(range(1, found.seq + 1))
        transcript = await SessionLog(store, KEY).transcript()
        assert {message.id: message for message in transcript} == talk.said
        assert [message.id for message in transcript] == list(talk.said)
        await talk.session.close()

    run_virtual(told)


@pytest.mark.parametrize(("before", "record"), SAMPLES, ids=[type(each).__name__ for _, each in SAMPLES])
def test_the_transcript_has_what_any_record_brings(before: AgentState, record: Record) -> None:
    """Each message that comes into a session, by whichever record, is in its transcript; what shortens adds none."""
    transcript, known = Transcript(), {message.id for message in before.context.messages}
    transcript.take(LogRecord.from_json(body_of(1, record, ORIGIN)))
    came = [message.id for message in record.apply(before).context.messages if message.id not in known]
    expected = [] if isinstance(record, HistoryEdited | CompactionUndone | SessionRewound) else came
    assert [message.id for message in transcript.messages] == expected


async def reopened(talk: Talk, store: InMemoryStore, cache: FoldCache, *, whole: bool = False) -> None:
    await talk.session.barrier()
    await talk.session.close()
    talk.session = await opened(store, cache=cache, whole=whole)


def test_a_compaction_is_undone_that_only_the_log_holds() -> None:
    """A crash right after an undo, and a process that knows the session as it was before: both read it."""

    async def undone() -> None:
        store, theirs = InMemoryStore(), FoldCache()
        talk = Talk(await opened(store))
        for what in ("say", "reply", "say", "reply", "compact"):
            talk.happen(what)
        await talk.session.save()
        await talk.session.close()
        await (await opened(store, cache=theirs)).close()
        talk.session = await opened(store, whole=True)
        talk.session.record(CompactionUndone(talk.session.state.compactions[0].id, 3))
        await talk.session.barrier()  # no checkpoint
        await talk.session.close()
        for cache in (theirs, FoldCache()):
            assert [m.id for m in (await fold(store, KEY, cache)).state.context.messages] == list(talk.said)

    run_virtual(undone)


# -- checkpoints --------------------------------------------------------------------------------------------


async def written(store: InMemoryStore, *ids: str, cache: FoldCache | None = None) -> LoggedSession:
    session = await opened(store, cache=cache)
    for id in ids:
        session.record(heard(said(id)))
        await session.barrier()
    await session.close()
    return session


async def saved(store: InMemoryStore, *ids: str, cache: FoldCache | None = None) -> None:
    session = await opened(store, cache=cache)
    for id in ids:
        session.record(heard(said(id)))
    await session.save()
    await session.close()


def ids_of(state: AgentState) -> list[str]:
    return [message.id for message in state.context.messages]


class Counted(InMemoryStore):
    """A store that knows what was read of logs."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[int, int]] = []

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> tuple[bytes, ...]:
        found = tuple(await super().read_after(key, seq, limit=limit))
        self.read.append((seq, len(found)))
        return found


async def test_only_what_is_new_is_read() -> None:
    """From a checkpoint or from memory the next run reads one record to know its place by, and those behind it."""
    store, cache = Counted(), FoldCache()
    await saved(store, "a", "b", "c", cache=cache)
    await written(store, "d")
    for each in (cache, FoldCache()):
        store.read.clear()
        assert ids_of((await fold(store, KEY, each)).state) == ["a", "b", "c", "d"]
        assert store.read == [(2, 1), (3, 1)]


async def test_pages_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of many pages is folded whole, also where its length is that of a page."""
    monkeypatch.setattr("agentscope_rx.session.lineage._PAGE", 2)
    store = InMemoryStore()
    for n in range(1, 6):
        await written(store, f"m{n}")
        assert len(ids_of((await fold(store, KEY, FoldCache())).state)) == n


DAMAGES: Sequence[Callable[[bytes], bytes]] = (
    lambda body: body[: len(body) // 2],
    lambda body: body[:-1],
    lambda body: body.replace(b'"USER"', b'"NOBODY"'),
    lambda _: b'{"checkpoint":1}',
    lambda _: b'{"checkpoint":1,"seq":"x","mark":"","state":{}}',
    lambda _: b'{"checkpoint":1,"seq":2,"mark":"m","state":[]}',
    lambda _: b'{"checkpoint":\xff',
)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_checkpoint_is_folded_again(
    damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """The log holds everything: a checkpoint that cannot be read is passed over with a warning, and made anew."""
    store = InMemoryStore()
    await saved(store, "a", "b")
    whole = await store.get(KEY)
    assert whole is not None
    await store.put(KEY, damage(whole.body), expected_version=whole.version)
    folded = await fold(store, KEY, FoldCache())
    assert (ids_of(folded.state), folded.seq, folded.checkpoint_seq) == (["a", "b"], 2, 0)
    assert "checkpoint_unreadable" in caplog.text
    await saved(store)
    mended = await store.get(KEY)
    assert mended is not None
    assert (mended.body, mended.version) == (whole.body, 3)


async def test_a_log_that_is_shorter_than_its_checkpoint() -> None:
    """A checkpoint of records that are not there is an error, and no state is made of it or of what is left."""
    store, other = InMemoryStore(), InMemoryStore()
    await saved(store, "a", "b", "c")
    await written(other, "a", "b")
    checkpoint = await store.get(KEY)
    assert checkpoint is not None
    await other.put(KEY, checkpoint.body, expected_version=0)
    with pytest.raises(LogUnreadable, match="does not hold record 3, which its checkpoint was made of"):
        await opened(other)
    await written_raw(other, "c")  # as long, and another record
    with pytest.raises(LogUnreadable, match="does not hold record 3"):
        await opened(other)
    assert await other.get(KEY) == Stored(checkpoint.body, 1)
    await other.acquire(KEY, "next", ttl=1)  # who could not read it has not kept it


async def written_raw(store: InMemoryStore, id: str) -> None:
    """Add a record behind a checkpoint that nobody can read."""
    elsewhere = InMemoryStore()
    await written(elsewhere, "a", "b", id)
    await store.append(KEY, (await elsewhere.read_after(KEY, 2)), expected_seq=2)


async def test_a_record_in_the_wrong_place() -> None:
    """Records whose numbers are not those of their places are an error."""
    store, other = InMemoryStore(), InMemoryStore()
    await written(store, "a", "b")
    await other.append(KEY, (await store.read_after(KEY, 1)), expected_seq=0)
    with pytest.raises(LogUnreadable, match="holds record 2 at place 1"):
        await fold(other, KEY, FoldCache())


async def test_a_session_that_was_begun_anew_elsewhere() -> None:
    """A session of the same name and length that another process has begun is not taken for the known one."""
    store, cache = InMemoryStore(), FoldCache()
    await saved(store, "a", "b", cache=cache)
    await store.delete(KEY)
    assert (await fold(store, KEY, cache)).state == AgentState(session_id="s1", user_id="alice")
    await saved(store, "x", "y")
    assert ids_of((await fold(store, KEY, cache)).state) == ["x", "y"]
    await saved(store, "z", cache=cache)
    assert ids_of((await fold(store, KEY, FoldCache())).state) == ["x", "y", "z"]


async def test_processes_take_turns_on_a_session() -> None:
    """Each goes on from what the other has written, however often, and keeps its own checkpoint after the other's."""
    store = InMemoryStore()
    one, two = agent_on(store, ["1", "3", "5"]), agent_on(store, ["2", "4"])
    for n, agent in enumerate((one, two, one, two, one), 1):
        assert (await agent.call(f"q{n}", ALICE)).text == str(n)
    texts = [message.text for message in (await agent_on(store).state(ALICE)).context.messages]
    assert texts == ["q1", "1", "q2", "2", "q3", "3", "q4", "4", "q5", "5"]
    checkpoint = await store.get(KEY)
    assert checkpoint is not None
    assert checkpoint.version == 5
    assert checkpoint.body == checkpoint_json(await fold_whole(store, KEY))


class Unsure(InMemoryStore):
    """A store that keeps a state, and fails before it can say so."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        version = await super().put(key, body, expected_version=expected_version, fence=fence)
        if self.fails:
            raise StoreUnavailable("the connection ended")
        return version


async def test_a_checkpoint_of_which_nobody_knows_whether_it_was_kept() -> None:
    """The run fails, its records are in the log, and the next run of the same process goes on."""
    store = Unsure()
    agent = agent_on(store, ["1", "2"])
    store.fails = True
    with pytest.raises(StoreUnavailable):
        await agent.call("q1", ALICE)
    store.fails = False
    assert (await agent.call("q2", ALICE)).text == "2"
    assert len((await agent.state(ALICE)).context) == 4


# -- with and without a log ---------------------------------------------------------------------------------


async def test_a_state_without_a_log_is_no_checkpoint() -> None:
    """A session that was kept without a log is refused where there is one, and the other way round; nothing changes."""
    for first, second, rule in ((True, False, "was kept without a log"), (False, True, "is a checkpoint of it")):
        store = InMemoryStore()
        await agent_on(store, ["1"], state_only=first).call("q", ALICE)
        kept = (await store.get(KEY), await store.read_after(KEY, 0))
        other = agent_on(store, ["2"], state_only=second)
        with pytest.raises(StateUnreadable, match=rule):
            await other.call("q", ALICE)
        with pytest.raises(StateUnreadable, match=rule):
            await other.state(ALICE)
        assert (await store.get(KEY), await store.read_after(KEY, 0)) == kept


async def test_a_state_that_came_in_the_place_of_a_checkpoint() -> None:
    """Where somebody keeps the state without a log while a run is at work, the run says so and overwrites nothing."""
    store = InMemoryStore()
    session = await opened(store)
    session.record(heard(said("a")))
    await store.put(KEY, b'{"session_id":"s1"}', expected_version=0)
    with pytest.raises(StateConflict):
        await session.save()
    assert await store.get(KEY) == Stored(b'{"session_id":"s1"}', 1)
    await session.close()


# -- states from outside ------------------------------------------------------------------------------------


async def test_a_replaced_state_keeps_what_was_said() -> None:
    """Messages without ids get some, so that each of them is in the transcript; the session's ids stay."""
    agent = agent_on(InMemoryStore(), ["1"])
    await agent.call("q", ALICE)
    given_state = AgentState(session_id="x", context=History.of(Msg.user("one"), Msg.assistant("two")))
    with pytest.raises(StateConflict):
        await agent.replace_state(ALICE, given_state, expected=given_state)
    state = await agent.replace_state(ALICE, given_state, expected=await agent.state(ALICE))
    assert (state.session_id, state.user_id) == ("s1", "alice")
    assert [message.text for message in await agent.session_log(ALICE).transcript()] == ["q", "1", "one", "two"]
    assert len({message.id for message in state.context.messages} - {""}) == 2


async def test_a_replaced_state_rewrites_nothing_that_was_said() -> None:
    """Whoever rewrites a message of the history from outside does not rewrite the transcript."""
    agent = agent_on(InMemoryStore(), ["1"])
    await agent.call("q", ALICE)
    state = await agent.state(ALICE)
    other = [replace(message, content=Msg.user("redacted").content) for message in state.context.messages]
    await agent.replace_state(ALICE, replace(state, context=History.of(*other)), expected=state)
    assert [message.text for message in await agent.session_log(ALICE).transcript()] == ["q", "1"]
    assert [message.text for message in (await agent.state(ALICE)).context.messages] == ["redacted"] * 2


async def test_a_state_may_be_replaced_by_who_read_it_elsewhere() -> None:
    """A state that was read from the log and one that was read from its checkpoint are the same state."""
    store = InMemoryStore()
    talk = Talk(await opened(store))
    for what in ("say", "reply", "say", "reply", "compact"):
        talk.happen(what)
    await talk.session.save()
    await talk.session.close()
    agent = agent_on(store)
    whole = (await agent.session_log(ALICE).project()).state
    (compaction,) = whole.compactions
    assert ids_of(AgentState(context=compaction.replaced)) == list(talk.said)[:2]
    short = await agent.state(ALICE)
    await agent.replace_state(ALICE, replace(short, dispatched=()), expected=whole)
    assert await agent.session_log(ALICE).compactions() == (compaction,)


async def test_a_clock_that_goes_back_changes_nothing() -> None:
    """The order of records is that of their numbers."""
    store = InMemoryStore()
    await written(store, "a")
    session = await opened(store, runtime=a_runtime())  # whose clock shows an earlier time
    session.record(heard(said("b")))
    await session.barrier()
    await session.close()
    records = [LogRecord.from_json(body) for body in await store.read_after(KEY, 0)]
    assert records[1].occurred_at < records[0].occurred_at
    assert ids_of((await fold(store, KEY, FoldCache())).state) == ["a", "b"]
