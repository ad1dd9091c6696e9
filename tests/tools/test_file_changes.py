"""What a model reads when it changes files, or finds them by name."""

from __future__ import annotations

import pytest

from agentscope_rx.errors import FileEditRefused, FileTooLarge, PathRefused, WorkspaceError
from agentscope_rx.tools.file_changes import FileChanges
from agentscope_rx.tools.file_tools import NO_FILES, FileToolLimits, FileTools
from agentscope_rx.workspace import GlobLimits, InMemoryWorkspace

FILES: dict[str, str | bytes] = {"a.txt": "one\ntwo\ntwo\n", "dir/b.py": "x", "image": b"\x89PNG\r\n\x1a\n"}


async def test_a_new_file_is_written_as_it_is() -> None:
    """Text is stored letter by letter, with the directories above it."""
    workspace = InMemoryWorkspace()
    text = "ü\r\n会话\n\n"
    assert await FileChanges(workspace).write_file("new/deep/f", text) == "Created 'new/deep/f' (12 bytes)."
    assert (await workspace.read("new/deep/f")).data == text.encode()
    assert await FileChanges(workspace).write_file("empty", "") == "Created 'empty' (0 bytes)."


@pytest.mark.parametrize(
    ("path", "content", "error", "message"),
    [
        ("a.txt", "x", FileExistsError, "'a.txt' exists already: change it with edit_file"),
        ("dir", "x", IsADirectoryError, "'dir' is a directory"),
        ("a.txt/below", "x", NotADirectoryError, "above 'a.txt/below' is a file"),
        ("../out", "x", PathRefused, "above the workspace"),
        ("/etc/passwd", "x", PathRefused, "absolute"),
        (".agentscope-runtime/log", "x", PathRefused, "runtime"),
        ("new", "\ud83d", ValueError, "lone surrogate"),
        ("a\nb", "x", PathRefused, "line break"),
    ],
)
async def test_what_cannot_be_written(path: str, content: str, error: type[Exception], message: str) -> None:
    """Nothing that exists is overwritten, and each refusal says what to do."""
    workspace = InMemoryWorkspace(FILES)
    with pytest.raises(error, match=message):
        await FileChanges(workspace).write_file(path, content)
    assert [str(entry.path) for entry in await workspace.list()] == ["a.txt", "dir", "image"]
    assert (await workspace.read("a.txt")).data == b"one\ntwo\ntwo\n"


async def test_an_edit_says_where() -> None:
    """The line is enough to look at what was done."""
    workspace = InMemoryWorkspace(FILES)
    made = FileChanges(workspace)
    assert await made.edit_file("a.txt", "one", "1") == "Replaced the text in 'a.txt' at line 1."
    done = await made.edit_file("a.txt", "two", "2", replace_all=True)
    assert done == "Replaced the text in 'a.txt' 2 times, first at line 2."
    assert (await workspace.read("a.txt")).data == b"1\n2\n2\n"
    assert await made.edit_file("a.txt", "2\n2\n", "") == "Replaced the text in 'a.txt' at line 2."
    assert (await workspace.read("a.txt")).data == b"1\n"


@pytest.mark.parametrize(
    ("path", "old", "error", "message"),
    [
        ("nothing", "x", FileNotFoundError, "no file or directory 'nothing': look around with list_files"),
        ("dir", "x", IsADirectoryError, "look into it with list_files"),
        ("a.txt", "two", FileEditRefused, "2 times, at lines 2, 3"),
        ("a.txt", "tow", FileEditRefused, "The nearest is this; line 2 is:\ntwo"),
        ("a.txt", "", ValueError, "empty"),
        ("a.txt", "new", ValueError, "the same"),
        ("image", "PNG", FileEditRefused, "binary"),
        ("../a.txt", "one", PathRefused, "above the workspace"),
        ("large", "x", FileTooLarge, "'large' is too large to be edited"),
    ],
)
async def test_what_cannot_be_edited(path: str, old: str, error: type[Exception], message: str) -> None:
    """A failure is raised, and helps with the next try."""
    workspace = InMemoryWorkspace({**FILES, "large": "x" * 99}, max_read_bytes=50)
    with pytest.raises(error, match=message):
        await FileChanges(workspace).edit_file(path, old, "new")


async def test_a_read_only_workspace_is_not_changed() -> None:
    """The workspace has the last word, whatever tools there are."""
    made = FileChanges(InMemoryWorkspace(FILES, read_only=True))
    for call in (made.write_file("new", "x"), made.edit_file("a.txt", "one", "1")):
        with pytest.raises(WorkspaceError, match="read-only"):
            await call


async def test_files_are_found_by_name() -> None:
    """One entry a line; directories end with a slash and files have their size."""
    made = FileTools(InMemoryWorkspace(FILES))
    assert await made.glob_files("**") == "a.txt (12 bytes)\ndir/\ndir/b.py (1 bytes)\nimage (8 bytes)"
    assert await made.glob_files("*.py") == "dir/b.py (1 bytes)"
    assert await made.glob_files("*", "dir") == "dir/b.py (1 bytes)"
    assert await made.glob_files("*.rs", "") == NO_FILES


async def test_what_was_not_looked_at_is_said() -> None:
    """A model that sees some must know that there are more."""
    many = InMemoryWorkspace({f"{number:02}": "" for number in range(9)})
    text = await FileTools(many, limits=FileToolLimits(glob=GlobLimits(matches=2))).glob_files("*")
    assert text.endswith("\n[Only the first 2 are shown. Narrow the search with path or a longer pattern.]")
    text = await FileTools(many, limits=FileToolLimits(glob=GlobLimits(entries=3))).glob_files("08")
    assert text == f"{NO_FILES}\n[Only 3 entries were looked at. Narrow the search with path.]"
    deep = FileTools(InMemoryWorkspace({"d/" * 70 + "x": "needle"}))
    assert await deep.glob_files("x") == f"{NO_FILES}\n[Directories not entered: 0 unreadable, 1 too deep.]"
    assert "[Not searched: 1 too deep.]" in await deep.grep_files("needle")


@pytest.mark.parametrize(
    ("pattern", "path", "error", "message"),
    [
        ("", None, ValueError, "glob pattern"),
        ("*", "nothing", FileNotFoundError, "no file or directory 'nothing'"),
        ("*", "a.txt", NotADirectoryError, "read it with read_file"),
        ("*", "..", PathRefused, "above the workspace"),
    ],
)
async def test_what_cannot_be_found(pattern: str, path: str | None, error: type[Exception], message: str) -> None:
    """A failure is raised and is not the same as nothing found."""
    with pytest.raises(error, match=message):
        await FileTools(InMemoryWorkspace(FILES)).glob_files(pattern, path)
