"""A request that cannot be sent: one account of it, the right error, nothing asked, nothing changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx import (
    CategoryBudget,
    ContextBlock,
    ContextPolicy,
    ContextRequest,
    GenerateOptions,
    InMemoryStore,
    Pipeline,
    RuntimeContext,
)
from agentscope_rx.context.counting import counter_for
from agentscope_rx.errors import (
    ContextBudgetExceeded,
    ContextError,
    EditRefused,
    HistoryConflict,
    InvalidToolPairs,
    RetryRefused,
    SourceFailed,
    StateConflict,
    StepLost,
)
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.history import History
from agentscope_rx.lifting import Attempt
from agentscope_rx.messages import Msg, Role, ToolUseBlock
from agentscope_rx.operators import (
    RequestDraft,
    Step,
    effect_operator,
    history_operator,
    text_operator,
    validate_request,
    view_operator,
)
from agentscope_rx.records import InputAccepted, ResultsRecorded
from agentscope_rx.step import ModelCard
from agentscope_rx.testing import ScriptedModel, a_step, calls, check_operator
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tools import tool
from tests.context.support import ALICE, builder_before, builds, data_of, harness, manifests, model_of, scripted
from tests.support import watch
from tests.virtual import virtual

# -- what goes wrong in preparation -------------------------------------------------------------------------


async def fails(request: ContextRequest) -> list[ContextBlock]:
    raise LookupError("no such change")


async def no_list(request: ContextRequest) -> Any:
    return {"a": "b"}


async def too_large(request: ContextRequest) -> list[ContextBlock]:
    return [ContextBlock.reference("big", "words " * 5_000, required=True)]


@effect_operator
def switches_tools(step: Step) -> Step:
    step.run.record(ResultsRecorded((), activated_groups=("web",)))
    return step


@effect_operator
async def says_something(step: Step) -> Step:
    await asyncio.sleep(0)
    step.run.record(InputAccepted((replace(Msg.user("meanwhile"), id="meanwhile"),)))
    return step


@view_operator
def raises(draft: RequestDraft, step: Step) -> RequestDraft:
    raise KeyError("mine")


@view_operator
async def raises_later(draft: RequestDraft, step: Step) -> RequestDraft:
    await asyncio.sleep(0)
    raise KeyError("mine")


@text_operator
def cannot_read(text: str) -> str:
    raise UnicodeError("mine")


@history_operator
def adds(history: History, step: Step) -> History:
    return history.append(Msg.user("invented"))


@view_operator
def leaves_a_call_open(draft: RequestDraft, step: Step) -> RequestDraft:
    asking = replace(Msg.assistant(ToolUseBlock(id="c9", name="look")), id="asking")
    return replace(draft, conversation=draft.conversation.append(asking))


@view_operator
def names_twice(draft: RequestDraft, step: Step) -> RequestDraft:
    return draft.add_reference(ContextBlock.reference("x", "a")).add_reference(ContextBlock.reference("x", "b"))


@view_operator
def gives_nothing(draft: RequestDraft, step: Step) -> Any:
    return None


@effect_operator
async def hangs(step: Step) -> Step:
    await asyncio.Event().wait()
    return step


def no_prompt(context: RuntimeContext) -> str:
    raise IndexError("mine")


def guarded_by(guard: Any) -> Callable[[HarnessBuilder], HarnessBuilder]:
    return lambda builder: builder.pipeline(lambda default: default.guard("prepare", guard))


def lets_none(attempt: Attempt) -> Attempt:
    return lambda step: reactivex.empty()


def lets_two(attempt: Attempt) -> Attempt:
    return lambda step: attempt(step).pipe(ops.flat_map(lambda each: reactivex.of(each, each)))


def refuses(attempt: Attempt) -> Attempt:
    def refused(step: Step) -> Observable[Step]:
        raise PermissionError("mine")

    return refused


def divided(step: Step) -> Step:
    raise ZeroDivisionError("mine")


def none_through(source: Observable[Step]) -> Observable[Step]:
    return source.pipe(ops.filter(lambda _: False))


def twice(source: Observable[Step]) -> Observable[Step]:
    return source.pipe(ops.flat_map(lambda step: reactivex.of(step, step)))


def before_validation(operator: Any, **options: Any) -> Callable[[HarnessBuilder], HarnessBuilder]:
    def arrange(default: Pipeline) -> Pipeline:
        return default.insert_before("validate_request", operator, **options)

    return lambda builder: builder.pipeline(arrange)


def around(name: str, operator: Any) -> Callable[[HarnessBuilder], HarnessBuilder]:
    return lambda builder: builder.context_source("slow", never, timeout=100).pipeline(
        lambda default: default.around(name, operator)
    )


async def never(request: ContextRequest) -> list[ContextBlock]:
    await asyncio.Event().wait()
    return []


def limited(builder: HarnessBuilder) -> HarnessBuilder:
    return builder.context_policy(ContextPolicy(max_input_tokens=2_000))


Arrange = Callable[[HarnessBuilder], HarnessBuilder]
#: What is arranged, and then: the error's class, `validation`, the error's code, the operator it failed in.
FAILURES: dict[str, tuple[Arrange, type[Exception], str, str, str]] = {
    "a failed source": (
        lambda b: b.context_source("s", fails),
        SourceFailed, "build_failed", "source_failed", "load_sources",
    ),
    "a source that is too slow": (
        lambda b: b.context_source("s", never, timeout=0.01),
        SourceFailed, "build_failed", "source_failed", "load_sources",
    ),
    "a structural error": (
        lambda b: b.context_source("s", no_list),
        SourceFailed, "build_failed", "source_failed", "load_sources",
    ),
    "a required block that is too large": (
        lambda b: limited(b).context_source("s", too_large),
        ContextBudgetExceeded, "budget_exceeded", "context_budget_exceeded", "validate_request",
    ),
    "fixed text that is too large": (
        lambda b: limited(b).sys_prompt("rule " * 5_000),
        ContextBudgetExceeded, "budget_exceeded", "context_budget_exceeded", "validate_request",
    ),
    "a state that changes meanwhile": (
        before_validation(switches_tools),
        StateConflict, "state_conflict", "state_conflict", "commit_history",
    ),
    "a history that changes meanwhile": (
        before_validation(says_something),
        HistoryConflict, "history_conflict", "history_conflict", "commit_history",
    ),
    "a tool call that is left open": (
        before_validation(leaves_a_call_open),
        InvalidToolPairs, "invalid_tool_pairs", "invalid_tool_pairs", "validate_request",
    ),
    "an id that two blocks have": (
        before_validation(names_twice),
        ContextError, "build_failed", "context_error", "validate_request",
    ),
    "an edit that is none": (
        before_validation(adds),
        EditRefused, "build_failed", "edit_refused", "adds",
    ),
    "an exception in a view operator": (
        before_validation(raises),
        KeyError, "build_failed", "build_failed", "raises",
    ),
    "an exception in an async operator": (
        before_validation(raises_later),
        KeyError, "build_failed", "build_failed", "raises_later",
    ),
    "an exception in a text operator": (
        before_validation(cannot_read),
        UnicodeError, "build_failed", "build_failed", "cannot_read",
    ),
    "an operator that gives no draft": (
        before_validation(gives_nothing),
        TypeError, "build_failed", "build_failed", "gives_nothing",
    ),
    "an exception in a bare Rx operator": (
        before_validation(ops.map(divided)),
        ZeroDivisionError, "build_failed", "build_failed", "rx.map",
    ),
    "a bare Rx operator that lets nothing through": (
        before_validation(none_through, name="rx.none"),
        StepLost, "build_failed", "step_lost", "rx.none",
    ),
    "a bare Rx operator that lets two through": (
        before_validation(twice, name="rx.twice"),
        StepLost, "build_failed", "step_lost", "commit_history",  # so far the first of the two had come
    ),
    "a bare time-out in the stream": (
        lambda b: before_validation(ops.timeout(0.01))(before_validation(hangs)(b)),
        TimeoutError, "build_failed", "build_failed", "hangs",
    ),
    "a bare time-out around an operator": (
        around("load_sources", ops.timeout(0.01)),
        TimeoutError, "build_failed", "build_failed", "load_sources",
    ),
    "a bare time-out around all of preparation": (
        around("prepare", ops.timeout(0.01)),
        TimeoutError, "build_failed", "build_failed", "load_sources",
    ),
    "a bare time-out around the whole request": (
        around("request", ops.timeout(0.01)),
        TimeoutError, "build_failed", "preparation_left", "load_sources",
    ),
    "a guard that raises": (
        guarded_by(refuses),
        PermissionError, "build_failed", "build_failed", "prepare",
    ),
    "a guard that lets nothing through": (
        guarded_by(lets_none),
        StepLost, "build_failed", "step_lost", "prepare",
    ),
    "a guard that lets two through": (
        guarded_by(lets_two),
        StepLost, "build_failed", "step_lost", "commit_history",
    ),
    "a prompt function that fails": (
        lambda b: b.sys_prompt(no_prompt),
        IndexError, "build_failed", "build_failed", "assemble_request",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failed_preparation(case: str) -> None:
    """Exactly one `context_build` with the fitting validation, then the error itself; nothing is sent and nothing is
    committed; the session takes the next call.
    """
    arrange, kind, validation, code, failed_in = FAILURES[case]
    store = InMemoryStore()
    async with FakeProvider([fake.text("one"), fake.text("two")]) as provider:
        plain = builder_before(provider, state_store=store)
        await plain.call("first", ALICE)
        seen = await watch(arrange(plain).build(), "second", ALICE)
        assert type(seen.error) is kind, seen.error
        (event,), (manifest,) = builds(seen), manifests(seen)
        told = "PreparationLeft" if code == "preparation_left" else kind.__name__
        assert (event.value["status"], event.value["error_type"], event.value["purpose"]) == (
            "failed",
            told,
            "REASONING",
        )
        assert event.value["model_call_id"] == manifest.call_id
        data = data_of(manifest)
        assert (data["validation"], data["errorCode"], data["failedIn"]) == (validation, code, failed_in)
        assert seen.types[-2:] == ["CUSTOM", "AGENT_END"]
        assert "MODEL_CALL_START" not in seen.types
        assert "AGENT_RESULT" not in seen.types
        assert len(provider.requests) == 1
        said = [message.text for message in (await plain.build().state(ALICE)).context.messages]
        assert [text for text in said if text != "meanwhile"] == ["first", "one", "second"]
        await plain.call("third", ALICE)
    assert len(provider.requests) == 2
    assert provider.refusals == []


async def test_an_interrupted_preparation_has_its_account_before_the_result() -> None:
    """Whoever watches learns how far the request had come; then the run ends as every interrupted one does."""
    loading = asyncio.Event()

    async def source(request: ContextRequest) -> list[ContextBlock]:
        loading.set()
        await asyncio.Event().wait()
        return []

    agent = scripted().context_source("slow", source, timeout=100).build()
    watching = asyncio.create_task(watch(agent, "go", ALICE))
    await loading.wait()
    agent.interrupt(ALICE)
    seen = await watching
    (event,), (manifest,) = builds(seen), manifests(seen)
    assert (event.value["status"], event.value["error_type"]) == ("failed", "PreparationLeft")
    assert data_of(manifest)["failedIn"] == "load_sources"
    after = seen.types[seen.types.index("CUSTOM") + 1 :]
    assert after == ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "AGENT_RESULT", "AGENT_END"]


@pytest.mark.parametrize("case", ["an exception in a view operator", "an exception in a bare Rx operator"])
@virtual
async def test_a_foreign_exception_says_where_it_was(case: str) -> None:
    """It keeps its class, and gets a note with the operator's name."""
    arrange, _, _, _, failed_in = FAILURES[case]
    seen = await watch(arrange(scripted()).build(), "go", ALICE)
    assert seen.error is not None
    assert any(failed_in in note for note in seen.error.__notes__)


@virtual
async def test_the_manifest_of_a_failure_goes_as_far_as_the_request_came() -> None:
    """What was loaded and left out before the failure is there, with the times; no total is made up."""

    async def source(request: ContextRequest) -> list[ContextBlock]:
        await asyncio.sleep(2)
        return [ContextBlock.reference("x", "words of the source")]

    seen = await watch(before_validation(raises)(scripted(context_sources={"s": source})).build(), "go", ALICE)
    (manifest,) = manifests(seen)
    assert "source/s/x" in [item.id for item in manifest.items]
    names = [name for name, _ in manifest.timings]
    assert names[:7] == [
        "begin_request",
        "load_materials",
        "load_sources",
        "attach_files",
        "assemble_request",
        "offload_tool_results",
        "evict_optional_blocks",
    ]
    assert names[-1] == "offload_to_fit"
    assert dict(manifest.timings)["load_sources"] == 2.0
    assert manifest.estimated_input_tokens == sum(item.tokens for item in manifest.items) > 0


@virtual
async def test_an_estimator_that_fails_is_told_as_well() -> None:
    """Then nothing can be counted: -1 and `unavailable`, and the manifest can still be written."""

    class Broken:
        method = "broken"
        exact = False

        def count(self, text: str, /) -> int:
            raise RuntimeError("no count")

    seen = await watch(scripted(context_policy=ContextPolicy(estimator=Broken())).build(), "go", ALICE)
    assert isinstance(seen.error, RuntimeError)
    (manifest,) = manifests(seen)
    data = data_of(manifest)
    assert (data["validation"], data["estimatedInputTokens"], data["countingMethod"], data["exact"]) == (
        "build_failed",
        -1,
        "unavailable",
        False,
    )
    assert (data["items"], data["categories"]) == ([], {})


@tool
def look() -> str:
    """Look."""
    return "seen"


@virtual
async def test_a_failure_at_a_later_step_is_its_own_request() -> None:
    """One account for each step, the last of which says what failed; the steps before it stay in the history."""
    asked: list[int] = []

    async def at_second(request: ContextRequest) -> list[ContextBlock]:
        asked.append(1)
        if len(asked) == 2:
            raise LookupError("gone")
        return []

    agent = scripted(calls(("c1", "look", "{}")), "done", tools=[look], context_sources={"s": at_second}).build()
    seen = await watch(agent, "go", ALICE)
    assert [manifest.validation for manifest in manifests(seen)] == ["passed", "build_failed"]
    assert len({manifest.call_id for manifest in manifests(seen)}) == 2
    assert len(model_of(agent).requests) == 1
    state = await agent.state(ALICE)
    assert [message.role for message in state.context.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]


@virtual
async def test_a_repeated_request_has_an_account_of_its_own() -> None:
    """A stock retry around the request: two accounts with two ids, and a `request_retry` that names the first."""
    agent = (
        scripted(LookupError("no model"), "done")
        .pipeline(lambda default: default.around("request", ops.retry(2)))
        .build()
    )
    seen = await watch(agent, "go", ALICE)
    assert seen.error is None
    first, second = manifests(seen)
    assert first.call_id != second.call_id
    (retry,) = [event for event in seen.events if getattr(event, "name", "") == "request_retry"]
    assert retry.value == {"failed_call_id": first.call_id}  # type: ignore[attr-defined]
    assert second.prefix.first_different == ""
    assert second.prefix.tokens == first.estimated_input_tokens - _framing(first)


def _framing(manifest: Any) -> int:
    return next(item.tokens for item in manifest.items if item.kind == "framing")


@virtual
async def test_a_retry_after_the_tools_is_refused_once() -> None:
    """The account of the refusal is not another one of the request that had passed."""
    agent = (
        scripted(calls(("c1", "look", "{}")), LookupError("no model"), tools=[look])
        .pipeline(
            lambda default: default.insert_after("run_tools", ops.map(divided)).insert_after("rx.map", ops.retry(2))
        )
        .build()
    )
    seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, RetryRefused)
    passed, refused = manifests(seen)
    assert (passed.validation, refused.validation, refused.error_code) == ("passed", "build_failed", "retry_refused")
    assert passed.call_id != refused.call_id


# -- too large ----------------------------------------------------------------------------------------------


async def test_the_error_names_what_is_large_and_what_would_help() -> None:
    """Estimate, limit, the five largest items by size, and ways out; in the text and as data."""
    options: dict[str, Any] = {
        "sys_prompt": "rule " * 700,
        "context_sources": {"s": too_large},
        "context_policy": ContextPolicy(max_input_tokens=3_000),
        "tools": [look],
    }
    async with harness(**options) as (agent, provider):
        seen = await watch(agent, "words " * 900, ALICE)
    error = seen.error
    assert isinstance(error, ContextBudgetExceeded)
    names, sizes = zip(*error.largest, strict=True)
    assert names[0] == "source/s/big"
    assert names[1].startswith("message ")
    assert names[2] == "system_prompt"
    assert len(names) == 5
    assert list(sizes) == sorted(sizes, reverse=True)
    (manifest,) = manifests(seen)
    assert (error.estimated, error.limit) == (manifest.estimated_input_tokens, 3_000)
    assert dict(error.largest)["source/s/big"] == manifest.sources["s"]
    for words in (f"about {error.estimated:,} tokens", "may have 3,000", "source/s/big", "optional", "larger window"):
        assert words in str(error)
    assert provider.requests == []


async def test_many_small_messages_are_named_together() -> None:
    """Where it is the whole conversation that is large, no single message is blamed for it."""
    policy = ContextPolicy(max_input_tokens=2_000)
    async with harness(context_policy=policy, compaction=None) as (agent, _):
        await agent.observe([Msg.user(f"message {at}") for at in range(1_000)], ALICE)
        seen = await watch(agent, "go", ALICE)
    assert isinstance(seen.error, ContextBudgetExceeded)
    assert seen.error.largest[0][0] == "all 1,001 messages"


async def test_an_operator_that_asks_for_too_long_an_answer_is_told_so() -> None:
    """A limit of nothing comes of the answer's reserve: the error says by how much, and nothing is sent."""

    @view_operator
    def greedy(draft: RequestDraft, step: Step) -> RequestDraft:
        return replace(draft, options=GenerateOptions(max_tokens=10_000))

    async with harness(window=8_000) as (_, provider):
        builder = before_validation(greedy)(builder_before(provider, window=8_000))
        seen = await watch(builder.build(), "go", ALICE)
    assert isinstance(seen.error, ContextBudgetExceeded)
    assert seen.error.limit == 0
    assert any("the answer may take 10,000" in note for note in seen.error.__notes__)
    assert provider.requests == []


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator, with a limit that holds and one that does not."""

    def step(history: History) -> Step:
        return a_step(history=history, card=ModelCard.of(ScriptedModel([]), counter_for(None, "any")))

    budgets: dict[Any, CategoryBudget] = {"conversation": CategoryBudget(ceiling=0.9)}
    await check_operator(
        lambda: validate_request(policy=ContextPolicy(max_input_tokens=64_000, category_budgets=budgets)),
        step=step,
        failing=lambda: validate_request(policy=ContextPolicy(max_input_tokens=1)),
        old_messages=2_000,
    )
