"""The events of a call and the message that it returns say the same, whatever the model does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import agentscope_rx.events as ev
from agentscope_rx.condensing import REASON_KEY, condense
from agentscope_rx.errors import ServerFailed
from agentscope_rx.lifting import effect_operator
from agentscope_rx.messages import GenerateReason, MetadataKey, Msg, TextBlock, ThinkingBlock, ToolUseBlock
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.reply_writer import ReplyWriter
from agentscope_rx.requests import CallDelta, ModelChunk
from agentscope_rx.step import Step
from agentscope_rx.testing.scripted_model import Scripted, ScriptedModel, ScriptedTurn, calls, text
from agentscope_rx.testing.values import RecordingRun, a_run, a_step
from agentscope_rx.tools import tool
from agentscope_rx.usage import ChatUsage
from tests.strategies import JSON_OBJECTS, TEXTS, USAGES
from tests.support import ONE_ATTEMPT, type_of

Arrangement: TypeAlias = Callable[[Pipeline], Pipeline]

# -- random answers of models -------------------------------------------------------------------------------

_PIECES = st.sampled_from(["", "a", "b c", " ", "\n", '{"p":', "é", "🍸"])
_STATES = st.sampled_from([{}, {"k": None}, {"k": [1, {"s": "x"}]}, {"signature": "é"}])
_OBJECTS = ["{}", '{"p":1}', '{"p": {"q": [1, null, "}"]}}', ' {"p":"é\\ud83c\\udf78"} ']
_ODD_ONES = ["", "  ", '{"p":NaN}', '{"p":1e999}', '{"p":"\\ud83d"}', '{"p":"\ud83d"}']
_BROKEN = ['{"p":', "[1]", "7", '{"p":1}{"q":2}', "{" * 300]
_ARGUMENTS = st.sampled_from([*_OBJECTS, *_ODD_ONES, *_BROKEN])


@st.composite
def cut(draw: st.DrawFn, whole: str) -> list[str]:
    """A text in pieces."""
    edges = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    return [whole[start:end] for start, end in zip([0, *edges], [*edges, len(whole)], strict=True)]


@st.composite
def call_lanes(draw: st.DrawFn, index: int) -> list[ModelChunk]:
    """The pieces of one call. Its id and name come at once, late, or never; ids may be those of another call."""
    id = draw(st.sampled_from(["", "c", f"c{index}", f"c{index}"]))
    name = draw(st.sampled_from(["", "look", "read", "read"]))
    pieces = draw(cut(draw(_ARGUMENTS)))
    id_at, name_at = (draw(st.integers(0, len(pieces) - 1)) for _ in range(2))
    return [
        ModelChunk(
            calls=(
                CallDelta(
                    index=index,
                    id=id if at == id_at else "",
                    name=name if at == name_at else "",
                    arguments=piece,
                    opaque=draw(st.none() | _STATES),
                ),
            )
        )
        for at, piece in enumerate(pieces)
    ]


@st.composite
def answers(draw: st.DrawFn) -> list[ModelChunk]:
    """The chunks of one answer: text, thinking and calls, interleaved; usage and provider state anywhere."""
    lanes: list[list[ModelChunk]] = [
        [ModelChunk(text=piece) for piece in draw(st.lists(_PIECES, max_size=4))],
        [ModelChunk(thinking=piece) for piece in draw(st.lists(_PIECES, max_size=3))],
        [ModelChunk(text=draw(_PIECES), thinking=draw(_PIECES)) for _ in range(draw(st.integers(0, 1)))],
        [ModelChunk(usage=ChatUsage(input_tokens=n)) for n in draw(st.lists(st.integers(0, 9), max_size=2))],
        [ModelChunk(opaque=opaque) for opaque in draw(st.lists(_STATES, max_size=2))],
        [
            ModelChunk(finish_reason=reason)
            for reason in draw(st.lists(st.sampled_from(["stop", "length"]), max_size=2))
        ],
        *(draw(call_lanes(index)) for index in range(draw(st.integers(0, 3)))),
    ]
    order = draw(st.permutations([at for at, lane in enumerate(lanes) for _ in lane]))
    waiting = [iter(lane) for lane in lanes]
    chunks = [next(waiting[at]) for at in order]
    if chunks and draw(st.booleans()):  # some providers send calls together
        first, second = chunks[0], chunks[-1]
        chunks[0] = replace(first, calls=(*first.calls, *second.calls) if second is not first else first.calls)
        chunks[-1:] = [] if len(chunks) > 1 and second.calls else chunks[-1:]
    return chunks


def written(chunks: Iterable[ModelChunk], *, error: dict[str, str] | None = None) -> tuple[RecordingRun, ReplyWriter]:
    """What a `ReplyWriter` makes of an answer."""
    run = a_run()
    run.emit(ev.AgentStart(reply_id="reply", session_id="session", name=run.identity.agent_name))
    writer = ReplyWriter(a_step(run=run))
    writer.start()
    for chunk in chunks:
        writer.take(chunk)
    writer.end(time=0.123_456_7, error=error)
    return run, writer


def as_read(events: Iterable[ev.AgentEvent]) -> list[ev.AgentEvent]:
    """The same events after they were written and read as JSON."""
    return [ev.event_from_json(event.to_json()) for event in events]


def check_blocks(events: Sequence[ev.AgentEvent]) -> None:
    """Every START has exactly one END, and deltas come between them."""
    opened: Counter[tuple[str, str, str]] = Counter()
    for event in events:
        if not isinstance(event, ev.BlockEvent | ev.ToolEvent | ev.ModelCallStart | ev.ModelCallEnd):
            continue
        kind, _, edge = type_of(event).rpartition("_")
        kind = "TOOL_RESULT" if kind.startswith("TOOL_RESULT") else kind
        at = (kind, event.reply_id, getattr(event, "block_id", getattr(event, "tool_call_id", "")))
        match edge:
            case "START":
                assert at not in opened, f"{at} was opened twice"
                opened[at] = 1
            case "END":
                assert opened[at] == 1, f"{at} was closed without being open"
                opened[at] = 0
            case _:
                assert opened[at] == 1, f"a delta of {at} outside of it"
    assert not +opened, f"never closed: {+opened}"


# -- THE property -------------------------------------------------------------------------------------------


@given(answers())
@example([ModelChunk(calls=(CallDelta(0, "c", "look", "{}"), CallDelta(1, "c", "look", '{"p":1}')))])
@example([ModelChunk(calls=(CallDelta(0, "", "", '{"p":1}'),)), ModelChunk(calls=(CallDelta(0, "", "late"),))])
@example([ModelChunk(calls=(CallDelta(0, "c", "", "{"), CallDelta(1, "d", "look"), CallDelta(0, "", "late", "}")))])
@example([ModelChunk(calls=(CallDelta(0, "c", "look", '{"p":NaN}'),))])
def test_events_and_message_say_the_same(chunks: list[ModelChunk]) -> None:
    """Whatever a model sends: what its events condense to is the message that is kept, also read from JSON."""
    run, writer = written(chunks)
    assert replace(condense(run.events), metadata={}) == replace(writer.message(), metadata={})
    expected = writer.message().with_reason(GenerateReason.EMPTY_REPLY) if writer.empty else writer.message()
    assert condense(run.events) == expected
    # As JSON there are no infinities, and no halves of surrogate pairs.
    assert Msg.from_json(condense(as_read(run.events)).to_json()) == Msg.from_json(expected.to_json())


@given(answers())
def test_blocks_are_balanced(chunks: list[ModelChunk]) -> None:
    """Every START has exactly one END; deltas come between them; the call itself is the outermost pair."""
    run, _ = written(chunks)
    check_blocks(run.events)
    assert [type(event) for event in (run.events[1], run.events[-1])] == [ev.ModelCallStart, ev.ModelCallEnd]


@given(answers())
def test_a_broken_answer_is_balanced_too(chunks: list[ModelChunk]) -> None:
    """An answer that breaks off closes what is open, says so at its end, and its fragment is what its events say."""
    error = {"class": "ServerFailed", "kind": "server"}
    run, writer = written(chunks, error=error)
    check_blocks(run.events)
    assert (run.events[-1].metadata or {})["error"] == error
    assert condense(run.events).content == writer.message().content


@given(answers())
def test_deltas_make_up_the_message(chunks: list[ModelChunk]) -> None:
    """No piece is lost or doubled: joined deltas are the chunks' text, and the blocks of the message."""
    run, writer = written(chunks)
    message = writer.message()
    for name, joined in (
        ("text", "".join(e.delta for e in run.events if isinstance(e, ev.TextBlockDelta))),
        ("thinking", "".join(e.delta for e in run.events if isinstance(e, ev.ThinkingBlockDelta))),
    ):
        assert joined == "".join(getattr(chunk, name) for chunk in chunks) == getattr(message, name)
    assert not [event for event in run.events if getattr(event, "delta", "some") == ""]


@given(answers())
def test_segments_are_numbered(chunks: list[ModelChunk]) -> None:
    """Text and thinking segments count from `text`, `text-2` on; never are two of them open at once."""
    run, _ = written(chunks)
    for kind, start in (("text", ev.TextBlockStart), ("thinking", ev.ThinkingBlockStart)):
        ids = [event.block_id for event in run.events if isinstance(event, start)]
        assert ids == [kind if n == 1 else f"{kind}-{n}" for n in range(1, len(ids) + 1)]
    open_blocks: set[str] = set()
    for event in run.events:
        if isinstance(event, ev.TextBlockStart | ev.ThinkingBlockStart):
            assert not open_blocks
            open_blocks.add(event.block_id)
        elif isinstance(event, ev.TextBlockEnd | ev.ThinkingBlockEnd):
            open_blocks.remove(event.block_id)
        elif isinstance(event, ev.ToolCallStart):
            assert not open_blocks, "a tool call closes text and thinking"


@given(answers())
def test_calls_keep_their_order_and_have_ids_of_their_own(chunks: list[ModelChunk]) -> None:
    """The message holds the calls in the order of their START, each under another id, whatever the model gave."""
    run, writer = written(chunks)
    ids = [event.tool_call_id for event in run.events if isinstance(event, ev.ToolCallStart)]
    assert ids == [call.id for call in writer.message().tool_calls]
    assert len(set(ids)) == len(ids)
    assert all(ids)


@given(answers())
def test_arguments_are_an_object_or_kept_as_they_are(chunks: list[ModelChunk]) -> None:
    """A call holds its parsed arguments and their text, or the raw text where they are no JSON object."""
    run, writer = written(chunks)
    for call in writer.message().tool_calls:
        raw = "".join(e.delta for e in run.events if isinstance(e, ev.ToolCallDelta) and e.tool_call_id == call.id)
        if "invalid_arguments" in call.metadata:
            assert (call.input, call.content, call.metadata["invalid_arguments"]) == ({}, None, raw)
        else:
            assert call.content == (raw if call.input else "{}")


@given(st.lists(USAGES, min_size=1, max_size=3))
def test_the_last_usage_counts(usages: list[ChatUsage]) -> None:
    """Providers send running totals: the last usage is the call's, with the time that the call really took."""
    run, writer = written([ModelChunk(usage=usage) for usage in usages])
    end = run.events[-1]
    assert isinstance(end, ev.ModelCallEnd)
    assert end.usage == writer.message().usage == replace(usages[-1], time=0.123457)


@given(st.lists(JSON_OBJECTS, max_size=3), TEXTS)
def test_the_providers_state_is_kept_word_for_word(states: list[dict[str, object]], said: str) -> None:
    """What the provider wants back is in the message, merged, and in the last event."""
    run, writer = written([ModelChunk(text=said), *(ModelChunk(opaque=state) for state in states)])
    merged: dict[str, object] = {}
    for state in states:
        merged |= state
    assert writer.message().metadata == ({MetadataKey.OPAQUE: merged} if merged else {})
    assert (run.events[-1].metadata or {}).get("opaque", {}) == merged


# -- single rules -------------------------------------------------------------------------------------------


def types(events: Iterable[ev.AgentEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_an_opened_block_closes_the_one_before() -> None:
    """Text closes thinking, thinking closes text, a call closes both and every call that is whole."""
    run, writer = written(
        [
            ModelChunk(thinking="hm"),
            ModelChunk(text="a"),
            ModelChunk(text="b"),
            ModelChunk(calls=(CallDelta(0, "c0", "look", '{"p":'),)),
            ModelChunk(calls=(CallDelta(1, "c1", "look", "{}"),)),
            ModelChunk(calls=(CallDelta(2, "c2", "look", ""), CallDelta(0, arguments="1}"))),
            ModelChunk(text="c"),
        ]
    )
    assert types(run.events)[2:-1] == [
        *("ThinkingBlockStart", "ThinkingBlockDelta", "ThinkingBlockEnd"),
        *("TextBlockStart", "TextBlockDelta", "TextBlockDelta", "TextBlockEnd"),
        *("ToolCallStart", "ToolCallDelta"),  # c0 is not whole, and stays open
        *("ToolCallStart", "ToolCallDelta", "ToolCallEnd"),  # c1 is, and closes when c2 opens
        *("ToolCallStart", "ToolCallDelta"),
        *("TextBlockStart", "TextBlockDelta", "TextBlockEnd"),
        *("ToolCallEnd", "ToolCallEnd"),
    ]
    assert writer.message().content == (
        ThinkingBlock(thinking="hm"),
        TextBlock(text="abc"),
        ToolUseBlock(id="c0", name="look", input={"p": 1}, content='{"p":1}'),
        ToolUseBlock(id="c1", name="look", content="{}"),
        ToolUseBlock(id="c2", name="look", content="{}"),
    )


def test_what_follows_whole_arguments_is_no_part_of_them() -> None:
    """A call that was closed takes no more pieces."""
    _, writer = written(
        [
            ModelChunk(calls=(CallDelta(0, "c0", "look", '{"p":1}'),)),
            ModelChunk(calls=(CallDelta(1, "c1", "look", "{}"),)),
            ModelChunk(calls=(CallDelta(0, arguments='{"p":2}'),)),
        ]
    )
    assert [call.input for call in writer.message().tool_calls] == [{"p": 1}, {}]


def test_an_index_with_nothing_behind_it_is_no_call() -> None:
    """A piece without id, name and arguments makes no call, even at the end."""
    run, writer = written([ModelChunk(text="a"), ModelChunk(calls=(CallDelta(0), CallDelta(1, "c1", "look")))])
    assert [call.id for call in writer.message().tool_calls] == ["c1"]
    assert types(run.events).count("ToolCallStart") == 1


def test_a_call_without_an_id_gets_one() -> None:
    """A made-up id is made of the model call's, so that it is the same when a recorded answer is played again."""
    _, first = written([ModelChunk(calls=(CallDelta(0, "", "look", "{}"),))])
    _, again = written([ModelChunk(calls=(CallDelta(0, "", "look", "{}"),))])
    assert [call.id for call in first.message().tool_calls] == ["call_call-1_0"]
    assert first.message() == again.message()


def test_the_message_has_the_identity_of_its_stage() -> None:
    """The message's id is the model call's, its name the agent's, its time that of the call's first event."""
    run, writer = written([ModelChunk(text="a")])
    start = run.events[1]
    assert isinstance(start, ev.ModelCallStart)
    message = writer.message()
    assert (message.id, message.name, message.timestamp) == (start.reply_id, "agent", "2026-01-01 00:00:00.000")


# -- why a call ended ---------------------------------------------------------------------------------------


def test_events_without_a_message_are_refused() -> None:
    """A run that failed before its model was asked has no message."""
    with pytest.raises(ValueError, match="there is no message to make"):
        condense([ev.AgentStart(reply_id="r", session_id="s", name="n"), ev.AgentEnd(reply_id="r")])


def test_events_of_others_are_not_looked_at() -> None:
    """What a subagent says is no part of the agent's message."""
    run, writer = written([ModelChunk(text="mine")])
    other = ev.TextBlockDelta(reply_id="r9", block_id="text", delta="another's", source="scout")
    begin = ev.ModelCallStart(reply_id="r9", model="m", source="scout")
    assert condense([*run.events[:3], begin, other, *run.events[3:], other]) == writer.message()


def test_the_last_stage_counts() -> None:
    """The message is that of the last model call; an earlier one leaves nothing in it."""
    first, _ = written([ModelChunk(text="a", usage=ChatUsage(input_tokens=1), opaque={"k": 1})])
    second = [replace(event, reply_id="later") for event in first.events[1:] if isinstance(event, ev.ModelCallStart)]
    said = ev.TextBlockDelta(reply_id="later", block_id="text", delta="b")
    message = condense([*first.events, *second, said])
    assert (message.id, message.text, message.usage, message.metadata) == ("later", "b", None, {})


def test_an_announced_message_is_a_stage_of_its_own() -> None:
    """What the agent says in its own name has id and time of its first event, and its reason from the last."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    run, _ = written([ModelChunk(text="the model's")])
    own: list[ev.AgentEvent] = [
        ev.TextBlockStart(reply_id="m9", block_id="text", created_at=at),
        ev.TextBlockDelta(reply_id="m9", block_id="text", delta="the agent's"),
        ev.TextBlockEnd(reply_id="m9", block_id="text", metadata={REASON_KEY: "INTERRUPTED"}),
    ]
    said = replace(Msg.assistant("the agent's", name="agent"), id="m9", timestamp="2026-01-02 00:00:00.000")
    assert condense([*run.events, *own]) == said.with_reason(GenerateReason.INTERRUPTED)


@pytest.mark.parametrize("reason", GenerateReason)
def test_a_requested_stop_says_why(reason: GenerateReason) -> None:
    """`REQUEST_STOP` gives the message its reason, over every other."""
    run, writer = written([])
    stop = ev.RequestStop(reason="why", generate_reason=reason)
    limit = ev.ExceedMaxIters(reply_id="", max_iters=1, current_iter=1)
    assert condense([*run.events, limit, stop]) == writer.message().with_reason(reason)


@pytest.mark.parametrize("chunks", [[], [ModelChunk(text=" \n")], [ModelChunk(thinking="hm")]])
def test_an_empty_reply_says_so(chunks: list[ModelChunk]) -> None:
    """Neither visible text nor a call: `EMPTY_REPLY`, also when the limit of steps was reached."""
    run, writer = written(chunks)
    limit = ev.ExceedMaxIters(reply_id="", max_iters=1, current_iter=1)
    for events in (run.events, [*run.events[:1], limit, *run.events[1:]]):
        assert condense(events) == writer.message().with_reason(GenerateReason.EMPTY_REPLY)


def test_the_limit_of_steps_is_a_reason() -> None:
    """What the model says after `EXCEED_MAX_ITERS` ends the call with `MAX_ITERATIONS`."""
    run, writer = written([ModelChunk(text="so far")])
    limit = ev.ExceedMaxIters(reply_id="", max_iters=1, current_iter=1)
    assert condense([limit, *run.events]) == writer.message().with_reason(GenerateReason.MAX_ITERATIONS)


# -- whole runs ---------------------------------------------------------------------------------------------


@tool
async def look(p: int = 0) -> str:
    """Look somewhere."""
    return f"saw {p}"


def finishing(message: str | None, before: str) -> Arrangement:
    """A pipeline that ends the run with a message, or with the model's reply."""

    @effect_operator
    def stop_here(step: Step) -> Step:
        return step.finish(message, GenerateReason.REASONING_STOP_REQUESTED)

    return lambda default: default.insert_before(before, stop_here)


def asking() -> ScriptedTurn:
    return calls(("c1", "look", '{"p":1}'), text="let me see", usage=ChatUsage(input_tokens=5))


EMPTY = ScriptedTurn(chunks=(ModelChunk(finish_reason="stop"),))


@pytest.mark.parametrize(
    ("script", "arrangement", "max_iters", "reason"),
    [
        (["Hello."], None, 3, GenerateReason.MODEL_STOP),
        ([asking(), text("Do", "ne.", thinking="hm")], None, 3, GenerateReason.MODEL_STOP),
        ([EMPTY, "At last."], None, 3, GenerateReason.MODEL_STOP),
        ([EMPTY, EMPTY], None, 3, GenerateReason.EMPTY_REPLY),
        ([asking(), "So far."], None, 1, GenerateReason.MAX_ITERATIONS),
        ([asking(), asking()], None, 1, GenerateReason.MAX_ITERATIONS),
        ([asking(), EMPTY], None, 1, GenerateReason.EMPTY_REPLY),
        ([asking(), ServerFailed("down")], None, 1, GenerateReason.MAX_ITERATIONS),
        ([asking()], finishing("Stopped.", "run_tools"), 3, GenerateReason.REASONING_STOP_REQUESTED),
        ([asking()], finishing(None, "run_tools"), 3, GenerateReason.REASONING_STOP_REQUESTED),
        ([], finishing("No need to ask.", "call_model"), 3, GenerateReason.REASONING_STOP_REQUESTED),
    ],
)
async def test_whole_runs_condense_to_their_result(
    script: list[Scripted], arrangement: Arrangement | None, max_iters: int, reason: GenerateReason
) -> None:
    """However a run ends, its events condense to what `AGENT_RESULT` carries, also when they come from a log."""
    builder = ReActAgent.builder(name="a", model=ScriptedModel(script), tools=[look], max_iters=max_iters)
    builder = builder.execution(ONE_ATTEMPT)
    if arrangement is not None:
        builder = builder.pipeline(arrangement)
    seen = [event async for event in builder.build().stream_events("hi")]
    (result,) = [event.result for event in seen if isinstance(event, ev.AgentResult)]
    others = [event for event in seen if not isinstance(event, ev.AgentResult)]
    assert result.reason is reason
    assert condense(seen) == condense(others) == condense(as_read(others)) == result
    check_blocks(others)
