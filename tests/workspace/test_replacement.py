"""A write replaces a file in one piece or leaves it as it was, whoever else is writing."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import WorkspaceConflict
from agentscope_rx.workspace import LocalWorkspace


async def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    """A replaced script stays executable, and no file gains the rights of its owner (setuid)."""
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o4750)
    workspace = LocalWorkspace(tmp_path)
    await workspace.write("run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    mask = os.umask(0)
    os.umask(mask)
    await workspace.write("fresh", b"")
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o666 & ~mask


async def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marking a file as read-only protects it, although replacing it would be possible."""
    (tmp_path / "a").write_text("old")

    def no_access(*_: object, **__: object) -> bool:  # the tests may run as root, who may do anything
        return False

    monkeypatch.setattr(os, "access", no_access)
    with pytest.raises(PermissionError, match="'a'"):
        await LocalWorkspace(tmp_path).write("a", b"new")
    assert (tmp_path / "a").read_text() == "old"


async def test_a_failed_write_leaves_the_old_content_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk loses the new content, never the old one."""
    (tmp_path / "a").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: 'a'"):
        await LocalWorkspace(tmp_path).write("a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


async def test_create_only_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without hard links a file is still created once."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    workspace = LocalWorkspace(tmp_path)
    await workspace.write("a", b"1", create_only=True)
    with pytest.raises(FileExistsError):
        await workspace.write("a", b"2", create_only=True)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]


async def test_create_only_loses_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that appears between the check and the creation is not overwritten."""
    link = os.link

    def late(*args: object, **options: object) -> None:
        (tmp_path / "a").write_text("theirs")
        link(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(FileExistsError):
        await LocalWorkspace(tmp_path).write("a", b"ours", create_only=True)
    assert (tmp_path / "a").read_text() == "theirs"


async def test_two_workspaces_on_one_root_share_their_writers(tmp_path: Path) -> None:
    """if_match holds between all workspaces that look at the same files."""
    one, two = LocalWorkspace(tmp_path), LocalWorkspace(tmp_path)
    old = await one.write("a", b"0")
    answers = await asyncio.gather(
        *(workspace.write("a", b"%d" % number, if_match=old) for number in (1, 2, 3) for workspace in (one, two)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, WorkspaceConflict) for answer in answers) == 5


async def test_other_processes_wait_while_a_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing and replacing happen under a lock on the directory, which all processes see."""
    replace, refused = os.replace, list[bool]()

    def watched(*args: Any, **options: Any) -> None:
        directory = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused.append(True)
        finally:
            os.close(directory)
        replace(*args, **options)

    monkeypatch.setattr(os, "replace", watched)
    await LocalWorkspace(tmp_path).write("a", b"1")
    await LocalWorkspace(tmp_path).write("a", b"2")
    assert refused == [True, True]


async def test_writers_take_turns_where_directories_have_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network file system without locks on directories, if_match still holds within this process."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    workspace = LocalWorkspace(tmp_path)
    for _ in range(10):
        old = await workspace.write("a", b"old")
        writes = [workspace.write("a", b"%d" % number, if_match=old) for number in range(16)]
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(answer, WorkspaceConflict) for answer in answers) == 15


async def test_a_cancelled_write_has_happened_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cancels a write goes on only after the thread has ended, so nothing changes behind their back."""
    flush, loop = os.fsync, asyncio.get_running_loop()
    begun, go_on = asyncio.Event(), threading.Event()

    def slow(file: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        flush(file)

    monkeypatch.setattr(os, "fsync", slow)
    task = asyncio.ensure_future(LocalWorkspace(tmp_path).write("a", b"1"))
    await begun.wait()
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]
