"""With ripgrep and without it a search gives the same answer; only how long it takes differs."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentscope_rx.workspace import LocalWorkspace, resolve_path
from agentscope_rx.workspace import local as local_module
from agentscope_rx.workspace.folders import Folder
from agentscope_rx.workspace.looking import FileGroup, Look, Looks, Needle
from agentscope_rx.workspace.ripgrep import find_ripgrep, ripgrep
from agentscope_rx.workspace.search import SearchLimits, SearchResult, search_text

RIPGREP = shutil.which("rg")

TEXTS = ["needle", "f(x) .*", "ü会", "Needle", "-e", "\t", "needle\r", "\0", "\\x00", "$HOME", "é" * 50]


@pytest.fixture
def tree(tmp_path: Path) -> LocalWorkspace:
    files: dict[str, bytes] = {
        "a.py": b"needle\nNeedle f(x) .* -e\t\n",
        ".hidden/b": "ü会 needle".encode(),
        ".gitignore": b"ignored\n",
        "ignored": b"needle",
        "-e": b"needle",
        "crlf": b"needle\r\nx\r\n",
        "latin": b"caf\xe9 needle",
        "utf16": "needle".encode("utf-16"),
        "image.png": b"\x89PNG\r\n\x1a\nno more",
        "doc.pdf": b"%PDF-1.7 no more",
        "nul": b"x\0y",
        "late-nul": b"x" * 9000 + b"\0 needle",
        "large": b"needle" * 4000,
        "empty": b"",
        "literal": b"\\x00 $HOME " + "é".encode() * 80,
        ".git/config": b"needle",
        ".agentscope-runtime/log": b"needle",
        "ünï 会/x y": b"needle",
    }
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "link").symlink_to("a.py")
    (tmp_path / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    return LocalWorkspace(tmp_path)


async def search(workspace: LocalWorkspace, text: str) -> SearchResult:
    return await search_text(workspace, text, limits=SearchLimits(file_bytes=20_000))


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("text", TEXTS)
async def test_the_answer_is_that_of_our_own_scan(
    tree: LocalWorkspace, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matches, order, numbers and notes do not depend on what is installed."""
    assert find_ripgrep() is not None
    with_it = await search(tree, text)
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: None)
    assert await search(tree, text) == with_it


def group(path: str, names: list[str], *others: str) -> FileGroup:
    return FileGroup(folder=Folder(path=resolve_path(path), files=[*names, *others]), names=names)


NEEDLE = Needle(text=b"needle", file_bytes=1000)


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("others", [0, 10_000])
async def test_many_files_are_asked_about_in_several_calls(tmp_path: Path, others: int) -> None:
    """What is more than a command line can hold is divided; a directory is named as one if most of it is meant."""
    names = [f"{number:05}{'x' * 200}" for number in range(3000)]
    (tmp_path / "d").mkdir()
    for name in names:
        (tmp_path / "d" / name).write_text("needle" if name.startswith("02999") else "")
    (tmp_path / "d/other").write_text("needle")
    asked = group("d", names, "other", *(f"other{number}" for number in range(others)))
    found = await ripgrep(str(RIPGREP), tmp_path, [asked], NEEDLE)
    assert found is not None
    assert [each.names for each in found] == [[names[2999]]]


@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
async def test_files_of_the_root_and_parts_of_a_directory_are_told_apart(tmp_path: Path) -> None:
    """Whatever the program calls a file, it is found in each group that asked for it, and in no other."""
    (tmp_path / "d").mkdir()
    for name in ("a", "b", "d/a", "d/-b"):
        (tmp_path / name).write_text("needle")
    groups = [group(".", ["a"], "b"), group("d", ["-b"], "a"), group(".", ["b"], "a"), group("d", [], "-b", "a")]
    found = await ripgrep(str(RIPGREP), tmp_path, groups, NEEDLE)
    assert found is not None
    assert [list(each.names) for each in found] == [["a"], ["-b"], ["b"], []]


@pytest.mark.parametrize("text", TEXTS)
async def test_a_hint_never_hides_a_file(tree: LocalWorkspace, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ripgrep: what is not worth reading, read nevertheless, gives the same answer."""
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: None)
    found = await search(tree, text)

    async def all_of_them(_: object, groups: Sequence[FileGroup], __: Needle) -> list[Looks]:
        return [dict.fromkeys(group.names, Look.MAY_HOLD) for group in groups]

    monkeypatch.setattr(LocalWorkspace, "looks", all_of_them)
    assert await search(tree, text) == found


def fake(folder: Path, code: str) -> str:
    program = folder / "rg"
    program.write_text(f"#!{sys.executable} -IS\n{code}\n")
    program.chmod(stat.S_IRWXU)
    return str(program)


@pytest.mark.parametrize("code", ["import sys; sys.exit(2)", "import os; os.abort()"])
async def test_a_ripgrep_that_fails_is_done_without(
    tree: LocalWorkspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A broken program, an unknown option or a file that is gone leaves our own scan."""
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: None)
    expected = await search(tree, "needle")
    program = fake(tmp_path_factory.mktemp("bin"), code)
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: program)
    assert await search(tree, "needle") == expected
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: "/no/such/program")
    assert await search(tree, "needle") == expected


async def test_a_cancelled_search_ends_the_program(
    tree: LocalWorkspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is left behind by who does not wait for the answer."""
    folder = tmp_path_factory.mktemp("bin")
    say = f"pid = os.open({str(folder / 'pid')!r}, os.O_WRONLY); os.write(pid, b'%d' % os.getpid()); os.close(pid)"
    program = fake(folder, f"import os, time; {say}; time.sleep(60)")
    os.mkfifo(folder / "pid")
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: program)
    task = asyncio.ensure_future(search(tree, "needle"))
    pid = int(await asyncio.to_thread((folder / "pid").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("before", range(64 * 1024 - 7, 64 * 1024 + 2))
async def test_a_text_across_two_pieces_is_found(tmp_path: Path, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read piece by piece, and where one ends makes no difference."""
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: None)
    (tmp_path / "a").write_bytes(b"x" * before + b"needle" + b"x" * 100_000)
    needle = Needle(text=b"needle", file_bytes=1_000_000)
    assert await LocalWorkspace(tmp_path).looks([group(".", ["a"])], needle) == [{"a": Look.MAY_HOLD}]


async def test_links_and_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has become a link is not followed; what is gone or cannot be read is left to its reader."""
    monkeypatch.setattr(local_module, "find_ripgrep", lambda: None)
    (tmp_path / "ws/d").mkdir(parents=True)
    (tmp_path / "secret").write_text("needle")
    (tmp_path / "ws/link").symlink_to("../secret")
    (tmp_path / "ws/d/up").symlink_to("..")
    (tmp_path / "ws/a").write_text("needle")
    groups = [group(".", ["a", "link", "d"]), group("d", ["gone"]), group("gone", ["x"]), group("d/up", ["a"])]
    assert await LocalWorkspace(tmp_path / "ws").looks(groups, NEEDLE) == [
        {"a": Look.MAY_HOLD, "link": Look.UNREADABLE, "d": Look.UNREADABLE},
        {},
        {},
        {"a": Look.MAY_HOLD},
    ]
    result = await search_text(LocalWorkspace(tmp_path / "ws"), "needle")
    assert [str(match.path) for match in result.matches] == ["a"]
