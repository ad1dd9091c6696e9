"""HidingWorkspace: a folder of which only one part is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace import HidingWorkspace, InMemoryWorkspace, LocalWorkspace, WorkspaceFS
from agentscope_rx.workspace.search import search_text

FILES = {
    "a.txt": "mine and yours",
    "results/notes.txt": "yours",
    "results/a/alice/1.txt": "mine",
    "results/a/bob/1.txt": "yours",
    "results/b/1.txt": "yours",
}


def hiding(inner: WorkspaceFS) -> HidingWorkspace:
    return HidingWorkspace(inner, "results", but="results/a/alice")


async def listed(files: WorkspaceFS, path: str = ".") -> list[str]:
    return [str(entry.path) for entry in await files.list(path)]


async def test_only_the_visible_part_is_listed() -> None:
    """On the way to it nothing else is named."""
    mine = hiding(InMemoryWorkspace(FILES))
    assert await listed(mine) == ["a.txt", "results"]
    assert await listed(mine, "results") == ["results/a"]
    assert await listed(mine, "results/a") == ["results/a/alice"]
    assert await listed(mine, "./results//a/alice") == ["results/a/alice/1.txt"]


@pytest.mark.parametrize("path", ["results/notes.txt", "results/a/bob/1.txt", "results/a/../b/1.txt", "results/a/bob"])
async def test_what_is_hidden_is_refused_for_every_verb(path: str) -> None:
    """Whatever verb, and by whatever way the path is written; nothing is changed."""
    inner = InMemoryWorkspace(FILES)
    mine = hiding(inner)
    for verb in (mine.resolve, mine.read, mine.list, mine.stat, mine.delete):
        with pytest.raises(PathRefused, match="somebody else"):
            await verb(path)
    with pytest.raises(PathRefused):
        await mine.write(path, b"x")
    with pytest.raises(PathRefused):
        await mine.move("a.txt", path)
    with pytest.raises(PathRefused):
        await mine.move(path, "here.txt")
    for name, text in FILES.items():
        assert (await inner.read(name)).data == text.encode()


async def test_what_is_there_is_as_ever() -> None:
    """The visible part and everything outside of the folder can be read, written, moved and deleted."""
    mine = hiding(InMemoryWorkspace(FILES))
    assert (await mine.read("results/a/alice/1.txt")).data == b"mine"
    version = await mine.write("results/a/alice/2.txt", b"new")
    assert (await mine.stat("results/a/alice/2.txt")).version == version
    await mine.move("results/a/alice/2.txt", "moved.txt")
    await mine.delete("moved.txt")
    assert await listed(mine) == ["a.txt", "results"]


async def test_a_link_into_the_hidden_part_is_refused(tmp_path: Path) -> None:
    """A symbolic link is where it leads to."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "way").symlink_to("results/a/bob")
    mine = hiding(LocalWorkspace(tmp_path))
    for verb in (mine.read, mine.stat):
        with pytest.raises(PathRefused):
            await verb("way/1.txt")
    with pytest.raises(PathRefused):
        await mine.list("way")


async def test_a_search_finds_only_what_is_there() -> None:
    """Hidden files are not looked through."""
    found = await search_text(hiding(InMemoryWorkspace(FILES)), "yours")
    assert [str(match.path) for match in found.matches] == ["a.txt"]


def test_the_part_lies_in_the_folder() -> None:
    """Another one would hide nothing of what it should."""
    with pytest.raises(PathRefused, match="not in"):
        HidingWorkspace(InMemoryWorkspace(), "results", but="other/alice")
