"""Rules for commands: what a content speaks of, and what it never allows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentscope_rx.permissions import commands
from agentscope_rx.permissions.commands import CommandTarget


def line(text: str) -> CommandTarget:
    return commands()({"command": text})


@pytest.mark.parametrize(
    ("text", "contents", "covered"),
    [
        ("git status", ["git status"], True),
        ("git   status -s", ["git status"], True),
        ("git statusx", ["git status"], False),
        ("git", ["git status"], False),
        ("ls && git status", ["ls"], False),
        ("ls && git status", ["ls", "git status"], True),
        ("ls; ls | ls & ls || ls", ["ls"], True),
        ("'ls' \"-l\"", ["ls -l"], True),
        ("ls 'a; rm b'", ["ls"], True),
        ("npm run build", ["npm run *"], True),
        ("npm install", ["npm run *"], False),
        ("npm test 2>&1", ["npm test"], True),
        ("npm test > /dev/null 2>&1", ["npm test"], True),
        ("echo $(rm x)", ["echo"], False),
        ("echo `rm x`", ["echo"], False),
        ('echo "$(rm x)"', ["echo"], False),
        ("ls > x", ["ls"], False),
        ("ls > /dev/nullx", ["ls"], False),
        ("ls < x", ["ls"], False),
        ("ls $HOME", ["ls"], False),
        ("ls\nrm x", ["ls"], False),
        ("ls a#' ;rm x #'", ["ls"], False),
        ("ls \\\nx", ["ls"], False),
        ("ls {a,b}", ["ls"], False),
        ("(ls)", ["ls"], False),
        ("! ls", ["ls"], False),
        ("ls 'a", ["ls"], False),
        ("X=1 ls", ["ls"], False),
        ("sudo ls", ["ls"], False),
        ("", ["*"], False),
        (" ; ", ["*"], False),
        ("ls", ["  "], False),
        ("ls", [], False),
        ("ls", ["*"], True),
    ],
)
def test_what_is_allowed(text: str, contents: list[str], covered: bool) -> None:
    """All of a line has to be allowed, and it has to be plain."""
    assert line(text).covered_by(contents) is covered


@pytest.mark.parametrize(
    ("text", "content", "touched"),
    [
        ("rm x", "rm", True),
        ("ls && rm x", "rm", True),
        ("echo $(rm x)", "rm", True),
        ("echo `rm x`", "rm", True),
        ("ls\nrm x", "rm", True),
        ("'r'm x", "rm", True),
        ("r\\m x", "rm", True),
        ("X=1 Y=2 rm x", "rm", True),
        ("sudo -n rm x", "rm", True),
        ("timeout 5 rm x", "rm", True),
        ("find . | xargs -0 rm", "rm", True),
        ("/bin/rm x", "rm", True),
        ("sudo rm x", "sudo rm", True),
        ("if true; then rm x; fi", "rm", True),
        ("cat secrets.txt", "*secret*", True),
        ("ls && cat x", "ls && *", True),
        ("echo rm", "rm", False),
        ("rmdir x", "rm", False),
        ("git push --force", "git push --force", True),
        ("git push", "git push --force", False),
        ("ls", " ", True),
        ("env", "rm", False),
    ],
)
def test_what_is_denied(text: str, content: str, touched: bool) -> None:
    """One command on the line is enough, wherever it stands."""
    assert line(text).touched_by(content) is touched


def test_no_text_is_unclear() -> None:
    """What is no command line is never allowed by a content, and may always be meant by one."""
    for arguments in ({}, {"command": 5}):
        target = commands()(arguments)
        assert (target.covered_by(["*"]), target.touched_by("x"), target.danger, target.suggestions) == (
            False,
            True,
            "",
            (),
        )
    assert not line("ls").edits_inside(["."])


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf x", "rm -r -f x", "rm -fr x", "rm --recursive --force x", "rm x -Rf", "cd a && rm -rf b",
        "sudo rm x", "doas rm x", "dd if=a of=b", "mkfs.ext4 /dev/x", "chmod 777 x", "chmod -R a+rwx .",
        "chown -R me .",
        "kill -9 1", "pkill -KILL x", "kill -s KILL 4", "echo x > /dev/sda", "echo $(rm -rf x)", "/bin/rm -rf x",
    ],
)  # fmt: skip
def test_dangers(text: str) -> None:
    """What nobody can undo is told, wherever it stands, with the command and what it does."""
    assert "'" in line(text).danger


@pytest.mark.parametrize(
    "text", ["rm x", "rm -f x", "rm -r x", "chmod 644 x", "chown me x", "kill 1", "ls > /dev/null", "ls", "", ";"]
)
def test_no_dangers(text: str) -> None:
    """What is ordinary raises no question."""
    assert line(text).danger == ""


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("git status -s", ("git status",)),
        ("ls -la && npm test", ("ls", "npm test")),
        ("python x.py", ("python x.py",)),
        ("sudo ls", ("sudo ls",)),
        ("X=1 make", ("X=1 make",)),
        ("echo $(ls)", ()),
        ("pytest", ("pytest",)),
    ],
)
def test_suggestions(text: str, suggested: tuple[str, ...]) -> None:
    """The beginning of each command; the whole where the beginning would allow anything; nothing that cannot help."""
    assert line(text).suggestions == suggested
    assert not suggested or line(text).covered_by(suggested)


WORDS = st.sampled_from(
    ["ls", "rm", "git", "-rf", "a b", "$(rm x)", "`rm x`", ";", "&&", "|", ">", "'", '"', "#", "\n", "x"]
)


#: A shell that finds no programs, in which each word is a command that tells when it is run.
ONLY_LS = "ls() { :; }\n" + "".join(f"{name}() {{ echo ~ran~ >&2; }}\n" for name in ("rm", "git", "a", "b", "x"))


@given(st.lists(WORDS, max_size=6).map(lambda words: " ".join(["ls", *words])))
@example("ls ' $(rm x) '")
@example("ls ' ' $(rm x) ' '")
def test_an_allowed_line_runs_nothing_else(text: str) -> None:
    """A line that `ls` allows runs no command but `ls`, as a real shell reads it; so a rule against `rm` has nothing
    to say about it."""
    if line(text).covered_by(["ls"]):
        with TemporaryDirectory() as folder:
            command = ["/bin/sh", "-c", ONLY_LS + text]
            done = subprocess.run(command, env={"PATH": ""}, cwd=folder, capture_output=True, text=True, check=False)
            assert "~ran~" not in done.stderr
            assert list(Path(folder).iterdir()) == []
        assert line(text).covered_by(["ls *", "ls"])
        assert not line(text).covered_by(["rm"])
