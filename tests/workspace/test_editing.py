"""An edit replaces the text that was named and leaves every other byte as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import FileEditRefused, FileTooLarge, PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, WorkspacePath, edit_text

TOKENS = st.sampled_from(["a", "b", "\n", "\r\n"])
LINES = st.lists(st.sampled_from(["a", "b", "ab", "", "ü"]), max_size=8)


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"one two\n", "two", "2", b"one 2\n"),
        (b"a\nb\nc\n", "a\nb", "x", b"x\nc\n"),
        (b"a\r\nb\r\nc", "a\nb", "x\ny", b"x\r\ny\r\nc"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\r\nb\nc\n", "b\n", "", b"a\r\nc\n"),
        (b"a\r\nb\nc\nd", "c", "x\ny", b"a\r\nb\nx\ny\nd"),
        (b"a\nb\r\nc\r\nd", "b", "x\ny", b"a\nx\r\ny\r\nc\r\nd"),
        (b"\xef\xbb\xbfone", "one", "1", b"\xef\xbb\xbf1"),
        (b"caf\xe9 here", "here", "there", b"caf\xe9 there"),
        (b"f(x) .* \\d", "f(x) .* \\d", "\\1", b"\\1"),
        ("会话 🍸".encode(), "🍸", "ü", "会话 ü".encode()),
        (b"no line end", "line", "a\nb", b"no a\nb end"),
    ],
)
async def test_exactly_the_text_is_replaced(data: bytes, old: str, new: str, expected: bytes) -> None:
    """Line ends, byte order mark and bytes that are no UTF-8 stay, and no letter has a special meaning."""
    workspace = InMemoryWorkspace({"f": data})
    result = await edit_text(workspace, "f", old, new)
    found = await workspace.read("f")
    assert (found.data, found.version, result.count) == (expected, result.version, 1)


@settings(max_examples=150, deadline=None)
@given(LINES, LINES.filter(any), LINES, st.sampled_from(["\n", "\r\n"]))
async def test_all_places_are_what_str_replace_finds(text: list[str], old: list[str], new: list[str], end: str) -> None:
    """With one kind of line end, an edit is `str.replace`."""
    whole, asked, given_ = end.join(text), "\n".join(old), "\n".join(new)
    workspace, there = InMemoryWorkspace({"f": whole}), end.join(old)
    if asked == given_:
        return
    if there not in whole:
        with pytest.raises(FileEditRefused):
            await edit_text(workspace, "f", asked, given_, replace_all=True)
        return
    result = await edit_text(workspace, "f", asked, given_, replace_all=True)
    expected = whole.replace(there, end.join(new) if end in whole else given_)
    assert ((await workspace.read("f")).data.decode(), result.count) == (expected, whole.count(there))


@settings(max_examples=300, deadline=None)
@given(st.lists(TOKENS, max_size=9), st.lists(TOKENS, min_size=1, max_size=4), st.booleans())
async def test_a_place_is_found_by_its_letters_whatever_ends_its_lines(
    text: list[str], old: list[str], dos: bool
) -> None:
    """CRLF and LF are one letter to who looks; what is there twice, if only partly, is nobody's only place."""
    alike = ["\n" if token == "\r\n" else token for token in text]
    asked = ["\n" if token == "\r\n" else token for token in old]
    places = [at for at in range(len(text)) if alike[at : at + len(old)] == asked]
    workspace, wanted = (
        InMemoryWorkspace({"f": "".join(text)}),
        ("\r\n" if dos else "\n").join("".join(asked).split("\n")),
    )
    if len(places) != 1:
        with pytest.raises(FileEditRefused):
            await edit_text(workspace, "f", wanted, "new")
        assert (await workspace.read("f")).data.decode() == "".join(text)
        return
    result = await edit_text(workspace, "f", wanted, "new")
    before, after = text[: places[0]], text[places[0] + len(old) :]
    assert (await workspace.read("f")).data.decode() == "".join([*before, "new", *after])
    assert result.line == 1 + alike[: places[0]].count("\n")


@pytest.mark.timeout(20)
async def test_a_place_that_overlaps_itself_is_refused() -> None:
    """The first of two such places is as little meant as the second one; all of them are those side by side."""
    workspace = InMemoryWorkspace({"f": "  }\n}\n}\n", "long": "ab" * 500_000})
    message = r"'f' more than once, overlapping itself, at lines 1, 2: add the lines around it until it is there once$"
    with pytest.raises(FileEditRefused, match=message):
        await edit_text(workspace, "f", "}\n}", "x")
    with pytest.raises(FileEditRefused, match="overlapping itself, at lines 1, 1:"):
        await edit_text(workspace, "long", "ab" * 400_000, "x")
    assert (await edit_text(workspace, "f", "}\n}", "x", replace_all=True)).count == 1
    assert (await workspace.read("f")).data == b"  x\n}\n"


async def test_more_than_one_place_is_named() -> None:
    """Nothing is changed by guess: the lines are told, and all of them can be asked for."""
    workspace = InMemoryWorkspace({"f": "x = 1\ny\nx = 1\n"})
    with pytest.raises(FileEditRefused, match=r"is in 'f' 2 times, at lines 1, 3: add the lines around it"):
        await edit_text(workspace, "f", "x = 1", "x = 2")
    assert (await workspace.read("f")).data == b"x = 1\ny\nx = 1\n"
    result = await edit_text(workspace, "f", "x = 1", "x = 2", replace_all=True)
    assert (result.count, result.line) == (2, 1)
    many = InMemoryWorkspace({"f": "x\n" * 5000})
    with pytest.raises(FileEditRefused, match=r"5000 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …:"):
        await edit_text(many, "f", "x", "y")


@pytest.mark.parametrize(
    ("text", "old", "hint"),
    [
        (
            "def f():\n\treturn 1\n",
            "def f():\n    return 1",
            "Only its white space differs; lines 1 to 2 are:\ndef",
        ),
        ("a\n  b = 2\n", "b  =  2", "Only its white space differs; line 2 is:\n  b = 2"),
        ("a\nb\n", "     1\ta\n     2\tb", "begin with numbers"),
        ("caf\ufffd", "caf\ufffd!", "no UTF-8"),
        ("Hello World", "hello world", "upper and lower case"),
        (
            "x\ndef compute(a, b):\n    return a + b\n",
            "def compute(a, c):\n    return a + c",
            "lines 2 to 3 are:\ndef",
        ),
        ("alpha\nbeta\n", "something else entirely", "Nothing in it is similar"),
        ("", "a", "The file is empty."),
        ("abc", "\n\n\n", "Nothing in it is similar"),
    ],
)
async def test_a_text_that_is_not_there_is_answered_with_what_is(text: str, old: str, hint: str) -> None:
    """The error is what helps to get the next try right."""
    with pytest.raises(FileEditRefused) as caught:
        await edit_text(InMemoryWorkspace({"f": text}), "f", old, "new")
    assert str(caught.value).startswith("the text is not in 'f'. ")
    assert hint in str(caught.value)


@pytest.mark.timeout(20)
async def test_a_hint_for_a_huge_file_comes_soon() -> None:
    """What is compared is limited, however long the file and its lines are, and so is what is quoted."""
    lines = [f"value_{number} = compute({number}, {'x' * 3000})" for number in range(3000)]
    workspace = InMemoryWorkspace({"f": "\n".join(lines)})
    with pytest.raises(FileEditRefused) as caught:
        await edit_text(workspace, "f", "\n".join(line.replace("value", "valve") for line in lines[:400]), "new")
    assert "lines 1 to 20 are" in str(caught.value)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    ("path", "old", "new", "error"),
    [
        ("f", "", "x", ValueError),
        ("f", "text", "text", ValueError),
        ("f", "text", "\ud83d", ValueError),
        ("f", "\udc80", "x", ValueError),
        ("missing", "text", "x", FileNotFoundError),
        ("dir", "text", "x", IsADirectoryError),
        ("f/below", "text", "x", NotADirectoryError),
        ("../f", "text", "x", PathRefused),
        (".agentscope-runtime/log", "text", "x", PathRefused),
        ("image", "PNG", "x", FileEditRefused),
        ("wide", "text", "x", FileEditRefused),
        ("nul", "a", "x", FileEditRefused),
        ("large", "a", "x", FileTooLarge),
    ],
)
async def test_what_cannot_be_edited(path: str, old: str, new: str, error: type[Exception]) -> None:
    """Each wrong call is refused, and nothing is written."""
    files = {
        "f": b"text",
        "dir/g": b"",
        "image": b"\x89PNG\r\n\x1a\n",
        "nul": b"a\0b",
        "wide": "text".encode("utf-16"),
        "large": b"a" * 99,
    }
    workspace = InMemoryWorkspace(files, max_read_bytes=50)
    with pytest.raises(error):
        await edit_text(workspace, path, old, new)
    for name, data in files.items():
        assert (await workspace.read(name, limit=50)).data == data[:50]


class Hindered(InMemoryWorkspace):
    """Lets somebody else write first, as often as `times` says."""

    times = 1

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        if if_match is not None and self.times:
            self.times -= 1
            await super().write(path, (await self.read(path)).data + b"theirs\n")
        return await super().write(path, data, if_match=if_match, create_only=create_only)


async def test_an_edit_that_comes_too_late_is_done_again() -> None:
    """Neither change is lost; who is always too late is told."""
    workspace = Hindered({"f": "mine\n"})
    await edit_text(workspace, "f", "mine", "edited")
    assert (await workspace.read("f")).data == b"edited\ntheirs\n"
    workspace.times = 1000
    with pytest.raises(WorkspaceConflict):
        await edit_text(workspace, "f", "edited", "mine")


async def test_edits_of_one_file_at_once_all_happen(tmp_path: Path) -> None:
    """A model that calls the tool several times in one step loses nothing."""
    workspace = LocalWorkspace(tmp_path)
    await workspace.write("f", b"".join(b"<%02d>\n" % number for number in range(12)))
    await asyncio.gather(*(edit_text(workspace, "f", f"<{number:02}>", f"done {number}") for number in range(12)))
    assert (await workspace.read("f")).data == b"".join(b"done %d\n" % number for number in range(12))


async def test_a_read_only_workspace_is_not_edited() -> None:
    """The workspace has the last word."""
    with pytest.raises(WorkspaceError, match="read-only"):
        await edit_text(InMemoryWorkspace({"f": "a"}, read_only=True), "f", "a", "b")
