"""Let ripgrep, where it is installed, tell which files are worth a look."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from agentscope_rx.finishing import to_the_end

# Patience with a file that has become a pipe meanwhile, or a network disk that does not answer.
_SECONDS = 60
# Far below what systems take as the arguments of one program, which is 256 KiB on the smallest.
_ARGUMENT_BYTES = 100_000

_OPTIONS = (
    *("--no-config", "--files-with-matches", "--null", "--no-messages", "--color=never"),
    # Each file that is named is searched, as the bytes that it is.
    *("--text", "--encoding=none", "--case-sensitive", "--no-unicode"),
)


def find_ripgrep() -> str | None:
    """Return where the program is; None if it is not on `PATH`.

    Examples:
        >>> find_ripgrep()
        '/usr/bin/rg'
    """
    return shutil.which("rg")


async def ripgrep(program: str, root: Path, paths: Sequence[str], texts: Sequence[bytes]) -> set[str] | None:
    """Find the files that hold one of several texts.

    The answer is a hint: the program opens files by their names, so who shows their content reads them again by
    a way that no link misleads.

    Args:
        program: Where ripgrep is.
        root: The directory that paths are relative to.
        paths: The files.
        texts: Bytes without line feeds, none of them empty.

    Returns:
        The paths of those that do; None if the program could not tell for all of them.

    Examples:
        >>> await ripgrep("/usr/bin/rg", root, ["a.txt", "b.txt"], [b"needle"])
        {'b.txt'}
    """
    found: set[str] = set()
    for batch in _batches(paths):
        call = _Call([program, *_OPTIONS, f"--regexp={_pattern(texts)}", "--", *batch], root)
        answer = await call.run()
        if answer is None:
            return None
        found |= answer
    return found


class _Call:
    """One run of the program in a thread, which ends when its awaiter is cancelled."""

    def __init__(self, arguments: Sequence[str], root: Path) -> None:
        self._arguments, self._root = arguments, root
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    async def run(self) -> set[str] | None:
        done = asyncio.get_running_loop().run_in_executor(None, self._run)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._kill()
            await to_the_end(done)
            raise

    def _run(self) -> set[str] | None:
        with self._lock:
            if self._cancelled:
                return None
            try:
                self._process = process = self._start()
            except OSError:
                return None
        with process:
            try:
                output, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
        if process.returncode not in (0, 1):  # 2: a file could not be read, or is gone
            return None
        return {name.decode(errors="surrogateescape") for name in output.split(b"\0") if name}

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._arguments,
            cwd=self._root,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _kill(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()


def _pattern(texts: Sequence[bytes]) -> str:
    return "|".join("".join(f"\\x{byte:02x}" for byte in text) for text in texts)


def _batches(paths: Sequence[str]) -> list[list[str]]:
    batches, size = list[list[str]](), _ARGUMENT_BYTES
    for path in paths:
        length = len(path.encode()) + 9  # and a pointer to it
        if size + length > _ARGUMENT_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(path)
        size += length
    return batches
