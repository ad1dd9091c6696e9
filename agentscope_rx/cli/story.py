"""The demo's script: what the model says and does next, in the light of what its tools found.

The words are written beforehand. Which file is read, which lines, and every number in the report come from the
results of the tool calls before, as they stand in the request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile
from typing import Any, Final

from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply, text, tool_calls
from agentscope_rx.wire import to_json

TASK: Final = (
    "What happens in one reasoning step of this library? Find the operators of the default pipeline, and who emits "
    "which event. Give me a short report with numbers."
)

_ENTRY: Final = re.compile(r"\[FILE\] (\S+) \((\d+) bytes\)")
_MATCH: Final = re.compile(r"([^:\n]+):(\d+):(.*)")
_OPERATOR: Final = re.compile(r"\bop\.([a-z_]+)\(")
_HELPER: Final = re.compile(r"\b(_[a-z]+)\(")
_GUARD: Final = re.compile(r"\.guard\([^)]*")  # a guard decides how operators run, and is none itself
_EMITTED: Final = re.compile(r"\b(?:ev\.)?([A-Z]\w+)\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One reply of the model.

    Args:
        thinking: What it thinks before it speaks.
        text: What it says.
        calls: The tools that it calls, with their arguments.
    """

    text: str
    thinking: str = ""
    calls: Sequence[tuple[str, Mapping[str, object]]] = ()


@dataclass(slots=True)
class Notes:
    """What the model has found out so far."""

    home: str = "."  # where the package lies
    tests: str = ""  # where its tests lie, if they are there
    pipeline: str = ""  # the file of the default pipeline
    pipeline_line: int = 0
    operators: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict[str, int])  # of the operators' files
    emitters: Counter[str] = field(default_factory=Counter[str])
    emit_line: int = 1  # where the busiest of them emits first
    event_types: int = 0
    frame: str = ""  # the file that emits the first and last events
    frame_line: int = 0
    other_emitters: int = 0
    checks: tuple[tuple[str, int, str], ...] = ()  # tests, or what the package ships for testing

    def within(self, name: str) -> str:
        """The path of something in the package."""
        return name if self.home == "." else f"{self.home}/{name}"

    @property
    def largest(self) -> str:
        """The largest file among the operators."""
        return max(self.sizes, key=lambda path: self.sizes[path], default="operators/__init__.py")

    @property
    def busiest(self) -> str:
        """The operator that emits in the most places."""
        return self.emitters.most_common(1)[0][0] if self.emitters else self.largest


class Story:
    """Answers request after request; one story is one conversation.

    Args:
        scenes: What it says, in order; each is made from the notes so far and the results of the last calls.
        pace: Seconds between two pieces of a reply; 0 = all at once.
    """

    def __init__(self, scenes: Sequence[Callable[[Notes, Sequence[str]], Scene]], *, pace: float) -> None:
        self._scenes, self._pace = scenes, pace
        self._notes = Notes()

    def __call__(self, request: RecordedRequest, _: int) -> ScriptedReply:
        """The reply to a request."""
        asked = sum(message["role"] == "assistant" for message in request.messages)
        scene = self._scenes[min(asked, len(self._scenes) - 1)](self._notes, last_results(request.messages))
        return _reply(scene, number=asked, pace=self._pace)


def last_results(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The results of the last tool calls, in the order of the calls.

    Args:
        messages: The messages of a request.
    """
    backwards = dropwhile(lambda message: message["role"] == "user", reversed(messages))  # what state comes after them
    results = takewhile(lambda message: message["role"] == "tool", backwards)
    return [str(message["content"]) for message in results][::-1]


def matches(result: str) -> list[tuple[str, int, str]]:
    """Path, line number and text of each match in a result of `grep_files`."""
    found = (_MATCH.fullmatch(line) for line in result.splitlines())
    return [(match[1], int(match[2]), match[3].strip()) for match in found if match]


def files(result: str) -> dict[str, int]:
    """The files in a result of `list_files`, with their sizes."""
    return {match[1]: int(match[2]) for match in _ENTRY.finditer(result)}


def operators_in(source: str, maker: str) -> tuple[str, ...]:
    """The operators that a pipeline is made of, in their order.

    Args:
        source: The file in which it is made.
        maker: The function that makes it.
    """
    body = _body(source, maker)
    body += "".join(_body(source, helper) for helper in _HELPER.findall(body))
    return tuple(dict.fromkeys(_OPERATOR.findall(_GUARD.sub("", body))))


def emitted(found: Sequence[tuple[str, int, str]]) -> list[str]:
    """The events that lines of code emit."""
    return [match[1] for _, _, line in found if (match := _EMITTED.search(line))]


def _reply(scene: Scene, *, number: int, pace: float) -> ScriptedReply:
    """A scene as a streamed reply: thinking, text and arguments piece by piece."""
    thinking = [{"d": {"reasoning_content": piece}, "f": None} for piece in _words(scene.thinking)]
    spoken = [{"d": {"content": piece}, "f": None} for piece in _words(scene.text)]
    if scene.calls:
        calls = ((f"call_{number}_{i}", name, to_json(given).decode()) for i, (name, given) in enumerate(scene.calls))
        reply = tool_calls(*calls, pieces=3)
    else:
        reply = replace(text(""), message={"role": "assistant", "content": scene.text})
    opening, *rest = reply.items
    return replace(reply, items=(opening, *thinking, *spoken, *rest), pace=pace, delay=10 * pace)


def _body(source: str, function: str) -> str:
    return source.partition(f"\ndef {function}(")[2].partition("\ndef ")[0]


def _words(written: str) -> list[str]:
    return re.findall(r"\s*\S+", written)
