"""What the tests of shortening need: random long conversations, operators with small limits, steps that commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

from hypothesis import strategies as st

from agentscope_rx.compaction import CompactionConfig, PruneConfig, ToolResultEvictionConfig, TruncateArgsConfig
from agentscope_rx.compaction.prompt import Summary
from agentscope_rx.condensing import OPAQUE_KEY
from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.context.layout import lay_out
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.events import Custom
from agentscope_rx.history import History
from agentscope_rx.lifting import Operator, chain
from agentscope_rx.messages import (
    Base64Source,
    DataBlock,
    MetadataKey,
    Msg,
    OutputBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.operators import (
    Summariser,
    commit_history,
    compact_history,
    offload_to_fit,
    offload_tool_results,
    prune_tool_results,
    truncate_arguments,
)
from agentscope_rx.pulling import last
from agentscope_rx.requests import ExecutionConfig, Model
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.testing import RecordingRun, ScriptedModel, a_run, a_runtime, a_step
from agentscope_rx.testing.values import MemorySession
from agentscope_rx.workspace import InMemoryWorkspace
from tests.context.support import CharEstimator

PICTURE = DataBlock(source=Base64Source(media_type="image/png", data="AAAA"), name="shot.png")
#: A token is a character.
COUNTER: RequestCounter = counter_for(CharEstimator(), "")
ONCE = ExecutionConfig(max_attempts=1)


# -- conversations ------------------------------------------------------------------------------------------


def user(id: str, text: str = "") -> Msg:
    """Something that the user said."""
    return replace(Msg.user(text or f"question {id}"), id=id)


def said(id: str, text: str = "") -> Msg:
    """Something that the model said."""
    return replace(Msg.assistant(text or f"answer {id}"), id=id)


def asked(id: str, *calls: str, name: str = "look", **arguments: object) -> Msg:
    """A batch of calls."""
    blocks = (ToolUseBlock(id=call, name=name, input=arguments, content=json.dumps(arguments)) for call in calls)
    return replace(Msg.assistant(*blocks), id=id)


def seen(id: str, call: str, *output: str | DataBlock, name: str = "look", **fields: Any) -> Msg:
    """A result."""
    blocks: list[OutputBlock] = [TextBlock(text=each) if isinstance(each, str) else each for each in output]
    return replace(Msg.tool(ToolResultBlock(id=call, name=name, output=tuple(blocks), **fields)), id=id)


def calls_of(count: int, size: int = 2, *, name: str = "look", **arguments: object) -> list[Msg]:
    """So many calls `a0`, `a1`, each with a result `r0`, `r1` of so many characters."""
    made: list[Msg] = []
    for at in range(count):
        made += [asked(f"a{at}", f"c{at}", name=name, **arguments), seen(f"r{at}", f"c{at}", "x" * size, name=name)]
    return made


def steps(count: int, *, size: int = 100, first: str = "the task", at: int = 0) -> History:
    """What the user wants, and so many calls with their results: a message each, ids by their place."""
    messages = [user("u", first)] if not at else []
    for number in range(at, at + count):
        messages += [asked(f"a{number}", f"c{number}"), seen(f"r{number}", f"c{number}", "x" * size)]
    return History.of(*messages)


_TEXTS = st.integers(1, 300).map(lambda size: ("word " * 60)[:size])
_OUTPUTS = st.lists(_TEXTS | st.just(PICTURE), min_size=1, max_size=3)
_NAMES = st.sampled_from(["look", "look", "find", "read_file"])


@st.composite
def conversations(draw: st.DrawFn, *, most: int = 14, pending: bool = False) -> History:
    """A session's working history: all that occurs in one.

    Args:
        draw: Draws.
        most: How many exchanges at most.
        pending: Whether calls may be open.
    """
    messages: list[Msg] = []
    turns = draw(st.lists(st.sampled_from("uaccccos"), min_size=1, max_size=most))
    if draw(st.integers(0, 3)) == 0:
        messages.append(Summary(text=draw(_TEXTS), model="m", covered=("old-1", "old-2")).message())
    for at, turn in enumerate(turns):
        match turn:
            case "u":
                messages.append(user(f"m{at}", draw(_TEXTS)))
            case "a":
                messages.append(said(f"m{at}", draw(_TEXTS)))
            case "s":
                synthetic = Msg.user(draw(_TEXTS)).with_metadata(**{MetadataKey.SYNTHETIC: True})
                messages.append(replace(synthetic, id=f"m{at}"))
            case _:
                messages.extend(_batch(draw, f"m{at}", signed=turn == "o", pending=pending and at > len(turns) - 3))
    return History.of(*messages)


def _batch(draw: st.DrawFn, id: str, *, signed: bool, pending: bool) -> Iterator[Msg]:
    blocks: list[Any] = [TextBlock(text="Let me see.")] if draw(st.booleans()) else []
    kind = draw(st.sampled_from(["thought", "call", "message"])) if signed else ""
    if kind == "thought":
        blocks.append(ThinkingBlock(thinking=draw(_TEXTS), metadata={"signature": "abc"}))
    calls: list[ToolUseBlock] = []
    for at in range(draw(st.integers(1, 3))):
        arguments = {"path": draw(_TEXTS), "deep": {"text": draw(_TEXTS)}, "n": at}
        marks = {OPAQUE_KEY: {"signature": "xyz"}} if kind == "call" else {}
        content = json.dumps(arguments)
        call = ToolUseBlock(id=f"c{at}", name=draw(_NAMES), input=arguments, content=content, metadata=marks)
        calls.append(call)
    head = replace(Msg.assistant(*blocks, *calls), id=id)
    yield head.with_metadata(**{MetadataKey.OPAQUE: {"token": "t"}}) if kind == "message" else head
    for call in calls:
        if pending and draw(st.booleans()):
            continue
        state = draw(st.sampled_from(ToolResultState))
        yield seen(f"{id}.{call.id}", call.id, *draw(_OUTPUTS), name=call.name, state=state, metadata={"mark": id})


# -- operators ----------------------------------------------------------------------------------------------


def compaction(
    *script: Any, config: CompactionConfig, policy: ContextPolicy | None = None, model: Model | None = None, **more: Any
) -> Operator:
    """`compact_history`, with a model of its own where a script is given."""
    policy = policy or ContextPolicy()
    if script:
        model = ScriptedModel(script, name="writer", context_window=1_000_000)
    card = None if model is None else ModelCard.of(model, COUNTER, own=False)
    summariser = Summariser(template=config.summary_prompt, execution=ONCE, policy=policy, card=card)
    return compact_history(config=config, policy=policy, summariser=summariser, **more)


def small_operators(*, budget: int = 100_000, workspace: InMemoryWorkspace | None = None) -> dict[str, Operator]:
    """Every operator that shortens, with limits that small conversations reach."""
    workspace, policy = workspace or InMemoryWorkspace(), ContextPolicy(max_input_tokens=budget)
    eviction = ToolResultEvictionConfig(max_result_chars=120, preview_chars=20)
    compact = CompactionConfig(trigger_messages=6, keep_tokens=0, keep_messages=3, prune=None)
    model = ScriptedModel(repeat("notes"), name="writer", context_window=1_000_000)
    return {
        "offload_tool_results": offload_tool_results(config=eviction, workspace=workspace),
        "truncate_arguments": truncate_arguments(
            config=TruncateArgsConfig(trigger_messages=2, keep_messages=1, max_arg_length=30)
        ),
        "prune_tool_results": prune_tool_results(
            config=PruneConfig(protect_tokens=80, min_prune_tokens=1, max_output_chars=40)
        ),
        "compact_history": compaction(config=compact, policy=policy, model=model),
        "offload_to_fit": offload_to_fit(config=eviction, policy=policy, workspace=workspace),
    }


# -- steps --------------------------------------------------------------------------------------------------


def card(*script: Any, window: int | None = None, own: bool = True, name: str = "own") -> ModelCard:
    """The card of a scripted model whose tokens are characters."""
    return ModelCard.of(ScriptedModel(script or ["notes"] * 99, name=name, context_window=window), COUNTER, own=own)


def step_of(history: History | RecordingRun, **fields: Any) -> Step:
    """A step over a session that holds this history, of a model whose tokens are characters."""
    run = history if isinstance(history, RecordingRun) else a_run(history)
    usual: dict[str, Any] = {"run": run, "card": card()}
    return a_step(**{**usual, **fields})


def run_of(state: AgentState) -> RecordingRun:
    """A run over a session in this state."""
    return RecordingRun(MemorySession(state), context=RuntimeContext(), runtime=a_runtime())


async def passed(step: Step, *operators: Operator, commit: bool = True) -> Step:
    """The step behind these operators, its history the session's."""
    return await last(chain((*operators, *([commit_history()] if commit else [])), step))


def body_of(step: Step) -> dict[str, Any]:
    """The body of the step's request."""
    return json.loads(encode(lay_out(step), model="m", provider=COMPATIBLE))


def told(run: RecordingRun, name: str) -> list[dict[str, Any]]:
    """What the custom events of this name say."""
    return [dict(event.value) for event in run.events if isinstance(event, Custom) and event.name == name]


def ids_of(messages: Iterable[Msg]) -> list[str]:
    """Their ids."""
    return [message.id for message in messages]
