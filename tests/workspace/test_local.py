"""The workspace on a disk keeps every rule, and nothing leads out of it: no path, no link, no race."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import FileTooLarge, InvalidOption, PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.testing.workspace_conformance import check_workspace
from agentscope_rx.workspace import FileKind, InMemoryWorkspace, LocalWorkspace, WorkspaceFS
from agentscope_rx.workspace import containment as containment_module
from agentscope_rx.workspace import local as local_module

NAMES = st.sampled_from(["a", "b", "sub", "..", ".", "", "~", "é", "x.txt", ".agentscope-runtime", "C:", "a\\b"])
PATHS = st.lists(NAMES | st.text(max_size=4), max_size=5).map("/".join) | st.text(max_size=20)


@asynccontextmanager
async def local(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    with TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        for path, data in files.items():
            Path(root, path).parent.mkdir(parents=True, exist_ok=True)
            Path(root, path).write_bytes(data)
        yield LocalWorkspace(root)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """The tree of O31, and some more links: `ws` is the workspace, `out` is not."""
    for folder in ("ws/sub/private", "ws/.agentscope-runtime", "out"):
        Path(tmp_path, folder).mkdir(parents=True)
    for path, text in {
        "ws/in.txt": "in",
        "ws/sub/y.txt": "y",
        "ws/sub/private/z": "z",
        "ws/.agentscope-runtime/log": "log",
        "out/secret.txt": "top",
    }.items():
        Path(tmp_path, path).write_text(text)
    for link, target in {
        "link": "../out",
        "ok": "./sub",
        "file": "../out/secret.txt",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "absolute": str(tmp_path / "out"),
        "home": str(tmp_path / "ws" / "sub"),
        "back": "../ws/sub",
        "around": "ok/../in.txt",
        "up": "..",
        "self": ".",
        "dangling": "missing/x",
        "dangling-out": "../out/new.txt",
        "hidden": ".agentscope-runtime",
        "chain": "ok/private",
        "beside": "../ws2/x",
        "through": "in.txt/x",
        "dotdot": "missing/../in.txt",
    }.items():
        Path(tmp_path, "ws", link).symlink_to(target)
    return tmp_path / "ws"


OUTSIDE = [
    *(
        "link",
        "link/secret.txt",
        "link/new.txt",
        "file",
        "absolute",
        "absolute/secret.txt",
        "up",
        "up/out/secret.txt",
    ),
    *("loop", "loop/x", "ping", "dangling-out", "hidden", "hidden/log", "beside", "../out/secret.txt"),
    *("/etc/hostname", ".agentscope-runtime/log", "self/.agentscope-runtime/log", "ok/../../out/secret.txt"),
]


def snapshot(folder: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = path.read_bytes()
        else:
            found[str(path)] = "directory"
    return found


async def test_it_conforms() -> None:
    """LocalWorkspace does what every workspace must do."""
    await check_workspace(local)


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_leads_out(linked: Path, path: str) -> None:
    """O31: what leads out, into the runtime folder or in a circle is refused by each verb, link or path."""
    workspace, before = LocalWorkspace(linked), snapshot(linked.parent)
    verbs: tuple[Callable[[str], Awaitable[object]], ...] = (
        workspace.read,
        workspace.list,
        workspace.stat,
        workspace.resolve,
        lambda path: workspace.write(path, b"stolen"),
        lambda path: workspace.write(path, b"stolen", create_only=True),
        lambda path: workspace.write(path, b"stolen", if_match="0"),
        lambda path: workspace.write(f"{path}/deep/new", b"stolen"),
    )
    for verb in verbs:
        with pytest.raises(PathRefused):
            await verb(path)
    assert snapshot(linked.parent) == before


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("ok/y.txt", "sub/y.txt"),
        ("home/y.txt", "sub/y.txt"),
        ("back/y.txt", "sub/y.txt"),
        ("chain/z", "sub/private/z"),
        ("self/self/ok/private/z", "sub/private/z"),
        ("around", "in.txt"),
        ("in.txt", "in.txt"),
    ],
)
async def test_links_that_stay_inside_are_followed(linked: Path, path: str, real: str) -> None:
    """O31: a link is judged by where it leads, and `resolve` tells a permission rule where that is."""
    workspace = LocalWorkspace(linked)
    assert (await workspace.read(path)).data == (linked / real).read_bytes()
    assert str(await workspace.resolve(path)) == real
    await workspace.write(path, b"new")
    assert (linked / real).read_bytes() == b"new"
    assert not (linked / real).is_symlink()


async def test_a_missing_target_is_resolved_and_written_behind_the_link(linked: Path) -> None:
    """A permission rule can be asked about a file that does not exist yet, behind links too."""
    workspace = LocalWorkspace(linked)
    assert str(await workspace.resolve("ok/private/new/file")) == "sub/private/new/file"
    assert str(await workspace.resolve("dangling")) == "missing/x"
    await workspace.write("dangling", b"1")
    assert (linked / "missing/x").read_bytes() == b"1"
    assert (linked / "dangling").is_symlink()


async def test_going_up_from_a_missing_directory_leads_nowhere(tmp_path: Path) -> None:
    """`missing/..` in a link is not the directory above: nothing is guessed, nothing is made."""
    (tmp_path / "dotdot").symlink_to("missing/../in.txt")
    (tmp_path / "in.txt").write_text("in")
    workspace = LocalWorkspace(tmp_path)
    for verb in (workspace.read, workspace.stat, workspace.resolve):
        with pytest.raises(FileNotFoundError):
            await verb("dotdot")
    with pytest.raises(FileNotFoundError):
        await workspace.write("dotdot", b"x")
    assert sorted(os.listdir(tmp_path)) == ["dotdot", "in.txt"]


async def test_listings_leave_out_what_cannot_be_used(linked: Path) -> None:
    """A listing shows links by what they lead to, and nothing that leads out, nowhere or to the runtime."""
    (linked / "a\nb").touch()
    (linked / "a\\b").touch()
    (linked / "~x").touch()
    (linked / ".agentscope-tmp-0").touch()
    Path(os.fsdecode(bytes(linked) + b"/\xff")).touch()
    os.mkfifo(linked / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(linked / "socket"))
        found = {str(entry.path): entry for entry in await LocalWorkspace(linked).list()}
    assert sorted(found) == ["around", "back", "chain", "home", "in.txt", "ok", "self", "sub"]
    assert [path for path, entry in found.items() if not entry.link] == ["in.txt", "sub"]
    assert (found["ok"].kind, found["around"].kind) == (FileKind.DIRECTORY, FileKind.FILE)
    below = await LocalWorkspace(linked).list("ok")
    assert [str(entry.path) for entry in below] == ["ok/private", "ok/y.txt"]
    assert not any(entry.link for entry in below)


async def test_stat_says_whether_the_entry_is_a_link(linked: Path) -> None:
    """Only the last name counts, not the directories above it."""
    workspace = LocalWorkspace(linked)
    assert [(await workspace.stat(path)).link for path in ("ok", "chain", "around", "ok/y.txt", ".")] == [
        *(True, True, True),
        *(False, False),
    ]


@pytest.mark.parametrize("verb", ["read", "write", "list", "stat"])
@pytest.mark.parametrize("name", ["pipe", "socket"])
async def test_special_files_are_refused(tmp_path: Path, verb: str, name: str) -> None:
    """Opening a pipe would wait for ever, and a socket is no file; neither is replaced by one."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        workspace = LocalWorkspace(tmp_path)
        call = workspace.write(name, b"x") if verb == "write" else getattr(workspace, verb)(name)
        with pytest.raises(OSError):
            await call
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)


def swap_after_look(monkeypatch: pytest.MonkeyPatch, victim: Path, target: Path) -> None:
    """Have another process put a link in the place of `victim` as soon as the walk has looked at it."""
    look = os.readlink

    def readlink(path: str, *, dir_fd: int | None = None) -> str:
        try:
            return look(path, dir_fd=dir_fd)
        finally:
            if path == victim.name and not victim.is_symlink():
                victim.rename(victim.with_name("moved"))
                victim.symlink_to(target)

    monkeypatch.setattr(containment_module.os, "readlink", readlink)


async def test_a_file_that_becomes_a_link_meanwhile_is_not_followed(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race on the last name: what is opened is what was looked at, or nothing."""
    secret = linked.parent / "out/secret.txt"
    for verb in ("read", "stat"):
        swap_after_look(monkeypatch, linked / "in.txt", secret)
        with pytest.raises(PathRefused):
            await getattr(LocalWorkspace(linked), verb)("in.txt")
        monkeypatch.undo()
        (linked / "moved").replace(linked / "in.txt")
    swap_after_look(monkeypatch, linked / "in.txt", secret)
    with pytest.raises(PathRefused):
        await LocalWorkspace(linked).write("in.txt", b"stolen")
    assert secret.read_text() == "top"


async def test_a_directory_that_becomes_a_link_meanwhile_is_not_entered(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race on a name in the middle: the walk stays in the directories that it opened."""
    before = snapshot(linked.parent / "out")
    for path in ("sub/secret.txt", "sub/new.txt"):
        swap_after_look(monkeypatch, linked / "sub", linked.parent / "out")
        with pytest.raises(OSError):
            await LocalWorkspace(linked).write(path, b"stolen")
        monkeypatch.undo()
        (linked / "sub").unlink()
        (linked / "moved").rename(linked / "sub")
    assert snapshot(linked.parent / "out") == before
    for verb, path in (("read", "sub/secret.txt"), ("stat", "sub/secret.txt"), ("list", "sub"), ("stat", "sub")):
        swap_after_look(monkeypatch, linked / "sub", linked.parent / "out")
        with pytest.raises(OSError):
            await getattr(LocalWorkspace(linked), verb)(path)
        monkeypatch.undo()
        (linked / "sub").unlink()
        (linked / "moved").rename(linked / "sub")


async def test_a_root_that_becomes_a_link_is_not_followed(linked: Path) -> None:
    """The root is the directory that was there when the workspace was made."""
    workspace = LocalWorkspace(linked)
    linked.rename(linked.with_name("moved"))
    linked.symlink_to(linked.parent / "out")
    with pytest.raises(OSError):
        await workspace.read("secret.txt")
    with pytest.raises(OSError):
        await workspace.write("new.txt", b"x")
    assert sorted(os.listdir(linked.parent / "out")) == ["secret.txt"]


@settings(max_examples=80, deadline=None)
@given(PATHS)
async def test_any_path_is_refused_or_stays_inside(path: str) -> None:
    """Whatever a model writes, a write is refused or lands below the root and is read back."""
    with TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        (root / "up").symlink_to("..")
        workspace = LocalWorkspace(root)
        try:
            await workspace.write(path, b"data")
        except OSError:
            assert os.listdir(folder) == ["root"]
            return
        assert (await workspace.read(path)).data == b"data"
        assert os.listdir(folder) == ["root"]
        assert sum(len(files) for _, _, files in os.walk(root)) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["read", "list", "stat", "resolve", "write", "create"]), PATHS), max_size=12))
async def test_both_implementations_agree(calls: list[tuple[str, str]]) -> None:
    """A test that runs on the workspace in memory tells what happens on a disk: same answers, same errors."""

    async def outcome(workspace: WorkspaceFS, verb: str, path: str) -> object:
        try:
            if verb == "write":
                return await workspace.write(path, path.encode(errors="replace"))
            if verb == "create":
                return await workspace.write(path, b"new", create_only=True)
            answer = await getattr(workspace, verb)(path)
        except OSError as error:
            return type(error), str(error)
        if verb == "list":
            return [(entry.path, entry.kind, entry.size, entry.version, entry.link) for entry in answer]
        return (answer.path, answer.kind, answer.size, answer.version) if verb == "stat" else answer

    files = {"a": b"1", "sub/x.txt": b"22"}
    async with local(files) as disk:
        memory = InMemoryWorkspace(files)
        for verb, path in calls:
            assert await outcome(disk, verb, path) == await outcome(memory, verb, path)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=5000))
async def test_what_is_written_is_read(data: bytes) -> None:
    """Bytes come back as they went in."""
    async with local({}) as workspace:
        version = await workspace.write("a/b", data)
        content = await workspace.read("a/b")
        assert (content.data, content.version) == (data, version)


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


async def test_read_only(tmp_path: Path) -> None:
    """A read-only workspace writes nothing."""
    with pytest.raises(WorkspaceError, match="read-only"):
        await LocalWorkspace(tmp_path, read_only=True).write("a", b"2")
    assert os.listdir(tmp_path) == []


async def test_max_read_bytes(tmp_path: Path) -> None:
    """More than the limit is never returned: all of it is an error, a part is cut."""
    (tmp_path / "a").write_bytes(b"12345")
    workspace = LocalWorkspace(tmp_path, max_read_bytes=4)
    with pytest.raises(FileTooLarge):
        await workspace.read("a")
    part = await workspace.read("a", limit=99)
    assert (part.data, part.size, part.version) == (b"1234", 5, None)
    assert (await workspace.stat("a")).version is None
    with pytest.raises(InvalidOption):
        LocalWorkspace(tmp_path, max_read_bytes=0)


async def test_absolute_paths_below_the_root(tmp_path: Path) -> None:
    """The paths that a shell prints are understood, be it by the root's real name or by a link to it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to("real")
    (tmp_path / "real/a").write_text("1")
    workspace = LocalWorkspace(tmp_path / "name")
    assert workspace.root == (tmp_path / "real").resolve()
    for root in ("real", "name"):
        assert str((await workspace.read(f"{tmp_path}/{root}/a")).path) == "a"
    with pytest.raises(PathRefused):
        await workspace.read(f"{tmp_path}/real/../name2/a")


def test_the_root_must_be_a_directory(tmp_path: Path) -> None:
    """A wrong root is told where it is given."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        LocalWorkspace(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        LocalWorkspace(tmp_path / "missing")


def test_a_system_without_openat_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where links cannot be contained there is no workspace on a disk at all."""
    monkeypatch.setattr(local_module, "CAN_CONTAIN", False)
    with pytest.raises(WorkspaceError, match="Linux"):
        LocalWorkspace(tmp_path)


async def test_no_descriptor_stays_open(linked: Path) -> None:
    """Every way out of a verb, refusals too, closes what it opened."""
    workspace = LocalWorkspace(linked)
    await workspace.list()  # the first call starts threads, which keep descriptors of their own
    before = os.listdir("/proc/self/fd")
    for path in [*OUTSIDE, "ok/y.txt", "sub", "missing/x", "in.txt/x"]:
        for verb in (workspace.read, workspace.list, workspace.stat, workspace.resolve):
            with suppress(OSError):
                await verb(path)
        with suppress(OSError):
            await workspace.write(path, b"x", if_match="0")
    assert os.listdir("/proc/self/fd") == before
