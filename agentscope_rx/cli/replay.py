"""`agentscope-rx record`, `replay` and `what-if`: tasks as recordings, and recordings as tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from inspect import isroutine
from pathlib import Path
from typing import Any, Final, cast

from agentscope_rx.builder import AgentBuilder, resolved
from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import one_line
from agentscope_rx.cli.run import RunOptions, checked, run, stored_builder
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import ConfigError, InvalidOption, ReplayMismatch, RunError
from agentscope_rx.frozen import frozen
from agentscope_rx.replay import Recorder, Recording, replay, what_if
from agentscope_rx.requests import ModelChunk, ModelRequest

_TASK: Final = "options"
_MODEL: Final = "model"


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `replay` and `what-if`.

    Args:
        builder: The agent, as MODULE:NAME of a builder or of a function that makes one; the one of `record`, with the
            options that it had, if left out.
        debug: Show the traceback of an error.
    """

    builder: str | None = None
    debug: bool = False


async def record(file: Path, task: str, options: RunOptions) -> ExitCode:
    """Do a task, and record it.

    Args:
        file: The recording.
        task: What to do.
        options: How.

    Raises:
        ConfigError: The task or an option is wrong.
        AgentScopeError: The run failed; it is recorded all the same.
    """
    model = resolved("--model", checked(task, options))
    facts = {
        "name": model.name,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "json_schema": bool(getattr(model, "json_schema", False)),
    }
    note = {_TASK: {**asdict(options), "workspace": str(options.workspace)}, _MODEL: facts}
    try:
        async with Recorder(file, note=note) as recorder:
            return await run(task, options, prepared=recorder.watch)
    except OSError as error:
        raise InvalidOption("FILE", str(file), f"cannot be written ({error})") from error


async def replay_file(file: Path, options: ReplayOptions, *, update: bool) -> ExitCode:
    """Run a recording again, and say what differs.

    Args:
        file: The recording.
        options: By which agent.
        update: Whether requests that differ are accepted.

    Raises:
        ConfigError: There is no such file or builder.
    """
    builder = _builder(file, options)
    try:
        replayed = await asyncio.to_thread(replay, file, builder, update=update)
    except ReplayMismatch as mismatch:
        return _differs(mismatch)
    _print(str(replayed))
    if update:
        print("the recording was written anew", flush=True)
    return ExitCode.DONE if replayed.same or update else ExitCode.FAILED


async def what_if_file(file: Path, options: ReplayOptions, *, step: int, run: int, policy: ContextPolicy) -> ExitCode:
    """Prepare a recorded request once more, and say what that changes.

    Args:
        file: The recording.
        options: Which agent was recorded.
        step: Which step.
        run: Which run.
        policy: How much may go into the request.

    Raises:
        ConfigError: There is no such file, builder, run or step.
    """
    builder = _builder(file, options)
    try:
        outcome = await asyncio.to_thread(what_if, file, builder, step=step, run=run, policy=policy)
    except ReplayMismatch as mismatch:
        return _differs(mismatch)
    _print(str(outcome))
    return ExitCode.DONE


def _differs(mismatch: ReplayMismatch) -> ExitCode:
    _print(str(mismatch))
    say("error: the request differs from the recorded one")
    return ExitCode.FAILED


def _print(text: str) -> None:
    print("\n".join(one_line(line) for line in text.splitlines()), flush=True)


def _builder(file: Path, options: ReplayOptions) -> AgentBuilder[Any, Any]:
    """The agent that is asked for, else the one of `record`."""
    if options.builder is not None:
        return _imported(options.builder)
    try:
        note = Recording.read(file).note
    except OSError as error:
        raise InvalidOption("FILE", str(file), f"cannot be read ({error})") from error
    if _TASK not in note:
        raise ConfigError("this recording was not made by the command line: say by --builder MODULE:NAME whose it is")
    return stored_builder(_NotAsked(**note[_MODEL]), _options_of(note[_TASK]))


def _options_of(given: Mapping[str, Any]) -> RunOptions:
    """The options of a task, as `record` has noted them."""
    fields: dict[str, Any] = {**given, "workspace": Path(str(given["workspace"]))}
    for name in ("allow", "deny", "ask"):
        fields[name] = tuple(map(str, given[name]))
    return RunOptions(**fields)


def _imported(name: str) -> AgentBuilder[Any, Any]:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
        made: Any = found() if isroutine(found) else found
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidOption("--builder", name, f"MODULE:NAME of a builder, or of a function ({error})") from error
    if not isinstance(made, AgentBuilder):
        raise InvalidOption("--builder", name, "MODULE:NAME of a builder, or of a function that makes one")
    return cast("AgentBuilder[Any, Any]", made)


@frozen
class _NotAsked:
    """What is known of the model that was recorded; nobody asks it."""

    name: str
    context_window: int | None
    max_output_tokens: int | None
    json_schema: bool

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        raise RunError("the model of a recording cannot be asked")
        yield ModelChunk()
