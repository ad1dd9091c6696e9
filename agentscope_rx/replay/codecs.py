"""What arrives from outside, as plain data and back."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, cast

from pydantic import TypeAdapter

import agentscope_rx.errors as all_errors
from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.materials import Materials
from agentscope_rx.context.sources import ContextRequest, ContextSource, Loaded
from agentscope_rx.draft import Change
from agentscope_rx.errors import AgentScopeError
from agentscope_rx.inbox import Claimed, Command, CommandKind, QueuedInput
from agentscope_rx.messages import DataBlock, Msg, ToolResultBlock, message_adapter
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.requests import CallDelta, ModelChunk
from agentscope_rx.task_state import PlanModeContextState, TaskContextState
from agentscope_rx.tools.execution import ToolOutcome
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import from_json, to_json, write

Data = Mapping[str, Any]
_NO_FIELDS: Final[Data] = MappingProxyType({})


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Reads and writes values of one type."""
    return TypeAdapter(kind)


def plain(kind: Any, value: object) -> object:
    """A value of a type as plain data."""
    return from_json(write(adapter(kind), value))


# -- messages and answers of a model ------------------------------------------------------------------------


def message_data(message: Msg) -> object:
    """A message as plain data."""
    return from_json(message.to_json())


def message_from(data: object) -> Msg:
    """The message that the data are."""
    return message_adapter().validate_json(to_json(data))


def chunks_data(chunks: Sequence[tuple[float, ModelChunk]], redaction: Redaction) -> list[object]:
    """The pieces of an answer, each with its moment; no secret is in them, nor in several of them together."""
    texts = redaction.pieces([chunk.text for _, chunk in chunks])
    thoughts = redaction.pieces([chunk.thinking for _, chunk in chunks])
    arguments = _arguments(chunks, redaction)
    data: list[object] = []
    for at, ((moment, chunk), text, thinking) in enumerate(zip(chunks, texts, thoughts, strict=True)):
        fields: dict[str, object] = {
            "text": text,
            "thinking": thinking,
            "calls": [_call_data(delta, arguments[at, place]) for place, delta in enumerate(chunk.calls)],
            "usage": None if chunk.usage is None else plain(ChatUsage, chunk.usage),
            "finish": chunk.finish_reason,
            "opaque": redaction.data(chunk.opaque),
        }
        shown = {name: value for name, value in fields.items() if value not in ("", [], None)}
        data.append([moment, shown["text"] if shown.keys() == {"text"} else shown])
    return data


def chunk_from(data: object) -> ModelChunk:
    """A piece of an answer."""
    if isinstance(data, str):
        return ModelChunk(text=data)
    fields = cast("Data", data)
    usage = fields.get("usage")
    return ModelChunk(
        text=fields.get("text", ""),
        thinking=fields.get("thinking", ""),
        calls=tuple(
            CallDelta(
                each["index"], each.get("id", ""), each.get("name", ""), each.get("arguments", ""), each["opaque"]
            )
            for each in fields.get("calls", ())
        ),
        usage=None if usage is None else adapter(ChatUsage).validate_python(usage),
        finish_reason=fields.get("finish"),
        opaque=fields.get("opaque"),
    )


def _call_data(delta: CallDelta, arguments: str) -> Data:
    named = {"id": delta.id, "name": delta.name, "arguments": arguments}
    return {"index": delta.index, **{name: text for name, text in named.items() if text}, "opaque": delta.opaque}


def _arguments(chunks: Sequence[tuple[float, ModelChunk]], redaction: Redaction) -> dict[tuple[int, int], str]:
    """The pieces of the arguments of all calls, by chunk and by place in it."""
    places: dict[int, list[tuple[int, int]]] = {}
    for at, (_, chunk) in enumerate(chunks):
        for place, delta in enumerate(chunk.calls):
            places.setdefault(delta.index, []).append((at, place))
    found: dict[tuple[int, int], str] = {}
    for its in places.values():
        pieces = redaction.pieces([chunks[at][1].calls[place].arguments for at, place in its])
        found.update(zip(its, pieces, strict=True))
    return found


# -- failures -----------------------------------------------------------------------------------------------


def error_data(error: BaseException) -> Data:
    """An error as plain data."""
    fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | bool)}
    args = {"args": error.args} if isinstance(error, OSError) and len(error.args) == 2 else {}
    return {"class": type(error).__name__, "message": str(error), **args, **({"fields": fields} if fields else {})}


def error_from(data: Data) -> Exception:
    """An error of the same class, where it is one of this library or of Python; else of a class of that name."""
    name = str(data["class"])
    kind = getattr(all_errors, name, None) or getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        kind = cast("type[Exception]", type(name, (Exception,), {}))
    if "args" in data and kind.__module__ == builtins.__name__:
        return kind(*data["args"])
    error = kind.__new__(kind, str(data["message"]))
    error.args = (str(data["message"]),)
    if isinstance(error, AgentScopeError):
        absent = dict.fromkeys(("status", "provider_code", "retry_after"), None)
        error.__dict__.update({**absent, **data.get("fields", _NO_FIELDS)})
    return error


# -- what others have told the session ----------------------------------------------------------------------


def command_data(command: Command) -> Data:
    """Which command a run is at; for whom it is and what it says stands elsewhere."""
    return {"id": command.id, "kind": command.kind.value, "turn": command.turn_id}


def command_from(data: Data, messages: Sequence[Msg] = ()) -> Command:
    """The command again, as far as a run looks at it."""
    kind = CommandKind(data["kind"])
    return Command(id=data["id"], kind=kind, turn_id=data["turn"], digest="", messages=tuple(messages))


def input_data(given: QueuedInput) -> Data:
    """Messages that came for a run meanwhile."""
    return {"id": given.id, "messages": [message_data(message) for message in given.messages]}


def input_from(data: Data) -> QueuedInput:
    """Messages that came for a run meanwhile."""
    return QueuedInput(id=data["id"], messages=tuple(map(message_from, data["messages"])))


# -- sources, materials and commands ------------------------------------------------------------------------


def reached_data(value: object) -> Data:
    """What a source or the workspace gave, the texts of a file, a command, or that something was done.

    Raises:
        TypeError: It is something else.
    """
    if value is None:
        return {"done": True}
    if isinstance(value, tuple):
        return {"texts": list(cast("tuple[str, ...]", value))}
    if isinstance(value, Claimed):
        messages = [message_data(message) for message in value.command.messages]
        return {"command": command_data(value.command), "messages": messages, "continues": value.continues}
    if isinstance(value, Loaded):
        return {"blocks": plain(tuple[ContextBlock, ...], value.blocks), "failure": value.failure}
    if isinstance(value, Materials):
        parts = {name: plain(tuple[ContextBlock, ...], getattr(value, name)) for name in _MATERIALS}
        return {**parts, "changes": [_change_data(change) for change in value.changes]}
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def reached_from(name: str, data: Data) -> object:
    """What a source (`source/<name>`) or the workspace gave, a command, or that something was done."""
    if "done" in data:
        return None
    if "texts" in data:
        return tuple(data["texts"])
    if "command" in data:
        messages = tuple(map(message_from, data["messages"]))
        return Claimed(command=command_from(data["command"], messages), continues=data["continues"])
    if "blocks" in data:
        source = ContextSource(name=name.partition("/")[2], load=_not_asked)
        return Loaded(source=source, blocks=_blocks(data["blocks"]), failure=data["failure"])
    parts = {part: _blocks(data[part]) for part in _MATERIALS}
    return Materials(**parts, changes=tuple(map(_change_from, data["changes"])))


_MATERIALS: Final = ("system", "references", "runtime")


def _blocks(data: object) -> tuple[ContextBlock, ...]:
    return adapter(tuple[ContextBlock, ...]).validate_json(to_json(data))


def _change_data(change: Change) -> Data:
    blocks = {name: plain(tuple[ContextBlock, ...], getattr(change, name)) for name in ("before", "after")}
    return {
        "operator": change.operator,
        "zone": change.zone,
        "action": change.action,
        "item_id": change.item_id,
        "reason": change.reason,
        **blocks,
    }


def _change_from(data: Data) -> Change:
    fields: dict[str, Any] = {**data, "before": _blocks(data["before"]), "after": _blocks(data["after"])}
    return Change(**fields)


def _not_asked(_: ContextRequest) -> Sequence[ContextBlock]:
    return ()


# -- tools --------------------------------------------------------------------------------------------------


def outcome_data(outcome: ToolOutcome) -> Data:
    """What became of a tool call."""
    return {
        "result": plain(ToolResultBlock, outcome.result),
        "streamed": outcome.streamed,
        "activated_groups": outcome.activated_groups,
        "suspended": outcome.suspended,
        "error": None if outcome.error is None else error_data(outcome.error),
    }


def outcome_from(data: Data) -> ToolOutcome:
    """What became of a tool call."""
    groups, error = data["activated_groups"], data["error"]
    return ToolOutcome(
        result=adapter(ToolResultBlock).validate_json(to_json(data["result"])),
        streamed=data["streamed"],
        activated_groups=None if groups is None else tuple(groups),
        suspended=data["suspended"],
        error=None if error is None else error_from(error),
    )


def report_data(shown: object) -> object:
    """What a tool has reported: a text or a block."""
    return shown if isinstance(shown, str) else plain(DataBlock, shown)


def report_from(data: object) -> str | DataBlock:
    """What a tool has reported."""
    return data if isinstance(data, str) else adapter(DataBlock).validate_json(to_json(data))


def proposal_data(state: TaskContextState | PlanModeContextState) -> Data:
    """What a tool has changed of the session."""
    kind = type(state)
    return {"plan" if kind is PlanModeContextState else "tasks": from_json(to_json(state))}


def proposal_from(data: Data) -> TaskContextState | PlanModeContextState:
    """What a tool has changed of the session."""
    if "plan" in data:
        return adapter(PlanModeContextState).validate_json(to_json(data["plan"]))
    return adapter(TaskContextState).validate_json(to_json(data["tasks"]))
