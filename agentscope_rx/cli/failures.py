"""Errors as one line on stderr, and as an exit code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import traceback
from collections.abc import Coroutine
from typing import Any, Final

from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import one_line, plain
from agentscope_rx.errors import AgentScopeError, ConfigError, InteractionPending

_SECRET_NAME: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)\Z", re.IGNORECASE)
_SHORTEST_SECRET: Final = 8
_LONGEST_MESSAGE: Final = 500


async def settled(work: Coroutine[Any, Any, ExitCode], *, debug: bool) -> ExitCode:
    """Await a command; whatever it raises becomes a line and a code.

    Args:
        work: The command.
        debug: Whether the traceback is shown too.
    """
    try:
        return await work
    except asyncio.CancelledError:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return reader_gone()
    except Exception as error:
        return failed(error, debug=debug)


def failed(error: Exception, *, debug: bool) -> ExitCode:
    """Report an error; returns the code that goes with it.

    Args:
        error: What was raised.
        debug: Whether the traceback is shown too.
    """
    if debug:
        say(without_secrets(plain("".join(traceback.format_exception(error)))).rstrip())
    kind = "" if isinstance(error, AgentScopeError) else f"{type(error).__name__}: "
    say(f"error: {kind}{without_secrets(one_line(str(error) or repr(error), limit=_LONGEST_MESSAGE))}")
    if isinstance(error, InteractionPending):
        return ExitCode.WAITING
    return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED


def reader_gone() -> ExitCode:
    """Whoever read our output has left (`... | head`): nothing more is to be said, not even at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.FAILED


def without_secrets(text: str) -> str:
    """The same text, without the values of environment variables whose names say that they are secret.

    Providers repeat a key that they refuse, and tracebacks show what they are told.
    """
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text
