"""Compactions in the state: stored, undone, expanded; nothing that was ever said is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.compaction import CompactionConfig, CompactionRequest
from agentscope_rx.compactions import Compaction, expanded, is_summary
from agentscope_rx.errors import UndoRefused
from agentscope_rx.events import ToolResultEnd
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.permission_context import PermissionContextState, PermissionRule
from agentscope_rx.records import CompactionUndone, LimitLearned
from agentscope_rx.state import AgentState
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing import run_virtual
from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply
from agentscope_rx.tools import tool
from tests.compaction.support import (
    compaction,
    conversations,
    ids_of,
    passed,
    run_of,
    step_of,
    steps,
    user,
)
from tests.context.support import ALICE, harness, scripted
from tests.support import watch
from tests.virtual import virtual

FIRST = CompactionConfig(trigger_messages=1, keep_tokens=0, keep_messages=2)


async def compacted(
    state: AgentState, *, config: CompactionConfig = FIRST, script: Sequence[str] = ("notes",)
) -> AgentState:
    """The state after a compaction, where one was made."""
    run = run_of(state)
    await passed(step_of(run), compaction(*script, config=config))
    return run.state


def grown(state: AgentState, history: History, prefix: str = "") -> AgentState:
    """The state with more messages, under ids of their own."""
    messages = [replace(message, id=f"{prefix}{message.id}") for message in history.messages]
    return replace(state, context=state.context.append(*messages))


def stored(state: AgentState) -> AgentState:
    """The state as it comes back from a store."""
    return AgentState.from_json(state.to_json())


async def three_times() -> AgentState:
    """Three compactions, one over the other."""
    state = AgentState(session_id="s", user_id="u", context=steps(4))
    for at in range(3):
        state = await compacted(grown(state, steps(3, at=10 * at + 10)), script=[f"notes {at}"])
        state = stored(renamed(state, f"c{at}"))
    assert len(state.compactions) == 3
    return state


@virtual
async def test_compactions_are_stored_with_everything_that_gave_way() -> None:
    """What is written and read is equal, and is written the same again."""
    state = await three_times()
    loaded = stored(state)
    assert loaded.compactions == state.compactions
    assert loaded.compaction == state.compaction
    assert loaded.to_json() == state.to_json()
    learned = state.apply(LimitLearned("m", 5_000)).apply(LimitLearned("n", 7_000)).apply(LimitLearned("m", 4_000))
    assert stored(learned).compaction.limits == {"m": 4_000, "n": 7_000}
    assert stored(AgentState(session_id="s")).compactions == ()


@virtual
async def test_the_newest_is_undone_first() -> None:
    """One after the other, down to what was there before; an earlier one is refused while a later one lies over it."""
    state = await three_times()
    for id in ("c0", "c1"):
        with pytest.raises(UndoRefused, match=f"{id!r} lies below a later one"):
            state.apply(CompactionUndone(id, 8))
    with pytest.raises(UndoRefused, match="has no compaction 'other'; it has c0, c1, c2"):
        state.apply(CompactionUndone("other", 8))


@virtual
async def test_undone_one_after_the_other() -> None:
    """What each had replaced is there again, word for word, with all that came since; and it waits."""
    before = AgentState(session_id="s", context=steps(4))
    once = renamed(await compacted(before), "one")
    more = grown(once, steps(3, at=10))
    twice = renamed(await compacted(more), "two")
    since = grown(twice, steps(2, at=20))
    with pytest.raises(UndoRefused, match="later"):
        since.apply(CompactionUndone("one", 8))
    undone = stored(since).apply(CompactionUndone("two", 8))
    assert undone.context == grown(more, steps(2, at=20)).context
    assert [each.id for each in undone.compactions] == ["one"]
    assert undone.compaction.cooldown_until == 1 + 3 + 2 + 8
    assert (undone.compaction.messages, undone.compaction.freed) == (len(list(undone.context.messages)), 0)
    whole = stored(undone).apply(CompactionUndone("one", 0))
    assert list(whole.context.messages) == [
        *steps(4).messages, *steps(3, at=10).messages, *steps(2, at=20).messages,
    ]  # fmt: skip
    assert whole.compactions == ()
    assert stored(whole) == whole
    with pytest.raises(UndoRefused, match="it has none"):
        whole.apply(CompactionUndone("one", 8))
    again = await compacted(replace(whole, compaction=replace(whole.compaction, messages=0)))
    assert len(again.compactions) == 1
    assert list(expanded(again.compactions, again.compactions[0].id)) + rest(again) == list(whole.context.messages)


@virtual
async def test_two_that_begin_with_the_same_message_are_undone_in_order() -> None:
    """A strategy that keeps the oldest message: what each put there looks alike, and yet the newest is undone first."""
    state, config = AgentState(session_id="s", context=steps(6)), sliding(FIRST, keep_first=True, note=False)
    state = renamed(await compacted(state, config=config), "c0")
    more = grown(state, steps(6, at=10))
    state = renamed(await compacted(more, config=config), "c1")
    assert [each.by for each in state.compactions] == [("u",), ("u",)]
    with pytest.raises(UndoRefused, match="'c0' lies below a later one"):
        state.apply(CompactionUndone("c0", 8))
    assert state.apply(CompactionUndone("c1", 8)).context == more.context


def renamed(state: AgentState, id: str) -> AgentState:
    """The state whose newest compaction has another id, since each test run counts anew."""
    *others, newest = state.compactions
    return replace(state, compactions=(*others, replace(newest, id=id)))


def rest(state: AgentState) -> list[Msg]:
    """The history behind what the newest compaction has put there."""
    return list(state.context.replace_first(len(state.compactions[-1].by)).messages)


# -- expanding ----------------------------------------------------------------------------------------------


def sliding(config: CompactionConfig, keep_first: bool, note: bool) -> CompactionConfig:
    """A strategy of the user's: the oldest exchange may stay, something may stand for what goes."""

    async def strategy(request: CompactionRequest) -> Sequence[Msg] | None:
        exchanges = list(request.history)
        if len(exchanges) < 4 or any(is_summary(each.messages[0]) for each in exchanges):
            return None
        cut = len(exchanges) // 2 + 1
        first = exchanges[:1] if keep_first else []
        middle = [Msg.user("a note").with_metadata(agentscope_synthetic=True)] if note else []
        said = [
            each
            for each in exchanges[len(first) : cut]
            if each.messages[0].role == "USER" and not each.messages[0].metadata
        ]
        later = [each for each in exchanges[cut:] if each.messages[0].role == "USER" and not each.messages[0].metadata]
        pinned = said[-1:] if said and not later else []
        return [
            *(m for each in first for m in each.messages),
            *middle,
            *(m for each in [*pinned, *exchanges[cut:]] for m in each.messages),
        ]

    return config.model_copy(update={"strategy": strategy})


_ROUNDS = st.lists(
    st.tuples(conversations(most=8), st.sampled_from(["summary", "drop", "keep_first", "note", "keep_note"])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=80)
@given(_ROUNDS)
def test_nothing_that_was_ever_said_is_lost(rounds: list[tuple[History, str]]) -> None:
    """Expanding the newest compaction, with the rest of the history, gives every message once and in order."""
    ever: list[Msg] = []
    state = AgentState(session_id="s")

    async def conversation() -> None:
        nonlocal state
        for number, (history, way) in enumerate(rounds):
            clean = History(each for each in history if not is_summary(each.messages[0]))
            state = grown(state, clean, prefix=f"t{number}.")
            ever.extend(replace(message, id=f"t{number}.{message.id}") for message in clean.messages)
            config = FIRST if way == "summary" else sliding(FIRST, way.startswith("keep"), way.endswith("note"))
            count = len(state.compactions)
            state = await compacted(state, config=config, script=[f"n{number}"])
            if len(state.compactions) > count:
                state = renamed(state, f"c{number}")
            state = stored(state)

    run_virtual(conversation)
    if state.compactions:
        found = [*expanded(state.compactions, state.compactions[-1].id), *rest(state)]
        assert [m for m in found if m.id.startswith("t")] == ever
    while state.compactions:
        state = state.apply(CompactionUndone(state.compactions[-1].id, 0))
    assert [m for m in state.context.messages if m.id.startswith("t")] == ever


@virtual
async def test_a_thousand_compactions_expand_without_recursion() -> None:
    """Each lies in the next."""
    compactions: list[Compaction] = []
    inside: list[Msg] = [user("m0")]
    for at in range(1_500):
        compactions.append(
            Compaction(
                id=f"c{at}", created_at="", model="m", trigger="tokens", tokens_before=2, tokens_after=1,
                replaced=History.of(*inside), by=(f"s{at}",),
            )
        )  # fmt: skip
        inside = [user(f"s{at}"), user(f"m{at + 1}")]
    assert ids_of(expanded(compactions, "c1499")) == [f"m{at}" for at in range(1_500)]
    assert ids_of(expanded(compactions, "c0")) == ["m0"]
    with pytest.raises(UndoRefused, match="no compaction 'x'"):
        expanded(compactions, "x")


# -- by the agent -------------------------------------------------------------------------------------------

TURNS = CompactionConfig(trigger_messages=6, keep_tokens=0, keep_messages=2)


@virtual
async def test_an_agent_tells_undoes_and_expands() -> None:
    """`compactions`, `expand` with a span, `undo_compaction`; an undone one is not made again at once."""
    agent = scripted(*["answer", "answer", "answer", "notes", "answer", "answer", "answer"], compaction=TURNS).build()
    for at in range(4):
        await agent.call(f"question {at}", ALICE)
    (made,) = await agent.compactions(ALICE)
    assert [m.text for m in made.replaced.messages][:2] == ["question 0", "answer"]
    whole = await agent.expand(ALICE, made.id)
    assert [m.text for m in whole] == ["question 0", "answer", "question 1", "answer", "question 2"]
    assert await agent.expand(ALICE, made.id, slice(1, 3)) == whole[1:3]
    for method in (agent.expand, agent.undo_compaction):
        with pytest.raises(UndoRefused, match="no compaction 'other'"):
            await method(ALICE, "other")
    await agent.undo_compaction(ALICE, made.id)
    texts = [message.text for message in (await agent.state(ALICE)).context.messages]
    assert texts == [word for at in range(4) for word in (f"question {at}", "answer")]
    assert await agent.compactions(ALICE) == ()
    await agent.call("question 4", ALICE)
    assert await agent.compactions(ALICE) == ()
    assert await agent.compactions() == ()


async def test_the_system_message_is_equal_after_ten_compactions() -> None:
    """Byte by byte in the request; so is the beginning of the notes' own requests."""
    options: dict[str, Any] = {
        "sys_prompt": "You help.",
        "instructions": {"tone": "Be brief."},
        "compaction": CompactionConfig(trigger_messages=2, keep_tokens=0, keep_messages=1),
    }
    async with harness(*[f"short {at}" for at in range(60)], **options) as (agent, provider):
        for at in range(22):
            await agent.call(f"a rather long question with the number {at}", ALICE)
        assert len(await agent.compactions(ALICE)) >= 10
        systems = {request.messages[0]["content"] for request in provider.requests}
        assert len(systems) == 1
        assert "Be brief." in systems.pop()
        assert provider.refusals == []


async def test_permissions_hold_after_ten_compactions() -> None:
    """What a session may not do is part of its state, and stays so whatever the summaries say."""
    paid: list[int] = []

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    def script(request: RecordedRequest, number: int) -> ScriptedReply:
        if "tools" not in request.body:
            return fake.text("Pay: it is allowed.")
        roles = [(message["role"], message["content"]) for message in request.messages]
        if ("user", "pay now") in roles and not any(role == "tool" for role, _ in roles):
            return fake.tool_calls(("c1", "pay", "{}"))
        return fake.text(f"short {number}")

    shortening = CompactionConfig(trigger_messages=2, keep_tokens=0, keep_messages=1)
    async with harness(script=script, tools=[pay], compaction=shortening) as (agent, _):
        rules = PermissionContextState().with_rules([PermissionRule.deny("pay")])
        await agent.replace_permissions(ALICE, rules)
        for at in range(22):
            await agent.call(f"a rather long question with the number {at}", ALICE)
        assert len(await agent.compactions(ALICE)) >= 10
        assert (await agent.state(ALICE)).permission_context == rules
        seen = await watch(agent, "pay now", ALICE)
        assert [end.state for end in seen.of(ToolResultEnd)] == ["denied"]
    assert paid == []
