"""The commands, as cyclopts reads them from signatures and docstrings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, CycloptsError, Parameter

from agentscope_rx.__about__ import __version__
from agentscope_rx.cli import replay as of_replay
from agentscope_rx.cli import sessions as of_sessions
from agentscope_rx.cli.context import context as show_context
from agentscope_rx.cli.demo import DemoOptions
from agentscope_rx.cli.demo import demo as play_demo
from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.failures import settled
from agentscope_rx.cli.fork import fork as begin_fork
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import one_line
from agentscope_rx.cli.run import NAME, RunOptions
from agentscope_rx.context.policy import ContextPolicy

_CODES: Final = (
    "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 waiting for a person, 4 limit of steps reached, "
    "130 interrupted."
)
_RUN_DEFAULTS: Final = RunOptions()
_DEMO_DEFAULTS: Final = DemoOptions()
_REPLAY_DEFAULTS: Final = of_replay.ReplayOptions()
_WHAT_IF_DEFAULTS: Final = of_replay.WhatIfOptions()
_SESSIONS_DEFAULTS: Final = of_sessions.SessionsOptions()
_Flat = Parameter(name="*")  # the fields of a dataclass as options

app = App(
    name=NAME,
    help="Agents whose every reasoning step is an Rx pipeline, and whose every event leaves through one observable.",
    help_epilogue=_CODES,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=False),
    suppress_keyboard_interrupt=False,
)


@app.command
async def run(task: str, /, *, options: Annotated[RunOptions, _Flat] = _RUN_DEFAULTS) -> int:
    """Do a task with the files of a folder, which it can read but not change.

    Ctrl-C interrupts; the session can be gone on with.

    Args:
        task: What to do, in your words.
        options: How.
    """
    return await settled(of_replay.run_task(task, options), debug=options.debug)


@app.command
async def context(task: str, /, *, options: Annotated[RunOptions, _Flat] = _RUN_DEFAULTS) -> int:
    """Show what the request for a task would hold, item by item, and what it would cost; nothing is sent.

    Args:
        task: What you would say.
        options: As for `run`.
    """
    return await settled(show_context(task, options), debug=options.debug)


@app.command
async def demo(*, options: Annotated[DemoOptions, _Flat] = _DEMO_DEFAULTS) -> int:
    """Watch an agent explore a folder: no key and no network needed.

    Args:
        options: With which model, and how fast.
    """
    return await settled(play_demo(options), debug=options.debug)


_Sessions = Annotated[of_sessions.SessionsOptions, _Flat]


@app.command
async def fork(
    session: str,
    /,
    *,
    to: str,
    at: str | None = None,
    run_tools_again: bool = False,
    options: _Sessions = _SESSIONS_DEFAULTS,
) -> int:
    """Begin another session as one is, or was at an earlier point; that one stays as it is.

    Args:
        session: The session.
        to: The id of the new one.
        at: Before which step, by its id, or behind which record, by its number, as `sessions tail` shows them; now if
            left out.
        run_tools_again: Whether calls that have run behind that point run again; their results are used if left out.
        options: Whose, and where.
    """
    forked = begin_fork(session, to, options, at=at, run_tools_again=run_tools_again)
    return await settled(forked, debug=options.debug)


_ReplayFlat = Annotated[of_replay.ReplayOptions, _Flat]


@app.command
async def record(
    file: Path, task: str | None = None, /, *, options: Annotated[RunOptions, _Flat] = _RUN_DEFAULTS
) -> int:
    """Do a task as `run` does, and record it, for `replay` and `what-if`; secrets are left out.

    Without a task, a session whose runs were made with --replayable becomes the recording.

    Args:
        file: The recording; an earlier one is replaced.
        task: What to do, in your words.
        options: As for `run`.
    """
    work = of_replay.record_log(file, options) if task is None else of_replay.record(file, task, options)
    return await settled(work, debug=options.debug)


@app.command
async def replay(file: Path, /, *, update: bool = False, options: _ReplayFlat = _REPLAY_DEFAULTS) -> int:
    """Run a recording again through the real pipeline, offline; exits with 1 where anything differs.

    Args:
        file: The recording.
        update: Accept requests that differ, once they are shown.
        options: By which agent.
    """
    return await settled(of_replay.replay_file(file, options, update=update), debug=options.debug)


@app.command(name="what-if")
async def what_if(
    file: Path | None = None,
    /,
    *,
    session: str | None = None,
    step: int,
    run: int = 0,
    max_input_tokens: int = 0,
    reserved_output_tokens: int = 0,
    options: Annotated[of_replay.WhatIfOptions, _Flat] = _WHAT_IF_DEFAULTS,
) -> int:
    """Prepare a request of the past once more with another budget, and show what it would hold; no model is asked.

    Args:
        file: The recording; left out for a session.
        session: The session, whose log has the request.
        step: Which reasoning step, from 0.
        run: Which run, from 0, or from the end, from -1; the first if left out.
        max_input_tokens: How many tokens the request may have; what the window allows if left out.
        reserved_output_tokens: How many tokens are kept free for the answer; the default if left out.
        options: Which agent it was, and for a session where that is.
    """
    policy = ContextPolicy(max_input_tokens=max_input_tokens, reserved_output_tokens=reserved_output_tokens)
    if (file is None) is (session is None):
        say("error: say either which recording, or by --session ID which session")
        return ExitCode.USAGE
    if file is not None:
        work = of_replay.what_if_file(file, options, step=step, run=run, policy=policy)
    else:
        work = of_replay.what_if_session(str(session), options, step=step, run=run, policy=policy)
    return await settled(work, debug=options.debug)


sessions = App(name="sessions", help="Look at sessions, take them elsewhere, and remove old ones.")
app.command(sessions)


@sessions.command(name="list")
async def list_sessions(*, options: _Sessions = _SESSIONS_DEFAULTS) -> int:
    """Print agent, user and id of all sessions.

    Args:
        options: Which.
    """
    return await settled(of_sessions.list_sessions(options), debug=options.debug)


@sessions.command
async def show(session: str, /, *, last: int = 20, options: _Sessions = _SESSIONS_DEFAULTS) -> int:
    """Print what was said in a session, word for word, whatever was shortened for the model since.

    Args:
        session: The session.
        last: How many messages, the newest; 20 if left out, 0 = all.
        options: Whose, and where.
    """
    return await settled(of_sessions.show(session, options, last=last), debug=options.debug)


@sessions.command
async def tail(
    session: str, /, *, last: int = 20, follow: bool = False, options: _Sessions = _SESSIONS_DEFAULTS
) -> int:
    """Print the newest records of a session's log.

    Args:
        session: The session.
        last: How many records; 20 if left out, 0 = all.
        follow: Go on with those that come, until Ctrl-C.
        options: Whose, and where.
    """
    return await settled(of_sessions.tail(session, options, last=last, follow=follow), debug=options.debug)


@sessions.command
async def export(session: str, /, *, options: _Sessions = _SESSIONS_DEFAULTS) -> int:
    """Print a session as lines of JSON, for `import`.

    Args:
        session: The session.
        options: Whose, and where.
    """
    return await settled(of_sessions.export(session, options), debug=options.debug)


@sessions.command(name="import")
async def import_session(file: Path, /, *, session: str | None = None, options: _Sessions = _SESSIONS_DEFAULTS) -> int:
    """Put an exported session into a store where it is not yet.

    Args:
        file: What `export` has printed; - = standard input.
        session: Under which id; its own if left out.
        options: Whose it becomes, and where.
    """
    return await settled(of_sessions.import_session(file, options, session=session), debug=options.debug)


@sessions.command
async def prune(*, older_than: float, options: _Sessions = _SESSIONS_DEFAULTS) -> int:
    """Delete the sessions, of all agents and users, that nobody has touched for some days.

    Args:
        older_than: How many days.
        options: Where.
    """
    return await settled(of_sessions.prune(older_than, options), debug=options.debug)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; returns the exit code.

    Args:
        arguments: The arguments; None = those of the process.
    """
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        say(f"error: {one_line(str(error))} Try {NAME} --help.")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code if isinstance(code, int) else ExitCode.DONE
