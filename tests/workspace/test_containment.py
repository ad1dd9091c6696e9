"""Nothing leads out of a workspace on a disk: no path, no link, no race."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace import FileKind, LocalWorkspace
from agentscope_rx.workspace import containment as containment_module


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
        workspace.delete,
        lambda path: workspace.delete(path, if_match="0"),
        lambda path: workspace.move(path, "taken"),
        lambda path: workspace.move("in.txt", path),
        lambda path: workspace.move("in.txt", f"{path}/deep/new"),
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
        with suppress(OSError):
            await workspace.delete(path, if_match="0")
        for old, new in ((path, "sub"), ("in.txt", path)):
            with suppress(OSError):
                await workspace.move(old, new)
    assert os.listdir("/proc/self/fd") == before
