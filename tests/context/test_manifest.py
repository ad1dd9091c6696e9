"""The account of a request: it adds up, it says who did what, and it repeats no word of what was said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx import (
    ContextBlock,
    ContextManifest,
    ContextPolicy,
    ContextRequest,
    HarnessAgent,
    InMemoryWorkspace,
)
from agentscope_rx.events import Custom, ModelCallStart
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.history import Exchange, History
from agentscope_rx.manifest import DIGESTS, Validation
from agentscope_rx.messages import Base64Source, DataBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.operators import (
    RequestDraft,
    Step,
    history_operator,
    text_operator,
    view_operator,
)
from agentscope_rx.testing import ScriptedModel, a_history, calls, run_virtual, text
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.tools import tool
from agentscope_rx.usage import ChatUsage
from tests.context.support import (
    ALICE,
    WIDE,
    CharEstimator,
    builds,
    data_of,
    harness,
    manifests,
    one_manifest,
    scripted,
)
from tests.strategies import messages
from tests.support import watch
from tests.virtual import virtual

FILES = {"AGENTS.md": "Use tabs.", "MEMORY.md": "Alice likes tea. " * 20, "knowledge/tea.md": "x"}


@tool
def look(path: str = ".") -> str:
    """Look at a path."""
    return "seen"


async def source(request: ContextRequest) -> list[ContextBlock]:
    return [
        ContextBlock.runtime("now", "it is open", priority=3),
        ContextBlock.reference("format", "three columns", required=True, revision="v2"),
        ContextBlock.reference("extra", "words " * 40),
    ]


def with_everything(*script: Any, **options: Any) -> HarnessBuilder:
    """A builder of agents whose requests have something of everything."""
    everything: dict[str, Any] = {
        "workspace": InMemoryWorkspace(FILES),
        "context_sources": {"s": source, "t": source},
        "tools": [look],
        "sys_prompt": "You help.",
        "instructions": {"tone": "Be brief."},
        "window": WIDE,
        **options,
    }
    return scripted(*script, **everything)


def full(*script: Any, **options: Any) -> HarnessAgent:
    """Such an agent."""
    return with_everything(*script, **options).build()


# -- what an item says --------------------------------------------------------------------------------------


@virtual
async def test_items_are_told_in_the_order_in_which_they_are_read() -> None:
    """Tools, System, conversation, state, references, framing; each with its kind, zone and who put it there."""
    agent = full("one", "two")
    await agent.acall("first", ALICE)
    manifest = await one_manifest(agent, "second")
    items = [(item.id, item.kind, item.zone, item.operator) for item in manifest.items]
    said = [message.id for message in manifest.draft.conversation.messages]
    assert items == [
        ("look", "tool_schema", "tools", "assemble_request"),
        ("system_prompt", "system_input", "system", "assemble_request"),
        ("instruction/tone", "business_instruction", "system", "assemble_request"),
        ("harness:workspace-environment", "environment", "system", "load_materials"),
        ("harness:workspace-guidance", "working_principles", "system", "load_materials"),
        ("workspace:AGENTS.md", "project_rules", "system", "load_materials"),
        *((id, "message", "conversation", "") for id in said),
        ("source/s/now", "runtime", "transient", "load_sources"),
        ("source/t/now", "runtime", "transient", "load_sources"),
        ("harness:session", "session", "transient", "load_materials"),
        ("source/s/extra", "reference", "references", "load_sources"),
        ("source/s/format", "reference", "references", "load_sources"),
        ("source/t/extra", "reference", "references", "load_sources"),
        ("source/t/format", "reference", "references", "load_sources"),
        ("workspace:MEMORY.md", "memory", "references", "load_materials"),
        ("workspace:knowledge-files", "knowledge", "references", "load_materials"),
        ("harness:framing", "framing", "system", ""),
    ]
    assert len(said) == 3
    by_id = {item.id: item for item in manifest.items}
    chosen = by_id["source/s/format"]
    assert (chosen.required, chosen.priority, chosen.revision) == (True, 0, "v2")
    assert by_id["source/s/now"].priority == 3
    assert chosen.digest == hashlib.sha256(b"three columns").hexdigest()[:16]


@virtual
async def test_the_json_has_every_field() -> None:
    """Java's fields under Java's names, and ours; numbers of the model and the policy."""
    manifest = await one_manifest(full(context_policy=ContextPolicy(max_input_tokens=9_000), agent_id="a"))
    data = data_of(manifest)
    assert set(data) == {
        "callId", "purpose", "model", "policyVersion", "estimatedInputTokens", "inputLimit", "window", "windowOrigin",
        "countingMethod", "exact", "measuredRatio", "taskRevision", "validation", "failedIn", "errorCode", "pressure",
        "compaction", "pressureLevel", "categories", "sources", "prefix", "full", "items", "changes", "transforms",
    }  # fmt: skip
    assert set(data["items"][0]) == {
        "sourceType", "sourceId", "contentHash", "revision", "placement", "required", "priority", "tokens", "operator",
    }  # fmt: skip
    assert (data["purpose"], data["model"], data["validation"]) == ("REASONING", "scripted", "passed")
    assert (data["inputLimit"], data["window"], data["windowOrigin"]) == (9_000, WIDE, "given")
    assert data["countingMethod"] == "tiktoken:o200k_base(proxy)+chat-v1"
    assert (data["exact"], data["measuredRatio"], data["taskRevision"]) == (False, None, 0)
    assert (data["failedIn"], data["errorCode"], data["changes"], data["transforms"]) == ("", "", [], [])


async def test_the_event_carries_it_before_the_request() -> None:
    """CUSTOM `context_build`, typed in process, with the id of the model call that follows."""
    async with harness(fake.tool_calls(("c1", "look", "{}")), "done", tools=[look]) as (agent, provider):
        sent, last_id = list[int](), ""
        async for event in agent.stream_events("go", ALICE):
            if isinstance(event, Custom) and event.name == "context_build":
                sent.append(len(provider.requests))
                manifest = event.value["context_manifest"]
                assert isinstance(manifest, ContextManifest)
                assert event.value["status"] == "passed"
                assert event.value["model_call_id"] == manifest.call_id
                last_id = manifest.call_id
            if isinstance(event, ModelCallStart):
                assert event.reply_id == last_id
    assert sent == [0, 1]


# -- it adds up ---------------------------------------------------------------------------------------------


def check_sums(manifest: ContextManifest) -> None:
    """Items, categories and estimate are one sum; the JSON says what the values say."""
    data = data_of(manifest)
    assert sum(item["tokens"] for item in data["items"]) == data["estimatedInputTokens"]
    assert sum(data["categories"].values()) == data["estimatedInputTokens"]
    for zone in ("tools", "conversation", "transient", "references", "system"):
        assert data["categories"][zone] == sum(i["tokens"] for i in data["items"] if i["placement"] == zone)
    for name, tokens in data["sources"].items():
        assert tokens == sum(i["tokens"] for i in data["items"] if i["sourceId"].startswith(f"source/{name}/"))
    assert [item["sourceId"] for item in data["items"]] == [item.id for item in manifest.items]


@virtual
async def test_a_request_adds_up() -> None:
    """At every step, in a session that grows."""
    agent = full(calls(("c1", "look", '{"path": "a"}')), "one", "two")
    for question in ("first", "second"):
        for manifest in manifests(await watch(agent, question, ALICE)):
            check_sums(manifest)
            assert list(manifest.sources) == ["s", "t"]


BLOCKS = st.lists(
    st.tuples(st.sampled_from(["runtime", "reference"]), st.integers(0, 60), st.integers(-2, 2)), max_size=6
)


@given(st.lists(messages(), max_size=5), BLOCKS, st.integers(60, 2_000), st.booleans())
def test_items_and_what_was_dropped_are_the_candidates(
    said: list[Msg], blocks: list[tuple[str, int, int]], limit: int, drop: bool
) -> None:
    """Invariant: whatever is said, loaded, and left out: what is in the request and what is not add up."""

    async def load(request: ContextRequest) -> list[ContextBlock]:
        return [
            ContextBlock(id=f"b{at}", text="word " * size, kind=kind, priority=priority)
            for at, (kind, size, priority) in enumerate(blocks)
        ]

    @view_operator
    def leave_out(draft: RequestDraft, step: Step) -> RequestDraft:
        ids = [message.id for message in draft.conversation.messages][::2]
        return draft.without(ids if drop else (), reason="every_other")

    policy = ContextPolicy(max_input_tokens=limit)
    agent = (
        scripted(context_sources={"s": load}, context_policy=policy, workspace_context=False)
        .pipeline(lambda default: default.insert_after("load_sources", leave_out))
        .build()
    )

    async def prepared() -> tuple[ContextManifest, int]:
        session = [message for message in said if message.role in ("USER", "ASSISTANT") and not message.tool_calls]
        await agent.observe(session, ALICE)
        state = await agent.state(ALICE)
        return (await agent.prepare("go", ALICE)).manifest, len(list(state.context.messages)) + 1

    manifest, count = run_virtual(prepared)
    check_sums(manifest)
    data = data_of(manifest)
    gone = [change for change in data["changes"] if change["action"] == "dropped"]
    dropped = sum(change["count"] for change in gone)
    loaded = [change for change in manifest.changes if change.action == "added"]
    summaries = sum(change.zone == "conversation" for change in loaded)
    candidates = count + sum(size > 0 for _, size, _ in blocks) + summaries
    assert len([item for item in data["items"] if item["sourceType"] != "framing"]) + dropped == candidates
    counter = manifest.counter
    assert counter is not None
    added = sum(counter.block(block) for change in loaded for block in change.after if isinstance(block, ContextBlock))
    conversation = sum(x.measure(counter) for x in manifest.draft.conversation)
    left_out = sum(
        each.measure(counter) for change in manifest.changes for each in change.before if isinstance(each, Exchange)
    )
    whole = added + conversation + left_out
    framing = next(item["tokens"] for item in data["items"] if item["sourceType"] == "framing")
    assert data["estimatedInputTokens"] - framing + sum(change["tokensBefore"] for change in gone) == whole


@virtual
async def test_a_range_counts_with_its_totals() -> None:
    """A compaction of 2,500 messages is one entry with its first and last id, its count and its tokens."""

    @history_operator
    def sum_up(history: History, step: Step) -> History:
        return history.replace_first(1_875, Msg.user("They talked about tea."))

    agent = (
        scripted(workspace_context=False, window=WIDE)
        .pipeline(lambda default: default.insert_before("evict_optional_blocks", sum_up))
        .build()
    )
    await agent.observe(list(a_history(2_500).messages), ALICE)
    before = list((await agent.state(ALICE)).context.messages)
    manifest = await one_manifest(agent, "go")
    data = data_of(manifest)
    (dropped,) = data["changes"]
    assert (dropped["operator"], dropped["action"], dropped["count"]) == ("sum_up", "dropped", 2_500)
    assert (dropped["sourceId"], dropped["lastSourceId"]) == (before[0].id, before[-1].id)
    whole = (await scripted(window=WIDE).build().prepare()).manifest.counter
    assert whole is not None
    assert dropped["tokensBefore"] == History.of(*before).measure(whole)
    assert len(data["items"]) == 3  # the summary, the question, the framing
    assert data["items"][0]["operator"] == "sum_up"
    assert len(manifest.to_json(full=True)) < 3_000


# -- who did what -------------------------------------------------------------------------------------------


@text_operator
def redact(text: str) -> str:
    return text.replace("bob@example.org", "Bob")


@virtual
async def test_rewritten_messages_are_told_by_their_own_ids() -> None:
    """The result that was rewritten and not the call it answers; with tokens before and after."""
    mail = "write to bob@example.org " * 10

    @tool
    def read() -> str:
        """Read."""
        return mail

    agent = (
        scripted(calls(("c1", "read", "{}")), "done", tools=[read], context_sources={"s": source})
        .pipeline(lambda default: default.insert_before("validate_request", redact))
        .build()
    )
    seen = await watch(agent, "go", ALICE)
    manifest = manifests(seen)[1]
    (change,) = data_of(manifest)["changes"]
    result = list(manifest.draft.conversation.messages)[-1]
    assert (change["operator"], change["action"], change["zone"]) == ("redact", "rewritten", "conversation")
    assert (change["sourceId"], change["count"]) == (result.id, 1)
    assert change["tokensBefore"] > change["tokensAfter"] > 0
    assert manifest.transforms == ("redact",)
    assert "lastSourceId" not in change
    assert mail in str((await agent.state(ALICE)).to_json())


@virtual
async def test_what_was_rewritten_before_is_not_told_again() -> None:
    """The delta names the messages that are new; the whole names all, however many steps have rewritten them."""
    script = [calls((f"c{at}", "look", "{}")) for at in range(3)]
    agent = (
        scripted(*script, "done", tools=[look], window=WIDE)
        .pipeline(lambda default: default.insert_before("validate_request", redact))
        .build()
    )
    await agent.observe([Msg.user(f"bob@example.org {at}") for at in range(150)], ALICE)
    first, *later = manifests(await watch(agent, "from bob@example.org", ALICE))
    assert len(data_of(first, full=False)["changes"]) == 151
    for manifest in later:
        assert data_of(manifest, full=False)["changes"] == []
        whole = data_of(manifest)["changes"]
        assert [change["sourceId"] for change in whole] == [
            message.id for message in manifest.draft.conversation.messages if "Bob" in message.text
        ]
        assert len(whole) == 151
        assert manifest.transforms == ("redact",)


@virtual
async def test_a_version_that_was_kept_is_told() -> None:
    """Where a history operator rewrites what a view operator has rewritten, the request keeps the latter."""

    @history_operator
    def shorten(history: History, step: Step) -> History:
        return history.map(lambda exchange: exchange.map(lambda message: message.with_text(message.text[:5])))

    agent = (
        scripted(workspace_context=False)
        .pipeline(
            lambda default: default.insert_before("validate_request", redact).insert_before("validate_request", shorten)
        )
        .build()
    )
    await agent.observe([Msg.user("bob@example.org says hello")], ALICE)
    seen = await watch(agent, "goodbye", ALICE)
    (manifest,) = manifests(seen)
    kept = [change for change in data_of(manifest)["changes"] if change["reason"] == "view_version_kept"]
    first, second = manifest.draft.conversation.messages
    assert [(change["operator"], change["sourceId"], change["action"]) for change in kept] == [
        ("shorten", first.id, "kept")
    ]
    assert (first.text, second.text) == ("Bob says hello", "goodb")
    assert [message.text for message in (await agent.state(ALICE)).context.messages][:2] == ["bob@e", "goodb"]
    check_sums(manifest)


@virtual
async def test_times_are_told_and_not_written() -> None:
    """By operator, on the run's clock, so zero where nothing waits; the JSON of two equal runs is equal."""
    manifest = await one_manifest(full())
    names = [name for name, _ in manifest.timings]
    assert names == [
        "begin_request",
        "load_materials",
        "load_sources",
        "attach_files",
        "assemble_request",
        "offload_tool_results",
        "evict_optional_blocks",
        "prune_tool_results",
        "compact_history",
        "offload_to_fit",
        "validate_request",
        "commit_history",
    ]
    assert all(seconds >= 0 for _, seconds in manifest.timings)
    assert b"imings" not in manifest.to_json(full=True)
    assert b"seconds" not in manifest.to_json(full=True)


# -- no words -----------------------------------------------------------------------------------------------

#: Letters that no name of ours has, so that twelve in a row can only be a text that leaked.
WORDS = st.text(alphabet="ÆØÅæøåÐðÞþ ", min_size=12, max_size=60).filter(lambda words: len(words.strip()) >= 12)


@given(st.lists(WORDS, min_size=9, max_size=9, unique=True))
def test_no_text_of_a_request_is_in_its_json(words: list[str]) -> None:
    """Invariant: not of messages, arguments, results, blocks, prompts, files, schemas, or what was dropped."""
    prompt, question, argument, result, block, memory, description, answer, rule = words

    async def read(path: str) -> str:
        return result

    read.__doc__ = description

    async def load(request: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.reference("a", block), ContextBlock.runtime("b", block, priority=-9)]

    arguments = json.dumps({"path": argument}, ensure_ascii=False)
    agent = (
        scripted(
            calls(("c1", "read", arguments), text=answer),
            answer,
            workspace=InMemoryWorkspace({"MEMORY.md": memory * 200, "AGENTS.md": rule}),
            context_sources={"s": load},
            tools=[tool(read)],
            sys_prompt=prompt,
            max_context_tokens=1_000,
            instructions={"r": rule},
            context_policy=ContextPolicy(max_input_tokens=1_500),
        )
        .pipeline(lambda default: default.insert_before("validate_request", redact))
        .build()
    )
    seen = run_virtual(lambda: watch(agent, question, ALICE))
    for manifest in manifests(seen):
        for written in (manifest.to_json(full=True), manifest.to_json()):
            said = written.decode()
            assert not any(letter in said for letter in "ÆØÅæøåÐðÞþ")
    for event in builds(seen):
        assert not any(letter in repr(event) for letter in "ÆØÅæøåÐðÞþ")


@given(messages())
def test_any_message_has_a_digest(message: Msg) -> None:
    """Invariant: also with halves of surrogate pairs, which no JSON can hold; id, moment and usage do not count."""
    if message.role == "TOOL":
        return
    exchange = Exchange(replace(message, id="m0"))
    other = Exchange(replace(message, id="m1", timestamp="later", usage=ChatUsage(input_tokens=1, output_tokens=1)))
    assert len(exchange.measure(DIGESTS)) == 16
    assert exchange.measure(DIGESTS) == other.measure(DIGESTS)


@virtual
async def test_odd_text_is_accounted_for() -> None:
    """A prompt, a block and arguments with lone surrogates reach the model and have an account."""
    arguments = '{"path": "\\ud83d"}'

    @view_operator
    def odd(draft: RequestDraft, step: Step) -> RequestDraft:
        return draft.add_reference(ContextBlock.reference("odd", "half \ud83d"))

    agent = (
        scripted(calls(("c1", "look", arguments)), "done", tools=[look], sys_prompt="half \udcb2 a pair")
        .pipeline(lambda default: default.insert_before("validate_request", odd))
        .build()
    )
    seen = await watch(agent, "half \ud83d", ALICE)
    assert seen.error is None
    for manifest in manifests(seen):
        check_sums(manifest)


# -- the delta and the prefix -------------------------------------------------------------------------------


@virtual
async def test_the_delta_holds_what_the_previous_request_does_not() -> None:
    """Tools, System and messages that were sent before are left out; prefix and delta make up the whole."""
    agent = full(calls(("c1", "look", "{}")), "one", "two")
    seen = [*manifests(await watch(agent, "first", ALICE)), *manifests(await watch(agent, "second", ALICE))]
    first, *later = seen
    assert data_of(first, full=False)["items"] == data_of(first)["items"]
    for manifest, new in zip(later, (2, 2), strict=True):
        whole, delta = data_of(manifest), data_of(manifest, full=False)
        assert (whole["full"], delta["full"]) == (True, False)
        assert [item["placement"] for item in delta["items"]].count("conversation") == new
        assert not [item for item in delta["items"] if item["placement"] == "tools"]
        assert [item["sourceId"] for item in delta["items"] if item["placement"] == "system"] == ["harness:framing"]
        shared = len(whole["items"]) - len(delta["items"])
        assert whole["items"][shared:] == delta["items"]
        prefix = delta["prefix"]
        assert prefix == whole["prefix"]
        assert sum(item["tokens"] for item in whole["items"][:shared]) == prefix["tokens"]
        hashes = "".join(item["contentHash"] for item in whole["items"][:shared])
        assert hashlib.sha256(hashes.encode()).hexdigest()[:16] == prefix["digest"]
        assert prefix["firstDifferent"] == delta["items"][0]["sourceId"]
        assert prefix["fixed"] == 1 + 5
        assert {**whole, "items": 0, "full": 0} == {**delta, "items": 0, "full": 0}


@virtual
async def test_the_prefix_goes_on_over_calls_and_agents() -> None:
    """The session's previous request counts, whoever made it; other sessions do not."""
    builder = scripted("one", "two", "three")
    first = await one_manifest(builder.build(), "first")
    second = await one_manifest(builder.build(), "second")
    other = await one_manifest(builder.build(), "mine", replace(ALICE, user_id="bob"))
    assert (first.prefix.exchanges, second.prefix.exchanges, other.prefix.exchanges) == (0, 1, 0)
    assert second.prefix.tokens > 0 == first.prefix.tokens


def prefix_after(change: Callable[[RequestDraft], RequestDraft]) -> tuple[ContextManifest, ContextManifest]:
    """The manifests of two requests, before the second of which a view operator changes something."""
    requests: list[int] = []

    @view_operator
    def changing(draft: RequestDraft, step: Step) -> RequestDraft:
        requests.append(1)
        return change(draft) if len(requests) == 2 else draft

    agent = (
        with_everything("one", "two")
        .pipeline(lambda default: default.insert_before("validate_request", changing))
        .build()
    )

    async def both() -> tuple[ContextManifest, ContextManifest]:
        return await one_manifest(agent, "first"), await one_manifest(agent, "second")

    return run_virtual(both)


def without(id: str) -> Callable[[RequestDraft], RequestDraft]:
    return lambda draft: draft.without((id,), reason="test")


def louder(draft: RequestDraft) -> RequestDraft:
    return replace(draft, system=tuple(block.with_text(f"{block.text}!") for block in draft.system))


CHANGES: dict[str, tuple[Callable[[RequestDraft], RequestDraft], str, int]] = {
    "nothing": (lambda draft: draft, "message", 7),
    "a tool is gone": (without("look"), "look", 0),
    "the prompt is gone": (without("system_prompt"), "instruction/tone", 1),
    "an instruction is gone": (without("instruction/tone"), "harness:workspace-environment", 2),
    "the last System block is gone": (without("workspace:AGENTS.md"), "workspace:AGENTS.md", 5),
    "the prompt is another one": (louder, "system_prompt", 1),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_prefix_ends_at_the_first_difference(case: str) -> None:
    """In the order in which the request is read: its tokens are those before, and it names what differs."""
    change, first_different, shared = CHANGES[case]
    before, after = prefix_after(change)
    items = after.items
    if first_different == "message":
        first_different = items[shared].id
    assert after.prefix.first_different == first_different
    assert after.prefix.tokens == sum(item.tokens for item in before.items[:shared])
    assert after.prefix.fixed == min(shared, 6)


@virtual
async def test_the_prefix_after_a_history_edit_is_what_is_really_equal() -> None:
    """A message that was rewritten ends it there; a summary at the beginning leaves only what is fixed."""
    done: list[str] = []

    @history_operator
    def edit(history: History, step: Step) -> History:
        if step.number == 1 and not done:
            done.append("rewritten")
            target = list(history.messages)[2]
            return history.with_messages(target.with_text("Other words."))
        if step.number == 2:
            return history.replace_first(3, Msg.user("A summary."))
        return history

    script = [calls((f"c{at}", "look", "{}")) for at in range(3)]
    agent = (
        scripted(*script, "done", tools=[look], window=WIDE)
        .pipeline(lambda default: default.insert_before("evict_optional_blocks", edit))
        .build()
    )
    await agent.observe([Msg.user(f"message {at}") for at in range(5)], ALICE)
    seen = manifests(await watch(agent, "go", ALICE))
    assert len(seen) == 4
    first, rewritten, compacted, after = seen
    old = [message.id for message in first.draft.conversation.messages]
    assert (first.prefix.exchanges, first.prefix.tokens) == (0, 0)
    assert (rewritten.prefix.exchanges, rewritten.prefix.first_different) == (2, old[2])
    summary = next(iter(compacted.draft.conversation.messages))
    assert (compacted.prefix.exchanges, compacted.prefix.first_different) == (0, summary.id)
    fixed = [item for item in compacted.items if item.zone in ("tools", "system") and item.kind != "framing"]
    assert compacted.prefix.tokens == sum(item.tokens for item in fixed)
    assert after.prefix.exchanges == len(compacted.draft.conversation)
    for manifest in seen:
        check_sums(manifest)


@given(st.integers(0, 200), st.integers(0, 5), st.none() | st.integers(0, 199))
def test_the_prefix_counts_equal_exchanges(old: int, new: int, changed: int | None) -> None:
    """Invariant: whatever the borders of leaves, it is the number of equal exchanges at the beginning."""
    history = a_history([f"m{at}" for at in range(old)])
    grown = history.append(*(replace(Msg.user(f"n{at}"), id=f"n{at}") for at in range(new)))
    if changed is not None and changed < old:
        target = list(history.messages)[changed]
        grown = grown.with_messages(target.with_text("other"))
    counter = scripted().build().options.counter
    manifest = ContextManifest(
        call_id="c",
        purpose="reasoning",
        model="m",
        draft=RequestDraft(conversation=grown),
        counter=counter,
        input_limit=None,
        validation=Validation.PASSED,
        previous=RequestDraft(conversation=history),
    )
    expected = old if changed is None or changed >= old else changed
    assert manifest.prefix.exchanges == expected
    assert manifest.prefix.tokens == sum(x.measure(counter) for x in list(grown)[:expected])
    delta = [item.id for item in grown_items(manifest)]
    assert delta == [message.id for x in list(grown)[expected:] for message in x.messages]


def grown_items(manifest: ContextManifest) -> Sequence[Any]:
    data = json.loads(manifest.to_json())
    wanted = {item["sourceId"] for item in data["items"]}
    return [item for item in manifest.items if item.id in wanted and item.kind == "message"]


# -- pressure, ratio, observer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "level"), [(0, 0), (590, 0), (600, 1), (799, 1), (800, 2), (899, 2), (900, 3), (1_000, 3)]
)
@virtual
async def test_pressure_has_levels(size: int, level: int) -> None:
    """The estimate as a share of the limit, and how many of the policy's levels it has reached."""
    policy = ContextPolicy(max_input_tokens=1_000, estimator=CharEstimator(), pressure=(0.6, 0.8, 0.9))
    agent = scripted(context_policy=policy, workspace_context=False).build()
    message = "x" * (size - 6) if size else "x"  # the frame of a message, and the start of the answer
    manifest = await one_manifest(agent, message)
    assert (manifest.pressure, manifest.pressure_level) == (manifest.estimated_input_tokens / 1_000, level)
    if size:
        assert manifest.pressure == size / 1_000


@virtual
async def test_what_the_provider_counted_is_set_against_the_estimate() -> None:
    """None before there is a usage, then the ratio; of this model alone, and never used to correct a count."""
    model = ScriptedModel([text("one", usage=ChatUsage(input_tokens=900, output_tokens=1)), "two"])
    agent = scripted(model=model, workspace_context=False).build()
    first = await one_manifest(agent, "first")
    second = await one_manifest(agent, "second")
    assert first.measured_ratio is None
    assert second.measured_ratio == 900 / first.estimated_input_tokens
    check_sums(second)


@virtual
async def test_an_observer_is_told_once_for_each_request() -> None:
    """Of success and failure, before the model is asked; what it raises is logged and changes nothing."""
    told: list[ContextManifest] = []

    def observer(manifest: ContextManifest) -> None:
        told.append(manifest)
        raise RuntimeError("an observer's own trouble")

    async def failing(request: ContextRequest) -> list[ContextBlock]:
        if len(told) >= 2:
            raise LookupError("gone")
        return []

    policy = ContextPolicy(observer=observer)
    agent = scripted(
        calls(("c1", "look", "{}")), "done", tools=[look], context_policy=policy, context_sources={"s": failing}
    ).build()
    seen = await watch(agent, "go", ALICE)
    assert seen.error is None
    assert told == manifests(seen)
    failed = await watch(agent, "again", ALICE)
    assert told[2:] == manifests(failed)
    assert [manifest.validation for manifest in told] == ["passed", "passed", "build_failed"]


@virtual
async def test_a_manifest_nobody_reads_costs_nothing_for_old_messages() -> None:
    """It holds references; digests are taken when it is read, by a log too, and only then."""
    agent = scripted(window=WIDE).log_requests(False).build()
    await agent.observe(list(a_history(200).messages), ALICE)
    manifest = await one_manifest(agent, "go")
    taken = [DIGESTS in exchange._measured for exchange in manifest.draft.conversation]  # pyright: ignore[reportPrivateUsage]
    assert not any(taken)
    manifest.to_json()
    taken = [DIGESTS in exchange._measured for exchange in manifest.draft.conversation]  # pyright: ignore[reportPrivateUsage]
    assert all(taken)


def test_media_are_estimated_and_said_to_be() -> None:
    """The method says that media were estimated, and the count is not exact even for a known encoding."""
    png = DataBlock(source=Base64Source(media_type="image/png", data="AAAA"))
    model = ScriptedModel(["done"] * 2, name="gpt-5")
    agent = scripted(model=model).build()
    plain = run_virtual(lambda: agent.prepare("hi"))
    seen = run_virtual(lambda: agent.prepare(Msg.user("hi", png)))
    assert (plain.manifest.counting_method, plain.manifest.exact) == ("tiktoken:o200k_base+chat-v1", True)
    assert (seen.manifest.counting_method, seen.manifest.exact) == ("tiktoken:o200k_base+chat-v1+media-estimate", False)


def test_results_and_arguments_are_part_of_the_digest() -> None:
    """A result in other words, or a call with other arguments, is another item."""
    call = ToolUseBlock(id="c", name="look", input={"p": 1})

    def exchange(call: ToolUseBlock, said: str) -> str:
        result = ToolResultBlock(id="c", name="look", output=(TextBlock(text=said),))
        return Exchange(replace(Msg.assistant(call), id="a"), replace(Msg.tool(result), id="b")).measure(DIGESTS)

    first = exchange(call, "seen")
    assert first == exchange(call, "seen")
    assert first[:16] == exchange(call, "gone")[:16]
    assert first[16:] != exchange(call, "gone")[16:]
    assert first[:16] != exchange(replace(call, input={"p": 2}), "seen")[:16]
