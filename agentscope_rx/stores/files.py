"""A store of JSON files, safe against crashes and against other processes."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from agentscope_rx.errors import StateUnreadable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.stores.in_memory import conflict
from agentscope_rx.stores.keys import SessionKey, folder_name
from agentscope_rx.stores.store import ABSENT, Stored

_HEAD: Final = re.compile(rb'\{"version":(\d{1,18}),"state":')
_TAIL: Final = b"}\n"  # a file that was cut does not end in a newline: states are written without any
_NOBODY: Final = "nobody"  # the folder of sessions without a user; the folder of a user begins with s_


class JsonFileStore:
    """One file per session: `agents/<agent>/sessions/<user>/<session>/state.json` below a private folder.

    A state replaces the older one as a whole and is on the disk when `put` returns.

    Args:
        root: The folder; made on first use, with mode 0700.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonFileStore) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key.

        Raises:
            StateUnreadable: The file is not one that this store writes.
        """
        return await asyncio.to_thread(_read, self._path(key))

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int) -> int:
        """Store a state in the place of the version that the caller knows."""
        loop = asyncio.get_running_loop()
        return await to_the_end(loop.run_in_executor(None, self._replace, key, body, expected_version))

    def _path(self, key: SessionKey) -> Path:
        user = _NOBODY if key.user_id is None else folder_name(key.user_id)
        sessions = self._root / "agents" / folder_name(key.agent_id) / "sessions"
        return sessions / user / folder_name(key.session_id) / "state.json"

    def _replace(self, key: SessionKey, body: bytes, expected_version: int) -> int:
        from filelock import FileLock

        path = self._path(key)
        _make_private(path.parent, self._root)
        with FileLock(path.with_name("lock")):
            known = _read(path)
            version = ABSENT if known is None else known.version
            if version != expected_version:
                raise conflict(key, expected_version, version)
            _write(path, b'{"version":%d,"state":%b%b' % (version + 1, body, _TAIL))
            return version + 1


def _make_private(folder: Path, root: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700 if each == root or root in each.parents else 0o777, exist_ok=True)


def _read(path: Path) -> Stored | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    head = _HEAD.match(data)
    if head is None or not data.endswith(_TAIL):
        raise StateUnreadable(f"{path} is no state file, or was cut; it was left as it is")
    return Stored(data[head.end() : -len(_TAIL)], int(head[1]))


def _write(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one, whole."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".state-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
