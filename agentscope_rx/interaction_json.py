"""What waits, and what is answered, as JSON: for applications whose people are elsewhere, behind HTTP for instance.

    {"version": 1, "pending": [{"kind": "confirmation", "call": {"type": "tool_use", "id": "c1", ...},
                                "message": "...", "suggestions": [...]}]}

    {"version": 1, "answers": {"c1": {"type": "confirmation", "confirmed": true, "input": {...}, "rules": [...]},
                               "c2": {"type": "confirmation", "confirmed": false, "reason": "too expensive"},
                               "c3": {"type": "external_execution", "result": {"output": [...], "state": "success"}}}}

`true`, `false` and a text are short for an answer that says nothing else. A part of an answer that is not known is
refused and not ignored: what it was to change would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import ConfigDict, Discriminator, StrictBool, StrictStr, Tag, TypeAdapter, ValidationError

from agentscope_rx.errors import InteractionMismatch
from agentscope_rx.frozen import frozen
from agentscope_rx.interactions import Answer, Approval, PendingCall
from agentscope_rx.messages import OutputBlock, TextBlock, ToolResultBlock, ToolResultState
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.wire import json_object, write

T = TypeVar("T")
#: The version that is written; those up to it are read.
VERSION: Final = 1
_KNOWN_PARTS: Final = ConfigDict(extra="forbid")


@frozen
class _Confirmation:
    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN_PARTS

    type: Literal["confirmation"] = "confirmation"
    confirmed: StrictBool
    input: Mapping[str, object] | None = None
    rules: tuple[PermissionRule, ...] | None = None
    reason: str | None = None

    def answer(self) -> Approval:
        return Approval(approved=self.confirmed, input=self.input, rules=self.rules or (), reason=self.reason)


@frozen
class _Result:
    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN_PARTS

    type: Literal["tool_result"] = "tool_result"
    id: str = ""
    name: str = ""
    output: tuple[OutputBlock, ...]
    metadata: Mapping[str, object] | None = None
    state: ToolResultState = ToolResultState.SUCCESS


@frozen
class _Execution:
    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN_PARTS

    type: Literal["external_execution"] = "external_execution"
    result: _Result

    def answer(self) -> ToolResultBlock:
        given = self.result
        return ToolResultBlock(
            id=given.id, name=given.name, output=given.output, metadata=given.metadata or {}, state=given.state
        )


def _kind(given: object) -> str:
    """Which form an answer has, so that what is wrong with it is told of that form alone."""
    if isinstance(given, bool):
        return "short"
    if isinstance(given, str):
        return "text"
    found = (
        cast("Mapping[str, object]", given).get("type") if isinstance(given, Mapping) else getattr(given, "type", "")
    )
    return str(found)


_Form: TypeAlias = Annotated[
    Annotated[StrictBool, Tag("short")]
    | Annotated[StrictStr, Tag("text")]
    | Annotated[_Confirmation, Tag("confirmation")]
    | Annotated[_Execution, Tag("external_execution")],
    Discriminator(
        _kind,
        custom_error_type="answer",
        custom_error_message="an answer is true, false, a text, or of type confirmation or external_execution",
    ),
]


@frozen
class _Answers:
    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN_PARTS

    version: int = VERSION
    answers: Mapping[str, _Form]


@frozen
class _Pending:
    version: int = VERSION
    pending: tuple[PendingCall, ...]


# -- what waits ---------------------------------------------------------------------------------------------


def pending_to_json(pending: Sequence[PendingCall]) -> bytes:
    """The calls that wait as JSON, for whoever asks people about them.

    Args:
        pending: What `agent.pending` gave.

    Examples:
        >>> pending_from_json(pending_to_json([]))
        ()
    """
    return write(_pending_adapter(), _Pending(pending=tuple(pending)))


def pending_from_json(data: bytes | str | Mapping[str, object]) -> tuple[PendingCall, ...]:
    """Read what `pending_to_json` has written; parts that are not known are ignored.

    Args:
        data: The JSON, or the object that it holds.

    Raises:
        InteractionMismatch: It is no such JSON, or of a newer version.
    """
    return _read(_pending_adapter(), data, "the calls that wait").pending


# -- answers ------------------------------------------------------------------------------------------------


def answers_to_json(answers: Mapping[str, Answer]) -> bytes:
    """Answers as JSON, for the process that has the session.

    Args:
        answers: As `agent.respond` takes them.

    Examples:
        >>> answers_to_json({"c1": False})
        b'{"version":1,"answers":{"c1":{"type":"confirmation","confirmed":false}}}'
    """
    return write(_answers_adapter(), _Answers(answers={id: _form(id, answer) for id, answer in answers.items()}))


def answers_from_json(data: bytes | str | Mapping[str, object]) -> dict[str, Answer]:
    """Read answers, to hand them to `respond`.

    Whoever may answer can also say which rules hold from then on; `replace(answer, rules=())` takes that away.

    Args:
        data: The JSON, or the object that it holds.

    Raises:
        InteractionMismatch: It is no such JSON, or of a newer version.

    Examples:
        >>> answers_from_json('{"answers": {"c1": {"type": "confirmation", "confirmed": true}, "c2": "done"}}')
        {'c1': Approval(approved=True, input=None, rules=(), reason=None), 'c2': 'done'}
    """
    given = _read(_answers_adapter(), data, "the answers").answers
    return {id: each if isinstance(each, bool | str) else each.answer() for id, each in given.items()}


def _form(id: str, answer: Answer) -> _Confirmation | _Execution:
    match answer:
        case bool():
            return _Confirmation(confirmed=answer)
        case Approval():
            return _Confirmation(
                confirmed=answer.approved, input=answer.input, rules=answer.rules or None, reason=answer.reason
            )
        case ToolResultBlock():
            result = replace(answer, id=id)
        case str():
            result = ToolResultBlock(id=id, name="", output=(TextBlock(text=answer),))
        case _:
            result = ToolResultBlock(id=id, name="", output=tuple(answer))
    return _Execution(
        result=_Result(
            id=result.id,
            name=result.name,
            output=result.output,
            metadata=result.metadata or None,
            state=result.state,
        )
    )


# -- both ---------------------------------------------------------------------------------------------------


def _read(adapter: TypeAdapter[T], data: bytes | str | Mapping[str, object], what: str) -> T:
    given = json_object(data) if isinstance(data, bytes | str) else data
    if given is None:
        raise InteractionMismatch(f"{what} cannot be read: a JSON object was expected")
    version = given.get("version", VERSION)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise InteractionMismatch(f"{what} are of version {version!r:.40}; this library reads up to {VERSION}")
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        # Not the error's own words: they quote what was said in the session.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InteractionMismatch(f"{what} cannot be read: {where}: {first['msg']}") from None


@cache
def _pending_adapter() -> TypeAdapter[_Pending]:
    return TypeAdapter(_Pending)


@cache
def _answers_adapter() -> TypeAdapter[_Answers]:
    return TypeAdapter(_Answers)
