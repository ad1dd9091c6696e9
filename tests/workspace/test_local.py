"""The workspace on a disk keeps every rule of the protocol, for any path and any content."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import FileTooLarge, InvalidOption, PathRefused, WorkspaceError
from agentscope_rx.testing.workspace_conformance import check_workspace
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, WorkspaceFS
from agentscope_rx.workspace import local as local_module
from tests.buckets import in_memory
from tests.workspace.places import filled

NAMES = st.sampled_from(["a", "b", "sub", "..", ".", "", "~", "é", "x.txt", ".agentscope-runtime", "C:", "a\\b"])
VERBS = ["read", "list", "stat", "resolve", "write", "create", "delete", "move"]
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


async def test_it_conforms() -> None:
    """LocalWorkspace does what every workspace must do."""
    await check_workspace(local)


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
@given(st.lists(st.tuples(st.sampled_from(VERBS), PATHS, PATHS), max_size=12))
async def test_the_implementations_agree(calls: list[tuple[str, str, str]]) -> None:
    """A test that runs on the workspace in memory tells what happens on a disk, or at a place of fsspec: same answers,
    same errors."""

    async def outcome(workspace: WorkspaceFS, verb: str, path: str, to: str) -> object:
        try:
            if verb == "move":
                return await workspace.move(path, to)
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
        memory, place = InMemoryWorkspace(files), await filled(in_memory().workspace(), files)
        for call in calls:
            assert await outcome(disk, *call) == await outcome(memory, *call) == await outcome(place, *call)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=5000))
async def test_what_is_written_is_read(data: bytes) -> None:
    """Bytes come back as they went in."""
    async with local({}) as workspace:
        version = await workspace.write("a/b", data)
        content = await workspace.read("a/b")
        assert (content.data, content.version) == (data, version)


async def test_read_only(tmp_path: Path) -> None:
    """A read-only workspace changes nothing."""
    (tmp_path / "a").write_text("1")
    workspace = LocalWorkspace(tmp_path, read_only=True)
    for change in (workspace.write("b", b"2"), workspace.delete("a"), workspace.move("a", "b")):
        with pytest.raises(WorkspaceError, match="read-only"):
            await change
    assert os.listdir(tmp_path) == ["a"]


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
