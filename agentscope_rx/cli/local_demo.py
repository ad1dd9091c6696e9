"""The demo with a small real model on this machine: one question, and one tool call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.cli.exit_codes import ExitCode, code_of
from agentscope_rx.cli.local_model import ActionModel, local_model
from agentscope_rx.cli.run import NAME, folder_of
from agentscope_rx.cli.stage import Stage
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import GenerateOptions, Model
from agentscope_rx.tools.file_tools import file_tools

_QUESTION: Final = "What is the capital of France?"
_PROMPT: Final = "Answer in one short English sentence."
_LINES: Final = 5
_OPTIONS: Final = GenerateOptions(max_tokens=40, temperature=0)
_INTRODUCTION: Final = (
    "The model is real, and runs on this machine without key and network: 135 million parameters, so expect no "
    "wisdom. It cannot call tools by itself. In the second task the server holds its answer to the schema of a "
    "tool's arguments, and that answer becomes the call."
)


async def local_demo(stage: Stage, folder: Path) -> ExitCode:
    """Play the demo with the local model.

    Args:
        stage: Where it is shown.
        folder: The folder from which the model may read a file.

    Raises:
        ConfigError: The model is not installed.
        AgentScopeError: A run failed.
    """
    with local_model() as model:
        stage.say(f"{NAME} demo", "bold")
        stage.say(_INTRODUCTION)
        stage.space()
        stage.fact("model", model.name)
        stage.fact("folder", str(folder))
        name = "README.md" if (folder / "README.md").is_file() else "pipelines.py"
        task = f"Read {name} and summarize it in one short sentence."
        for agent, asked in ((_agent(model).build(), _QUESTION), (_reading(model, folder), task)):
            stage.space()
            async with agent:
                result = await stage.play(agent, asked)
            if code_of(result.reason) is not ExitCode.DONE:
                return code_of(result.reason)
    stage.summarise()
    return ExitCode.DONE


def _reading(model: Model, folder: Path) -> ReActAgent:
    read_file = file_tools(folder_of(folder))[0]
    acting = ActionModel(model, tool="read_file", arguments=_arguments(folder))
    return _agent(acting).tools([read_file]).build()


def _agent(model: Model) -> AgentBuilder[ReActAgent]:
    return ReActAgent.builder(name=NAME, model=model, sys_prompt=_PROMPT, generate_options=_OPTIONS)


def _arguments(folder: Path) -> Mapping[str, object]:
    """Arguments of `read_file` that a small model cannot get wrong: the first lines of a file that is there."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".md", ".py") and path.is_file())
    return {
        "type": "object",
        "properties": {"path": {"enum": names}, "limit": {"const": _LINES}},
        "required": ["path", "limit"],
        "additionalProperties": False,
    }
