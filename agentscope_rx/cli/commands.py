"""The commands, as cyclopts reads them from signatures and docstrings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import App, CycloptsError, Parameter

from agentscope_rx.__about__ import __version__
from agentscope_rx.cli.context import context as show_context
from agentscope_rx.cli.demo import DemoOptions
from agentscope_rx.cli.demo import demo as play_demo
from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.failures import settled
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import one_line
from agentscope_rx.cli.run import NAME, RunOptions
from agentscope_rx.cli.run import run as run_task

_CODES: Final = (
    "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 waiting for a person, 4 limit of steps reached, "
    "130 interrupted."
)
_RUN_DEFAULTS: Final = RunOptions()
_DEMO_DEFAULTS: Final = DemoOptions()
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
    return await settled(run_task(task, options), debug=options.debug)


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
