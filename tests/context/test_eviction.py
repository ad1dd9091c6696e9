"""What is left out when a request is too large, in which order, and who says so."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx import ContextBlock, ContextPolicy, ContextRequest, InMemoryWorkspace
from agentscope_rx.context.counting import counter_for
from agentscope_rx.context.policy import memory_knowledge_rest
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ContextBudgetExceeded, InvalidOption
from agentscope_rx.history import History
from agentscope_rx.lifting import chain
from agentscope_rx.operators import evict_optional_blocks
from agentscope_rx.pulling import last
from agentscope_rx.request_tokens import draft_tokens
from agentscope_rx.requests import ToolSpec
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.testing import ScriptedModel, a_history, a_step, check_operator, run_virtual
from tests.context.support import ALICE, CharEstimator, builds, data_of, harness, manifests, scripted
from tests.support import watch
from tests.virtual import virtual

COUNTER = counter_for(CharEstimator(), "any")
CARD = ModelCard.of(ScriptedModel([]), COUNTER)
FILES = {"MEMORY.md": "memory " * 60, "knowledge/KNOWLEDGE.md": "knowledge " * 40}


async def sources(request: ContextRequest) -> list[ContextBlock]:
    """Optional blocks of both kinds, and one that must stay."""
    return [
        ContextBlock.reference("must", "required " * 40, required=True),
        ContextBlock.reference("b", "words " * 50),
        ContextBlock.reference("a", "words " * 50),
        ContextBlock.runtime("late", "words " * 50, priority=5),
        ContextBlock.runtime("early", "words " * 50, priority=-5),
    ]


#: All that may go, in the order in which it goes.
ORDER = [
    "workspace:MEMORY.md",
    "workspace:knowledge",
    "source/s/early",
    "source/s/a",
    "source/s/b",
    "source/s/late",
]


def before(limit: int = 0, **options: Any) -> dict[str, Any]:
    policy = ContextPolicy(max_input_tokens=limit)
    return {
        "workspace": InMemoryWorkspace(FILES),
        "context_sources": {"s": sources},
        "context_policy": policy,
        **options,
    }


async def whole() -> int:
    """What the request has before anything goes."""
    prepared = await scripted(**before()).build().prepare("go", ALICE)
    return prepared.manifest.estimated_input_tokens


# -- order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(len(ORDER) + 1))
async def test_blocks_go_one_by_one_in_order(count: int) -> None:
    """Memory, knowledge, then the rest by priority and id: exactly as many as must, and the body is without them."""
    total = await whole()
    prepared = await scripted(**before()).build().prepare("go", ALICE)
    sizes = {item.id: item.tokens for item in prepared.manifest.items}
    limit = total - sum(sizes[id] for id in ORDER[:count])
    async with harness(**before(limit)) as (agent, provider):
        seen = await watch(agent, "go", ALICE)
    assert seen.error is None
    (manifest,) = manifests(seen)
    assert list(manifest.transforms) == [f"omitted_for_budget:{id}" for id in ORDER[:count]]
    assert manifest.estimated_input_tokens <= limit
    body = provider.requests[0].raw.decode().replace('\\"', '"')
    assert [id for id in ORDER if f'source="{id}"' in body] == [id for id in ORDER if id in ORDER[count:]]
    assert 'source="source/s/must"' in body


async def test_one_token_too_many_costs_one_block() -> None:
    """The limit is what may not be passed: at it everything stays, one below it the first block goes."""
    total = await whole()
    at_limit = await scripted(**before(total)).build().prepare("go", ALICE)
    assert at_limit.manifest.transforms == ()
    below = await scripted(**before(total - 1)).build().prepare("go", ALICE)
    assert below.manifest.transforms == (f"omitted_for_budget:{ORDER[0]}",)


async def test_what_must_stay_is_not_left_out() -> None:
    """Without any optional block the request is refused, and everything that could go has gone."""
    async with harness(**before(200)) as (agent, provider):
        seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, ContextBudgetExceeded)
    assert provider.requests == []
    (manifest,) = manifests(seen)
    assert manifest.validation == "budget_exceeded"
    assert list(manifest.transforms) == [f"omitted_for_budget:{id}" for id in ORDER]
    assert manifest.estimated_input_tokens == seen.error.estimated > seen.error.limit == 200


async def test_what_went_is_told_with_its_tokens() -> None:
    """Items and what was left out add up to what the request had before."""
    total = await whole()
    async with harness(**before(total - 150)) as (agent, _):
        seen = await watch(agent, "go", ALICE)
    data = data_of(manifests(seen)[0])
    gone = [change for change in data["changes"] if change["action"] == "dropped"]
    assert [change["operator"] for change in gone] == ["evict_optional_blocks"] * len(gone)
    assert [change["zone"] for change in gone] == ["references"] * len(gone)
    assert sum(change["tokensBefore"] for change in gone) + data["estimatedInputTokens"] == total


# -- the policy ---------------------------------------------------------------------------------------------


async def test_a_policy_of_ones_own_decides() -> None:
    """It sees the optional blocks, and what it does not name stays."""
    seen_blocks: list[str] = []

    def newest_first(optional: Sequence[ContextBlock]) -> Sequence[str]:
        seen_blocks.extend(block.id for block in optional)
        return ["source/s/b", "source/s/late"]

    total = await whole()
    async with harness(**before(total - 1, context_selection_policy=newest_first)) as (agent, _):
        seen = await watch(agent, "go", ALICE)
    assert sorted(seen_blocks) == sorted(ORDER)
    assert manifests(seen)[0].transforms == ("omitted_for_budget:source/s/b",)
    async with harness(**before(100, context_selection_policy=newest_first)) as (agent, _):
        seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, ContextBudgetExceeded)
    assert list(manifests(seen)[0].transforms) == ["omitted_for_budget:source/s/b", "omitted_for_budget:source/s/late"]


WRONG: dict[str, tuple[list[Any], str]] = {
    "what is not there": (["source/s/c"], "names 'source/s/c', which is no optional block"),
    "what must stay": (["source/s/must"], "names 'source/s/must', which is no optional block"),
    "the System zone": (["workspace:AGENTS.md"], "which is no optional block"),
    "a block twice": (["source/s/a", "source/s/a"], "names a block twice"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("limit", [0, 300])
async def test_a_policy_is_checked_even_where_nothing_has_to_go(case: str, limit: int) -> None:
    """What it names must be there, optional, no System text, and unique; else the request is refused."""
    ids, words = WRONG[case]
    async with harness(**before(limit, context_selection_policy=lambda _: ids)) as (agent, provider):  # pyright: ignore[reportUnknownLambdaType]
        seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, InvalidOption)
    assert seen.error.option == "context_selection_policy"
    assert words in str(seen.error)
    assert [manifest.validation for manifest in manifests(seen)] == ["build_failed"]
    assert manifests(seen)[0].failed_in == "evict_optional_blocks"
    assert provider.requests == []


async def test_a_policy_that_raises_fails_the_request() -> None:
    """With its own class, once."""

    def broken(optional: Sequence[ContextBlock]) -> Sequence[str]:
        raise LookupError("no order")

    async with harness(**before(context_selection_policy=broken)) as (agent, provider):
        seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, LookupError)
    assert len(builds(seen)) == 1
    assert provider.requests == []


KINDS = st.sampled_from(["memory", "knowledge", "additional", "runtime", "reference"])


@given(st.lists(st.tuples(KINDS, st.integers(-3, 3)), max_size=12))
def test_the_default_order(blocks: list[tuple[str, int]]) -> None:
    """Invariant: memory before knowledge before the rest, each by priority and then id, whatever the order given."""
    optional = [
        ContextBlock(id=f"b{at}", text="x", kind=kind, priority=priority) for at, (kind, priority) in enumerate(blocks)
    ]
    order = memory_knowledge_rest(optional)
    rank = {"memory": 0, "knowledge": 1}
    keys = {block.id: (rank.get(block.kind, 2), block.priority, block.id) for block in optional}
    assert [keys[id] for id in order] == sorted(keys.values())
    random.Random(0).shuffle(optional)
    assert memory_knowledge_rest(optional) == order


# -- the operator -------------------------------------------------------------------------------------------


def evicted(draft: RequestDraft, limit: int) -> Step:
    policy = ContextPolicy(max_input_tokens=limit)
    return run_virtual(lambda: last(chain((evict_optional_blocks(policy=policy),), a_step(draft=draft, card=CARD))))


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 200), st.integers(-2, 2), st.booleans()), max_size=10),
    st.integers(1, 1_500),
)
def test_nothing_goes_without_need(blocks: list[tuple[str, int, int, bool]], limit: int) -> None:
    """Invariant: what goes is the beginning of the order, as short as it can be; counted anew after each block."""
    made = [
        ContextBlock(id=f"b{at}", text="x" * size, kind=kind, priority=priority, required=required)
        for at, (kind, size, priority, required) in enumerate(blocks)
    ]
    draft = RequestDraft(
        conversation=a_history(["q"]),
        transient=tuple(block for block in made if block.kind == "runtime"),
        references=tuple(block for block in made if block.kind != "runtime"),
    )
    after = evicted(draft, limit).draft
    order = [
        id
        for id in memory_knowledge_rest([block for block in made if not block.required])
        if not next(block for block in made if block.id == id).blank
    ]
    expected = draft
    for id in order:
        if draft_tokens(expected, COUNTER) <= limit:
            break
        expected = expected.without((id,), reason="test")
    assert {block.id for block in (*after.transient, *after.references) if not block.blank} == {
        block.id for block in (*expected.transient, *expected.references) if not block.blank
    }


def test_a_block_that_is_called_like_a_tool_goes_alone() -> None:
    """Only blocks are left out; a tool of the same name stays on offer."""
    draft = RequestDraft(
        conversation=a_history(["q"]),
        references=(ContextBlock.reference("look", "x" * 500),),
        tools=(ToolSpec(name="look", description="Look.", parameters={}),),
    )
    after = evicted(draft, 300)
    assert after.draft.references == ()
    assert after.draft.tools == draft.tools
    assert [(change.zone, change.item_id, change.reason) for change in after.changes] == [
        ("references", "look", "omitted_for_budget:look")
    ]


def test_a_thousand_blocks_go_in_one_pass() -> None:
    """A step with many sources costs no more counting than it has blocks, whatever has to go."""
    counted: list[int] = []

    class Counting(CharEstimator):
        method = "counting"

        def count(self, text: str, /) -> int:
            counted.append(1)
            return len(text)

    card = ModelCard.of(ScriptedModel([]), counter_for(Counting(), "any"))
    blocks = tuple(ContextBlock.reference(f"b{at}", f"text {at}") for at in range(1_000))
    step = a_step(draft=RequestDraft(conversation=a_history(["q"]), references=blocks), card=card)
    operator = evict_optional_blocks(policy=ContextPolicy(max_input_tokens=200))
    after = run_virtual(lambda: last(chain((operator,), step)))
    assert len(after.draft.references) == 1
    assert len(after.changes) == 999
    assert len(counted) <= 1_000 + 20


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator, where nothing has to go and where something has."""

    def over(history: History) -> Step:
        blocks = tuple(ContextBlock.reference(f"b{at}", "x" * 50) for at in range(9))
        card = ModelCard.of(ScriptedModel([]), COUNTER)
        return a_step(history=history, draft=RequestDraft(conversation=history, references=blocks), card=card)

    def broken(optional: Sequence[ContextBlock]) -> Sequence[str]:
        raise LookupError("no order")

    for limit in (10_000_000, 400):
        policy = ContextPolicy(max_input_tokens=limit)
        await check_operator(
            lambda policy=policy: evict_optional_blocks(policy=policy),
            step=over,
            failing=lambda policy=policy: evict_optional_blocks(policy=policy, selection=broken),
        )
