"""`agentscope-rx record`, `replay` and `what-if`: tasks as recordings, and recordings as tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from importlib import import_module
from inspect import isroutine
from pathlib import Path
from typing import Any, Final, cast

from agentscope_rx.builder import AgentBuilder, resolved
from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line
from agentscope_rx.cli.run import RunOptions, checked, run, stored_builder
from agentscope_rx.cli.sessions import SessionsOptions, check_there, key_of, store_of
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import ConfigError, InvalidOption, ReplayMismatch, RunError
from agentscope_rx.frozen import frozen
from agentscope_rx.replay import Recorder, Recording, SessionRecorder, WhatIf, record_session, replay, what_if
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.session import SessionLog
from agentscope_rx.wire import to_json

_TASK: Final = "options"
_MODEL: Final = "model"


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `replay`.

    Args:
        builder: The agent, as MODULE:NAME of a builder or of a function that makes one; the one of `record`, with the
            options that it had, if left out.
        debug: Show the traceback of an error.
    """

    builder: str | None = None
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(SessionsOptions):
    """The options of `what-if`.

    Args:
        builder: The agent, as MODULE:NAME of a builder or of a function that makes one; the one of the command line if
            left out.
    """

    builder: str | None = None


async def run_task(task: str, options: RunOptions) -> ExitCode:
    """Do a task; errors as of `run`.

    Args:
        task: What to do.
        options: How, and whether the log of its session becomes one that `record_log` can make a recording of.
    """
    if not options.replayable:
        return await run(task, options)
    return await run(task, options, prepared=SessionRecorder(note=_noted(task, options)).watch)


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
    try:
        async with Recorder(file, note=_noted(task, options)) as recorder:
            code = await run(task, options, prepared=recorder.watch)
        say(f"recorded: {one_line(str(file))}")
        return code
    except OSError as error:
        raise InvalidOption("FILE", str(file), f"cannot be written ({error})") from error


async def record_log(file: Path, options: RunOptions) -> ExitCode:
    """Make a recording of a session whose runs were replayable.

    Args:
        file: The recording.
        options: Which session, and where.

    Raises:
        ConfigError: No session is named, there is none of this name, or no run of it was replayable.
    """
    if options.session is None:
        raise ConfigError("say what is to be done, or by --session ID which session is to become a recording")
    log = await _log_of(options.session, SessionsOptions(workspace=options.workspace, user=options.user))
    try:
        recorded = await record_session(log, file)
    except InvalidOption as error:
        raise ConfigError(f"session {options.session!r} holds no run that was made with --replayable") from error
    except OSError as error:
        raise InvalidOption("FILE", str(file), f"cannot be written ({error})") from error
    _print(str(recorded))
    return ExitCode.DONE


async def what_if_session(
    session: str, options: WhatIfOptions, *, step: int, run: int, policy: ContextPolicy
) -> ExitCode:
    """Prepare a request of a session once more, and say what that changes; arguments as of `what_if_file`."""
    log = await _log_of(session, options)
    builder = await _builder_of(log, options) if options.builder is None else _imported(options.builder)
    try:
        outcome = await asyncio.to_thread(what_if, log, builder, step=step, run=run, policy=policy)
    except ReplayMismatch as mismatch:
        _print(str(mismatch))
        say("error: this agent is not the one of the session; --builder MODULE:NAME says whose it is")
        return ExitCode.FAILED
    _print_outcome(outcome, options)
    return ExitCode.DONE


async def _log_of(session: str, options: SessionsOptions) -> SessionLog:
    store, key = store_of(options), key_of(session, options)
    await check_there(store, key)
    return SessionLog(store, key)


async def _builder_of(log: SessionLog, options: WhatIfOptions) -> AgentBuilder[Any, Any]:
    """The agent of the command line, with the model that the session has asked."""
    asked = None
    async with aclosing(log.requests()) as requests:
        async for each in requests:
            asked = each if each.request.purpose == "reasoning" else asked
    if asked is None:
        raise InvalidOption("--session", log.key.session_id, "its log holds no request to a model")
    account = asked.manifest or {}
    window = account.get("window") if account.get("windowOrigin") == "given" else None
    model = _NotAsked(name=asked.model, context_window=window, max_output_tokens=None, json_schema=False)
    return stored_builder(model, RunOptions(workspace=options.workspace))


def _noted(task: str, options: RunOptions) -> Mapping[str, object]:
    """What makes the agent of a task again."""
    model = resolved("--model", checked(task, options))
    facts = {
        "name": model.name,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "json_schema": bool(getattr(model, "json_schema", False)),
    }
    return {_TASK: {**asdict(options), "workspace": str(options.workspace)}, _MODEL: facts}


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


async def what_if_file(file: Path, options: WhatIfOptions, *, step: int, run: int, policy: ContextPolicy) -> ExitCode:
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
    _print_outcome(outcome, options)
    return ExitCode.DONE


def _differs(mismatch: ReplayMismatch) -> ExitCode:
    _print(str(mismatch))
    say("error: the request differs from the recorded one")
    return ExitCode.FAILED


def _print(text: str) -> None:
    print("\n".join(one_line(line) for line in text.splitlines()), flush=True)


def _print_outcome(outcome: WhatIf, options: WhatIfOptions) -> None:
    if not options.json:
        _print(str(outcome))
        return
    line = {
        "step": outcome.step,
        "before": outcome.before.to_data(full=True),
        "after": outcome.after.to_data(full=True),
        "error": None if outcome.error is None else str(outcome.error),
        "notes": outcome.notes,
    }
    print(harmless_json(to_json(line).decode()), flush=True)


def _builder(file: Path, options: ReplayOptions | WhatIfOptions) -> AgentBuilder[Any, Any]:
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
