"""What agents are called with, as a recording holds it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from agentscope_rx.call import Call
from agentscope_rx.inbox import Command
from agentscope_rx.interaction_json import answers_from_json, answers_to_json
from agentscope_rx.interactions import Answer
from agentscope_rx.messages import Msg
from agentscope_rx.replay.codecs import command_data, command_from, message_data, message_from
from agentscope_rx.tools.outputs import OutputSpec, OutputType
from agentscope_rx.wire import from_json


def call_data(call: Call) -> Mapping[str, object]:
    """A call as plain data; what the application handed along beside the identities is left out."""
    return {
        "agent": call.options.name,
        "messages": [message_data(message) for message in call.messages],
        "answers": None if call.answers is None else from_json(answers_to_json(call.answers)),
        "output": None if call.output is None else _output_data(call.output),
        "purposes": call.purposes,
        "pipeline": call.pipeline.names,
        "logged": call.options.log_store is not None,
        **({} if call.command is None else {"command": command_data(call.command)}),
    }


def messages_from(line: Mapping[str, Any]) -> tuple[Msg, ...]:
    """The input of a call."""
    return tuple(map(message_from, line["messages"]))


def answers_of(line: Mapping[str, Any]) -> Mapping[str, Answer] | None:
    """The answers of a call; None where it is no answer."""
    return None if line["answers"] is None else answers_from_json(line["answers"])


def command_of(line: Mapping[str, Any]) -> Command | None:
    """The command that the call carries out; None where it carries out none. What it says is claimed by the run."""
    return command_from(line["command"]) if "command" in line else None


def output_of(line: Mapping[str, Any]) -> OutputType | None:
    """The form of the answer: the type, where it can be imported, else its schema."""
    output = line["output"]
    if output is None:
        return None
    module, _, path = str(output["type"]).partition(":")
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError):
        return cast("Mapping[str, object]", output["schema"])
    return cast("OutputType", found)


def _output_data(output: OutputType) -> Mapping[str, object]:
    name = f"{output.__module__}:{output.__qualname__}" if isinstance(output, type) else ""
    return {"type": name, "schema": OutputSpec.of(output).schema}
