"""A search finds every line once, stays inside, and lets others work meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import FileTooLarge, InvalidOption, PathRefused
from agentscope_rx.workspace import (
    FileContent,
    FileStat,
    HidingWorkspace,
    InMemoryWorkspace,
    LocalWorkspace,
    OverlayWorkspace,
    RoutedWorkspace,
    ScopedWorkspace,
    WorkspacePath,
)
from agentscope_rx.workspace.search import SearchLimits, SearchResult, search_text
from tests.workspace.places import Plain

FILES = {
    "a.py": "import os\nneedle here\r\nno\nneedle needle",
    "b/c.py": "\ufeffneedle first",
    "b/d.txt": "Needle\nneedle\n",
    "b.txt": "needle last",
    ".git/config": "needle",
    "image.png": b"\x89PNG\r\n\x1a\nneedle",
    "latin": "caf\xe9 needle".encode("latin-1"),
}


def found(result: SearchResult) -> list[tuple[str, int, str]]:
    return [(str(match.path), match.line, match.text) for match in result.matches]


def on_disk(root: Path) -> LocalWorkspace:
    for path, content in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return LocalWorkspace(root)


@pytest.mark.parametrize("place", ["disk", "memory"])
async def test_every_line_is_found_once_in_order(place: str, tmp_path: Path) -> None:
    """Lines come in the order of the files, each once, with numbers from 1 and without line ends."""
    workspace = on_disk(tmp_path) if place == "disk" else InMemoryWorkspace(FILES)
    result = await search_text(workspace, "needle")
    assert found(result) == [
        ("a.py", 2, "needle here"),
        ("a.py", 4, "needle needle"),
        ("b/c.py", 1, "needle first"),
        ("b/d.txt", 2, "needle"),
        ("b.txt", 1, "needle last"),
        ("latin", 1, "caf\ufffd needle"),
    ]
    assert (result.binary, result.more_matches, result.more_files) == (1, False, False)


async def test_links_are_not_entered(tmp_path: Path) -> None:
    """A link back up would make the search endless, one outwards would make it a leak."""
    root = tmp_path / "ws"
    root.mkdir()
    (tmp_path / "secret").write_text("needle")
    workspace = on_disk(root)
    expected = found(await search_text(workspace, "needle"))
    (root / "b/up").symlink_to("..")
    (root / "b/same").symlink_to("d.txt")
    (root / "out").symlink_to("../secret")
    (root / ".agentscope-runtime").mkdir()
    (root / ".agentscope-runtime/log").write_text("needle")
    assert found(await search_text(workspace, "needle")) == expected
    assert found(await search_text(workspace, "needle", path="b/up/b/same")) == [("b/up/b/same", 2, "needle")]
    for path in ("out", "../secret", ".agentscope-runtime"):
        with pytest.raises(PathRefused):
            await search_text(workspace, "needle", path=path)


@pytest.mark.parametrize(
    ("path", "glob", "files"),
    [
        ("b", None, {"b/c.py", "b/d.txt"}),
        (".", "*.py", {"a.py", "b/c.py"}),
        (".", "/*.py", {"a.py"}),
        ("b", "*.py", {"b/c.py"}),
        ("b", "b/*.py", set[str]()),
        (".", "b/**", {"b/c.py", "b/d.txt"}),
        ("b/d.txt", "*.py", {"b/d.txt"}),
        (".git", None, {".git/config"}),
        (".git/config", None, {".git/config"}),
    ],
)
async def test_where_to_search(path: str, glob: str | None, files: set[str]) -> None:
    """A pattern is relative to the directory searched; what was asked for by name is always searched."""
    result = await search_text(InMemoryWorkspace(FILES), "needle", path=path, glob=glob)
    assert {str(match.path) for match in result.matches} == files


async def test_an_absolute_file_is_named_relatively(tmp_path: Path) -> None:
    """Whoever asks with a path that a shell printed gets one that every tool takes."""
    workspace = on_disk(tmp_path)
    result = await search_text(workspace, "needle", path=f"{tmp_path}/b/c.py")
    assert found(result) == [("b/c.py", 1, "needle first")]
    assert len(found(await search_text(workspace, "needle", path=f"{tmp_path}/b"))) == 2


@pytest.mark.parametrize("text", ["", "a\nb", "\ud83d"])
async def test_texts_that_no_line_can_hold_are_refused(text: str) -> None:
    """A search that could find nothing says so at once."""
    with pytest.raises(ValueError):
        await search_text(InMemoryWorkspace(), text)


async def test_missing_paths_are_an_error() -> None:
    """A wrong path is not the same as no match."""
    for path in ("nothing", "a.py/below"):
        with pytest.raises(OSError):
            await search_text(InMemoryWorkspace(FILES), "x", path=path)


@pytest.mark.parametrize(("most", "more"), [(1, True), (5, True), (6, False), (7, False)])
async def test_the_number_of_matches_is_limited(most: int, more: bool) -> None:
    """The first matches are returned, and whether there are more is exact."""
    result = await search_text(InMemoryWorkspace(FILES), "needle", limits=SearchLimits(matches=most))
    assert (len(result.matches), result.more_matches) == (min(most, 6), more)


async def test_the_number_and_size_of_files_are_limited() -> None:
    """What was not searched is counted, and a file that was asked for by name is an error instead."""
    workspace = InMemoryWorkspace({"a": "needle", "b": "needle" + "x" * 50, "c": "needle", "d": "needle"})
    result = await search_text(workspace, "needle", limits=SearchLimits(files=2, file_bytes=50))
    assert ([path for path, _, _ in found(result)], result.more_files, result.too_large) == (
        ["a", "c"],
        True,
        1,
    )
    with pytest.raises(FileTooLarge):
        await search_text(workspace, "needle", path="b", limits=SearchLimits(file_bytes=50))
    small = InMemoryWorkspace({"b": "needle" + "x" * 50}, max_read_bytes=20)
    assert (await search_text(small, "needle")).too_large == 1
    with pytest.raises(InvalidOption):
        SearchLimits(matches=0)


async def test_unreadable_files_and_directories_are_counted() -> None:
    """One file that cannot be read does not end the search."""

    class Broken(InMemoryWorkspace):
        async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
            if str(path) == "b":
                raise PermissionError(13, "Permission denied", "b")
            return await super().list(path)

        async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
            if str(path) == "a.py":
                raise FileNotFoundError(2, "gone meanwhile", "a.py")
            return await super().read(path, offset=offset, limit=limit)

    result = await search_text(Broken(FILES), "needle")
    assert ([path for path, _, _ in found(result)], result.unreadable) == (["b.txt", "latin"], 2)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x" * 20, "x" * 20),
        ("x" * 5 + "needle" + "y" * 90, "xxxxxneedleyyyyyyyyy…"),
        ("x" * 200 + "needle" + "y" * 90, "…" + "x" * 14 + "needle…"),
    ],
)
async def test_long_lines_are_cut(line: str, shown: str) -> None:
    """A line is shown up to its limit, and where it was cut is marked."""
    text = "needle" if "needle" in line else "x"
    workspace = InMemoryWorkspace({"a": f"{line}\n"})
    result = await search_text(workspace, text, limits=SearchLimits(line_length=20))
    assert [match.text for match in result.matches] == [shown]


async def test_what_does_not_hold_the_text_is_not_read(everywhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read for each file is a request for each, or a change of threads; many are looked at together, in any layer."""
    files = {f"d{number % 3}/{number}": b"hay" for number in range(30)}
    async with everywhere({**files, "d0/it": b"needle", "e/large": b"needle" * 20}) as lowest:
        if isinstance(lowest, InMemoryWorkspace):
            pytest.skip("its reads cost nothing")
        layered = HidingWorkspace(ScopedWorkspace(RoutedWorkspace(OverlayWorkspace(lowest, lowest), {}), "."), "hidden")
        family: Any = lowest.__class__
        read = family.read
        reads = list[str]()

        async def noted(self: Any, path: Any, **options: Any) -> FileContent:
            reads.append(str(path))
            return await read(self, path, **options)

        monkeypatch.setattr(family, "read", noted)
        for workspace in (lowest, layered):
            reads.clear()
            limits = SearchLimits(file_bytes=100)
            result = await search_text(workspace, "needle", limits=limits)
            assert reads == ["d0/it"]
            assert result == await search_text(Plain(workspace), "needle", limits=limits)
            assert (found(result), result.too_large) == ([("d0/it", 1, "needle")], 1)


async def test_a_match_far_down_a_line_is_shown() -> None:
    """In a file of one endless line the part around the match is what is wanted."""
    workspace = InMemoryWorkspace({"min.js": "ü" * 200_000 + "needle" + "é" * 200_000})
    (match,) = (await search_text(workspace, "needle")).matches
    assert match.text == "…" + "ü" * 100 + "needle" + "é" * 394 + "…"


class Counting(InMemoryWorkspace):
    """Counts reads, and tells when the third has begun."""

    def __init__(self) -> None:
        super().__init__({f"{number:03}": "needle" for number in range(100)})
        self.reads = 0
        self.third = asyncio.Event()

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        self.reads += 1
        if self.reads == 3:
            self.third.set()
        return await super().read(path, offset=offset, limit=limit)


async def test_a_cancelled_search_ends_with_the_file_that_it_reads() -> None:
    """Others get their turn between two files, and so does a cancellation, even if reading never waits."""
    workspace = Counting()
    task = asyncio.ensure_future(search_text(workspace, "needle"))
    await workspace.third.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert workspace.reads == 3
