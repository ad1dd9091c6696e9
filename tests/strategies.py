"""Random values for property tests: texts, JSON, messages and conversations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from agentscope_rx.messages import (
    Base64Source,
    ContentBlock,
    DataBlock,
    HintBlock,
    Msg,
    OutputBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    URLSource,
)
from agentscope_rx.usage import ChatUsage

#: How long an example takes says more about what else this machine does than about the library.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

TEXTS = st.text(max_size=8)
#: Texts with halves of surrogate pairs, NUL, and characters that JSON or XML escapes.
ODD_TEXTS = st.lists(
    st.sampled_from(["\ud83d", "\udcb2", "\0", '"', "\\", "<", "&", "é", "🍸", "\u2028", "a"]), max_size=6
).map("".join)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
#: What JSON can hold, and gives back as it was.
JSON_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
JSON_OBJECTS = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)

_SOURCES = st.builds(URLSource, url=TEXTS, mime_type=st.none() | TEXTS) | st.builds(
    Base64Source, media_type=TEXTS, data=TEXTS
)
TEXT_BLOCKS = st.builds(TextBlock, text=TEXTS)
DATA_BLOCKS = st.builds(DataBlock, source=_SOURCES, id=TEXTS, name=st.none() | TEXTS)
THINKING_BLOCKS = st.builds(ThinkingBlock, thinking=TEXTS, metadata=JSON_OBJECTS)
HINT_BLOCKS = st.builds(HintBlock, id=TEXTS, hint=TEXTS, source=st.none() | TEXTS)
OUTPUTS: st.SearchStrategy[tuple[OutputBlock, ...]] = st.lists(TEXT_BLOCKS | DATA_BLOCKS, max_size=2).map(tuple)
CALL_BLOCKS = st.builds(
    ToolUseBlock,
    id=TEXTS,
    name=TEXTS,
    input=JSON_OBJECTS,
    content=st.none() | TEXTS,
    metadata=JSON_OBJECTS,
    state=st.sampled_from(ToolCallState),
)
RESULT_BLOCKS = st.builds(
    ToolResultBlock,
    id=TEXTS,
    name=TEXTS,
    output=OUTPUTS,
    metadata=JSON_OBJECTS,
    state=st.sampled_from(ToolResultState),
)
USAGES = st.builds(
    ChatUsage,
    input_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    cached_tokens=st.integers(0, 10**6),
    time=st.floats(0, 1e4),
)

_BLOCKS_OF: dict[Role, st.SearchStrategy[ContentBlock]] = {
    Role.USER: TEXT_BLOCKS | DATA_BLOCKS,
    Role.SYSTEM: TEXT_BLOCKS,
    Role.ASSISTANT: TEXT_BLOCKS | THINKING_BLOCKS | DATA_BLOCKS | HINT_BLOCKS | CALL_BLOCKS,
    Role.TOOL: RESULT_BLOCKS,
}


@st.composite
def messages(draw: st.DrawFn, roles: tuple[Role, ...] = tuple(Role)) -> Msg:
    """A message by itself, of any content that its role may hold."""
    role = draw(st.sampled_from(roles))
    return Msg(
        id=draw(TEXTS),
        name=draw(st.none() | TEXTS),
        role=role,
        content=tuple(draw(st.lists(_BLOCKS_OF[role], max_size=3))),
        metadata=draw(JSON_OBJECTS),
        timestamp=draw(TEXTS),
        usage=draw(st.none() | USAGES),
    )


@st.composite
def conversations(draw: st.DrawFn, *, max_turns: int = 12, answered: bool = False) -> tuple[Msg, ...]:
    """Messages as a session holds them: each with an id of its own, and results only for calls that wait.

    Args:
        draw: Draws.
        max_turns: How many messages that are no results.
        answered: Whether every call has its result.
    """
    said: list[Msg] = []
    for turn in draw(st.lists(st.sampled_from("uuaac"), max_size=max_turns)):
        match turn:
            case "u":
                said.append(Msg.user(f"question {draw(st.integers(0, 3))}"))
            case "a":
                said.append(Msg.assistant(f"answer {draw(st.integers(0, 3))}"))
            case _:
                said.extend(_calls(draw, answered=answered))
    return tuple(replace(message, id=f"m{at}") for at, message in enumerate(said))


def _calls(draw: st.DrawFn, *, answered: bool) -> list[Msg]:
    # Ids are those of small providers, which begin anew with each answer.
    calls = [ToolUseBlock(id=f"c{at}", name="look", input={"p": at}) for at in range(draw(st.integers(1, 3)))]
    given = calls if answered else draw(st.lists(st.sampled_from(calls), unique_by=lambda call: call.id))
    order = draw(st.permutations(given))
    return [Msg.assistant(*calls), *(result_of(call) for call in order)]


def result_of(call: ToolUseBlock, text: str = "seen") -> Msg:
    """A result of a call."""
    return Msg.tool(ToolResultBlock(id=call.id, name=call.name, output=(TextBlock(text=f"{text} {call.id}"),)))
