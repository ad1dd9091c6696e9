"""A step looks at what is new: the visits to old messages are counted, at 100 of them and at 5,000."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from agentscope_rx import ContextBlock, ContextPolicy, ContextRequest, InMemoryStore, RuntimeContext
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compactions import CompactionState
from agentscope_rx.digests import DIGESTS
from agentscope_rx.events import Custom
from agentscope_rx.history import Exchange, History
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.models.chat_messages import WireBytes
from agentscope_rx.models.merged_users import MergedBytes
from agentscope_rx.models.providers import COMPATIBLE, Provider
from agentscope_rx.operators import text_operator
from agentscope_rx.session.stored import StateCache
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey
from agentscope_rx.testing import a_history
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tools import tool
from tests.context.support import WIDE, builder_before

CONTEXT = RuntimeContext(user_id="user", session_id="session")
SIZES = (100, 5_000)
STEPS = 4
NEW = 2  # messages that a step adds: a call and its result
SPARE = 2
STRICT = Provider(name="strict", base_url="http://127.0.0.1", needs_key=False, merge_user=True)


class CountingEstimator:
    """Counts words, and how often it is asked."""

    method = "visits"
    exact = True

    def __init__(self) -> None:
        self.asked = 0

    def count(self, text: str, /) -> int:
        """How many words."""
        self.asked += 1
        return len(text.split()) or 1


class WatchedExchange(Exchange):
    """An exchange that tells when somebody reads its messages: whoever validates, writes, counts or compares."""

    __slots__ = ("_held", "_seen")

    def __init__(self, seen: set[int], *messages: Msg) -> None:
        self._seen = seen
        super().__init__(*messages)

    @property
    def messages(self) -> tuple[Msg, ...]:  # type: ignore[override]
        """Noted, and given."""
        self._seen.add(id(self))
        return self._held

    @messages.setter
    def messages(self, messages: tuple[Msg, ...]) -> None:
        self._held = messages

    @property
    def id(self) -> str:
        """Which is free."""
        return self._held[0].id


@contextmanager
def counted(*measures: type[Any]) -> Generator[Counter[str]]:
    """How often measures of these classes are taken of an exchange."""
    taken: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for measure in measures:
            usual = measure.of

            def of(self: Any, exchange: Exchange, /, usual: Any = usual) -> Any:
                taken[type(self).__name__] += 1
                return usual(self, exchange)

            patch.setattr(measure, "of", of)
        yield taken


@tool
def look() -> str:
    """Look."""
    return "seen"


async def source(request: ContextRequest) -> list[ContextBlock]:
    return [ContextBlock.runtime("now", "it is open"), ContextBlock.reference("format", "three columns")]


@text_operator
def redact(text: str) -> str:
    return text.replace("secret", "[secret]")


async def visits(
    old: int, *, read: str = "unread", profile: Provider = COMPATIBLE, waiting: bool = False
) -> list[dict[str, int]]:
    """What each step of a call looked at, over a session of so many messages; a compaction may be asked for in vain."""
    estimator, seen = CountingEstimator(), set[int]()
    estimator.method = (
        f"visits {old} {read} {profile.name} {waiting}"  # memos are kept by method, and each test wants its own
    )
    replies = [fake.tool_calls((f"c{at}", "look", "{}")) for at in range(STEPS - 1)]
    history = History(WatchedExchange(seen, *exchange.messages) for exchange in a_history(old))
    found: list[dict[str, int]] = []
    async with FakeProvider([*replies, fake.text("done")]) as provider:
        builder = builder_before(
            provider,
            window=WIDE,
            profile=profile,
            state_store=InMemoryStore(),
            state_only=True,  # which is handed over as a value
            context_policy=ContextPolicy(estimator=estimator),
            context_sources={"s": source},
            tools=[look],
            compaction=CompactionConfig(trigger_messages=1, keep_tokens=0) if waiting else CompactionConfig(),
        ).pipeline(lambda default: default.insert_before("validate_request", redact))
        agent = builder.build()
        options = agent.options
        key = SessionKey(agent_id="tester", user_id="user", session_id="session")
        cooldown = CompactionState(cooldown_until=10 * old if waiting else 0)
        state = AgentState(session_id="session", user_id="user", context=history, compaction=cooldown)
        await options.store.put(key, state.to_json(), expected_version=0)
        stored = await options.store.get(key)
        assert stored is not None
        options.runtime.single(StateCache).keep(options.store, key, stored, state)
        with counted(WireBytes, MergedBytes, type(DIGESTS)) as taken:
            async for event in agent.stream_events("go", CONTEXT):
                if isinstance(event, Custom) and event.name == "context_build":
                    manifest = event.value["context_manifest"]
                    assert isinstance(manifest, ContextManifest)
                    assert manifest.compaction is not None
                    assert manifest.compaction.reason == ("cooldown" if waiting else "")
                    if read == "delta":
                        manifest.to_json()
                    continue
                if getattr(event, "type", "") != "MODEL_CALL_END":
                    continue
                found.append({"estimator": estimator.asked, "exchanges": len(seen), **taken})
                seen.clear()
                taken.clear()
                estimator.asked = 0
    assert len(found) == STEPS
    assert provider.refusals == []
    return found


@pytest.mark.parametrize("old", SIZES)
@pytest.mark.parametrize("read", ["unread", "delta"])
@pytest.mark.parametrize("profile", [COMPATIBLE, STRICT], ids=["plain", "merging"])
async def test_a_step_looks_at_what_is_new(old: int, read: str, profile: Provider) -> None:
    """Estimator, encoder, digests, validator, a text operator: at most the new messages and 2 more, in each step."""
    first, *later = await visits(old, read=read, profile=profile)
    assert first["exchanges"] > old // 2  # the first request is new as a whole
    assert first["estimator"] > old // 2
    for step in later:
        assert step["exchanges"] <= SPARE, step
        assert step["estimator"] <= NEW + SPARE, step
        assert step.get("WireBytes", 0) + step.get("MergedBytes", 0) <= NEW + SPARE, step
        assert step.get("_Digests", 0) <= (NEW + SPARE if read == "delta" else 0), step


@pytest.mark.parametrize("old", SIZES)
async def test_a_compaction_that_has_to_wait_looks_at_what_is_new(old: int) -> None:
    """Why it waits is decided anew in each step, and not by reading everything again."""
    _, *later = await visits(old, waiting=True)
    assert [step["exchanges"] for step in later if step["exchanges"] > SPARE] == []


async def test_the_watch_sees() -> None:
    """What reads an old message is noticed: otherwise the test above would hold of anything."""
    seen: set[int] = set()
    watched = WatchedExchange(seen, Msg.assistant(ToolUseBlock(id="c", name="look")))
    seen.clear()
    assert watched.open_calls
    assert len(seen) == 1
