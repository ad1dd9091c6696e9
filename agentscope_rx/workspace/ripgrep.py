"""Let ripgrep, where it is installed, tell which files are worth a look."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agentscope_rx.finishing import to_the_end
from agentscope_rx.workspace.looking import FileGroup, Needle
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.text import binary_marks

# Patience with a file that has become a pipe meanwhile, or a network disk that does not answer.
_SECONDS = 60
# Far below what systems take as the arguments of one program, which is 1 MiB on the smallest.
_ARGUMENT_BYTES = 400_000

_OPTIONS = (
    *("--no-config", "--files-with-matches", "--null", "--no-messages", "--color=never"),
    # Each file is searched, as the bytes that it is; of a directory the files in it, and not those below.
    *("--text", "--encoding=none", "--case-sensitive", "--no-unicode"),
    *("--hidden", "--no-ignore", "--max-depth=1"),
)


def find_ripgrep() -> str | None:
    """Return where the program is; None if it is not on `PATH`.

    Examples:
        >>> find_ripgrep()
        '/usr/bin/rg'
    """
    return shutil.which("rg")


async def ripgrep(program: str, root: Path, groups: Sequence[FileGroup], needle: Needle) -> Sequence[FileGroup] | None:
    """Find the files that hold a text, or may be binary.

    The answer is a hint: the program opens files by their names, so who shows their content reads them again by
    a way that no link misleads.

    Args:
        program: Where ripgrep is.
        root: The directory that paths are relative to.
        groups: The files.
        needle: What they may hold; no line feed.

    Returns:
        Those of each group that do; None if the program could not tell for all of them.

    Examples:
        >>> await ripgrep("/usr/bin/rg", root, groups, Needle(text=b"needle", file_bytes=1_000_000))
        [FileGroup(folder=Folder(path=WorkspacePath(parts=()), files=['a.txt', 'b.txt'], ...), names=['b.txt'])]
    """
    options = [*_OPTIONS, f"--max-filesize={needle.file_bytes}", f"--regexp={_pattern(needle.text)}", "--"]
    found = dict[str, set[str]]()
    for batch in _batches(_arguments(groups)):
        answer = await _Call([program, *options, *batch], root).run()
        if answer is None:
            return None
        for path in answer:
            directory, _, name = path.removeprefix("./").rpartition("/")
            found.setdefault(directory, set()).add(name)
    return [_hinted(group, found.get(_directory(group), set())) for group in groups]


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


def _pattern(text: bytes) -> str:
    return "|".join("".join(f"\\x{byte:02x}" for byte in each) for each in (text, *binary_marks()))


def _directory(group: FileGroup) -> str:
    return "/".join(group.folder.path.parts)


def _hinted(group: FileGroup, found: set[str]) -> FileGroup:
    return FileGroup(folder=group.folder, names=[name for name in group.names if name in found] if found else ())


def _arguments(groups: Sequence[FileGroup]) -> list[str]:
    """The directories of which most files are meant, as walking is faster than opening by paths; else the files."""
    meant = Counter[WorkspacePath]()
    for group in groups:
        meant[group.folder.path] += len(group.names)
    arguments = dict[str, None]()
    for group in groups:
        directory, files = _directory(group), group.folder.files
        if 2 * meant[group.folder.path] >= len(files):
            arguments[directory or "."] = None
        else:
            arguments.update(dict.fromkeys(f"{directory}/{name}" if directory else name for name in group.names))
    return list(arguments)


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
