"""`agentscope-rx run`: one task, done with the files of a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentscope_rx.cli.asking import ask, can_ask, rules_of
from agentscope_rx.cli.conduct import conduct
from agentscope_rx.cli.exit_codes import ExitCode, code_of
from agentscope_rx.cli.outputs import JsonOutput, Output, QuietOutput, say
from agentscope_rx.cli.plain import one_line
from agentscope_rx.cli.render import LiveView, new_console
from agentscope_rx.cli.tally import Tally, counted
from agentscope_rx.errors import ConfigError, InvalidOption
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.interactions import Answer
from agentscope_rx.messages import Msg
from agentscope_rx.permission_context import PermissionMode
from agentscope_rx.requests import Model
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import JsonFileStore
from agentscope_rx.tools.file_tools import file_tools
from agentscope_rx.workspace import LocalWorkspace
from agentscope_rx.workspace.paths import RUNTIME_FOLDER

NAME: Final = "agentscope-rx"
MODEL_VARIABLE: Final = "AGENTSCOPE_RX_MODEL"
PROMPT: Final = (
    "You work on a folder of files with tools that can look and cannot change anything. Look before you answer: "
    "list, search, then read the parts that matter. Keep the answer short, and name the files and lines that "
    "support it."
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`.

    Args:
        model: The model, as provider:model (openai:gpt-5-mini, ollama:llama3.2, ...); else the environment variable
            AGENTSCOPE_RX_MODEL says it.
        workspace: The folder to look at; the current one if left out. Sessions are kept in it.
        session: The session to go on with; a new one if left out.
        user: Whose session it is.
        json: Print every event as one line of JSON.
        quiet: Print only the answer.
        debug: Show the traceback of an error.
        max_iters: How many reasoning steps there may be; 30 if left out.
        mode: What becomes of calls that no rule speaks of: default, accept_edits (looking is allowed; if left out),
            explore, bypass or dont_ask.
        allow: A rule that lets calls run, as TOOL or TOOL(CONTENT); may be repeated.
        deny: A rule that never lets calls run, such as 'read_file(secrets/**)'; may be repeated.
        ask: A rule that has you asked; may be repeated.
        replayable: Keep in the session all that `record FILE --session ID` needs to make a recording of it later.
    """

    model: str | None = None
    workspace: Path = Path()
    session: str | None = None
    user: str | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False
    max_iters: int = 30
    mode: str = PermissionMode.ACCEPT_EDITS.value
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    replayable: bool = False


def _as_it_is(builder: HarnessBuilder) -> HarnessBuilder:
    return builder


async def run(
    task: str, options: RunOptions, *, prepared: Callable[[HarnessBuilder], HarnessBuilder] = _as_it_is
) -> ExitCode:
    """Do a task.

    Args:
        task: What to do.
        options: How.
        prepared: Gets the builder of the agent, and gives the one that is used. Default: the same.

    Raises:
        ConfigError: The task or an option is wrong.
        AgentScopeError: The run failed.
    """
    model = checked(task, options)
    runtime = Runtime()
    context = RuntimeContext(user_id=options.user, session_id=_session(options, runtime))
    builder = prepared(stored_builder(model, options).runtime(runtime))
    tally = Tally()
    async with builder.build() as agent:
        output = await _output(options, model, agent, context)
        result = await _worked(agent, task, context, options, Watched(output, tally))
    _say_goodbye(options, result, tally, str(context.session_id))
    return ExitCode.WAITING if result is None else code_of(result.reason)


@dataclass(frozen=True)
class Watched:
    """Who sees what happens."""

    output: Output
    tally: Tally


async def _worked(
    agent: HarnessAgent, task: str, context: RuntimeContext, options: RunOptions, watched: Watched
) -> Msg | None:
    """Do the task, after what still waits from before; None = that goes on waiting, and nothing was done."""

    async def done(work: str | Mapping[str, Answer]) -> Msg:
        return await conduct(agent, work, context, output=watched.output, watchers=(watched.tally.count,))

    async def settled(result: Msg | None) -> Msg | None:
        while waiting := await agent.pending(context):
            answers = await ask(waiting) if can_ask() and not options.json else {}
            if not answers:
                break
            result = await done(answers)
        return result

    if await agent.pending(context):
        before = await settled(None)
        if before is None or code_of(before.reason) is not ExitCode.DONE:
            return before
    return await settled(await done(task))


def agent_builder(model: Model | str, folder: LocalWorkspace, *, max_iters: int) -> HarnessBuilder:
    """An agent that can look at a folder.

    Args:
        model: Its model.
        folder: What it sees, to look at only.
        max_iters: How many reasoning steps it may take.

    Raises:
        ConfigError: There is no such model, or the limit is below 1.
    """
    return HarnessAgent.builder(
        name=NAME,
        model=model,
        sys_prompt=PROMPT,
        workspace=folder,
        max_iters=max_iters,
    )


def stored_builder(model: Model | str, options: RunOptions) -> HarnessBuilder:
    """An agent whose sessions are kept in the folder that it looks at.

    Raises:
        ConfigError: The folder cannot be used, or there is no such model.
    """
    folder = folder_of(options.workspace)
    store = JsonFileStore(_writable(folder.root) / RUNTIME_FOLDER)
    builder = agent_builder(model, folder, max_iters=options.max_iters).state_store(store)
    tools = [each.spec.name for each in file_tools(folder, read_only=True)]
    rules = [
        *rules_of("deny", options.deny, tools),
        *rules_of("ask", options.ask, tools),
        *rules_of("allow", options.allow, tools),
    ]
    return builder.permission_mode(options.mode).permission_rules(rules)


def chosen_model(given: str | None) -> str | None:
    """The model that was asked for on the command line, else in the environment; None = neither."""
    return given or os.environ.get(MODEL_VARIABLE, "").strip() or None


def folder_of(path: Path) -> LocalWorkspace:
    """The files of a folder, to look at only.

    Raises:
        InvalidOption: It is no folder.
    """
    try:
        return LocalWorkspace(path, read_only=True)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidOption("--workspace", str(path), "there is no such folder") from None


def checked(task: str, options: RunOptions) -> str:
    """The model's name, once all that can be wrong at a glance is right."""
    if not task.strip():
        raise ConfigError("the task is empty: say what is to be done")
    if options.json and options.quiet:
        raise ConfigError("--json and --quiet exclude each other")
    model = chosen_model(options.model)
    if model is None:
        raise ConfigError(
            f"no model: give --model provider:model, such as openai:gpt-5-mini, or set {MODEL_VARIABLE} "
            f"(`{NAME} demo` needs none)"
        )
    return model


def _writable(folder: Path) -> Path:
    if not os.access(folder, os.W_OK | os.X_OK):
        rule = f"sessions are kept there, in {RUNTIME_FOLDER}, so you must be allowed to write to it"
        raise InvalidOption("--workspace", str(folder), rule)
    return folder


def _session(options: RunOptions, runtime: Runtime) -> str:
    if options.session is not None:
        return options.session
    return f"{runtime.clock.now():%Y%m%d-%H%M%S}-{runtime.ids.new_id('session')[:4]}"


async def _output(options: RunOptions, model: str, agent: HarnessAgent, context: RuntimeContext) -> Output:
    if options.json:
        return JsonOutput()
    if options.quiet:
        return QuietOutput()
    from rich.text import Text

    console = new_console()
    past = sum(1 for _ in (await agent.state(context)).context.messages)
    session = f"session {context.session_id} ({counted(past, 'message') if past else 'new'})"
    console.print(Text(one_line(f"{model} · {options.workspace} · {session}"), "dim"), soft_wrap=True)
    return LiveView(console)


def _say_goodbye(options: RunOptions, result: Msg | None, tally: Tally, session: str) -> None:
    """How to go on; on stdout only where people read it."""
    live = not (options.json or options.quiet)
    if live:
        from rich.text import Text

        again = _again(options, session)
        new_console().print(Text(f"\n{tally}\ngo on: {one_line(again)}", "dim"), soft_wrap=True)
    match ExitCode.WAITING if result is None else code_of(result.reason):
        case ExitCode.INTERRUPTED if not live:
            say(f"interrupted; go on with: {one_line(_again(options, session))}")
        case ExitCode.FAILED:
            say("error: the model gave an empty answer, twice")
        case ExitCode.WAITING:
            say(f"the session waits for an answer; in a terminal you are asked: {one_line(_again(options, session))}")
        case ExitCode.LIMIT if not live:
            say(f"the limit of {counted(options.max_iters, 'step')} is reached (--max-iters)")
        case _:
            pass


def _again(options: RunOptions, session: str) -> str:
    words = [NAME, "run", '"..."', "--session", shlex.quote(session)]
    if options.model is not None:
        words += ["--model", shlex.quote(options.model)]
    if options.user is not None:
        words += ["--user", shlex.quote(options.user)]
    if options.workspace != Path():
        words += ["--workspace", shlex.quote(str(options.workspace))]
    return " ".join(words)
