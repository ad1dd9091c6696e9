"""A model looks at earlier conversations: at those of the user who calls, and at no others."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.messages import Msg
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import InMemoryStore, JsonFileStore, SessionKey, SessionStore, SqlStore, StateStore, Stored
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import tool
from agentscope_rx.workspace import InMemoryWorkspace

ALICE = RuntimeContext(user_id="alice", session_id="now")


@tool
def look_up(city: str) -> str:
    """Look something up."""
    return f"Sunny in {city.upper()}."


def builder_for(store: StateStore, *script: Any, name: str = "a1") -> HarnessBuilder:
    return HarnessAgent.builder(
        name=name,
        model=ScriptedModel(list(script)),
        workspace=InMemoryWorkspace(),
        state_store=store,
        session_tools=True,
        tools=[look_up],
    )


async def asked(store: SessionStore, name: str, context: RuntimeContext = ALICE, **arguments: Any) -> str:
    """What a model is told that calls a tool."""
    script = calls(("c1", name, json.dumps(arguments))), "done"
    agent = builder_for(store, *script).build()
    await agent.call("Look.", context)
    results = [
        each.tool_result for each in (await agent.state(context)).context.messages if each.tool_result is not None
    ]
    return results[-1].text


async def talk(store: SessionStore, *said: str, session: str, user: str | None = "alice", name: str = "a1") -> None:
    agent = builder_for(store, name=name).build()
    await agent.observe([Msg.user(each) for each in said], RuntimeContext(user_id=user, session_id=session))


@pytest.fixture(params=["memory", "files", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    match request.param:
        case "memory":
            return InMemoryStore()
        case "files":
            return JsonFileStore(tmp_path)
        case _:
            return SqlStore(f"sqlite:///{tmp_path}/sessions.db")


async def test_the_tools_are_offered_where_they_are_wanted() -> None:
    """Three tools, off by default; one of the user's own with such a name comes first."""
    names = ["session_list", "session_history", "session_search"]

    @tool
    def session_list() -> str:
        """Mine."""
        return "mine"

    store = InMemoryStore()
    builder = builder_for(store, "x")
    assert [name for name in builder.build().options.all_tools.names if name.startswith("session_")] == names
    off = builder.session_tools(False).build().options.all_tools.names
    assert not [name for name in off if name.startswith("session_")]
    assert not HarnessAgent.builder(name="a", model=ScriptedModel([])).build().options.session_tools
    agent = builder_for(store, calls(("c1", "session_list", "{}")), "done").tools([session_list]).build()
    await agent.call("x", ALICE)
    assert [each.tool_result.text for each in (await agent.state(ALICE)).context.messages if each.tool_result] == [
        "mine"
    ]


async def test_sessions_are_listed(store: SessionStore) -> None:
    """The caller's sessions with an agent, in order; the one that is going on is among them."""
    await talk(store, "x", session="s2")
    await talk(store, "x", session="s1")
    await talk(store, "x", session="s3", name="a2")
    listed = json.loads(await asked(store, "session_list", agentId="a1"))
    assert listed == [{"userId": "alice", "agentId": "a1", "sessionId": id} for id in ("now", "s1", "s2")]
    (other,) = json.loads(await asked(store, "session_list", agentId="a2"))
    assert other["sessionId"] == "s3"
    assert json.loads(await asked(store, "session_list", agentId="a3")) == []
    assert "agentId" in await asked(store, "session_list", agentId=" ")


@pytest.mark.parametrize("caller", ["alice", None])
async def test_nobody_elses_sessions_are_seen(store: SessionStore, caller: str | None) -> None:
    """Neither listed nor read nor found: sessions of other users, of nobody for a user, of users for nobody."""
    others = [user for user in ("alice", "bob", "Alice", None) if user != caller]
    for user in others:
        await talk(store, "the treasure is here", session=f"of-{user}", user=user)
    context = RuntimeContext(user_id=caller, session_id="now")
    assert [each["sessionId"] for each in json.loads(await asked(store, "session_list", context, agentId="a1"))] == [
        "now"
    ]
    for user in others:
        refused = await asked(store, "session_history", context, agentId="a1", sessionId=f"of-{user}")
        assert "has no session" in refused
        assert "treasure is here" not in refused
    found = await asked(store, "session_search", context, query="treasure is")
    assert "of-" not in found
    (itself,) = json.loads(found)  # the very call
    assert itself["sessionId"] == "now"


async def test_tenants_see_only_their_own(store: SessionStore) -> None:
    """With a function for keys the user is the one of the key, and agents are asked for by their own ids."""

    def by_tenant(context: RuntimeContext, agent_id: str) -> SessionKey:
        user = f"{context.attributes['tenant']:d}/{context.user_id}"
        return SessionKey(agent_id=f"x-{agent_id}", user_id=user, session_id=context.session_id or "")

    def context(tenant: int, session: str) -> RuntimeContext:
        return RuntimeContext(user_id="alice", session_id=session, attributes={"tenant": tenant})

    for tenant in (7, 8):
        for agent in ("a1", "a2"):
            builder = builder_for(store, name=agent).session_key(by_tenant)
            await builder.build().observe(Msg.user(f"secret of {tenant}"), context(tenant, f"{agent}-{tenant}"))
    script = [
        calls((f"c{at}", "session_list", json.dumps({"agentId": id}))) for at, id in enumerate(("a1", "x-a1", "a2"))
    ]
    search = calls(("c9", "session_search", '{"query": "secret of"}'))
    agent = builder_for(store, *script, search, "done").session_key(by_tenant).build()
    await agent.call("x", context(7, "now"))
    results = [m.tool_result.text for m in (await agent.state(context(7, "now"))).context.messages if m.tool_result]
    assert [[each["sessionId"] for each in json.loads(text)] for text in results[:3]] == [["a1-7", "now"]] * 2 + [
        ["a2-7"]
    ]
    assert {each["sessionId"] for each in json.loads(results[3])} == {"a1-7", "a2-7", "now"}


async def test_a_history_is_read(store: SessionStore) -> None:
    """The newest messages with their number and the log's; 20 where nothing is said."""
    await talk(store, *(f"m{number}" for number in range(25)), session="old")
    told = json.loads(await asked(store, "session_history", agentId="a1", sessionId="old"))
    assert told["totalMessages"] == 25
    assert told["asOfSeq"] > 0
    assert [each["content"][0]["text"] for each in told["messages"]] == [f"m{number}" for number in range(5, 25)]
    told = json.loads(await asked(store, "session_history", agentId="a1", sessionId="old", lastN=2))
    assert [each["content"][0]["text"] for each in told["messages"]] == ["m23", "m24"]
    assert "at least 1" in await asked(store, "session_history", agentId="a1", sessionId="old", lastN=0)
    for bad in ("nobody", " ", "../a", "x" * 600):
        assert "sessionId" in await asked(store, "session_history", agentId="a1", sessionId=bad)


async def test_what_is_shown_is_limited(store: SessionStore) -> None:
    """Long texts and long lists are cut, and it is said where."""
    await talk(store, *("a word" for _ in range(204)), "word " * 1_000, session="old")
    text = await asked(store, "session_history", agentId="a1", sessionId="old", lastN=1_000)
    shown, note = text.split("\n")
    assert (len(json.loads(shown)["messages"]), note) == (200, "Note: only 200 messages are shown at once.")
    assert json.loads(shown)["messages"][-1]["content"][0]["text"].endswith("… (3,000 characters more)")
    for wanted, given in ((0, 10), (3, 3), (1_000, 50)):
        shown, note = (await asked(store, "session_search", query="word", maxResults=wanted)).split("\n")
        assert (len(json.loads(shown)), note) == (
            given,
            f"Note: only the first {given} messages are shown: ask more precisely.",
        )


async def test_what_was_said_is_found(store: SessionStore) -> None:
    """Texts, names of tools, arguments and results are searched as they are, in any case; JSON's own words are not."""
    agent = builder_for(
        store, calls(("c1", "look_up", '{"city": "Sankt \\"Pölten\\"\\nNord"}')), "All is WELL."
    ).build()
    await agent.call("What's the weather?", RuntimeContext(user_id="alice", session_id="old"))
    sessions = count(1)

    async def found(query: str, **more: Any) -> list[str]:
        asking = RuntimeContext(user_id="alice", session_id=f"z{next(sessions)}")  # finds itself too, but last
        text = await asked(store, "session_search", asking, query=query, **more)
        return [each["message"]["role"] for each in json.loads(text.split("\n")[0]) if each["sessionId"] == "old"]

    assert await found("all is well") == ["ASSISTANT"]
    assert await found("LOOK_UP") == ["ASSISTANT", "TOOL"]
    assert await found('sankt "pölten"\nnord') == ["ASSISTANT", "TOOL"]
    assert await found("sunny in") == ["TOOL"]
    assert await found("What's") == ["USER"]
    for word in ("tool_use", "tool_result", '"type"', "\\n", "output"):
        assert await found(word) == []
    assert await found("weather what's") == []
    assert await found("weather what's", matchMode="all") == ["USER"]
    assert await found("weather well", matchMode="any") == ["USER", "ASSISTANT"]
    assert await found("weather well", matchMode="all") == []
    assert await found("weather", agentId="a2") == []


@pytest.mark.parametrize(
    "arguments", [{"query": " "}, {"query": "x", "matchMode": "some"}, {"query": "x", "agentId": ""}]
)
async def test_a_search_that_cannot_be_is_an_error(arguments: dict[str, Any]) -> None:
    """Blank queries, unknown modes and agents that cannot be are refused, with the argument's name."""
    text = await asked(InMemoryStore(), "session_search", **arguments)
    assert list(arguments)[-1] in text
    assert not text.startswith("[")


async def test_a_damaged_session_hides_no_other(store: SessionStore) -> None:
    """A session that cannot be read is counted in a note; the others are searched."""
    await talk(store, "the treasure", session="good")
    await store.put(SessionKey(agent_id="a1", user_id="alice", session_id="bad"), b"nonsense", expected_version=0)
    shown, note = (await asked(store, "session_search", query="the treasure")).split("\n")
    assert "good" in {each["sessionId"] for each in json.loads(shown)}
    assert note == "Note: 1 sessions could not be read."


async def test_sessions_without_logs_are_seen_too(store: SessionStore) -> None:
    """Where only states are kept, their histories are what there is."""
    agent = builder_for(store, "Well, well.").state_only().build()
    await agent.call("Hm?", RuntimeContext(user_id="alice", session_id="old"))
    told = json.loads(await asked(store, "session_history", agentId="a1", sessionId="old"))
    assert (told["asOfSeq"], [each["role"] for each in told["messages"]]) == (0, ["USER", "ASSISTANT"])


class OnlyStates:
    """A store without logs, and without a list."""

    async def get(self, key: SessionKey, /) -> Stored | None:
        return None

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        return expected_version + 1


def test_a_store_that_cannot_list_is_refused() -> None:
    """The tools need a store of whole sessions; one that keeps only states is refused at build."""
    with pytest.raises(InvalidOption, match="state_store"):
        builder_for(OnlyStates()).state_only().build()
    assert builder_for(OnlyStates()).state_only().session_tools(False).build()


@pytest.mark.parametrize("offered", [True, False])
async def test_a_summary_says_where_the_words_are(store: SessionStore, offered: bool) -> None:
    """A summary names the tool and its arguments where the model has it; what it replaced is read with them."""
    script = ["## SUMMARY\nnotes", "two"]
    builder = (
        builder_for(store, *script)
        .session_tools(offered)
        .compaction(trigger_messages=4, keep_tokens=0, keep_messages=2)
    )
    agent = builder.build()
    for number in range(6):
        await agent.observe(Msg.user(f"word {number} " * 300), ALICE)
    await agent.call("And?", ALICE)
    model = agent.options.model
    assert isinstance(model, ScriptedModel)
    summary = next(message.text for message in model.requests[-1].messages if "<summary>" in message.text)
    pointer = 'session_history with {"agentId":"a1","sessionId":"now"}'
    assert (pointer in summary) is offered
    if offered:
        told = await asked(store, "session_history", agentId="a1", sessionId="now")
        assert "word 0 word 0" in told
