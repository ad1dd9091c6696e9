"""A workspace at a place of fsspec does what every workspace must do, and says what a place cannot."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from agentscope_rx import HarnessAgent, InMemoryStore, RuntimeContext
from agentscope_rx.errors import (
    FileTooLarge,
    InvalidOption,
    MissingExtra,
    PathRefused,
    WorkspaceConflict,
    WorkspaceError,
)
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.testing.workspace_conformance import check_workspace
from agentscope_rx.workspace import FileKind, FsspecWorkspace, WorkspaceFS, fsspec, resolve_path
from agentscope_rx.workspace.folders import Folder
from agentscope_rx.workspace.fsspec_objects import ObjectDrive, S3Drive
from agentscope_rx.workspace.looking import FileGroup, Look, Needle
from agentscope_rx.workspace.search import search_text
from tests.buckets import Bucket, S3Server, in_memory
from tests.stores.places import Reachable
from tests.workspace.places import at

_numbers = count(1)


def put(server: S3Server, bucket: Bucket, name: str, data: bytes = b"") -> None:
    """Write an object as another program does."""
    url = f"{server.endpoint}/{bucket.url.split('/')[2]}/{name}"
    urlopen(Request(url, data, {"Content-Type": "text/plain"}, method="PUT")).close()


def got(server: S3Server, bucket: Bucket, name: str) -> bytes:
    """What an object holds, for another program."""
    url = f"{server.endpoint}/{bucket.url.split('/')[2]}/{name}"
    with urlopen(Request(url, headers={"Authorization": "AWS a:b"})) as answer:
        return answer.read()


async def names(workspace: WorkspaceFS, path: str = ".") -> list[str]:
    return [str(entry.path) for entry in await workspace.list(path)]


# -- everywhere ---------------------------------------------------------------------------------------------


async def test_it_conforms(tmp_path: Path, s3: S3Server) -> None:
    """In memory, in a folder, and on a real S3 server."""
    await check_workspace(at(in_memory))
    await check_workspace(at(lambda: Bucket(f"file://{tmp_path}/{next(_numbers)}")))
    await check_workspace(at(s3.bucket))
    assert isinstance(in_memory().workspace(), WorkspaceFS)


async def test_a_store_that_compares_nothing_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within this process: what a store leaves open is settled by one lock for each name."""
    wrapper: Any = import_module("fsspec.implementations.asyn_wrapper").AsyncFileSystemWrapper
    drives = dict[Any, ObjectDrive]()

    def drive(system: Any) -> ObjectDrive:
        return drives.setdefault(system, ObjectDrive(wrapper(system, asynchronous=False)))

    monkeypatch.setitem(fsspec._DRIVES, "memory", drive)  # type: ignore[reportPrivateUsage]
    await check_workspace(at(in_memory))


@pytest.mark.parametrize("place", ["memory", "s3"])
async def test_limits(place: str, request: pytest.FixtureRequest) -> None:
    """More than the limit is never returned, and not moved; a read-only one changes nothing."""
    bucket = in_memory() if place == "memory" else request.getfixturevalue("s3").bucket()
    await bucket.workspace().write("a", b"12345")
    workspace = bucket.workspace(max_read_bytes=4)
    with pytest.raises(FileTooLarge):
        await workspace.read("a")
    part = await workspace.read("a", limit=99)
    assert (part.data, part.size, part.version) == (b"1234", 5, None)
    assert (await workspace.stat("a")).version is None
    with pytest.raises(FileTooLarge, match="moved"):
        await workspace.move("a", "b")
    reader = bucket.workspace(read_only=True)
    for change in (reader.write("b", b"2"), reader.delete("a"), reader.move("a", "b")):
        with pytest.raises(WorkspaceError, match="read-only"):
            await change
    assert await names(reader) == ["a"]


async def test_a_search_reads_several_files_at_once(everywhere: Any) -> None:
    """And finds what one by one would find, binary files and all, on whatever it stands."""
    files = {f"d{number % 3}/{number}.txt": b"needle\n" if number % 4 else b"hay\n" for number in range(20)}
    async with everywhere({**files, "empty": b"", "image": b"\x89PNG\r\n\x1a\nneedle"}) as workspace:
        result = await search_text(workspace, "needle")
    found = {str(match.path) for match in result.matches}
    assert found == {path for path, data in files.items() if data == b"needle\n"}
    assert (result.binary, result.unreadable) == (1, 0)


async def test_a_file_that_is_larger_than_a_read_is_left_to_its_reader() -> None:
    """No more of a file is looked at than one read returns; whether the text comes later nobody says."""
    bucket = in_memory()
    await bucket.workspace().write("a", b"x" * 50 + b"needle")
    [looks] = await bucket.workspace(max_read_bytes=20).looks(
        [FileGroup(folder=Folder(path=resolve_path(".")), names=["a"])], Needle(text=b"needle", file_bytes=1000)
    )
    assert looks == {"a": Look.MAY_HOLD}


# -- object stores ------------------------------------------------------------------------------------------


async def test_a_file_is_an_object(s3: S3Server) -> None:
    """Of the same name, for other programs to read and write, whatever characters it has."""
    bucket = s3.bucket()
    workspace = bucket.workspace()
    await workspace.write("src/a b+ü*[x]?.txt", b"ours")
    assert got(s3, bucket, "desk/src/a%20b%2B%C3%BC%2A%5Bx%5D%3F.txt") == b"ours"
    put(s3, bucket, "desk/theirs/deep/b.txt", b"theirs")
    put(s3, bucket, "other/c.txt", b"beside")
    put(s3, bucket, "desk2/c.txt", b"beside")
    assert (await workspace.read("theirs/deep/b.txt")).data == b"theirs"
    assert await names(workspace) == ["src", "theirs"]


async def test_names_that_no_path_can_hold_are_not_listed(s3: S3Server) -> None:
    """Nor what keeps a directory there; and a name of both kinds is a file."""
    bucket = s3.bucket()
    for name in ("ok.txt", "back\\slash", "both", "both/below", ".agentscope-runtime/log", ".agentscope-tmp-x", "a/"):
        put(s3, bucket, f"desk/{name}", b"x" if name[-1] != "/" else b"")
    workspace = bucket.workspace()
    found = [(str(entry.path), entry.kind) for entry in await workspace.list()]
    assert found == [("a", FileKind.DIRECTORY), ("both", FileKind.FILE), ("ok.txt", FileKind.FILE)]
    assert await workspace.list("a") == ()


async def test_a_directory_stays_when_its_last_file_goes(s3: S3Server) -> None:
    """As on a disk, until it is deleted itself; then nothing at all is left of it, whoever made it."""
    bucket = s3.bucket()
    workspace = bucket.workspace()
    put(s3, bucket, "desk/console/")
    await workspace.write("d/e/a.txt", b"x")
    await workspace.delete("d/e/a.txt")
    await workspace.delete("d/e")
    assert await names(workspace, "d") == []
    await workspace.write("d/b.txt", b"x")
    await workspace.move("d/b.txt", "b.txt")
    assert await names(workspace) == ["b.txt", "console", "d"]
    for path in ("d", "console", "b.txt"):
        await workspace.delete(path)
    assert await names(workspace) == []


async def test_machines_decide_by_what_is_there(s3: S3Server) -> None:
    """Of several that change one file, each knowing nothing of the others, one wins and the rest are told."""
    bucket = s3.bucket()
    machines = [bucket.elsewhere(f"machine-{number}") for number in range(6)]

    async def race(change: Callable[[FsspecWorkspace, int], Any]) -> list[object]:
        done = await asyncio.gather(*(change(each, n) for n, each in enumerate(machines)), return_exceptions=True)
        return [each if isinstance(each, BaseException) else None for each in done]

    def lost(done: list[object], *errors: type[BaseException]) -> None:
        assert done.count(None) == 1, done
        assert all(each is None or isinstance(each, errors) for each in done), done

    old = await machines[0].write("a.txt", b"old")
    lost(await race(lambda each, n: each.write("a.txt", b"%d" % n, if_match=old)), WorkspaceConflict)
    lost(await race(lambda each, n: each.write("new.txt", b"%d" % n, create_only=True)), FileExistsError)
    new = (await machines[0].read("a.txt")).version
    lost(await race(lambda each, n: each.move("a.txt", f"to/{n}", if_match=new)), WorkspaceConflict)
    assert len(await names(machines[0], "to")) == 1  # who was late took the copy back
    lost(await race(lambda each, _: each.delete("new.txt")), FileNotFoundError)
    await asyncio.gather(*(each.write(f"from/{n}", b"%d" % n) for n, each in enumerate(machines)))
    lost(await race(lambda each, n: each.move(f"from/{n}", "one")), FileExistsError)
    assert len(await names(machines[0], "from")) == 5


async def test_a_file_that_is_replaced_while_it_is_read(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is read as it is now, and a version that was read before it is no more."""
    bucket = s3.bucket()
    here, there = bucket.workspace(), bucket.elsewhere("there")
    old = await here.write("a.txt", b"old")
    read, contents = S3Drive.part, [b"longer", b"x"]

    async def part(self: Any, key: str, start: int, end: int) -> bytes:
        if contents:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there.write("a.txt", contents.pop(0)), loop))
        return await read(self, key, start, end)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(S3Drive, "part", part)
    assert (await here.read("a.txt")).data == b"x"
    assert contents == []
    with pytest.raises(WorkspaceConflict):
        await here.write("a.txt", b"late", if_match=old)


async def test_a_bucket_that_is_not_there_is_no_empty_workspace(s3: S3Server) -> None:
    """A wrong name is told, by whichever verb comes first; no bucket is made."""
    options = s3.bucket().options
    workspace = FsspecWorkspace("s3://nowhere/desk", storage_options=options)
    with pytest.raises(WorkspaceError, match="no bucket 'nowhere'"):
        await workspace.list()
    with pytest.raises(WorkspaceError, match="no bucket 'nowhere'"):
        await workspace.write("a.txt", b"x")


# -- waiting ------------------------------------------------------------------------------------------------


async def test_a_cancelled_read_gives_up_its_request() -> None:
    """The connection is closed at once, and nothing of it is left."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
    workspace = Bucket("s3://b/desk", {"key": "a", "secret": "b", "client_kwargs": client}).workspace()
    task = asyncio.ensure_future(workspace.read("a.txt"))
    await asked.wait()  # the loop is free meanwhile
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
    server.close()
    await server.wait_closed()


async def test_a_cancelled_write_has_happened_or_not(s3: S3Server) -> None:
    """It is waited for, and nothing happens later."""
    workspace = s3.bucket().workspace()
    await workspace.list()
    task = asyncio.ensure_future(workspace.write("a.txt", b"x" * 1_000_000))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await workspace.read("a.txt")).size == 1_000_000


async def test_blocking_drivers_do_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """They work in a thread, while the loop goes on."""
    system: Any = import_module("fsspec.implementations.memory").MemoryFileSystem
    workspace, begun, go_on = in_memory().workspace(), threading.Event(), threading.Event()
    await workspace.write("a.txt", b"x")
    info = system.info

    def slow(self: Any, path: str, **options: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return info(self, path, **options)

    monkeypatch.setattr(system, "info", slow)
    task = asyncio.ensure_future(workspace.read("a.txt"))
    await asyncio.to_thread(begun.wait)
    go_on.set()
    assert (await task).data == b"x"


async def test_blocking_drivers_change_one_thing_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two writers who believe in one version would both have it."""
    system: Any = import_module("fsspec.implementations.memory").MemoryFileSystem
    workspace, both = in_memory().workspace(), threading.Barrier(2, timeout=0.2)
    old = await workspace.write("a.txt", b"old")
    read = system.cat_file

    def meeting(self: Any, path: str, **options: Any) -> Any:
        data = read(self, path, **options)
        with suppress(threading.BrokenBarrierError):  # nobody else has read before the first has written
            both.wait()
        return data

    monkeypatch.setattr(system, "cat_file", meeting)
    writes = (workspace.write("a.txt", text, if_match=old) for text in (b"one", b"two"))
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(each, WorkspaceConflict) for each in done) == 1


# -- what goes wrong ----------------------------------------------------------------------------------------


async def test_links_are_not_followed(tmp_path: Path) -> None:
    """By no verb, wherever in the path they are and wherever they lead, and they are not listed."""
    (tmp_path / "desk/in").mkdir(parents=True)
    (tmp_path / "secret").write_text("top")
    (tmp_path / "desk/in/a.txt").write_text("in")
    for name, target in {"out": "../secret", "up": "..", "same": "in", "gone": "nowhere"}.items():
        (tmp_path / "desk" / name).symlink_to(target)
    workspace = FsspecWorkspace(f"file://{tmp_path}/desk")
    assert await names(workspace) == ["in"]
    for path in ("out", "up/secret", "same", "same/a.txt"):
        for verb in (workspace.read, workspace.list, workspace.stat, workspace.resolve, workspace.delete):
            with pytest.raises(PathRefused):
                await verb(path)
    for path in ("out", "up/secret", "same/a.txt", "up/new"):
        with pytest.raises(PathRefused, match="symbolic link"):
            await workspace.write(path, b"x")
        with pytest.raises(PathRefused, match="symbolic link"):
            await workspace.move("in/a.txt", path)
    assert (tmp_path / "secret").read_text() == "top"
    await workspace.write("gone", b"x")  # a link to nothing is nothing, and what is written takes its place
    assert not (tmp_path / "desk/nowhere").exists()
    assert await names(workspace) == ["gone", "in"]


async def test_what_a_driver_says_names_paths_as_they_are_called_in_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the root is concerns nobody, and a text of a driver may hold a key."""
    system: Any = import_module("fsspec.implementations.memory").MemoryFileSystem
    workspace = in_memory().workspace()

    def failing(error: Exception) -> Callable[..., Any]:
        def info(*_: object, **__: object) -> Any:
            raise error

        return info

    for error, kind, text in (
        (PermissionError("desk-1/a.txt is not yours"), PermissionError, "'a.txt'"),
        (OSError(28, "full", "/desk-1/a.txt"), OSError, "'a.txt'"),
        (RuntimeError("token=hunter2"), WorkspaceError, "'a.txt': the file system failed with RuntimeError"),
    ):
        monkeypatch.setattr(system, "info", failing(error))
        with pytest.raises(kind, match=text) as caught:
            await workspace.read("a.txt")
        assert "desk-" not in str(caught.value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "rule"),
    [
        ("nosuch://place", {}, "knows"),
        ("gs://bucket/desk", {}, "not installed"),
        ("simplecache::s3://bucket/desk", {}, "without a cache"),
        ("s3://", {}, "name a bucket"),
        ("memory://desk", {"asynchronous": True}, "leave it out"),
    ],
)
def test_places_that_cannot_be(url: str, options: dict[str, Any], rule: str) -> None:
    """Are refused where they are named, with what to do."""
    with pytest.raises(InvalidOption, match=rule):
        FsspecWorkspace(url, storage_options=options)


def test_a_client_too_old_for_conditions_is_refused(monkeypatch: pytest.MonkeyPatch, s3: S3Server) -> None:
    """It would leave them out without a word."""
    monkeypatch.setattr("agentscope_rx.workspace.fsspec_objects.version", {"botocore": "1.35.99"}.get)
    with pytest.raises(InvalidOption, match=r"1\.36"):
        s3.bucket().workspace()


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On first use, and not on import."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtra, match=r"agentscope-rx\[fsspec\]"):
        in_memory().workspace()


def test_it_shows_where_it_is_without_a_secret(s3: S3Server) -> None:
    """And says whether other machines find it."""
    bucket = s3.bucket()
    secret = Bucket(bucket.url, {**bucket.options, "secret": "hunter2"}).workspace()
    assert repr(secret) == f"FsspecWorkspace('{bucket.url}', read_only=False)"
    assert (secret.shared, in_memory().workspace().shared) == (True, False)


# -- through an agent ---------------------------------------------------------------------------------------


async def test_two_users_never_see_each_other(s3: S3Server) -> None:
    """Through an agent, whose tools and materials are those of its user."""
    model = ScriptedModel([calls(("c1", "write_file", '{"path": "n/a.txt", "content": "needle"}')), "kept"])
    workspace = s3.bucket().workspace()
    with pytest.raises(InvalidOption, match="share the workspace"):
        HarnessAgent.builder(name="a", model=model, workspace=workspace, state_store=InMemoryStore()).build()
    builder = HarnessAgent.builder(name="a", model=model, workspace=workspace, state_store=Reachable())
    alice, bob = (RuntimeContext(user_id=name, session_id="s") for name in ("alice", "bob"))
    async with builder.build() as agent:
        assert "execute" not in agent.options.all_tools.names
        await agent.call("Keep it.", alice)
        assert await names(agent.files(alice)) == ["n"]
        assert await names(agent.files(bob)) == []
        assert (await agent.files(alice).read("n/a.txt")).data == b"needle"
