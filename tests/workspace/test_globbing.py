"""A glob finds what fits, once and in order, and says where it did not look."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.errors import InvalidOption, PathRefused
from agentscope_rx.workspace import (
    FileStat,
    GlobLimits,
    GlobResult,
    InMemoryWorkspace,
    LocalWorkspace,
    WorkspacePath,
    glob_paths,
)
from agentscope_rx.workspace.walking import MAX_DEPTH

FILES = {"a.py": "", "src/b.py": "1", "src/lib/c.py": "", "src/lib/d.txt": "", "docs/e.md": "", ".git/x.py": ""}


def found(result: GlobResult) -> list[str]:
    return [str(entry.path) for entry in result.entries]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", ".", ["a.py", "src/b.py", "src/lib/c.py"]),
        ("/*.py", ".", ["a.py"]),
        ("src/**", ".", ["src/b.py", "src/lib", "src/lib/c.py", "src/lib/d.txt"]),
        ("**/lib", ".", ["src/lib"]),
        ("*.{md,txt}", ".", ["docs/e.md", "src/lib/d.txt"]),
        ("*.py", "src", ["src/b.py", "src/lib/c.py"]),
        ("lib/*", "src", ["src/lib/c.py", "src/lib/d.txt"]),
        ("nothing", ".", []),
        ("*.py", ".git", [".git/x.py"]),
    ],
)
async def test_what_fits_is_found(pattern: str, path: str, expected: list[str]) -> None:
    """Patterns are relative to the directory, results to the workspace; directories fit like files."""
    assert found(await glob_paths(InMemoryWorkspace(FILES), pattern, path=path)) == expected


async def test_links_are_not_entered(tmp_path: Path) -> None:
    """A link back up would make a walk endless, one outwards would make it a leak."""
    (tmp_path / "ws/sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for name in ("ws/a.py", "ws/sub/b.py", "out/c.py"):
        (tmp_path / name).touch()
    for name, target in {"up": "..", "self": ".", "again": "sub", "file.py": "a.py"}.items():
        (tmp_path / "ws" / name).symlink_to(target)
    workspace = LocalWorkspace(tmp_path / "ws")
    assert found(await glob_paths(workspace, "**/*.py")) == ["a.py", "sub/b.py"]
    with pytest.raises(PathRefused):
        await glob_paths(workspace, "*.py", path="up")


async def test_directories_in_which_nothing_fits_are_not_read() -> None:
    """A pattern that begins with names costs what those directories cost."""

    listed = list[str]()

    class Watched(InMemoryWorkspace):
        async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
            listed.append(str(path))
            return await super().list(path)

    await glob_paths(Watched(FILES), "src/*.py")
    assert listed == [".", "src"]


async def test_numbers_are_limited() -> None:
    """The first ones are returned, and whether there are more is exact."""
    workspace = InMemoryWorkspace({f"{number:02}": "" for number in range(20)})
    for most, more in ((19, True), (20, False)):
        result = await glob_paths(workspace, "*", limits=GlobLimits(matches=most))
        assert (len(result.entries), result.more_matches) == (most, more)
        result = await glob_paths(workspace, "*", limits=GlobLimits(entries=most))
        assert (len(result.entries), result.more_entries) == (most, more)
    for limits in ({"matches": 0}, {"entries": 0}):
        with pytest.raises(InvalidOption):
            GlobLimits(**limits)


async def test_a_tree_without_end_is_left() -> None:
    """Depth is limited, and said."""
    deep = "/".join("d" * 200) + "/x"
    result = await glob_paths(InMemoryWorkspace({deep: ""}), "**")
    assert (len(result.entries), result.too_deep) == (MAX_DEPTH, 1)


@pytest.mark.parametrize(
    ("pattern", "path", "error"),
    [
        ("", ".", ValueError),
        ("x" * 1001, ".", ValueError),
        ("*", "nothing", FileNotFoundError),
        ("*", "a.py", NotADirectoryError),
        ("*", "..", PathRefused),
        ("../*", "../x", PathRefused),
    ],
)
async def test_what_cannot_be_looked_for(pattern: str, path: str, error: type[Exception]) -> None:
    """A wrong call is not the same as nothing found."""
    with pytest.raises(error):
        await glob_paths(InMemoryWorkspace(FILES), pattern, path=path)


async def test_a_pattern_leads_nowhere_else() -> None:
    """`..` in a pattern is a name that no entry has."""
    assert found(await glob_paths(InMemoryWorkspace(FILES), "../*", path="src")) == []
