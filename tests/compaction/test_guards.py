"""Another model, a request that was refused as too long, and how near requests come to their limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from agentscope_rx import ContextBlock, ContextPolicy, GenerateOptions, HarnessAgent, RuntimeContext
from agentscope_rx.compaction import CompactionConfig
from agentscope_rx.compactions import is_summary
from agentscope_rx.errors import BadRequest, ContextOverflow, OutputCap, ProviderError, ServerFailed
from agentscope_rx.events import AgentEvent, Custom, ModelCallStart
from agentscope_rx.history import History
from agentscope_rx.lifting import history_operator
from agentscope_rx.messages import Msg, Role
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.step import Step
from agentscope_rx.testing import ScriptedModel, calls, text
from agentscope_rx.tools import tool
from agentscope_rx.usage import ChatUsage
from tests.compaction.support import asked, card, ids_of, passed, said, seen, small_operators, step_of, steps, user
from tests.context.support import ALICE, CharEstimator, manifests, model_of, scripted
from tests.support import Seen, watch
from tests.virtual import virtual

POLICY = ContextPolicy(estimator=CharEstimator())
OLD = [
    user("u0"),
    *(m for at in range(8) for m in (asked(f"a{at}", f"c{at}"), seen(f"r{at}", f"c{at}", "x" * 2_000), said(f"b{at}"))),
]


@tool
def look() -> str:
    """Look."""
    return "seen"


def look_calls(count: int, start: int = 0) -> list[Any]:
    """Answers that call the tool."""
    return [calls((f"k{at}", "look", "{}")) for at in range(start, start + count)]


def down() -> ServerFailed:
    """The agent's own model does not answer."""
    return ServerFailed("down", status=500)


class Agent:
    """An agent whose tokens are characters, over a long session, with a model that stands in for its own."""

    def __init__(self, own: Iterable[Any], other: Iterable[Any] = (), *, window: int = 12_000, **options: Any) -> None:
        self.other = ScriptedModel(other, name="other", context_window=window)
        keywords: dict[str, Any] = {
            "context_policy": POLICY, "workspace_context": False, "tools": [look], "window": 1_000_000, **options
        }  # fmt: skip
        builder = scripted(*own, **keywords)
        self.agent: HarnessAgent = builder.fallback_model(self.other).build()

    async def call(self, input: str | None = "go on", history: Iterable[Msg] = OLD) -> Seen:
        if history:
            await self.agent.observe([*history], ALICE)
        return await watch(self.agent, input, ALICE)

    @property
    def own(self) -> ScriptedModel:
        return model_of(self.agent)

    async def stored(self) -> list[str]:
        return ids_of((await self.agent.state(ALICE)).context.messages)

    def summaries(self) -> int:
        """How many requests for notes the other model got."""
        return sum(request.purpose == "summary" for request in self.other.requests)


def told(seen_: Seen | Iterable[AgentEvent], name: str) -> list[dict[str, Any]]:
    events = seen_.events if isinstance(seen_, Seen) else seen_
    return [dict(event.value) for event in events if isinstance(event, Custom) and event.name == name]


# -- fallback -----------------------------------------------------------------------------------------------


@virtual
async def test_another_model_gets_a_request_for_its_own_window() -> None:
    """Prepared anew by its window; it is kept for the rest of the call; the next call asks the agent's own again."""
    the = Agent([down(), "own again"], ["notes", *look_calls(2), "done"])
    seen_ = await the.call()
    assert (seen_.error, seen_.result.text) == (None, "done")
    assert [event.model for event in seen_.of(ModelCallStart)] == ["scripted", "other", "other", "other"]
    (change,) = told(seen_, "model_fallback")
    assert (change["error"], change["from"], change["to"]) == ("server", "scripted", "other")
    assert [(each.model, each.window) for each in manifests(seen_)] == [
        ("scripted", 1_000_000), ("other", 12_000), ("other", 12_000), ("other", 12_000)
    ]  # fmt: skip
    assert all(each.estimated_input_tokens <= 12_000 for each in manifests(seen_)[1:])
    assert (await the.call("again", ())).result.text == "own again"


@virtual
async def test_what_was_shortened_only_for_its_window_is_not_kept() -> None:
    """Neither the compaction nor the pruning; what it answered is. The agent's own model sees all of it again."""
    the = Agent([down(), "own again"], ["notes", *look_calls(1), "done"])
    await the.agent.observe(OLD, ALICE)
    before = list((await the.agent.state(ALICE)).context.messages)
    await the.call("go on", ())
    state = await the.agent.state(ALICE)
    stored = list(state.context.messages)
    assert stored[: len(before)] == before
    assert len(stored) == len(before) + 1 + 2 + 1
    assert (state.compactions, state.compaction.cooldown_until) == ((), 0)
    assert any(is_summary(message) for message in the.other.requests[-1].messages)
    await watch(the.agent, "again", ALICE)
    assert list(the.own.requests[-1].conversation.messages)[: len(before)] == before


@history_operator
def without_answers(history: History, step: Step) -> History:
    return history.without(frozenset(each.id for each in history if each.id.startswith("b")))


@virtual
async def test_only_what_the_window_does_not_ask_for_is_kept_of_a_stand_in() -> None:
    """Pruned, truncated, compacted, offloaded to fit: only shown. What is done for any model is committed."""
    for own in (True, False):
        history = History.of(
            *OLD, asked("z", "cz", text="t" * 300), seen("rz", "cz", "seen"), *steps(3, at=20).messages
        )
        operators = small_operators(budget=1_500)
        light = [operators[name] for name in ("prune_tool_results", "truncate_arguments")]
        heavy = [operators[name] for name in ("compact_history", "offload_to_fit")]
        step = await passed(step_of(history, card=card(own=own)), *light, without_answers, *heavy)
        kept = step.run.state.context
        assert step.draft.conversation == step.history if own else kept == without_answers.function(history, step)
        assert (len(step.run.state.compactions), len(kept) < 10) == ((1, True) if own else (0, False))
    operators = small_operators()
    step = await passed(step_of(history, card=card(own=False)), operators["offload_tool_results"])
    assert all(m.tool_result.metadata for m in step.run.state.context.messages if m.tool_result and m.id[:2] == "r1")


@virtual
async def test_its_summary_is_paid_for_once_in_a_call() -> None:
    """The next steps of the call find it again, and show it."""
    the = Agent([down()], ["notes", *look_calls(4), "done"])
    assert (await the.call()).result.text == "done"
    assert the.summaries() == 1
    for request in the.other.requests[1:]:
        assert [is_summary(m) for m in request.conversation.messages].count(True) == 1


@virtual
async def test_its_second_summary_is_paid_for_once_too() -> None:
    """Where the first is not enough, what the second stands for is found again as well."""

    @tool
    def much() -> str:
        """Give much."""
        return "y" * 3_000

    wanted = [calls((f"k{at}", "much", "{}")) for at in range(6)]
    notes = iter(f"notes {at}" for at in range(99))
    work = iter([*wanted, "done"])

    class Other(ScriptedModel):
        """Writes notes whenever it is asked for some."""

        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
            self.requests.append(request)
            script = notes if request.purpose == "summary" else work
            async for chunk in ScriptedModel([next(script)]).stream(request):
                yield chunk

    the = Agent([down()], tools=[much])
    other = Other([], name="other", context_window=12_000)
    builder = HarnessAgent.builder_from(the.agent).fallback_model(other)
    the.agent, the.other = builder.build(), other
    seen_ = await the.call()
    assert (seen_.error, seen_.result.text) == (None, "done")
    done = [each for each in manifests(seen_) if each.compaction is not None and each.compaction.outcome == "done"]
    assert len(done) == len(told(seen_, "compaction_end"))
    sizes = [each.compaction.tokens_before - each.compaction.budget for each in done if each.compaction is not None]
    assert len(done) == 3
    assert max(sizes[1:]) < 3_100  # each was needed: no more had come than one result
    assert len(manifests(seen_)) == 8
    assert (await the.agent.state(ALICE)).compactions == ()


@virtual
async def test_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    """Nor is what is no failure of the provider's; the other model's failure has the first as its cause."""
    the = Agent([text("be", "gun").failing(down())], ["never"])
    assert isinstance((await the.call()).error, ServerFailed)
    assert the.other.asked == 0
    the = Agent([RuntimeError("odd")], ["never"])
    assert isinstance((await the.call()).error, RuntimeError)
    the = Agent([down()], ["notes", BadRequest("no", status=400)])
    error = (await the.call()).error
    assert isinstance(error, BadRequest)
    assert isinstance(error.__cause__, ServerFailed)


# -- overflow -----------------------------------------------------------------------------------------------


def overflow(limit: int | None = None) -> ContextOverflow:
    """The provider finds the request too long."""
    error = ContextOverflow("maximum context length", status=400)
    error.limit = limit
    return error


def plain(*script: Any, **options: Any) -> HarnessAgent:
    """An agent whose tokens are characters."""
    usual: dict[str, Any] = {"context_policy": POLICY, "workspace_context": False, "tools": [look]}
    return scripted(*script, **{**usual, **options}).build()


async def after(agent: HarnessAgent, history: Iterable[Msg] = OLD, input: str = "go on") -> Seen:
    """What a call over a long session gave."""
    await agent.observe([*history], ALICE)
    return await watch(agent, input, ALICE)


@virtual
async def test_a_refused_request_is_made_shorter_and_sent_once_more() -> None:
    """The compaction is kept, and so is what was learned of the limit."""
    agent = plain(overflow(), "notes", "done", window=1_000_000)
    seen_ = await after(agent)
    assert (seen_.error, seen_.result.text) == (None, "done")
    first, second = manifests(seen_)
    assert (first.compaction and first.compaction.outcome, second.compaction and second.compaction.trigger) == (
        "not_needed", "overflow",
    )  # fmt: skip
    (event,) = told(seen_, "overflow_recovery")
    assert (event["error"], event["failed_call_id"]) == ("context_overflow", first.call_id)
    assert told(seen_, "request_retry") == []
    assert len(await agent.compactions(ALICE)) == 1


@pytest.mark.parametrize(
    ("window", "said_limit", "learned"),
    [
        (22_000, None, 0.9),  # the estimate was near to the limit: nine tenths of it
        (1_000_000, None, None),  # far below it, the estimate says nothing
        (1_000_000, 20_000, 20_000 - 2_500 - 400),  # what the provider names, less answer and margin
        (None, 12_000, 12_000 - 1_500 - 240),
    ],
)
def test_what_is_learned_of_a_refusal_is_kept(
    window: int | None, said_limit: int | None, learned: float | None
) -> None:
    """In the state, by model, by our own count; later requests keep to it."""

    @virtual
    async def tried() -> None:
        agent = plain(overflow(said_limit), "notes", "done", "more", window=window)
        seen_ = await after(agent)
        assert seen_.error is None, seen_.error
        first = manifests(seen_)[0].estimated_input_tokens
        expected = int(learned * first) if isinstance(learned, float) else learned
        if expected is not None and said_limit is not None:
            expected = min(expected, int(0.9 * first))
        limits = (await agent.state(ALICE)).compaction.limits
        assert limits == ({} if expected is None else {"scripted": expected})
        (manifest,) = manifests(await watch(agent, "more", ALICE))
        if expected is not None:
            assert manifest.input_limit == expected

    tried()


@virtual
async def test_what_cannot_be_shorter_is_not_sent_again() -> None:
    """The provider's own error is raised, and no second request goes out."""
    agent = plain(overflow(), "never", window=1_000_000)
    seen_ = await after(agent, [], "hello")
    assert isinstance(seen_.error, ContextOverflow)
    assert model_of(agent).asked == 1
    assert ids_of((await agent.state(ALICE)).context.messages) != []


@virtual
async def test_a_failed_summary_gives_the_first_error_too() -> None:
    """Where the compaction fails there is nothing shorter to send."""
    agent = plain(overflow(), text(""), "never", window=1_000_000)
    seen_ = await after(agent)
    assert isinstance(seen_.error, ContextOverflow)
    assert [request.purpose for request in model_of(agent).requests] == ["reasoning", "summary"]
    assert [each["reason"] for each in told(seen_, "compaction_failed")] == ["empty"]


@virtual
async def test_a_second_refusal_is_raised() -> None:
    """There is one more try and not two."""
    agent = plain(overflow(), "notes", overflow(), "never", window=1_000_000)
    seen_ = await after(agent)
    assert isinstance(seen_.error, ContextOverflow)
    assert model_of(agent).asked == 3
    assert len(told(seen_, "overflow_recovery")) == 1


def refused(*, weak: bool) -> BadRequest:
    """A status 400 that does not say why, or one that does and is about something else."""
    error = BadRequest("400" if weak else "unknown field 'top_p'", status=400)
    error.may_be_overflow = weak
    return error


@pytest.mark.parametrize(("near", "weak", "tried"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_weak_sign_counts_only_near_to_the_window(near: bool, weak: bool, tried: bool) -> None:
    """An estimate of nine tenths of the window makes an empty 400 an overflow; a smaller one, or a reason, does not."""

    @virtual
    async def sent() -> None:
        policy = ContextPolicy(estimator=CharEstimator(), reserved_output_tokens=10, safety_margin_tokens=10)
        probe = plain("done", window=1_000_000, context_policy=policy)
        tokens = manifests(await after(probe))[0].estimated_input_tokens
        window = int(tokens / 0.9) - 1 if near else int(tokens / 0.9) + 10
        script = (refused(weak=weak), "notes", "done")
        agent = plain(*script, window=window, context_policy=policy, compaction={"trigger_messages": 0})
        seen_ = await after(agent)
        assert (seen_.error is None) == tried, seen_.error
        assert model_of(agent).asked == (3 if tried else 1)

    sent()


@virtual
async def test_a_cap_of_output_lowers_it_for_the_rest_of_the_call() -> None:
    """The same request with less `max_tokens`, also in later steps; nothing is compacted. The next call begins anew."""
    cap = OutputCap("max_tokens", status=400)
    cap.limit = 700
    agent = plain(
        cap, *look_calls(2), "done", "more", window=1_000_000, generate_options=GenerateOptions(max_tokens=5_000)
    )  # fmt: skip
    seen_ = await after(agent)
    assert seen_.error is None
    requests = model_of(agent).requests
    assert [request.options.max_tokens for request in requests] == [5_000, 700, 700, 700]
    assert list(requests[0].conversation.messages) == list(requests[1].conversation.messages)
    assert told(seen_, "overflow_recovery")[0]["max_tokens"] == 700
    assert told(seen_, "compaction_start") == []
    await watch(agent, "more", ALICE)
    assert model_of(agent).requests[-1].options.max_tokens == 5_000


@pytest.mark.parametrize(
    ("limit", "asked_for", "what"),
    [
        (None, 5_000, "raised"),
        (5_000, 5_000, "raised"),
        (700, None, "raised"),
        (255, 5_000, "compacted"),
        (256, 5_000, "lowered"),
    ],
)
def test_which_caps_are_mended(limit: int | None, asked_for: int | None, what: str) -> None:
    """One that names a lower number; where it leaves room for next to nothing the input is what is too long."""

    @virtual
    async def tried() -> None:
        cap = OutputCap("max_tokens", status=400)
        cap.limit = limit
        options = GenerateOptions(max_tokens=asked_for)
        agent = plain(cap, "notes", "done", window=1_000_000, generate_options=options)
        seen_ = await after(agent)
        purposes = [request.purpose for request in model_of(agent).requests]
        expected = {
            "raised": ["reasoning"], "lowered": ["reasoning", "reasoning"],
            "compacted": ["reasoning", "summary", "reasoning"],
        }  # fmt: skip
        assert purposes == expected[what]
        assert isinstance(seen_.error, ProviderError) == (what == "raised")

    tried()


@virtual
async def test_without_compaction_nothing_is_recovered() -> None:
    """There is nothing to make shorter."""
    agent = plain(overflow(), "never", window=1_000_000, compaction=None)
    assert isinstance((await after(agent)).error, ContextOverflow)
    assert model_of(agent).asked == 1


@virtual
async def test_an_overflow_behind_the_beginning_of_an_answer_is_raised() -> None:
    """What was said is not said again."""
    agent = plain(text("be", "gun").failing(overflow()), "never", window=1_000_000)
    assert isinstance((await after(agent)).error, ContextOverflow)
    assert model_of(agent).asked == 1


@virtual
async def test_what_is_too_long_for_one_model_goes_to_the_other() -> None:
    """Recovery comes first; where that is no help, the model that stands in is asked."""
    the = Agent([overflow(), "notes", overflow()], ["done"], window=2_000_000)
    seen_ = await the.call()
    assert (seen_.error, seen_.result.text) == (None, "done")
    assert [len(told(seen_, name)) for name in ("overflow_recovery", "model_fallback")] == [1, 1]


# -- what providers count -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "truncated"), [(0.49, True), (0.51, False), (1.0, False), (0.0, False)]
)  # fmt: skip
def test_input_that_was_cut_in_silence_is_told(reported: float, truncated: bool) -> None:
    """A provider that counts less than half of what was sent has left some of it out."""

    @virtual
    async def tried() -> None:
        probe = plain("done", window=1_000_000)
        tokens = manifests(await after(probe))[0].estimated_input_tokens
        usage = ChatUsage(input_tokens=int(reported * tokens), output_tokens=5, time=0)
        agent = plain(text("done", usage=usage), window=1_000_000)
        seen_ = await after(agent)
        events = told(seen_, "input_truncated")
        assert len(events) == truncated
        if truncated:
            assert events[0]["model_call_id"] == manifests(seen_)[0].call_id
            assert (events[0]["estimated_tokens"], events[0]["reported_tokens"]) == (tokens, int(reported * tokens))

    tried()


@virtual
async def test_a_small_difference_is_no_truncation() -> None:
    """Below 1,000 tokens it may be the way of counting."""
    agent = plain(text("done", usage=ChatUsage(input_tokens=1, output_tokens=1, time=0)), window=1_000_000)
    seen_ = await after(agent, [user("m", "x" * 500)])
    assert told(seen_, "input_truncated") == []


# -- pressure -----------------------------------------------------------------------------------------------


@virtual
async def test_pressure_is_told_when_its_level_changes() -> None:
    """At 70, 85 and 95 %; a level ends 5 % below, so that nothing flickers."""
    sizes = {0: 0.5, 1: 0.71, 2: 0.72, 3: 0.86, 4: 0.96, 5: 0.94, 6: 0.90, 7: 0.89, 8: 0.66, 9: 0.64}
    limit = 100_000
    levels: list[tuple[int, int]] = []
    policy = ContextPolicy(estimator=CharEstimator(), max_input_tokens=limit)
    words: dict[str, str] = {}

    async def source(request: Any) -> Any:
        return [ContextBlock.runtime("load", words["text"], required=True)]

    agent = plain(
        *["ok"] * 20, window=1_000_000, context_policy=policy, compaction=None, context_sources={"s": source}
    )  # fmt: skip
    for share in sizes.values():
        words["text"] = "x" * (int(share * limit) - 600)
        seen_ = await watch(agent, "q", ALICE)
        (manifest,) = manifests(seen_)
        assert abs(manifest.pressure - share) < 0.01, manifest.pressure
        for each in told(seen_, "context_pressure"):
            assert (each["model_call_id"], each["limit"]) == (manifest.call_id, limit)
            assert each["estimated_tokens"] == manifest.estimated_input_tokens
            levels.append((each["previous_level"], each["level"]))
    assert levels == [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]
    other = await watch(agent, "q", RuntimeContext(user_id="bob", session_id="s2"))
    assert told(other, "context_pressure") == []


# -- purposes -----------------------------------------------------------------------------------------------

BUSY = CompactionConfig(trigger_messages=4, keep_tokens=0, keep_messages=1)


async def events_of(agent: HarnessAgent, **options: Any) -> list[AgentEvent]:
    """The events of a call over a long session, in which notes are written."""
    await agent.observe(OLD, ALICE)
    return [event async for event in agent.stream_events("go", ALICE, **options)]


@virtual
async def test_calls_beside_the_conversation_are_heard_of_only_where_they_are_wanted() -> None:
    """Their events say what they are for; ids are the same whoever listens."""
    usual = await events_of(plain("notes", "done", window=1_000_000, compaction=BUSY))
    assert len([event for event in usual if isinstance(event, ModelCallStart)]) == 1
    assert all((event.metadata or {}).get("purpose") is None for event in usual)  # type: ignore[attr-defined]
    assert [each.purpose for each in manifests(usual)] == ["reasoning"]
    both = await events_of(plain("notes", "done", window=1_000_000, compaction=BUSY), purposes=("reasoning", "summary"))
    beside = [event for event in both if (event.metadata or {}).get("purpose") == "summary"]  # type: ignore[attr-defined]
    assert {"CUSTOM", "MODEL_CALL_START", "TEXT_BLOCK_DELTA", "MODEL_CALL_END"} <= {str(each.type) for each in beside}  # type: ignore[attr-defined]
    assert [each.purpose for each in manifests(both)] == ["summary", "reasoning"]
    assert len(both) == len(usual) + len(beside)
    names = [event.name for event in both if isinstance(event, Custom)]
    assert names.index("compaction_start") < names.index("context_build") < names.index("compaction_end")
    assert {m.role for m in OLD} == {Role.USER, Role.ASSISTANT, Role.TOOL}
