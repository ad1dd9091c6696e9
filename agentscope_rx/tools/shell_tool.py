"""The tool with which a model runs commands in a folder.

A shell is not containment. A command can read and write all that this process may, inside the folder and outside of
it, use the network, and read what a user's home holds. The working directory, the small environment and the limits
of this module keep a careful model tidy and stop none that is not; for that, run the whole agent in a sandbox (a
container, a virtual machine) with nothing in it that it may not have.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field as dataclass_field
from typing import Any, Final

from agentscope_rx.errors import CommandStopped, InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import TextBlock, ToolResultBlock
from agentscope_rx.permissions import commands
from agentscope_rx.tools.commands import Captured, Command, CommandResult, Stop, run_command
from agentscope_rx.tools.execution_details import EXECUTION_DETAILS, ExecutionDetails, ExecutionOutcome
from agentscope_rx.tools.plain import plain
from agentscope_rx.tools.settings import ToolOptions
from agentscope_rx.tools.texts import clean, cut_between
from agentscope_rx.tools.tool import FunctionTool, tool
from agentscope_rx.workspace.editing import check_encodable
from agentscope_rx.workspace.filesystem import FileKind
from agentscope_rx.workspace.local import LocalWorkspace
from agentscope_rx.workspace.paths import shown
from agentscope_rx.workspace.text import decode_text

NO_OUTPUT = "<no output>"

SAFE_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
)
"""What a command inherits by default: what programs need to run, and nothing that holds a secret."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_COMMAND: Final = 100_000
#: How much longer than a command the tool may take: time to end its processes.
_GRACE: Final = 30.0


@frozen
class ShellSettings:
    """How commands are run.

    Args:
        timeout: Seconds that a command may take where the model says nothing. Default 30.
        max_timeout: Seconds that the model may ask for at most. Default 600.
        output_chars: How many characters of each output the model reads: head and tail. Default 50,000.
        max_output_bytes: How many bytes of output stop a command. Default 64 MiB.
        env: Further variables of the environment, in no `repr`. Default: none.
        inherit: Names of variables that are taken from this process. Default `SAFE_VARIABLES`.

    Raises:
        InvalidOption: A number is out of its range, or a variable cannot be one.
    """

    timeout: float = 30.0
    max_timeout: float = 600.0
    output_chars: int = 50_000
    max_output_bytes: int = 64 * 1024 * 1024
    env: Mapping[str, str] = dataclass_field(default_factory=dict[str, str], repr=False)
    inherit: tuple[str, ...] = SAFE_VARIABLES

    def __post_init__(self) -> None:
        for option in ("timeout", "max_timeout"):
            if not 0 < getattr(self, option) < math.inf:
                raise InvalidOption(option, getattr(self, option), "give seconds, more than 0")
        if self.timeout > self.max_timeout:
            raise InvalidOption("timeout", self.timeout, f"give at most max_timeout, which is {self.max_timeout:g}")
        if self.output_chars < 100:
            raise InvalidOption("output_chars", self.output_chars, "give at least 100")
        if self.max_output_bytes < 1:
            raise InvalidOption("max_output_bytes", self.max_output_bytes, "give at least 1")
        for name, value in self.env.items():
            if not _NAME.fullmatch(name) or "\0" in value:
                raise InvalidOption("env", name, "give a name of letters, digits and '_', and a value without NUL")


def shell_tool(folder: str | os.PathLike[str], *, settings: ShellSettings | None = None) -> FunctionTool[Any, Any]:
    """Make the tool `execute`, which runs commands in a folder. It contains nothing; see the module.

    Args:
        folder: The directory in which commands start.
        settings: How they are run. Default `ShellSettings()`.

    Raises:
        FileNotFoundError: If `folder` does not exist.
        NotADirectoryError: If it is no directory.
        WorkspaceError: If this system has no process groups (Windows).

    Examples:
        >>> shell_tool("/srv/project").spec.name
        'execute'
    """
    made = ShellTool(folder, settings=settings)
    return tool(made.execute, **shell_options(made.settings.max_timeout))


def shell_options(max_timeout: float) -> ToolOptions:
    """How `execute` is a tool.

    Args:
        max_timeout: Seconds that a command may take at most.
    """
    # Its own limit comes first, so that the model gets the output until then.
    return {"concurrency_safe": False, "timeout": max_timeout + _GRACE, "target": commands("command")}


class ShellTool:
    """The shell of one folder, as a method.

    Args:
        folder: The directory in which commands start.
        settings: How they are run. Default `ShellSettings()`.

    Examples:
        >>> (await ShellTool("/srv/project").execute("echo hi")).text
        'Exit code: 0\\n\\nhi'
    """

    def __init__(self, folder: str | os.PathLike[str], *, settings: ShellSettings | None = None) -> None:
        self._workspace = LocalWorkspace(folder, read_only=True)
        self.settings = settings or ShellSettings()

    async def execute(
        self, command: str, working_directory: str | None = None, timeout: float | None = None
    ) -> ToolResultBlock:
        """Run a command of the shell (sh) in the project and return its exit code and output.

        The command has no input and no terminal. Processes that it leaves in the background are ended with it.
        Lines that it wrote as errors begin with '[stderr] '. Long output is cut in the middle: write it to a file
        and search that where all of it matters.

        Args:
            command: The command, such as 'python -m pytest -q tests'.
            working_directory: The directory to run it in, relative to the project; the project if left out.
            timeout: Seconds after which it is stopped; the default if left out.

        Raises:
            ValueError: If the command is empty or cannot be one, or the timeout is out of range.
            FileNotFoundError: If there is no such directory.
            NotADirectoryError: If `working_directory` is a file.
            PathRefused: If it is not inside the project.
            OSError: If no command can be started there.
            CommandStopped: If the command took too long or wrote too much.
        """
        _check_command(command)
        seconds = self._seconds(timeout)
        result = await self._run(command, working_directory or ".", seconds)
        output, whole = _output(result, self.settings.output_chars)
        if result.stopped is None:
            return _ended(result.exit_code, output, whole=whole)
        if result.stopped is Stop.TIME:
            most = self.settings.max_timeout
            why = f"took longer than {seconds:g} seconds (a longer timeout, of up to {most:g}, may help)"
        else:
            why = f"wrote more than {self.settings.max_output_bytes} bytes"
        raise CommandStopped(f"the command was stopped: it {why}. Its output until then:\n\n{output}")

    async def _run(self, command: str, path: str, seconds: float) -> CommandResult:
        folder = await self._folder(path)
        try:
            return await run_command(
                Command(
                    text=command,
                    folder=folder,
                    environment=self._environment(),
                    timeout=seconds,
                    # A character has up to four bytes.
                    kept_bytes=4 * self.settings.output_chars,
                    most_bytes=self.settings.max_output_bytes,
                )
            )
        except OSError as error:
            # Not in the system's words: they name the whole path of the directory.
            refusal = f"no command can be started in {shown(path)} ({error.strerror})"
            raise type(error)(f"{refusal}: try another working_directory, or say so to the user") from error

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None or timeout == 0:  # models say "not given" with 0 too
            return self.settings.timeout
        if not 0 < timeout <= self.settings.max_timeout:
            raise ValueError(
                f"timeout is {timeout:g}: give more than 0 and at most {self.settings.max_timeout:g} seconds"
            )
        return timeout

    async def _folder(self, path: str) -> str:
        try:
            found = await self._workspace.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no directory {shown(path)} to run a command in") from None
        if found.kind is not FileKind.DIRECTORY:
            raise NotADirectoryError(f"{shown(path)} is a file: give a directory to run the command in")
        return str(self._workspace.root / str(await self._workspace.resolve(path)))

    def _environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in self.settings.inherit if name in os.environ}
        return {"PATH": os.defpath, **inherited, **self.settings.env}


def _check_command(command: str) -> None:
    if not command.strip():
        raise ValueError("the command is empty")
    check_encodable(command)
    if "\0" in command:
        raise ValueError("the command holds a NUL character, which no command can")
    if len(command.encode()) > _LONGEST_COMMAND:
        raise ValueError(f"the command is longer than {_LONGEST_COMMAND} bytes: write it to a file and run that")


def _ended(code: int, output: str, *, whole: bool) -> ToolResultBlock:
    """The result of a command that came to its end; who calls the tool puts the call's id into it."""
    details = ExecutionDetails(
        kind="shell",
        outcome=ExecutionOutcome.SUCCEEDED if code == 0 else ExecutionOutcome.FAILED,
        exit_code=code,
        output_truncated=not whole,
    )
    return ToolResultBlock(
        id="",
        name="execute",
        output=(TextBlock(text=f"Exit code: {_exit_code(code)}\n\n{output}"),),
        metadata={EXECUTION_DETAILS: plain(details)},
    )


def _exit_code(code: int) -> str:
    if code >= 0:
        return str(code)
    with suppress(ValueError):
        return f"{code} (ended by {signal.Signals(-code).name})"
    return str(code)


def _output(result: CommandResult, most: int) -> tuple[str, bool]:
    """All that was written, as the model reads it, and whether that is all."""
    (out, out_whole), (errors, errors_whole) = _text(result.stdout, most), _text(result.stderr, most, mark="[stderr] ")
    left = "" if result.cleared else "[Some processes that the command started could not be ended.]"
    return "\n".join(filter(None, (out, errors, left))) or NO_OUTPUT, out_whole and errors_whole


def _text(output: Captured, most: int, *, mark: str = "") -> tuple[str, bool]:
    """The output as text of a limited length, each line with a mark before it, and whether it is all of it."""
    if output.missing:
        # The tail may begin within a character.
        tail = decode_text(re.sub(rb"\A[\x80-\xbf]{1,3}", b"", output.tail))
        head = decode_text(output.head, cut=True)
    else:
        head, tail = decode_text(output.head + output.tail), decode_text(b"")
    first, last = _readable(head.text), _readable(tail.text).rstrip("\n")
    if not last:
        first = first.rstrip("\n")
    if not first:
        return "", True
    first, last = f"{mark}{first}".replace("\n", f"\n{mark}"), last.replace("\n", f"\n{mark}")
    whole = not output.missing and len(first) <= most
    if not whole:
        middle = len(first) if last else len(first) // 2
        first = cut_between(first[:middle], first[middle:] + last, output.missing, most)
    note = "\n[Bytes that are no UTF-8 are shown as \ufffd.]" if head.lossy or tail.lossy else ""
    return first + note, whole


def _readable(text: str) -> str:
    return clean(text).replace("\r\n", "\n")
