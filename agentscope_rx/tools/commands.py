"""Run a command of a shell to its end, or stop it; either way none of its processes is left."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from enum import Enum, auto
from typing import Final

from agentscope_rx.finishing import to_the_end
from agentscope_rx.frozen import frozen
from agentscope_rx.tools.leftovers import MARK, end_processes

_SHELL: Final = "/bin/sh"
_PIECE_BYTES: Final = 64 * 1024
#: How many seconds to wait for the end of the output when all processes are gone; an escaped one may hold it open.
_DRAIN: Final = 1.0


class Stop(Enum):
    """Why a command was stopped."""

    TIME = auto()
    OUTPUT = auto()


@frozen
class Command:
    """What to run, and how far.

    Args:
        text: The command, as a shell reads it.
        folder: The directory to run it in.
        environment: Its environment, all of it.
        timeout: Seconds after which it is stopped.
        kept_bytes: How many bytes of each of its two outputs are kept: half at the head, half at the tail.
        most_bytes: How many bytes of output make it stop.
    """

    text: str
    folder: str
    environment: Mapping[str, str]
    timeout: float
    kept_bytes: int
    most_bytes: int


@frozen
class Captured:
    """What is kept of an output.

    Args:
        head: The beginning.
        tail: The end, as far as it is not part of the beginning.
        missing: How many bytes were between them.
    """

    head: bytes
    tail: bytes
    missing: int


@frozen
class CommandResult:
    """What became of a command.

    Args:
        exit_code: As the shell gave it; negative: the number of the signal that ended the shell.
        stdout: What was written.
        stderr: What was written as errors.
        stopped: Why it was stopped; None if it came to its end.
        cleared: False if some of its processes could not be ended.
    """

    exit_code: int
    stdout: Captured
    stderr: Captured
    stopped: Stop | None
    cleared: bool


async def run_command(command: Command) -> CommandResult:
    """Run a command with nothing to read, in a session of its own, and end what it leaves behind.

    A cancellation stops it and is passed on when no process is left.

    Args:
        command: What to run.

    Raises:
        OSError: If it cannot be started.

    Examples:
        >>> (await run_command(Command(text="echo hi", folder="/srv/ws", ...))).stdout.head
        b'hi\\n'
    """
    over: asyncio.Future[Stop | None] = asyncio.get_running_loop().create_future()

    def settle(why: Stop | None) -> None:
        if not over.done():
            over.set_result(why)

    with (
        closing(_Stream(command, lambda: settle(Stop.OUTPUT))) as stdout,
        closing(_Stream(command, lambda: settle(Stop.OUTPUT))) as stderr,
    ):
        return await _run(command, stdout, stderr, over, settle)


async def _run(
    command: Command,
    stdout: _Stream,
    stderr: _Stream,
    over: asyncio.Future[Stop | None],
    settle: Callable[[Stop | None], None],
) -> CommandResult:
    mark = secrets.token_hex(16)
    starting = asyncio.ensure_future(_start(command, stdout, stderr, mark))
    # Who cancels meanwhile must not leave behind a process that nobody knows of.
    cancelled = await _uncancelled(starting)
    process = starting.result()
    stdout.begin()
    stderr.begin()
    exited = asyncio.ensure_future(process.wait())
    exited.add_done_callback(lambda _: settle(None))
    timer = asyncio.get_running_loop().call_later(command.timeout, settle, Stop.TIME)
    cleared = False
    try:
        if cancelled is not None:
            raise cancelled
        stopped = await over
    finally:
        timer.cancel()
        # In a thread, as looking through all processes takes a while where there are many.
        ending = asyncio.get_running_loop().run_in_executor(None, end_processes, process.pid, mark)
        try:
            cleared = await to_the_end(ending)
        finally:
            await to_the_end(exited)
    await asyncio.wait({stdout.ended, stderr.ended}, timeout=_DRAIN)
    return CommandResult(
        exit_code=exited.result(),
        stdout=stdout.captured(),
        stderr=stderr.captured(),
        stopped=stopped,
        cleared=cleared,
    )


async def _start(command: Command, stdout: _Stream, stderr: _Stream, mark: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        _SHELL,
        "-c",
        command.text,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout.writer,
        stderr=stderr.writer,
        cwd=command.folder,
        env={**command.environment, MARK: mark},
        start_new_session=True,
    )


async def _uncancelled(work: asyncio.Future[asyncio.subprocess.Process]) -> asyncio.CancelledError | None:
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class _Stream:
    """A pipe that is read as fast as it is written to, and of which head and tail are kept.

    Not a pipe of asyncio's: with one, the end of a process is told only when all who inherited it have closed it.
    """

    def __init__(self, command: Command, flooded: Callable[[], None]) -> None:
        self._half, self._most, self._flooded = command.kept_bytes // 2, command.most_bytes, flooded
        self._loop = asyncio.get_running_loop()
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        self._reading = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def begin(self) -> None:
        """Read from now on; the writing end is the process's alone."""
        os.close(self.writer)
        self.writer = -1
        self._reading = True
        self._loop.add_reader(self._reader, self._read)

    def captured(self) -> Captured:
        """Give what was kept so far."""
        missing = self._total - len(self._head) - len(self._tail)
        return Captured(head=bytes(self._head), tail=bytes(self._tail), missing=missing)

    def close(self) -> None:
        """Close what is open."""
        self._end()
        os.close(self._reader)
        if self.writer >= 0:
            os.close(self.writer)

    def _read(self) -> None:
        try:
            piece = os.read(self._reader, _PIECE_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self._end()
            return
        self._total += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        del self._tail[: -self._half or None]
        if self._total > self._most:
            self._end()
            self._flooded()

    def _end(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._reader)
        if not self.ended.done():
            self.ended.set_result(None)
