"""The state of a session: a fold over records, and its JSON."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.compactions import Compaction, CompactionState
from agentscope_rx.edits import Edit, edits_between
from agentscope_rx.errors import InvalidToolPairs, StateUnreadable
from agentscope_rx.history import LEAF_SIZE, History
from agentscope_rx.inbox import InboxState
from agentscope_rx.messages import Msg, Role, ToolResultBlock, ToolUseBlock
from agentscope_rx.permission_context import (
    PermissionContextState,
    PermissionMode,
    PermissionRule,
    WorkingDirectory,
)
from agentscope_rx.records import CallsClosed, HistoryEdited, InputAccepted, ReplyBroken, ReplyRecorded, ResultsRecorded
from agentscope_rx.state import AgentState, Record, ToolContextState
from agentscope_rx.task_state import PlanModeContextState, TaskContextState
from agentscope_rx.wire import to_json
from tests.strategies import ODD_TEXTS, TEXTS, conversations, messages, result_of

SPEAKERS = (Role.USER, Role.ASSISTANT, Role.SYSTEM)


def said(id: str, text: str = "") -> Msg:
    return replace(Msg.user(text or id), id=id)


def state_of(*held: Msg) -> AgentState:
    return AgentState(session_id="s", context=History.of(*held))


RULES = st.builds(
    PermissionRule,
    tool_name=TEXTS,
    behavior=st.sampled_from(["allow", "deny", "ask"]),
    rule_content=st.none() | TEXTS,
    source=TEXTS,
)


@st.composite
def permissions(draw: st.DrawFn) -> PermissionContextState:
    """What a session may do, of any content."""
    mode = draw(st.none() | st.sampled_from(PermissionMode))
    directories = [WorkingDirectory(path=path) for path in draw(st.lists(TEXTS, max_size=2))]
    return PermissionContextState(mode=mode).with_rules(draw(st.lists(RULES, max_size=3))).with_directories(directories)


@st.composite
def states(draw: st.DrawFn) -> AgentState:
    """A state of any content."""
    held = [*draw(conversations()), *draw(st.lists(messages(SPEAKERS), max_size=3))]
    return AgentState(
        session_id=draw(TEXTS),
        user_id=draw(st.none() | TEXTS),
        context=History.of(*held),
        permission_context=draw(permissions()),
        tool_context=ToolContextState(activated_groups=draw(st.none() | st.lists(TEXTS, max_size=2).map(tuple))),
    )


# -- records ------------------------------------------------------------------------------------------------

CALL = replace(Msg.assistant(ToolUseBlock(id="c1", name="look"), ToolUseBlock(id="c2", name="look")), id="call")
RESULTS = tuple(replace(result_of(call), id=f"r-{call.id}") for call in CALL.tool_calls)


@pytest.mark.parametrize(
    ("record", "ids"),
    [
        (InputAccepted((said("a"), said("b"))), ["m0", "a", "b"]),
        (InputAccepted(()), ["m0"]),
        (ReplyRecorded(said("a")), ["m0", "a"]),
        (ReplyBroken(said("a")), ["m0"]),
        (ReplyBroken(said("a"), said("kept")), ["m0", "kept"]),
        (HistoryEdited(()), ["m0"]),
    ],
)
def test_what_records_mean(record: Record, ids: list[str]) -> None:
    """Each record adds what has happened to the conversation; a broken reply only what the user saw of it."""
    before = state_of(said("m0"))
    after = before.apply(record)
    assert [message.id for message in after.context.messages] == ids
    assert [message.id for message in before.context.messages] == ["m0"]
    assert replace(after, context=before.context) == before


def test_a_record_of_messages_leaves_the_rest_alone() -> None:
    """What is said changes the conversation and the calls that run, and no other part of the state."""
    before = AgentState(
        session_id="s",
        user_id="u",
        context=History.of(CALL),
        tool_context=ToolContextState(activated_groups=("web",)),
        compaction=CompactionState(messages=7, limits={"m": 1}),
        compactions=(
            Compaction(
                id="k",
                created_at="",
                model="m",
                trigger="tokens",
                tokens_before=2,
                tokens_after=1,
                replaced=History(),
                by=("s",),
            ),
        ),
        active_run="r",
        dispatched=("c1", "c2"),
        tasks_context=TaskContextState(revision=3),
        plan_mode_context=PlanModeContextState(plan_active=True),
        permission_context=PermissionContextState(mode=PermissionMode.EXPLORE),
        inbox=InboxState(interrupted="r"),
    )
    assert all(getattr(before, each.name) != getattr(AgentState(), each.name) for each in fields(AgentState))  # type: ignore[arg-type]
    for record, left in ((CallsClosed(RESULTS[:1]), ("c2",)), (ResultsRecorded(RESULTS[:1]), ())):
        after = before.apply(record)
        assert after.dispatched == left
        assert replace(after, context=before.context, dispatched=before.dispatched) == before


@pytest.mark.parametrize("make", [ResultsRecorded, CallsClosed])
def test_results_join_their_calls(make: type[ResultsRecorded | CallsClosed]) -> None:
    """Results, of tools or of calls that nobody can answer, stand behind their call and close it."""
    after = state_of(CALL, said("m1")).apply(make(RESULTS[::-1]))
    assert [message.id for message in after.context.messages] == ["call", "r-c1", "r-c2", "m1"]
    assert after.context.open_calls == ()
    with pytest.raises(InvalidToolPairs):
        after.apply(make(RESULTS))


def test_results_may_switch_groups_of_tools() -> None:
    """The groups that tools switched on are kept; results that say nothing of groups leave them as they are."""
    state = state_of(CALL).apply(ResultsRecorded(RESULTS[:1], activated_groups=("web",)))
    assert state.tool_context.activated_groups == ("web",)
    assert state.apply(ResultsRecorded(RESULTS[1:])).tool_context.activated_groups == ("web",)
    assert state.apply(ResultsRecorded((), activated_groups=())).tool_context.activated_groups == ()
    assert AgentState().tool_context.activated_groups is None


def test_an_edit_changes_the_working_history() -> None:
    """A compaction that was committed is the session's history from then on, and can be applied again elsewhere."""
    before = state_of(*(said(f"m{at}") for at in range(5)))
    edits = edits_between(before.context, before.context.replace_first(3, said("summary")))
    after = before.apply(HistoryEdited(edits))
    assert [message.id for message in after.context.messages] == ["summary", "m3", "m4"]
    undone = after.apply(HistoryEdited(tuple(Edit(edit.inserted, edit.removed) for edit in edits)))
    assert undone == before


@given(conversations(answered=True), st.data())
def test_the_state_is_the_fold_over_its_records(conversation: tuple[Msg, ...], data: st.DataObject) -> None:
    """However a conversation was recorded, the state holds its messages; the fold can be made again."""
    records: list[Record] = []
    for message in conversation:
        if message.role is Role.TOOL:
            records.append(ResultsRecorded((message,)))
        elif message.role is Role.ASSISTANT:
            if data.draw(st.booleans()):
                records.append(ReplyBroken(replace(message, id="fragment")))
            records.append(ReplyRecorded(message))
        else:
            records.append(InputAccepted((message,)))
    state = again = AgentState(session_id="s")
    for record in records:
        state = state.apply(record)
    for record in records:
        again = again.apply(record)
    assert state == again == state_of(*conversation)


# -- JSON ---------------------------------------------------------------------------------------------------


@given(states())
def test_states_survive_json(state: AgentState) -> None:
    """What is stored is loaded as it was; storing it again gives the same bytes."""
    data = state.to_json()
    assert AgentState.from_json(data) == state
    assert AgentState.from_json(data).to_json() == data


NO_INBOX: dict[str, Any] = {"queued": [], "settled": [], "forgotten": 0, "inputs": [], "interrupted": ""}


def test_the_names_in_json() -> None:
    """A state is written in snake case, in the order of AgentScope; its messages as everywhere."""
    state = replace(
        state_of(said("m0", "Hi")), user_id="alice", tool_context=ToolContextState(activated_groups=("web",))
    )
    assert list(json.loads(state.to_json()).items()) == [
        ("session_id", "s"),
        ("user_id", "alice"),
        ("context", [json.loads(said("m0", "Hi").to_json())]),
        (
            "permission_context",
            {"mode": None, "working_directories": [], "allow_rules": {}, "deny_rules": {}, "ask_rules": {}},
        ),
        ("tool_context", {"activated_groups": ["web"], "effects": []}),
        (
            "tasks_context",
            {
                "tasks": [],
                "requirements": [],
                "revision": 0,
                "scope": None,
                "contract_version": 0,
                "subject_version": None,
                "verifications": [],
            },
        ),
        ("plan_mode_context", {"plan_active": False, "current_plan_file": None}),
        (
            "compaction",
            {"messages": 0, "replies": 0, "tokens": 0, "freed": 0, "cooldown_until": 0, "limits": {}},
        ),
        ("compactions", []),
        ("active_run", ""),
        ("dispatched", []),
        ("inbox", NO_INBOX),
    ]
    assert json.loads(AgentState().to_json()) == {
        "session_id": "",
        "user_id": None,
        "context": [],
        "permission_context": {
            "mode": None,
            "working_directories": [],
            "allow_rules": {},
            "deny_rules": {},
            "ask_rules": {},
        },
        "tool_context": {"activated_groups": None, "effects": []},
        "tasks_context": json.loads(to_json(TaskContextState())),
        "plan_mode_context": json.loads(to_json(PlanModeContextState())),
        "compaction": {"messages": 0, "replies": 0, "tokens": 0, "freed": 0, "cooldown_until": 0, "limits": {}},
        "compactions": [],
        "active_run": "",
        "dispatched": [],
        "inbox": NO_INBOX,
    }


def test_unknown_properties_are_ignored() -> None:
    """A newer version, or AgentScope itself, may have stored more."""
    stored = {
        "session_id": "s",
        "summary": "",
        "cur_iter": 3,
        "tool_context": {"activated_groups": None, "max_cache_files": 100},
        "context": [{"id": "m0", "role": "USER", "content": [{"type": "text", "text": "Hi"}], "new": 1}],
    }
    assert AgentState.from_json(json.dumps(stored).encode()) == state_of(said("m0", "Hi"))


HELD: dict[str, Any] = {"id": "m0", "role": "USER", "content": [{"type": "text", "text": "Hi"}]}
ORPHAN = json.loads(Msg.tool(ToolResultBlock(id="c9", name="look")).to_json())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"session_id":"s"',
        b'{"session_id":1}',
        b'{"session_id":"s","context":{}}',
        b'{"session_id":"s","context":[' + b"[" * 5_000,
        b'{"session_id":"s","context":[{"role":"USER","content":[{"type":"video"}]}]}',
        b'{"session_id":"s","context":[{"role":"USER","content":[{"type":"thinking","thinking":"x"}]}]}',
        b'{"session_id":"s","context":[{"role":"SOMEBODY"}]}',
        b'{"session_id":"s","tool_context":{"activated_groups":"web"}}',
        json.dumps({"session_id": "s", "context": [ORPHAN]}).encode(),
        json.dumps({"session_id": "s", "context": [HELD, ORPHAN]}).encode(),
    ],
)
def test_what_is_no_state_is_an_error(data: bytes) -> None:
    """An unreadable state is an error and never a fresh one: that would lose the conversation with the next save."""
    with pytest.raises(StateUnreadable, match="was left as it is"):
        AgentState.from_json(data)


def test_an_error_shows_nothing_of_what_was_said() -> None:
    """The text of an error gets into logs, and what users said does not."""
    data = {"session_id": "s", "context": [{"role": "USER", "content": [{"type": "video", "text": "my secret"}]}]}
    with pytest.raises(StateUnreadable, match=r"context\.0\.content\.0") as caught:
        AgentState.from_json(json.dumps(data).encode())
    assert "my secret" not in "".join(traceback.format_exception(caught.value))


@given(states(), st.data())
def test_a_state_that_was_cut_is_an_error(state: AgentState, data: st.DataObject) -> None:
    """No beginning of a stored state passes for one."""
    whole = state.to_json()
    with pytest.raises(StateUnreadable):
        AgentState.from_json(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(ODD_TEXTS, ODD_TEXTS)
def test_no_text_keeps_a_state_from_being_stored(text: str, other: str) -> None:
    """Lone surrogates are stored as U+FFFD, NUL as it is, wherever they come from (O28, O29)."""
    call = ToolUseBlock(id="c", name=text, input={other: text}, content=text, metadata={"opaque": {text: other}})
    result = ToolResultBlock(id="c", name=text, output=Msg.user(text).content, metadata={"k": [text]})  # type: ignore[arg-type]
    state = state_of(Msg.user(text, name=other), Msg.assistant(text, call), Msg.tool(result))
    loaded = AgentState.from_json(state.to_json())
    clean = text.encode("utf-8", "replace").decode().replace("?", "\ufffd")
    assert [message.text for message in loaded.context.messages] == [clean, clean, ""]
    assert AgentState.from_json(loaded.to_json()) == loaded


# -- what storing costs -------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each message is written as JSON."""
    times = Counter[str]()
    write = Msg.to_json

    def counted(message: Msg) -> bytes:
        times[message.id] += 1
        return write(message)

    monkeypatch.setattr(Msg, "to_json", counted)
    return times


def test_what_was_written_before_is_not_written_again(written: Counter[str]) -> None:
    """A session that grows, is stored each turn and is compacted writes each message once."""
    state, ids = AgentState(session_id="s"), list[str]()

    def recorded(*records: Record) -> None:
        nonlocal state
        for record in records:
            state = state.apply(record)
        shown = [message["id"] for message in json.loads(state.to_json())["context"]]
        assert shown == [message.id for message in state.context.messages]

    for turn in range(2 * LEAF_SIZE):
        ids.extend([f"q{turn}", f"a{turn}"])
        recorded(InputAccepted((said(f"q{turn}"),)), ReplyRecorded(said(f"a{turn}")))
    assert written == Counter(ids)
    recorded(HistoryEdited(edits_between(state.context, state.context.replace_first(100, said("summary")))))
    recorded(InputAccepted((said("more"),)))
    assert written == Counter([*ids, "summary", "more"])


def test_an_exchange_is_written_again_when_its_result_comes(written: Counter[str]) -> None:
    """A late result costs the message of its call once more, and nothing else."""
    long_ago: Sequence[Msg] = [said(f"m{at}") for at in range(LEAF_SIZE)]
    state = state_of(CALL, *long_ago)
    state.to_json()
    written.clear()
    answered = state.apply(ResultsRecorded(RESULTS))
    assert [m["id"] for m in json.loads(answered.to_json())["context"]] == [
        "call",
        "r-c1",
        "r-c2",
        *(m.id for m in long_ago),
    ]
    assert written == Counter(["call", "r-c1", "r-c2"])
