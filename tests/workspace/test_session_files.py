"""What a session sees: its own files, over those that all share, over those of a project."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentscope_rx.errors import InvalidOption, PathRefused, WorkspaceError
from agentscope_rx.stores import SessionKey
from agentscope_rx.testing.workspace_conformance import MakeWorkspace, check_workspace
from agentscope_rx.workspace import (
    InMemoryWorkspace,
    IsolationScope,
    LocalWorkspace,
    RoutedWorkspace,
    SessionFiles,
    WorkspaceFS,
    glob_paths,
)
from agentscope_rx.workspace.search import search_text
from agentscope_rx.workspace.session_files import ISOLATED_FOLDER
from tests.workspace.places import disk, fsspec, memory

ALICE = SessionKey(agent_id="a", user_id="alice", session_id="s")
BOB = SessionKey(agent_id="a", user_id="bob", session_id="s")
NOBODY = SessionKey(agent_id="a", user_id=None, session_id="s")
SCOPES = [None, *IsolationScope]


async def names(files: WorkspaceFS, path: str = ".") -> list[str]:
    return [str(entry.path) for entry in await files.list(path)]


async def text_of(files: WorkspaceFS, path: str) -> str:
    return (await files.read(path)).data.decode()


# -- RoutedWorkspace ----------------------------------------------------------------------------------------


def routed(make: MakeWorkspace) -> MakeWorkspace:
    """Half of the files in one workspace and half in another."""

    @asynccontextmanager
    async def parted(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        there = {path: data for path, data in files.items() if path.startswith("z/")}
        here = {path: data for path, data in files.items() if path not in there}
        async with make(here) as default, make(there) as other:
            yield RoutedWorkspace(default, {"z": other, "new place": other})

    return parted


@pytest.mark.parametrize("place", [memory, disk, fsspec])
async def test_a_routed_workspace_conforms(place: MakeWorkspace) -> None:
    """It does what every workspace must do, on whatever it stands."""
    await check_workspace(routed(place))


async def test_each_place_has_what_is_routed_to_it() -> None:
    """What is written goes there, what else lies there is not seen, and a search finds each thing once."""
    default = InMemoryWorkspace({"a.txt": "needle", "memory/lost.txt": "needle"})
    other = InMemoryWorkspace({"b.txt": "needle", "memory/a.txt": "needle"})
    files = RoutedWorkspace(default, {"memory": other, "NOTES.md": other})
    await files.write("NOTES.md", b"n")
    await files.write("c.txt", b"c")
    assert await names(files) == ["NOTES.md", "a.txt", "c.txt", "memory"]
    assert [str(match.path) for match in (await search_text(files, "needle")).matches] == ["a.txt", "memory/a.txt"]
    assert await text_of(other, "NOTES.md") == "n"
    assert await text_of(default, "c.txt") == "c"
    with pytest.raises(FileNotFoundError):
        await files.read("b.txt")
    with pytest.raises(WorkspaceError, match="two places"):
        await files.move("a.txt", "memory/b.txt")
    with pytest.raises(FileExistsError):
        await files.move("a.txt", "memory/a.txt")


async def test_a_link_from_one_place_into_the_name_of_another_is_refused(tmp_path: Path) -> None:
    """A permission rule about that name speaks of another file."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/a.txt").write_text("the project's")
    (tmp_path / "way").symlink_to("memory/a.txt")
    files = RoutedWorkspace(LocalWorkspace(tmp_path), {"memory": InMemoryWorkspace({"memory/a.txt": "mine"})})
    for verb in (files.resolve, files.read, files.stat):
        with pytest.raises(PathRefused, match="something else"):
            await verb("way")
    assert await text_of(files, "memory/a.txt") == "mine"


@pytest.mark.parametrize("name", ["a/b", ".", "./a"])
def test_a_route_is_one_name(name: str) -> None:
    """Anything else would never be found."""
    with pytest.raises(InvalidOption):
        RoutedWorkspace(InMemoryWorkspace(), {name: InMemoryWorkspace()})


# -- SessionFiles -------------------------------------------------------------------------------------------


def of_session(scope: IsolationScope | None, make: MakeWorkspace) -> MakeWorkspace:
    @asynccontextmanager
    async def session(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        async with make({}) as workspace:
            found = SessionFiles(workspace=workspace, isolation=scope).of(ALICE)
            for path, data in files.items():
                await found.write(path, data)
            yield found

    return session


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("place", [memory, disk, fsspec])
async def test_the_files_of_a_session_conform(scope: IsolationScope | None, place: MakeWorkspace) -> None:
    """Whoever shares them, they do what every workspace must do."""
    await check_workspace(of_session(scope, place))


@pytest.mark.parametrize("scope", [None, IsolationScope.USER, IsolationScope.SESSION])
async def test_two_users_never_see_each_other(scope: IsolationScope | None, everywhere: MakeWorkspace) -> None:
    """Neither by path, nor in a listing, nor by searching; both read what is for all, and change only their own."""
    async with everywhere({"AGENTS.md": b"for all"}) as workspace:
        files = SessionFiles(workspace=workspace, isolation=scope)
        alice, bob = files.of(ALICE), files.of(BOB)
        await alice.write("AGENTS.md", b"alice's")
        await alice.write("notes/secret.txt", b"needle")
        assert await names(bob) == ["AGENTS.md"]
        assert await text_of(bob, "AGENTS.md") == "for all"
        assert (await search_text(bob, "needle")).matches == ()
        assert [str(entry.path) for entry in (await glob_paths(bob, "**")).entries] == ["AGENTS.md"]
        assert await names(alice) == ["AGENTS.md", "notes"]
        assert await text_of(alice, "AGENTS.md") == "alice's"
        assert await text_of(workspace, "AGENTS.md") == "for all"
        (own,) = [str(path) for path in [(await workspace.list(ISOLATED_FOLDER))[0].path]]
        for files_of in (
            bob,
            files.of(NOBODY),
            SessionFiles(workspace=workspace, isolation=IsolationScope.GLOBAL).of(BOB),
        ):
            for path in (ISOLATED_FOLDER, own, ISOLATED_FOLDER.upper(), f"notes/../{own}"):
                for verb in (files_of.read, files_of.list, files_of.stat, files_of.resolve, files_of.delete):
                    with pytest.raises((PathRefused, FileNotFoundError)):
                        await verb(path)
                with pytest.raises(PathRefused):
                    await files_of.write(f"{path}/x", b"x")


@pytest.mark.parametrize(
    ("scope", "together"),
    [
        (None, "alice"),
        (IsolationScope.SESSION, ""),
        (IsolationScope.USER, "alice"),
        (IsolationScope.AGENT, "agent"),
        (IsolationScope.GLOBAL, "agent alice other"),
    ],
)
async def test_who_shares(scope: IsolationScope | None, together: str) -> None:
    """Sessions of a user, users of an agent, or all."""
    files = SessionFiles(workspace=InMemoryWorkspace(), isolation=scope)
    await files.of(ALICE).write("a.txt", b"x")
    others = {
        "alice": SessionKey(agent_id="b", user_id="alice", session_id="t"),
        "agent": BOB,
        "other": SessionKey(agent_id="b", user_id="bob", session_id="s"),
    }
    seen = [name for name, key in others.items() if "a.txt" in await names(files.of(key))]
    assert sorted(seen) == sorted(together.split())


async def test_who_calls_without_a_user_works_on_the_workspace_itself() -> None:
    """Unless users are kept apart by what was said, which keeps such a session to itself."""
    workspace = InMemoryWorkspace()
    await SessionFiles(workspace=workspace).of(NOBODY).write("a.txt", b"x")
    assert await names(workspace) == ["a.txt"]
    await SessionFiles(workspace=workspace, isolation=IsolationScope.USER).of(NOBODY).write("b.txt", b"x")
    assert await names(workspace) == [ISOLATED_FOLDER, "a.txt"]


async def test_a_project_lies_behind_and_is_only_read() -> None:
    """The workspace's file hides the project's; what is written goes to the workspace, or to a user's own part."""
    project = InMemoryWorkspace({"src/app.py": "code", "AGENTS.md": "project"}, read_only=True)
    workspace = InMemoryWorkspace({"AGENTS.md": "workspace"})
    files = SessionFiles(workspace=workspace, project=project)
    assert await text_of(files.of(NOBODY), "AGENTS.md") == "workspace"
    await files.of(NOBODY).write("src/app.py", b"edited")
    assert await text_of(workspace, "src/app.py") == "edited"
    assert await text_of(project, "src/app.py") == "code"
    await files.of(ALICE).write("src/app.py", b"alice's")
    assert await text_of(files.of(BOB), "src/app.py") == "edited"


async def test_a_project_that_is_written_to() -> None:
    """What is kept is the workspace's or the user's own; everything else is the project's, for all."""
    project = InMemoryWorkspace({"src/app.py": "code", "AGENTS.md": "project", "MEMORY.md": "project"})
    workspace = InMemoryWorkspace({"AGENTS.md": "workspace", "src/app.py": "not seen"})
    files = SessionFiles(workspace=workspace, project=project, kept=frozenset({"AGENTS.md", "MEMORY.md", "memory"}))
    alice, bob = files.of(ALICE), files.of(BOB)
    assert [await text_of(alice, path) for path in ("AGENTS.md", "MEMORY.md", "src/app.py")] == [
        "workspace",
        "project",
        "code",
    ]
    await alice.write("src/app.py", b"edited")
    await alice.write("MEMORY.md", b"alice's")
    assert await text_of(project, "src/app.py") == "edited"
    assert [await text_of(bob, path) for path in ("MEMORY.md", "src/app.py")] == ["project", "edited"]
    assert await text_of(project, "MEMORY.md") == "project"
