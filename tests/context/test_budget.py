"""How many tokens a request may have: from the model's window, the options and the policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentscope_rx import (
    CategoryBudget,
    ContextBlock,
    ContextPolicy,
    ContextRequest,
    GenerateOptions,
    RuntimeContext,
)
from agentscope_rx.context.counting import counter_for
from agentscope_rx.context.limit import input_limit
from agentscope_rx.context.shares import Shares
from agentscope_rx.draft import RequestDraft, Zone
from agentscope_rx.errors import ContextBudgetExceeded
from agentscope_rx.lifting import chain
from agentscope_rx.operators import evict_optional_blocks
from agentscope_rx.pulling import last
from agentscope_rx.request_tokens import category_tokens, draft_tokens
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.testing import ScriptedModel, a_history, a_step, run_virtual
from tests.context.support import ALICE, CharEstimator, harness, manifests, one_manifest, scripted
from tests.support import watch

COUNTER = counter_for(CharEstimator(), "any")

#: Window, what the request asks for, the policy's numbers, and the limit, output and margin that come of them.
FORMULAS: list[tuple[int | None, dict[str, int], dict[str, int], tuple[int, int, int]]] = [
    (128_000, {}, {}, (121_344, 4_096, 2_560)),
    (8_000, {}, {}, (6_840, 1_000, 160)),
    (32_768, {}, {}, (32_768 - 4_096 - 655, 4_096, 655)),
    (1_000_000, {}, {}, (1_000_000 - 4_096 - 20_000, 4_096, 20_000)),
    (None, {}, {}, (64_000, 4_096, 1_024)),
    (7, {}, {}, (5, 1, 1)),
    (128_000, {}, {"max_input_tokens": 24_000, "reserved_output_tokens": 4_096, "safety_margin_tokens": 1_024},
     (24_000, 4_096, 1_024)),
    (None, {}, {"max_input_tokens": 24_000}, (24_000, 4_096, 1_024)),
    (None, {}, {"max_input_tokens": 100_000}, (64_000, 4_096, 1_024)),
    (8_000, {}, {"max_input_tokens": 100_000}, (6_840, 1_000, 160)),
    (128_000, {}, {"reserved_output_tokens": 10_000}, (128_000 - 10_000 - 2_560, 10_000, 2_560)),
    (128_000, {}, {"safety_margin_tokens": 1}, (128_000 - 4_096 - 1, 4_096, 1)),
    (128_000, {"max_tokens": 8_000}, {}, (128_000 - 8_000 - 2_560, 8_000, 2_560)),
    (128_000, {"max_completion_tokens": 9_000}, {}, (128_000 - 9_000 - 2_560, 9_000, 2_560)),
    (128_000, {"max_tokens": 8_000, "max_completion_tokens": 9_000}, {}, (128_000 - 9_000 - 2_560, 9_000, 2_560)),
    (128_000, {"max_tokens": 10}, {}, (121_344, 4_096, 2_560)),
    (128_000, {"max_tokens": 8_000}, {"reserved_output_tokens": 10_000}, (128_000 - 10_000 - 2_560, 10_000, 2_560)),
    (None, {"max_tokens": 8_000}, {}, (64_000, 8_000, 1_024)),
]  # fmt: skip


@pytest.mark.parametrize(("window", "options", "policy", "expected"), FORMULAS)
async def test_the_limit_of_a_request(
    window: int | None, options: dict[str, int], policy: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """The formulas with their examples; the manifest of a real call says the same."""
    asked = max(options.values(), default=0)
    limit = input_limit(window, asked, ContextPolicy(**policy))  # type: ignore[arg-type]
    assert (limit.limit, limit.output, limit.margin) == expected
    given_options: dict[str, Any] = {
        "generate_options": GenerateOptions(**options),  # type: ignore[arg-type]
        "context_policy": ContextPolicy(**policy),  # type: ignore[arg-type]
        "workspace_context": False,
    }
    agent = scripted(window=window, **given_options).build()
    prepared = await agent.prepare("x")
    manifest = prepared.manifest
    assert (manifest.input_limit, manifest.window) == (expected[0], window)
    assert manifest.window_origin == ("unknown" if window is None else "given")
    assert (prepared.error is None) == (manifest.estimated_input_tokens <= expected[0])


@given(st.none() | st.integers(1, 300_000), st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_no_limit_leaves_the_answer_without_room(window: int | None, asked: int, reserved: int, most: int) -> None:
    """Invariant: input, answer and margin never add up to more than the window, and the limit is never negative."""
    policy = ContextPolicy(reserved_output_tokens=reserved, max_input_tokens=most)
    limit = input_limit(window, asked, policy)
    assert limit.limit >= 0
    assert limit.output >= max(asked, reserved)
    if most:
        assert limit.limit <= most
    if window is not None and limit.limit:
        assert limit.limit + limit.output + limit.margin <= window


@pytest.mark.parametrize(("window", "options", "policy", "expected"), [row for row in FORMULAS if row[3][0] > 6])
async def test_the_limit_is_what_reaches_the_provider_and_no_token_more(
    window: int | None, options: dict[str, int], policy: dict[str, int], expected: tuple[int, int, int]
) -> None:
    """A request of exactly so many tokens is sent, whole; with one more it is refused."""
    limit = expected[0]
    fits = "x" * (limit - 6)  # the frame of the message, and the start of the answer
    given_options: dict[str, Any] = {
        "generate_options": GenerateOptions(**options),  # type: ignore[arg-type]
        "context_policy": ContextPolicy(estimator=CharEstimator(), **policy),  # type: ignore[arg-type]
        "workspace_context": False,
    }
    async with harness(window=window, **given_options) as (agent, provider):
        manifest = await one_manifest(agent, fits)
        assert manifest.estimated_input_tokens == manifest.input_limit == limit
        assert provider.requests[0].messages == [{"role": "user", "content": fits}]
        refused = await watch(agent, f"{fits}x", RuntimeContext(session_id="other"))
        assert isinstance(refused.error, ContextBudgetExceeded)
        assert (refused.error.estimated, refused.error.limit) == (limit + 1, limit)
    assert len(provider.requests) == 1


async def test_the_request_carries_the_output_that_was_reserved() -> None:
    """max_tokens goes out as it was asked for, and the limit is lower by it."""
    options = GenerateOptions(max_tokens=6_000)
    async with harness(window=16_000, generate_options=options) as (agent, provider):
        manifest = await one_manifest(agent)
    assert provider.requests[0].body["max_tokens"] == 6_000
    assert manifest.input_limit == 16_000 - 6_000 - 320


async def test_fixed_text_schemas_and_conversation_share_one_estimator() -> None:
    """What the policy's estimator counts is all there is: the method is its own, and so is every number."""
    policy = ContextPolicy(estimator=CharEstimator())
    async with harness(context_policy=policy, workspace_context=False, sys_prompt="x" * 100) as (agent, provider):
        manifest = await one_manifest(agent, "y" * 50)
    assert (manifest.counting_method, manifest.exact) == ("characters", True)
    tokens = {item.id: item.tokens for item in manifest.items}
    assert tokens["system_prompt"] == 100
    assert sum(item.tokens for item in manifest.items if item.kind == "message") == 50 + 3
    assert manifest.estimated_input_tokens == 100 + 53 + 3 + 3  # two frames, and the start of the answer
    assert provider.requests[0].messages[0]["content"] == "x" * 100


# -- categories ---------------------------------------------------------------------------------------------

ZONES: tuple[Zone, ...] = ("system", "tools", "conversation", "transient", "references")


def block(zone: str, at: int, size: int, *, required: bool = False) -> ContextBlock:
    make = ContextBlock.runtime if zone == "transient" else ContextBlock.reference
    return make(f"{zone}{at}", "x" * size, required=required)


def evicted(draft: RequestDraft, policy: ContextPolicy) -> Step:
    """A step after eviction, where a token is a character."""
    card = ModelCard.of(ScriptedModel([]), COUNTER)
    return run_virtual(lambda: last(chain((evict_optional_blocks(policy=policy),), a_step(draft=draft, card=card))))


BUDGETS = st.dictionaries(
    st.sampled_from(ZONES),
    st.tuples(st.integers(0, 10), st.integers(1, 10)).map(
        lambda both: CategoryBudget(floor=min(both) / 50, ceiling=both[1] / 10)
    ),
    max_size=5,
)


@given(
    sizes=st.lists(
        st.tuples(st.sampled_from(["transient", "references"]), st.integers(1, 400), st.booleans()), max_size=8
    ),
    said=st.integers(0, 600),
    budgets=BUDGETS,
    limit=st.integers(500, 3_000),
)
@example(sizes=[("references", 400, False)] * 3, said=0, budgets={"references": CategoryBudget(floor=0.2)}, limit=500)
def test_categories_keep_to_their_shares(
    sizes: list[tuple[str, int, bool]], said: int, budgets: dict[Zone, CategoryBudget], limit: int
) -> None:
    """Invariants: nothing optional stays above a category's room, nothing leaves a category that is at its floor,
    what is free is borrowed, and nothing goes without need.
    """
    blocks = [block(zone, at, size, required=required) for at, (zone, size, required) in enumerate(sizes)]
    draft = RequestDraft(
        conversation=a_history(["x" * said] if said else []),
        transient=tuple(each for each in blocks if each.kind == "runtime"),
        references=tuple(each for each in blocks if each.kind == "reference"),
    )
    policy = ContextPolicy(max_input_tokens=limit, category_budgets=budgets, estimator=CharEstimator())
    shares = Shares(limit=limit, budgets=budgets)
    after = evicted(draft, policy).draft
    before, used = category_tokens(draft, COUNTER), category_tokens(after, COUNTER)
    gone = {each.id for each in blocks} - {each.id for each in (*after.transient, *after.references)}
    assert not any(each.required for each in blocks if each.id in gone)
    zones: tuple[tuple[Zone, tuple[ContextBlock, ...]], ...] = (
        ("transient", after.transient),
        ("references", after.references),
    )
    for zone, kept in zones:
        optional = [each for each in kept if not each.required]
        # Up to its ceiling, and not into what is kept free for others; only what must stay may be above.
        assert not optional or used[zone] <= max(shares.room(zone), shares.floor(zone))
        # At the floor nobody is asked for more; the last block that went may have reached below it.
        lost = [COUNTER.block(each) for each in blocks if each.id in gone and each.id.startswith(zone)]
        frame = before[zone] and not kept and 200
        assert not lost or used[zone] + max(lost) + frame > shares.floor(zone)
        # What goes has a reason: the category was above its room, or all together above the limit.
        if lost:
            assert before[zone] > shares.room(zone) or shares.held(before) > limit
    if shares.held(before) <= limit and all(before[zone] <= shares.room(zone) for zone in ("transient", "references")):
        assert after is draft
    fits = shares.held(used) <= limit
    stuck = all(used[zone] <= shares.floor(zone) or all(each.required for each in kept) for zone, kept in zones)
    assert fits or stuck


def test_what_others_leave_is_borrowed() -> None:
    """Without need a category may have more than its floor, up to its ceiling and no further."""
    draft = RequestDraft(
        conversation=a_history(["q"]), references=tuple(block("references", at, 100) for at in range(4))
    )
    whole = category_tokens(draft, COUNTER)["references"]
    borrowing = {"references": CategoryBudget(floor=0.1, ceiling=0.9)}
    policy = ContextPolicy(max_input_tokens=2 * whole, category_budgets=borrowing)  # type: ignore[arg-type]
    assert len(evicted(draft, policy).draft.references) == 4
    narrow = {"references": CategoryBudget(floor=0.1, ceiling=0.25)}
    after = evicted(draft, ContextPolicy(max_input_tokens=2 * whole, category_budgets=narrow))  # type: ignore[arg-type]
    assert len(after.draft.references) == 2
    assert {change.reason for change in after.changes} == {"over_category_budget:references"}


def test_what_is_kept_free_is_not_borrowed() -> None:
    """References do not grow into the conversation's floor, though the conversation is short."""
    draft = RequestDraft(
        conversation=a_history(["q"]), references=tuple(block("references", at, 100) for at in range(4))
    )
    whole = category_tokens(draft, COUNTER)["references"]
    floors = {"conversation": CategoryBudget(floor=0.75)}
    after = evicted(draft, ContextPolicy(max_input_tokens=2 * whole, category_budgets=floors))  # type: ignore[arg-type]
    used = category_tokens(after.draft, COUNTER)
    assert used["references"] <= whole / 2
    assert draft_tokens(after.draft, COUNTER) < whole


def test_a_floor_protects_what_is_below_it() -> None:
    """A long conversation does not push references below their floor; it is the conversation that has to shrink."""
    references = tuple(block("references", at, 100) for at in range(2))
    draft = RequestDraft(conversation=a_history(["x" * 2_000]), references=references)
    used = category_tokens(draft, COUNTER)["references"]
    limit = 2_000
    unprotected = evicted(draft, ContextPolicy(max_input_tokens=limit))
    assert unprotected.draft.references == ()
    floors = {"references": CategoryBudget(floor=(used + 1) / limit)}
    protected = evicted(draft, ContextPolicy(max_input_tokens=limit, category_budgets=floors))  # type: ignore[arg-type]
    assert protected.draft.references == references


async def many(request: ContextRequest) -> list[ContextBlock]:
    return [ContextBlock.reference(f"r{at}", "word " * 50) for at in range(10)]


async def test_category_budgets_reach_the_provider() -> None:
    """The blocks that went are not in the body, and the manifest says for which category."""
    budgets = {"references": CategoryBudget(ceiling=0.05)}
    policy = ContextPolicy(max_input_tokens=10_000, category_budgets=budgets)  # type: ignore[arg-type]
    async with harness(context_policy=policy, context_sources={"s": many}) as (agent, provider):
        manifest = await one_manifest(agent)
    assert manifest.categories["references"] <= 500
    shown = sum(f'source="source/s/r{at}"' in provider.requests[0].raw.decode().replace('\\"', '"') for at in range(10))
    assert 0 < shown < 10
    assert manifest.transforms == ("over_category_budget:references",)


@pytest.mark.parametrize("category", ["system", "conversation", "references"])
async def test_what_cannot_be_made_smaller_keeps_to_its_ceiling_or_fails(category: Any) -> None:
    """A ceiling that is not kept is told, with the largest items of that category; nothing is sent."""

    async def required(request: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.reference("big", "word " * 500, required=True)]

    policy = ContextPolicy(max_input_tokens=10_000, category_budgets={category: CategoryBudget(ceiling=0.02)})
    options: dict[str, Any] = {"sys_prompt": "word " * 500, "context_sources": {"s": required}}
    async with harness(context_policy=policy, **options) as (agent, provider):
        seen = await watch(agent, "word " * 500, ALICE)
    assert isinstance(seen.error, ContextBudgetExceeded)
    assert seen.error.limit == 200
    names = {"system": "system_prompt", "conversation": "message ", "references": "source/s/big"}
    assert seen.error.largest[0][0].startswith(names[category])
    assert any(f"category {category!r}" in note for note in seen.error.__notes__)
    assert manifests(seen)[0].validation == "budget_exceeded"
    assert provider.requests == []
