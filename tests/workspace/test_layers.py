"""Workspaces made of others keep every rule of the protocol, and nobody sees what is somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.stores import SessionKey
from agentscope_rx.testing.workspace_conformance import MakeWorkspace, check_workspace
from agentscope_rx.workspace import (
    FileKind,
    InMemoryWorkspace,
    IsolationScope,
    LocalWorkspace,
    OverlayWorkspace,
    ScopedWorkspace,
    WorkspaceFS,
    edit_text,
    glob_paths,
    scope_folder,
    scoped_workspace,
)
from agentscope_rx.workspace.search import search_text
from tests.workspace.places import disk, fsspec, memory

NAMES = st.sampled_from(["a", "b", "sub", "x.txt", "..", "."])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def scoped(make: MakeWorkspace) -> MakeWorkspace:
    @asynccontextmanager
    async def within(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        beside = {"other/a.txt": b"theirs", "mine too/a.txt": b"theirs"}
        async with make({**{f"deep/mine/{path}": data for path, data in files.items()}, **beside}) as inner:
            yield ScopedWorkspace(inner, "deep/mine")

    return within


def over_nothing(make: MakeWorkspace) -> MakeWorkspace:
    @asynccontextmanager
    async def above(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        async with make(files) as upper, make({}) as lower:
            yield OverlayWorkspace(upper, lower)

    return above


@pytest.mark.parametrize("layer", [scoped, over_nothing])
@pytest.mark.parametrize("place", [memory, disk, fsspec])
async def test_they_conform(layer: Callable[[MakeWorkspace], MakeWorkspace], place: MakeWorkspace) -> None:
    """ScopedWorkspace and OverlayWorkspace do what every workspace must do, on whatever they stand."""
    await check_workspace(layer(place))
    async with layer(place)({}) as workspace:
        assert isinstance(workspace, WorkspaceFS)


# -- scopes -------------------------------------------------------------------------------------------------

KEYS = [
    SessionKey(agent_id=agent, user_id=user, session_id=session)
    for agent in ("a", "A")
    for user in (None, "alice", "Alice", "../bob", "nobody")
    for session in ("s", "S", "../s")
]


def shared(scope: IsolationScope, one: SessionKey, two: SessionKey) -> bool:
    match scope:
        case IsolationScope.GLOBAL:
            return True
        case IsolationScope.AGENT:
            return one.agent_id == two.agent_id
        case IsolationScope.USER if one.user_id is not None:
            return one.user_id == two.user_id
        case _:
            return one == two


@pytest.mark.parametrize("scope", IsolationScope)
def test_who_shares_files(scope: IsolationScope) -> None:
    """A folder is that of exactly those who share files, also on disks that do not tell `A` from `a`."""
    for one, two in combinations(KEYS, 2):
        first, second = scope_folder(scope, one), scope_folder(scope, two)
        assert (str(first).lower() == str(second).lower()) == shared(scope, one, two), (one, two)


def test_no_scope_lies_inside_another() -> None:
    """Whatever the scopes of two agents on one workspace, no folder holds another one's."""
    folders = {scope_folder(scope, key).parts for scope in IsolationScope for key in KEYS}
    for one, two in combinations(folders, 2):
        assert one[: len(two)] != two
        assert two[: len(one)] != one


@pytest.mark.parametrize("layer", ["plain", "over", "under"])
async def test_two_users_never_see_each_other(everywhere: MakeWorkspace, layer: str) -> None:
    """What one user writes is neither read, listed, found nor changed by another, over every implementation."""
    async with everywhere({}) as inner, everywhere({}) as other:
        workspace = {
            "plain": inner,
            "over": OverlayWorkspace(inner, other),
            "under": OverlayWorkspace(other, inner),
        }[layer]
        alice, bob = (
            scoped_workspace(workspace, IsolationScope.USER, SessionKey(agent_id="a", user_id=user, session_id="s"))
            for user in ("alice", "bob")
        )
        await alice.write("notes/secret.txt", b"needle")
        with pytest.raises(FileNotFoundError):
            await bob.read("notes/secret.txt")
        await bob.write("notes/mine.txt", b"bob")
        assert [str(entry.path) for entry in await bob.list("notes")] == ["notes/mine.txt"]
        assert (await search_text(bob, "needle")).matches == ()
        assert [str(entry.path) for entry in (await glob_paths(bob, "**/*.txt")).entries] == ["notes/mine.txt"]
        with pytest.raises(FileNotFoundError):
            await bob.delete("notes/secret.txt")
        with pytest.raises(FileNotFoundError):
            await edit_text(bob, "notes/secret.txt", "needle", "x")
        for path in (f"../{alice.folder.name}/notes/secret.txt", str(alice.folder), "/notes", "~/x"):
            with pytest.raises(OSError):
                await bob.read(path)
        assert (await alice.read("notes/secret.txt")).data == b"needle"


async def test_links_between_scopes_are_refused(tmp_path: Path) -> None:
    """A link that stays in the workspace but leads to another user's folder is refused by each verb, and unlisted."""
    (tmp_path / "bob").mkdir()
    (tmp_path / "alice").mkdir()
    (tmp_path / "bob/secret").write_text("top")
    (tmp_path / "alice/in.txt").write_text("in")
    for name, target in {"dir": "../bob", "file": "../bob/secret", "ok": "in.txt", "up": ".."}.items():
        (tmp_path / "alice" / name).symlink_to(target)
    alice = ScopedWorkspace(LocalWorkspace(tmp_path), "alice")
    for path in ("dir", "dir/secret", "file", "up/bob/secret", "dir/new"):
        for verb in (alice.read, alice.list, alice.stat, alice.resolve, alice.delete):
            with pytest.raises(PathRefused):
                await verb(path)
        for change in (alice.write(path, b"x"), alice.move(path, "new"), alice.move("in.txt", path)):
            with pytest.raises(PathRefused):
                await change
    assert [str(entry.path) for entry in await alice.list()] == ["in.txt", "ok"]
    assert (await alice.read("ok")).data == b"in"
    assert str(await alice.resolve("ok")) == "in.txt"
    assert (tmp_path / "bob/secret").read_text() == "top"


async def test_errors_name_paths_of_the_scope() -> None:
    """Neither the folder of a user nor the way to it is told."""
    alice = ScopedWorkspace(InMemoryWorkspace({"users/s_x/a": "1", "users/s_x/b": ""}), "users/s_x")
    for verb in (alice.read("no"), alice.list("a"), alice.move("a", "b"), alice.delete("a", if_match="0")):
        with pytest.raises(OSError) as caught:
            await verb
        assert "s_x" not in str(caught.value)


async def test_a_scope_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    """The first look at a new user's files makes nothing and finds nothing."""
    fresh = ScopedWorkspace(LocalWorkspace(tmp_path), "users/s_x")
    assert await fresh.list() == ()
    assert (await fresh.stat(".")).kind is FileKind.DIRECTORY
    with pytest.raises(IsADirectoryError):
        await fresh.write(".", b"x")
    with pytest.raises(FileNotFoundError):
        await fresh.list("sub")
    assert list(tmp_path.iterdir()) == []


# -- overlay ------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "sub/a", "sub/x.txt", "b2/c"]), st.binary(max_size=2), max_size=5),
    st.data(),
)
async def test_two_layers_look_like_one(files: dict[str, bytes], data: st.DataObject) -> None:
    """Wherever files lie, reading, listing and writing answer as one workspace with all of them does."""
    above = {path: content for path, content in files.items() if data.draw(st.booleans())}
    below = {path: content for path, content in files.items() if path not in above}
    # Hidden by what stands in front of it: a file, or a directory.
    below.update({path: b"hidden" for path in above if data.draw(st.booleans())})
    if not any(path.startswith("sub/") for path in below) and any(path.startswith("sub/") for path in above):
        below["sub"] = b"hidden"
    both, one = OverlayWorkspace(InMemoryWorkspace(above), InMemoryWorkspace(below)), InMemoryWorkspace(files)
    verbs = st.sampled_from(["read", "list", "stat", "resolve", "write", "create", "match"])
    for verb, path in data.draw(st.lists(st.tuples(verbs, PATHS), max_size=12)):
        assert await _outcome(both, verb, path) == await _outcome(one, verb, path), (verb, path)


async def _outcome(workspace: WorkspaceFS, verb: str, path: str) -> object:
    try:
        match verb:
            case "write":
                return await workspace.write(path, path.encode())
            case "create":
                return await workspace.write(path, b"new", create_only=True)
            case "match":
                version = (await workspace.stat(path)).version or "0"
                return await workspace.write(path, b"matched", if_match=version)
            case "list":
                return [(entry.path, entry.kind, entry.size) for entry in await workspace.list(path)]
            case "stat":
                found = await workspace.stat(path)
                return found.path, found.kind, found.size, found.version
            case _:
                return await getattr(workspace, verb)(path)
    except OSError as error:
        return type(error), str(error)


@pytest.mark.parametrize("place", [memory, disk, fsspec])
async def test_the_lower_layer_is_never_changed(place: MakeWorkspace) -> None:
    """A write goes up; what is below can be neither deleted nor moved, also where something hides it."""
    async with place({"a.txt": b"low", "dir/b.txt": b"low"}) as lower, place({"c.txt": b"up"}) as upper:
        both = OverlayWorkspace(upper, lower)
        await both.write("a.txt", b"high")
        await both.write("dir/new.txt", b"high")
        for path in ("a.txt", "dir/b.txt", "dir"):
            with pytest.raises(WorkspaceError, match="only read"):
                await both.delete(path)
            with pytest.raises(WorkspaceError, match="only read"):
                await both.move(path, "elsewhere")
        await both.move("c.txt", "dir/c.txt")
        await both.delete("dir/c.txt")
        assert [(await lower.read(path)).data for path in ("a.txt", "dir/b.txt")] == [b"low", b"low"]
        assert (await both.read("a.txt")).data == b"high"
        assert [str(entry.path) for entry in await both.list("dir")] == ["dir/b.txt", "dir/new.txt"]
        with pytest.raises(FileExistsError):
            await both.move("dir/new.txt", "dir/b.txt")


async def test_a_version_of_the_lower_layer_can_be_matched() -> None:
    """What was read below is replaced above once; who believes in it afterwards is told."""
    both = OverlayWorkspace(InMemoryWorkspace(), InMemoryWorkspace({"a": "low"}))
    version = (await both.read("a")).version
    with pytest.raises(WorkspaceConflict):
        await both.write("a", b"x", if_match="0")
    await both.write("a", b"high", if_match=version)
    with pytest.raises(WorkspaceConflict):
        await both.write("a", b"late", if_match=version)
    with pytest.raises(WorkspaceConflict):
        await both.delete("a", if_match=version)


async def test_one_writer_wins_over_the_lower_layer(tmp_path: Path) -> None:
    """Of those who believe in the version below, one puts its content in front, and the others are told."""
    for layer in ("up", "low"):
        (tmp_path / layer).mkdir()
    (tmp_path / "low/a").write_text("low")
    both = OverlayWorkspace(LocalWorkspace(tmp_path / "up"), LocalWorkspace(tmp_path / "low"))
    version = (await both.read("a")).version
    writes = [both.write("a", b"%d" % number, if_match=version) for number in range(16)]
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(answer, WorkspaceConflict) for answer in done) == 15


async def test_a_search_reads_what_is_in_front(tmp_path: Path) -> None:
    """A file below that is hidden is not searched, on a disk as in memory."""
    for name, files in {"up": {"a": "new", "d/own": "needle"}, "low": {"a": "needle", "d/b": "needle"}}.items():
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    for upper, lower in (
        (LocalWorkspace(tmp_path / "up"), LocalWorkspace(tmp_path / "low")),
        (InMemoryWorkspace({"a": "new", "d/own": "needle"}), InMemoryWorkspace({"a": "needle", "d/b": "needle"})),
    ):
        result = await search_text(OverlayWorkspace(upper, lower), "needle")
        assert [str(match.path) for match in result.matches] == ["d/b", "d/own"]


async def test_links_that_lead_out_are_refused_in_both_layers(tmp_path: Path) -> None:
    """A layer's containment is the overlay's."""
    for layer in ("up", "low"):
        (tmp_path / layer).mkdir()
        (tmp_path / layer / f"{layer}-out").symlink_to("../secret")
    (tmp_path / "secret").write_text("top")
    both = OverlayWorkspace(LocalWorkspace(tmp_path / "up"), LocalWorkspace(tmp_path / "low"))
    for path in ("up-out", "low-out"):
        for verb in (both.read, both.stat, both.list, both.resolve, both.delete):
            with pytest.raises(PathRefused):
                await verb(path)
        with pytest.raises(PathRefused):
            await both.write(path, b"x")
    assert await both.list() == ()
    assert (tmp_path / "secret").read_text() == "top"
