"""What a model reads when it calls a file tool."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NoReturn

import pytest

from agentscope_rx.errors import FileEditRefused, FileTooLarge, InvalidOption, PathRefused
from agentscope_rx.permission_context import PermissionContextState, PermissionRule
from agentscope_rx.permissions import judge
from agentscope_rx.tools.file_changes import FileChanges
from agentscope_rx.tools.file_tools import (
    EMPTY_DIRECTORY,
    EMPTY_FILE,
    NO_MATCHES,
    FileToolLimits,
    FileTools,
    file_tools,
)
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace
from agentscope_rx.workspace.search import SearchLimits


def tools(files: dict[str, str | bytes], *, lines: int = 2000, read_bytes: int = 256 * 1024) -> FileTools:
    limits = FileToolLimits(lines=lines, read_bytes=read_bytes)
    return FileTools(InMemoryWorkspace(files), limits=limits)


# -- what the model is shown --------------------------------------------------------------------------------


def test_the_tools_have_the_known_names() -> None:
    """Names, parameters and defaults are what models and rules know, and each parameter is explained."""
    made = file_tools(InMemoryWorkspace())
    assert [(made_tool.spec.name, str(inspect.signature(made_tool.function))) for made_tool in made] == [
        (
            "read_file",
            "(path: 'str', offset: 'int' = 0, limit: 'int' = 0, line_numbers: 'bool' = False) -> 'str'",
        ),
        ("list_files", "(path: 'str' = '.') -> 'str'"),
        ("glob_files", "(pattern: 'str', path: 'str | None' = None) -> 'str'"),
        ("grep_files", "(pattern: 'str', path: 'str | None' = None, glob: 'str | None' = None) -> 'str'"),
        ("write_file", "(path: 'str', content: 'str') -> 'str'"),
        ("edit_file", "(path: 'str', old_string: 'str', new_string: 'str', replace_all: 'bool' = False) -> 'str'"),
    ]
    for made_tool in made:
        function = made_tool.function
        assert inspect.iscoroutinefunction(function)
        assert set(inspect.get_annotations(function, eval_str=True)) == {
            *inspect.signature(function).parameters,
            "return",
        }
        for parameter in inspect.signature(function).parameters:
            assert f"\n    {parameter}: " in (inspect.getdoc(function) or "")
            assert made_tool.spec.parameters["properties"][parameter]["description"]  # type: ignore[index]


def test_tools_that_only_look_say_so() -> None:
    """Rules let looking pass, and only one change at a time is made."""
    made = file_tools(InMemoryWorkspace())
    assert [made_tool.read_only for made_tool in made] == [True, True, True, True, False, False]
    assert [made_tool.concurrency_safe for made_tool in made] == [True, True, True, True, False, False]
    looking = file_tools(InMemoryWorkspace(), read_only=True)
    assert [made_tool.spec.name for made_tool in looking] == [made_tool.spec.name for made_tool in made[:4]]


async def test_rules_may_name_their_paths() -> None:
    """A rule about paths speaks of what they read, a search through everything included."""
    made = {tool.spec.name: tool for tool in file_tools(InMemoryWorkspace())}
    rules = PermissionContextState().with_rules(PermissionRule.deny(name, "secrets/**") for name in made)
    read_file, grep_files = made["read_file"], made["grep_files"]
    for name in ("glob_files", "write_file", "edit_file"):
        assert (await judge(made[name], {"path": "secrets/key", "pattern": "*"}, rules)).behavior == "deny"
    assert (await judge(read_file, {"path": "./secrets/key"}, rules)).behavior == "deny"
    assert (await judge(read_file, {"path": "notes"}, rules)).reason == "default"
    assert (await judge(grep_files, {"pattern": "x"}, rules)).behavior == "deny"
    assert (await judge(grep_files, {"pattern": "x", "path": "docs"}, rules)).reason == "default"


def test_limits_are_checked() -> None:
    """A limit of nothing would make a tool that returns nothing."""
    for make in (
        lambda: FileToolLimits(lines=0),
        lambda: FileToolLimits(read_bytes=0),
        lambda: FileToolLimits(entries=-1),
    ):
        with pytest.raises(InvalidOption):
            make()


# -- read_file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("one\ntwo\n", "one\ntwo"),
        ("one\r\ntwo", "one\ntwo"),
        ("\n", ""),
        ("\ufeffone", "one"),
        ('{"a": "b"}', '{"a": "b"}'),
        ("会话 🍸", "会话 🍸"),
        ("", EMPTY_FILE),
    ],
)
async def test_a_file_is_returned_as_its_lines(content: str, text: str) -> None:
    """The result is the text itself: no quotes around it, no mark before it, LF between the lines."""
    assert await tools({"f": content}).read_file("f") == text


@pytest.mark.parametrize(
    ("offset", "limit", "text"),
    [
        (0, 0, "1\n2\n3\n4"),
        (1, 2, "2\n3\n[Lines 2 to 3 shown, and the file goes on (8 bytes in all). Continue with offset=3.]"),
        (3, 0, "4"),
        (3, 9, "4"),
        (2, 2, "3\n4"),
    ],
)
async def test_a_range_of_lines(offset: int, limit: int, text: str) -> None:
    """`offset` skips lines, `limit` counts them, and a note tells how to go on where there is more."""
    assert await tools({"f": "1\n2\n3\n4\n"}).read_file("f", offset, limit) == text


async def test_line_numbers_are_those_of_grep() -> None:
    """Numbers count from 1, also in the middle of a file."""
    made = tools({"f": "a\nb\nc"})
    assert await made.read_file("f", offset=1, line_numbers=True) == "     2\tb\n     3\tc"
    assert await made.grep_files("b") == "f:2:b"


async def test_following_the_notes_reads_the_whole_file() -> None:
    """A model that does what the notes say sees every line once."""
    lines = [f"line {number} " + "ü" * (number % 90) for number in range(5000)]
    made, seen, offset = tools({"f": "\n".join(lines)}, lines=700, read_bytes=20_000), list[str](), 0
    while True:
        *part, last = (await made.read_file("f", offset)).split("\n")
        seen += part
        if not last.startswith("[Lines"):
            seen.append(last)
            break
        assert len("\n".join(part).encode()) <= 20_000
        offset = int(last.split("offset=")[1].split(".")[0])
    assert seen == lines


async def test_a_large_file_is_cut_at_the_default_limits() -> None:
    """By default a call returns at most 2,000 lines and 256 KiB, even if more are asked for."""
    made = FileTools(InMemoryWorkspace({"lines": "x\n" * 9000, "bytes": ("y" * 1023 + "\n") * 900}))
    for limit in (0, 8000):
        text = await made.read_file("lines", limit=limit)
        assert text.startswith("x\n" * 2000 + "[Lines 1 to 2000 shown")
        assert len((await made.read_file("bytes", limit=limit)).encode()) < 256 * 1024 + 200


async def test_a_line_that_is_too_long_is_cut_between_characters() -> None:
    """One endless line neither floods the request nor ends in half a character."""
    made = tools({"f": "ü" * 100 + "\nnext"}, read_bytes=11)
    text = await made.read_file("f")
    assert text.split("\n")[0] == "ü" * 5
    assert "Line 1 was cut: it is longer than 11 bytes" in text
    assert "offset=1." in text
    assert await made.read_file("f", offset=1) == "next"


async def test_an_offset_past_the_end_is_an_error() -> None:
    """A wrong offset is told together with the number of lines that there are."""
    with pytest.raises(ValueError, match="offset 3 is past the end: 'f' has 3 lines"):
        await tools({"f": "1\n2\n3"}).read_file("f", offset=3)


@pytest.mark.parametrize(("offset", "limit"), [(-1, 0), (0, -1)])
async def test_negative_numbers_are_an_error(offset: int, limit: int) -> None:
    """Counting from the end is not offered, so it is refused rather than guessed."""
    with pytest.raises(ValueError, match="0 or more"):
        await tools({"f": "1"}).read_file("f", offset, limit)


async def test_a_binary_file_is_named_and_not_dumped() -> None:
    """Bytes that are no text would only fill the request."""
    made = tools({"a.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 1000, "b": b"a\0b"})
    assert await made.read_file("a.png") == "('a.png' is binary: PNG image, 1008 bytes. It cannot be shown as text.)"
    assert "unknown type, 3 bytes" in await made.read_file("b", offset=7)


async def test_a_text_of_another_encoding_is_told_what_it_needs() -> None:
    """As some systems write output into files: it is no broken file, and a command makes it readable."""
    made = {"f": "hello".encode("utf-16")}
    text = await tools({**made}).read_file("f")
    assert text == "('f' is binary: UTF-16 text, 12 bytes. It cannot be shown as text until it is converted to UTF-8.)"
    with pytest.raises(FileEditRefused, match="cannot be edited as text until it is converted to UTF-8"):
        await FileChanges(InMemoryWorkspace({**made})).edit_file("f", "hello", "x")


async def test_what_this_program_has_no_right_to_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the system is an error that names the path and says what may be done; root would hardly see one."""

    async def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", "/srv/secret/place")

    workspace = InMemoryWorkspace({"f": "text"})
    for verb in ("read", "list", "stat", "write"):
        monkeypatch.setattr(workspace, verb, refuse)
    looking, changing = FileTools(workspace), FileChanges(workspace)
    for call in (
        *(looking.read_file("f"), looking.list_files("f"), looking.glob_files("*", "f"), looking.grep_files("x", "f")),
        *(changing.write_file("f", "x"), changing.edit_file("f", "text", "x")),
    ):
        with pytest.raises(PermissionError, match="^the system refuses 'f': this program has no right"):
            await call


async def test_text_that_is_no_utf_8_is_shown_with_a_note() -> None:
    """An old encoding is readable for the most part, and the model is told not to trust the rest."""
    text = await tools({"f": "caf\xe9\nna\xefve".encode("latin-1")}).read_file("f")
    assert text.split("\n")[:2] == ["caf\ufffd", "na\ufffdve"]
    assert "not valid UTF-8" in text.split("\n")[2]


async def test_a_file_larger_than_one_read_is_read_in_pieces(tmp_path: Path) -> None:
    """Neither a large file nor a workspace that returns little at once keeps a model from its lines."""
    lines = [f"{number:09}" for number in range(100_000)]
    (tmp_path / "f").write_text("\n".join(lines))
    for most in (1000, 32 * 1024 * 1024):
        made = FileTools(LocalWorkspace(tmp_path, max_read_bytes=most))
        assert await made.read_file("f", offset=99_998) == "000099998\n000099999"
        assert (await made.read_file("f", offset=50_000, limit=1)).split("\n")[0] == "000050000"


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("nothing", FileNotFoundError, "no file or directory 'nothing': look around with list_files"),
        ("dir", IsADirectoryError, "'dir' is a directory: look into it with list_files"),
        ("f/below", NotADirectoryError, "something above 'f/below' is a file"),
        ("../f", PathRefused, "leads above the workspace"),
        ("/etc/passwd", PathRefused, "relative to the workspace"),
    ],
)
async def test_what_cannot_be_read_is_an_error(path: str, error: type[Exception], message: str) -> None:
    """A failure is raised, never returned as if it were the text of a file, and says what to do."""
    with pytest.raises(error, match=message):
        await tools({"f": "", "dir/g": ""}).read_file(path)


# -- list_files ---------------------------------------------------------------------------------------------


async def test_a_directory_is_listed_by_name() -> None:
    """One entry a line with its kind; paths are those that the other tools take."""
    made = tools({"b.txt": "12", "a/c.txt": "", "a/d/e": "1"})
    assert await made.list_files() == "[DIR] a\n[FILE] b.txt (2 bytes)"
    assert await made.list_files("./a/") == "[FILE] a/c.txt (0 bytes)\n[DIR] a/d"


async def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    """An empty result would look like a failure."""
    assert await FileTools(LocalWorkspace(tmp_path)).list_files() == EMPTY_DIRECTORY


async def test_a_long_listing_is_cut() -> None:
    """A directory of thousands of files does not flood the request."""
    made = FileTools(InMemoryWorkspace({f"{number:04}": "" for number in range(1234)}))
    lines = (await made.list_files()).split("\n")
    assert (len(lines), lines[499]) == (501, "[FILE] 0499 (0 bytes)")
    assert lines[500] == "[Only the first 500 of 1234 entries are shown. Find others with glob_files.]"


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("nothing", FileNotFoundError, "no file or directory 'nothing'"),
        ("f", NotADirectoryError, "'f' is no directory: read it with read_file"),
        ("..", PathRefused, "leads above the workspace"),
    ],
)
async def test_what_cannot_be_listed_is_an_error(path: str, error: type[Exception], message: str) -> None:
    """A failure is raised and says what to do."""
    with pytest.raises(error, match=message):
        await tools({"f": ""}).list_files(path)


# -- grep_files ---------------------------------------------------------------------------------------------


async def test_matching_lines_are_returned_with_path_and_number() -> None:
    """The pattern is taken letter by letter and may be narrowed by path and glob."""
    made = tools({"a.py": "x = f(1)\ny\nz = f(1).*", "b/c.py": "f(1)", "b/c.txt": "f(1)"})
    assert await made.grep_files("f(1)") == "a.py:1:x = f(1)\na.py:3:z = f(1).*\nb/c.py:1:f(1)\nb/c.txt:1:f(1)"
    assert await made.grep_files("(1).*") == "a.py:3:z = f(1).*"
    assert await made.grep_files("f(1)", "b", "*.py") == "b/c.py:1:f(1)"
    assert await made.grep_files("f(1)", path="b/c.txt") == "b/c.txt:1:f(1)"
    assert await made.grep_files("f(1)", path="", glob="") == await made.grep_files("f(1)")


async def test_no_match_says_so() -> None:
    """An empty result would look like a failure."""
    assert await tools({"a": "b"}).grep_files("c") == NO_MATCHES


async def test_what_was_not_searched_is_said() -> None:
    """A model that sees no match must know where nobody looked."""
    limits = FileToolLimits(search=SearchLimits(matches=2, files=3, file_bytes=9))
    files: dict[str, str | bytes] = {"0": b"\0", "1": "n" * 99, "2": "n\nn\nn"}
    text = await FileTools(InMemoryWorkspace(files), limits=limits).grep_files("n")
    assert text.split("\n") == [
        "2:1:n",
        "2:2:n",
        "[Only the first 2 matching lines are shown. Narrow the search with path, glob or a longer pattern.]",
        "[Not searched: 1 binary, 1 larger than 9 bytes.]",
    ]
    many = InMemoryWorkspace({str(number): "" for number in range(4)})
    text = await FileTools(many, limits=limits).grep_files("n")
    assert text == f"{NO_MATCHES}\n[Only 3 files were searched. Narrow the search with path or glob.]"


async def test_matches_and_long_lines_are_cut_at_the_default_limits() -> None:
    """By default a call returns at most 200 lines of 500 characters."""
    made = tools({"a": ("n" + "x" * 999 + "\n") * 300})
    lines = (await made.grep_files("n")).split("\n")
    assert (len(lines), lines[0]) == (201, "a:1:n" + "x" * 499 + "…")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pattern": ""}, ValueError, "empty"),
        ({"pattern": "a\nb"}, ValueError, "more than one line"),
        ({"pattern": "a", "path": "nothing"}, FileNotFoundError, "no file or directory 'nothing'"),
        ({"pattern": "a", "path": "../x"}, PathRefused, "above the workspace"),
        ({"pattern": "a", "path": "large"}, FileTooLarge, "'large' is too large to be searched"),
        ({"pattern": "a", "glob": "{a,b}" * 9}, ValueError, "more than 100 alternatives"),
    ],
)
async def test_what_cannot_be_searched_is_an_error(
    arguments: dict[str, str], error: type[Exception], message: str
) -> None:
    """A failure is raised and is not the same as no match."""
    limits = FileToolLimits(search=SearchLimits(file_bytes=9))
    made = FileTools(InMemoryWorkspace({"large": "0123456789"}), limits=limits)
    with pytest.raises(error, match=message):
        await made.grep_files(**arguments)
