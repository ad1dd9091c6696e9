"""Names that are told for many directories at once are those of a listing, and a search by them finds the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace import (
    FileContent,
    FileStat,
    GlobResult,
    HidingWorkspace,
    InMemoryWorkspace,
    LocalWorkspace,
    OverlayWorkspace,
    RoutedWorkspace,
    ScopedWorkspace,
    WorkspaceFS,
    WorkspacePath,
    glob_paths,
    resolve_path,
)
from agentscope_rx.workspace import local as local_module
from agentscope_rx.workspace.folders import Folder, Found, ListsFolders, folders_of, listed_folders
from agentscope_rx.workspace.looking import FileGroup, Look, Looks, Needle
from agentscope_rx.workspace.ripgrep import find_ripgrep
from agentscope_rx.workspace.search import SearchLimits, SearchResult, search_text
from agentscope_rx.workspace.walking import Walk
from tests.workspace.places import Plain

CONTENTS = [
    *(b"needle\n", b"x", b"", b"\0needle", b"%PDF-1 needle", b"needle" * 20, b"no " * 30_000 + b"needle"),
    *(b"no " * 100_000 + b"needle", b"no " * 100_000 + b"\0", b"\0" + b"needle" * 50_000),
]
NAMES = st.sampled_from(["a", "b", "d", "e.py", "mine", "hidden", ".agentscope-runtime", "\x1b", ".x"])
LINKS = st.sampled_from([".", "..", "a", "d/a", "../d", "nowhere", "/etc", "../../out"])
ENTRIES = st.lists(
    st.tuples(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.sampled_from(CONTENTS) | LINKS), max_size=14
)


def plant(root: Path, entries: Sequence[tuple[str, bytes | str]]) -> WorkspaceFS:
    root.mkdir()
    for path, content in entries:
        at = root / path
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                with at.open("xb") as file:
                    file.write(content)
            else:
                at.symlink_to(content)
        except OSError:
            continue  # something else is there already, or a link on the way leads nowhere
    return LocalWorkspace(root)


LAYERS: dict[str, Callable[[WorkspaceFS, WorkspaceFS], WorkspaceFS]] = {
    "local": lambda one, _: one,
    "scoped": lambda one, _: ScopedWorkspace(one, "d"),
    "hiding": lambda one, _: HidingWorkspace(one, "d", but="d/mine"),
    "overlay": OverlayWorkspace,
    "routed": lambda one, two: RoutedWorkspace(one, {"d": two, "e.py": two}),
    "all": lambda one, two: HidingWorkspace(
        RoutedWorkspace(two, {"a": OverlayWorkspace(ScopedWorkspace(one, "d"), HidingWorkspace(one, "d"))}), "hidden"
    ),
    "mixed": lambda one, _: HidingWorkspace(
        OverlayWorkspace(one, HidingWorkspace(InMemoryWorkspace({"d/a": b"needle", "d/b/c": "needle"}), "b")), "hidden"
    ),
}


# An overlay lists what is behind a link of its lower layer where the upper one has a directory; a walk leaves that out.
LINKED_BELOW = {"overlay", "all"}


def without_links(entries: list[tuple[str, bytes | str]]) -> list[tuple[str, bytes | str]]:
    return [(path, content) for path, content in entries if isinstance(content, bytes)]


async def searched(workspace: WorkspaceFS, path: str, file_bytes: int = 100_000) -> SearchResult | type[OSError]:
    try:
        return await search_text(workspace, "needle", path=path, limits=SearchLimits(file_bytes=file_bytes))
    except OSError as error:
        return type(error)


def but_for_counts(found: SearchResult | type[OSError]) -> SearchResult | type[OSError]:
    """Who reads each file is told of those that an overlay lists and refuses, even if they hold no such text."""
    return replace(found, unreadable=0, binary=0) if isinstance(found, SearchResult) else found


async def globbed(workspace: WorkspaceFS) -> GlobResult | type[OSError]:
    try:
        return await glob_paths(workspace, "**")
    except OSError as error:
        return type(error)


async def real_directories(workspace: WorkspaceFS) -> list[WorkspacePath]:
    """All directories that can be reached without a link, by listings alone."""
    waiting, found = [resolve_path(".")], list[WorkspacePath]()
    while waiting:
        found.append(waiting.pop())
        [folder] = await listed_folders(workspace, [found[-1]])
        if isinstance(folder, Folder):
            waiting.extend(found[-1].child(name) for name in folder.directories)
    return found


@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=20, deadline=None)
@given(one=ENTRIES, two=ENTRIES)
async def test_a_search_does_not_depend_on_how_names_are_told(
    layer: str, one: list[tuple[str, bytes | str]], two: list[tuple[str, bytes | str]]
) -> None:
    """Folders told at once are those of listings; search and glob find what they find in a workspace without that."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_module, "find_ripgrep", lambda: None)
        (Path(folder) / "out").mkdir()
        (Path(folder) / "out/secret").write_text("needle out there")
        if layer in LINKED_BELOW:
            one, two = without_links(one) if layer == "all" else one, without_links(two)
        workspace = LAYERS[layer](plant(Path(folder) / "one", one), plant(Path(folder) / "two", two))
        assert isinstance(workspace, ListsFolders)
        plain = Plain(workspace)
        assert not isinstance(plain, ListsFolders)
        real = await real_directories(workspace)
        together = await folders_of(workspace, real)
        for path, again in zip(real, together, strict=True):
            [quick], [listed] = await folders_of(workspace, [path]), await folders_of(plain, [path])
            assert names_of(quick) == names_of(listed) == names_of(again)
        for path in (".", "d", "a", "d/mine"):
            found = await searched(workspace, path)
            assert but_for_counts(found) == but_for_counts(await searched(plain, path))
            assert "out there" not in repr(found)
        assert await globbed(workspace) == await globbed(plain)


@pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=6, deadline=None)
@given(one=ENTRIES, two=ENTRIES, file_bytes=st.sampled_from([5, 100, 100_000, 1_000_000]))
async def test_a_search_does_not_depend_on_ripgrep(
    layer: str, one: list[tuple[str, bytes | str]], two: list[tuple[str, bytes | str]], file_bytes: int
) -> None:
    """Over every layer and any tree, with links and what is left out; all numbers are the same too."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "out").mkdir()
        (Path(folder) / "out/secret").write_text("needle out there")
        workspace = LAYERS[layer](plant(Path(folder) / "one", one), plant(Path(folder) / "two", two))
        for path in map(str, await real_directories(workspace)):
            with_it = await searched(workspace, path, file_bytes)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(local_module, "find_ripgrep", lambda: None)
                assert await searched(workspace, path, file_bytes) == with_it
            assert "out there" not in repr(with_it)


def names_of(found: Folder | OSError) -> object:
    return None if isinstance(found, OSError) else tuple(map(list, (found.directories, found.files, found.links)))


async def test_a_folder_is_not_found_behind_a_link(tmp_path: Path) -> None:
    """What is asked for at once needs no look at links, since none is followed: neither to folders nor to files."""
    (tmp_path / "ws/d").mkdir(parents=True)
    (tmp_path / "ws/d/a").write_text("needle")
    (tmp_path / "ws/inside").symlink_to("d")
    (tmp_path / "ws/outside").symlink_to("/etc")
    workspace = LocalWorkspace(tmp_path / "ws")
    paths = ["d", "inside", "outside", "inside/x", "nothing", "d/a", str(tmp_path / "ws/d")]
    found = await workspace.folders(paths)
    assert [type(each) for each in found] == [
        *(Folder, NotADirectoryError, PathRefused, FileNotFoundError, FileNotFoundError, NotADirectoryError),
        Folder,
    ]
    assert all(str(tmp_path) not in str(each) for each in found)
    for path in ("..", "/etc", ".agentscope-runtime"):
        with pytest.raises(PathRefused):
            await workspace.folders([path])


async def test_folders_asked_for_together_are_told_apart(tmp_path: Path) -> None:
    """What two paths share is opened once; which of them comes first makes no difference, and nothing stays open."""
    for path in ("a/b/c/d", "a/bc/c", "b/c", "a/x"):
        (tmp_path / "ws" / path).mkdir(parents=True)
        (tmp_path / "ws" / path / "of").write_text(path)
    (tmp_path / "ws/a/link").symlink_to("b")
    (tmp_path / "ws/out").symlink_to("../out")
    (tmp_path / "out/b").mkdir(parents=True)
    (tmp_path / "out/b/secret").write_text("needle")
    workspace = LocalWorkspace(tmp_path / "ws")
    paths = [
        *("a/b/c/d", "a/b/c", "a/bc/c", "out/b", "b/c", "a/link/c", "a/link", "a/nothing/c", "a/x", "a/of", "a/x/of/x"),
        *("a/b", ".", "a/b/c/d", "out", "a"),
    ]
    before = len(os.listdir("/dev/fd"))
    for order in (paths, paths[::-1]):
        together = await workspace.folders(order)
        for path, found in zip(order, together, strict=True):
            [alone] = await workspace.folders([path])
            assert (names_of(found), type(found), str(found)) == (names_of(alone), type(alone), str(alone))
            assert "secret" not in repr(found)
        groups = [FileGroup(folder=Folder(path=resolve_path(path)), names=["of", "secret"]) for path in order]
        needle = Needle(text=b"c", file_bytes=99)
        for group, looks in zip(groups, await workspace.looks(groups, needle), strict=True):
            assert [looks] == await workspace.looks([group], needle)
    assert len(os.listdir("/dev/fd")) == before


class Swapped(LocalWorkspace):
    """A folder in which links take the places of files and directories between two looks at them."""

    def __init__(self, root: Path, places: dict[str, str], before: str) -> None:
        super().__init__(root)
        self._places, self._before = places, before

    def _swap(self, now: str) -> None:
        if now == self._before:
            for place, target in self._places.items():
                (self.root / place).rename(self.root.parent / f"was-{place.replace('/', '-')}")
                (self.root / place).symlink_to(target)
            self._places = {}

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        if "d" in map(str, paths):
            self._swap("folders")
        return await super().folders(paths)

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        self._swap("looks")
        return await super().looks(groups, needle)

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        self._swap("read")
        return await super().read(path, offset=offset, limit=limit)


@pytest.mark.parametrize("before", ["folders", "looks", "read"])
@pytest.mark.parametrize("places", [{"d/e/a": "../../../out/e/a"}, {"d/e": "../../out/e"}, {"d": "../out"}])
@pytest.mark.parametrize("program", [find_ripgrep, lambda: None])
async def test_what_becomes_a_link_during_a_search_leads_nowhere(
    tmp_path: Path,
    before: str,
    places: dict[str, str],
    program: Callable[[], str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever swaps a file, or a directory above it, for a link out is left out, whenever that happens."""
    monkeypatch.setattr(local_module, "find_ripgrep", program)
    for folder in ("ws/d/e", "out/e"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a").write_text(f"needle of {folder}")
    (tmp_path / "ws/a").write_text("needle of ws")
    workspace = Swapped(tmp_path / "ws", places, before)
    found = await search_text(workspace, "needle")
    assert {match.text for match in found.matches} == {"needle of ws"}


async def test_what_is_behind_a_link_is_searched_when_it_is_asked_for(tmp_path: Path) -> None:
    """A search may begin behind a link that stays inside, and is then as fast as any; none leads out."""
    (tmp_path / "ws/d/e").mkdir(parents=True)
    (tmp_path / "ws/d/e/a").write_text("needle")
    (tmp_path / "ws/inside").symlink_to("d")
    (tmp_path / "ws/outside").symlink_to("/etc")
    workspace = LocalWorkspace(tmp_path / "ws")
    found = await search_text(workspace, "needle", path="inside")
    assert [str(match.path) for match in found.matches] == ["inside/e/a"]
    groups = [FileGroup(folder=Folder(path=resolve_path(path)), names=["a"]) for path in ("inside/e", "outside")]
    looks = await workspace.looks(groups, Needle(text=b"needle", file_bytes=9))
    assert looks == [{"a": Look.MAY_HOLD}, {"a": Look.UNREADABLE}]


async def test_what_is_hidden_is_not_told() -> None:
    """The folders of others are refused as everywhere, and their names are left out."""
    files = InMemoryWorkspace({"r/mine/a": "", "r/yours/a": "", "x": ""})
    for inner in (files, HidingWorkspace(files, "no")):  # one that lists each folder, and one that does not
        each = HidingWorkspace(inner, "r", but="r/mine")
        root, shared, mine, *theirs = await folders_of(each, [".", "r", "r/mine", "r/yours", "r/nobody"])
        assert isinstance(root, Folder)
        assert isinstance(shared, Folder)
        assert isinstance(mine, Folder)
        assert (root.directories, root.files, shared.directories, mine.files) == (["r"], ["x"], ["mine"], ["a"])
        assert [type(error) for error in theirs] == [PathRefused, PathRefused]


class Counted(InMemoryWorkspace):
    """Counts listings."""

    listed = 0

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        self.listed += 1
        return await super().list(path)


async def test_a_walk_that_ends_early_has_not_looked_far_ahead() -> None:
    """Directories are asked about together, but no more at once than have been asked about before."""
    workspace = Counted({f"{number:04}/a": "needle" for number in range(1000)})
    await search_text(workspace, "needle", limits=SearchLimits(matches=1))
    assert workspace.listed < 250  # of the 101 whose files are looked through at first


async def test_a_walk_asks_about_the_insides_of_what_it_knows_together() -> None:
    """Trees of many small chains take few questions; each directory is asked about once, in the order of the walk."""
    files = {f"{number:03}/x/y/z/a": "" for number in range(300)}
    questions = list[int]()

    class Asked(InMemoryWorkspace):
        async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
            questions.append(len(paths))
            return await listed_folders(self, paths)

    told = [part.below(name) async for part in Walk(Asked(files), ".").parts() for name in part.files]
    assert told == sorted(files)
    assert sum(questions) == 1 + 4 * 300
    assert len(questions) < 60
    assert max(questions) <= 64


async def test_links_out_of_a_scope_are_not_told(tmp_path: Path) -> None:
    """They stay in the workspace around it and lead to what is somebody else's."""
    for folder in ("mine", "yours"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("needle")
    (tmp_path / "mine/theirs").symlink_to("../yours/a")
    (tmp_path / "mine/own").symlink_to("a")
    scope = ScopedWorkspace(LocalWorkspace(tmp_path), "mine")
    [found] = await scope.folders(["."])
    assert names_of(found) == ([], ["a"], ["own"])
    assert [str(entry.path) for entry in await scope.list()] == ["a", "own"]


async def test_a_walk_tells_everything_in_order() -> None:
    """Files up to a directory, what is in that, then the files after it; each entry once."""
    workspace = InMemoryWorkspace(dict.fromkeys(("a", "m/x", "m/y/z", "n", "o/p/q", "z", ".git/config"), ""))
    told = list[str]()
    async for part in Walk(workspace, ".").parts():
        told += map(part.below, part.files)
        told += [] if part.directory is None else [f"{part.below(part.directory)}/"]
    assert told == [".git/", "a", "m/", "m/x", "m/y/", "m/y/z", "n", "o/", "o/p/", "o/p/q", "z"]


@pytest.mark.parametrize("file_bytes", [1, 5, 6, 7, 100])
async def test_the_size_of_a_file_counts_the_same_everywhere(tmp_path: Path, file_bytes: int) -> None:
    """A file that is too large is counted, not read, and does not count as one that was searched."""
    for name in "abc":
        (tmp_path / name).write_text("needle")
    limits = SearchLimits(file_bytes=file_bytes, files=2)
    local = await search_text(LocalWorkspace(tmp_path), "needle", limits=limits)
    assert local == await search_text(InMemoryWorkspace(dict.fromkeys("abc", "needle")), "needle", limits=limits)
    assert (local.too_large, local.more_files) == ((3, False) if file_bytes < 6 else (0, True))


async def test_a_directory_that_may_not_be_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a note, not an error, and the rest is searched."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("needle")
    opened = os.open

    def refusing(path: str | os.PathLike[str], flags: int, *, dir_fd: int | None = None) -> int:
        if path == "a":
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    result = await search_text(LocalWorkspace(tmp_path), "needle")
    assert ([str(match.path) for match in result.matches], result.unreadable) == (["b"], 1)
