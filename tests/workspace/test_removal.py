"""What is deleted or moved is what was looked at, and never what a link leads to."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import PathRefused, WorkspaceConflict
from agentscope_rx.workspace import LocalWorkspace
from agentscope_rx.workspace import removal as removal_module


@pytest.mark.parametrize("name", ["file", "folder", "dangling", "self"])
async def test_a_link_is_neither_deleted_nor_moved(tmp_path: Path, name: str) -> None:
    """`resolve` names what a link leads to, so a rule for that path would be asked and another one deleted."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("a")
    for link, target in {"file": "a.txt", "folder": "sub", "dangling": "missing", "self": "."}.items():
        (tmp_path / link).symlink_to(target)
    workspace, before = LocalWorkspace(tmp_path), sorted(os.listdir(tmp_path))
    for change in (workspace.delete(name), workspace.delete(name, if_match="0"), workspace.move(name, "new/x")):
        with pytest.raises(PathRefused, match="symbolic link"):
            await change
    assert sorted(os.listdir(tmp_path)) == before


async def test_links_on_the_way_are_followed(tmp_path: Path) -> None:
    """A path through a linked directory names the file in the real one."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "ok").symlink_to("sub")
    for name in ("x", "y"):
        (tmp_path / "sub" / name).write_text(name)
    workspace = LocalWorkspace(tmp_path)
    await workspace.delete("ok/x")
    await workspace.move("ok/y", "ok/deep/z")
    assert (tmp_path / "sub/deep/z").read_text() == "y"
    assert os.listdir(tmp_path / "sub") == ["deep"]


async def test_a_directory_with_hidden_entries_is_not_empty(tmp_path: Path) -> None:
    """The runtime folder keeps its directory, although no listing shows it."""
    (tmp_path / "dir/.agentscope-runtime").mkdir(parents=True)
    workspace = LocalWorkspace(tmp_path)
    assert await workspace.list("dir") == ()
    with pytest.raises(OSError, match="not empty: 'dir'") as caught:
        await workspace.delete("dir")
    assert caught.value.errno == errno.ENOTEMPTY
    assert (tmp_path / "dir/.agentscope-runtime").is_dir()


async def test_special_files_are_left_alone(tmp_path: Path) -> None:
    """What no listing shows is no file to delete or move."""
    os.mkfifo(tmp_path / "pipe")
    workspace = LocalWorkspace(tmp_path)
    for change in (workspace.delete("pipe"), workspace.move("pipe", "new")):
        with pytest.raises(PathRefused, match="neither"):
            await change
    assert os.listdir(tmp_path) == ["pipe"]


async def test_a_file_marked_as_read_only_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark protects a file from each verb, although the directory would allow it."""
    (tmp_path / "a").write_text("old")

    def no_access(*_: object, **__: object) -> bool:  # the tests may run as root, who may do anything
        return False

    monkeypatch.setattr(os, "access", no_access)
    workspace = LocalWorkspace(tmp_path)
    for change in (workspace.delete("a"), workspace.move("a", "b")):
        with pytest.raises(PermissionError, match="'a'"):
            await change
    assert os.listdir(tmp_path) == ["a"]


async def test_a_file_that_becomes_a_link_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race on the last name: what a link leads to is neither deleted nor moved."""
    (tmp_path / "out").write_text("top")
    root = tmp_path / "ws"
    root.mkdir()
    check = removal_module.check_replaceable

    def swap(*arguments: object) -> None:
        check(*arguments)  # type: ignore[arg-type]
        (root / "a").unlink()
        (root / "a").symlink_to(tmp_path / "out")

    monkeypatch.setattr(removal_module, "check_replaceable", swap)
    workspace = LocalWorkspace(root)
    for change in ("delete", "move"):
        (root / "a").unlink(missing_ok=True)
        (root / "a").write_text("mine")
        if change == "delete":
            await workspace.delete("a")
        else:
            with pytest.raises(PathRefused):
                await workspace.move("a", "b")
        assert (tmp_path / "out").read_text() == "top"
    assert (await asyncio.to_thread(os.listdir, tmp_path)).count("out") == 1


async def test_both_names_exist_until_the_new_one_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while a file is moved leaves it at the old path or at both."""
    (tmp_path / "a").write_text("1")

    def crash(_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(removal_module, "flush_directory", crash)
    with pytest.raises(OSError, match="'a' -> 'b'"):
        await LocalWorkspace(tmp_path).move("a", "b")
    assert {(tmp_path / name).read_text() for name in ("a", "b")} == {"1"}


async def test_files_are_moved_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without hard links a file is still moved, and still over nothing."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    for name in ("a", "taken"):
        (tmp_path / name).write_text(name)
    workspace = LocalWorkspace(tmp_path)
    with pytest.raises(FileExistsError, match="'a' -> 'taken'"):
        await workspace.move("a", "taken")
    await workspace.move("a", "b")
    assert {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)} == {"b": "a", "taken": "taken"}


async def test_moves_between_two_directories_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The locks on the two directories are taken in one order, whichever way the file goes."""
    workspace = LocalWorkspace(tmp_path)
    for number in range(20):
        await workspace.write(f"left/{number}", b"")
        await workspace.write(f"right/{number}", b"")
    moves = [workspace.move(f"left/{number}", f"right/from-left-{number}") for number in range(20)]
    moves += [workspace.move(f"right/{number}", f"left/from-right-{number}") for number in range(20)]
    await asyncio.gather(*moves)
    assert [len(os.listdir(tmp_path / name)) for name in ("left", "right")] == [20, 20]


async def test_a_write_between_check_and_removal_is_held_off(tmp_path: Path) -> None:
    """Of a writer and a deleter that believe in one version, one is told that it is too late."""
    workspace = LocalWorkspace(tmp_path)
    for _ in range(20):
        old = await workspace.write("a", b"old")
        done = await asyncio.gather(
            workspace.write("a", b"new", if_match=old), workspace.delete("a", if_match=old), return_exceptions=True
        )
        assert sum(isinstance(answer, WorkspaceConflict) for answer in done) == 1


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_other_processes_wait_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Comparing and taking away happen under locks on the directories, which all processes see."""
    workspace, unlink, refused = LocalWorkspace(tmp_path), os.unlink, list[str]()
    await workspace.write("from/a", b"")
    await workspace.write("to/b", b"")

    def watched(*arguments: Any, **options: Any) -> None:
        for name in ("from", "to"):
            directory = os.open(tmp_path / name, os.O_RDONLY)
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(name)
            finally:
                os.close(directory)
        unlink(*arguments, **options)

    monkeypatch.setattr(os, "unlink", watched)
    await (workspace.delete("from/a") if verb == "delete" else workspace.move("from/a", "to/a"))
    assert refused == (["from"] if verb == "delete" else ["from", "to"])


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_a_cancelled_change_has_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Who cancels goes on only after the thread has ended, so nothing disappears behind their back."""
    (tmp_path / "a").write_text("1")
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    check = removal_module.check_replaceable

    def slow(*arguments: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(removal_module, "check_replaceable", slow)
    workspace = LocalWorkspace(tmp_path)
    task = asyncio.ensure_future(workspace.delete("a") if verb == "delete" else workspace.move("a", "b"))
    await begun.wait()
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(tmp_path) == ([] if verb == "delete" else ["b"])
