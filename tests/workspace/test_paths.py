"""Paths are normalised by their text, and everything that is no path inside the workspace is refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace import WorkspacePath, resolve_path
from agentscope_rx.workspace.paths import is_reserved, shown

TRICKY = st.sampled_from(
    [
        "..",
        ".",
        "",
        "/",
        "//",
        "~",
        "a",
        "b c",
        "C:",
        "\\",
        "\0",
        "\n",
        "é",
        "\ud83d",
        ".agentscope-runtime",
        "x" * 255,
    ]
)
PATHS = st.lists(TRICKY | st.text(max_size=5), max_size=8).map("/".join) | st.text()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.txt", "a.txt"),
        ("./src//app.py/", "src/app.py"),
        ("a/b/../c", "a/c"),
        ("a/..", "."),
        (".", "."),
        ("...", "..."),
        (" lead", " lead"),
        ("trail.", "trail."),
        ("a~", "a~"),
        ("a/~b", "a/~b"),
        ("%2e%2e%2f", "%2e%2e%2f"),
        ("会话-1/ünïcødé", "会话-1/ünïcødé"),
        ("-rf", "-rf"),
        ("aa:b*?[c]/x", "aa:b*?[c]/x"),
    ],
)
def test_paths_inside_are_normalised(path: str, expected: str) -> None:
    """An odd but harmless path is taken letter by letter; only '', '.' and '..' are worked out."""
    assert str(resolve_path(path)) == expected


@pytest.mark.parametrize(
    "path",
    [
        *("..", "a/../../b", "/etc/hostname", "/", "//", "~", "~/x", "./~/x", "", " "),
        *("C:/x", "C:\\x", "a\\b", "c:", "a\0b", "x\ny", "\x1b[31m", "\x9b", "\u2029", "\ud83d", "\udcb2"),
        *("n" * 256, "a/" * 2049),
        *(".agentscope-runtime", "a/.AGENTSCOPE-RUNTIME/b", ".agentscope-tmp-1"),
    ],
)
def test_paths_outside_are_refused(path: str) -> None:
    """O31: a path that is absolute, leads above the root, or is no path at all is refused, not repaired."""
    with pytest.raises(PathRefused) as caught:
        resolve_path(path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/srv/ws", "."), ("/srv/ws/a/b", "a/b"), ("/srv//ws/./a/../b", "b"), ("/link/x", "x"), ("rel", "rel")],
)
def test_absolute_paths_below_a_root_are_relative_to_it(path: str, expected: str) -> None:
    """A workspace that has a place on a disk understands the absolute paths that a shell prints."""
    assert str(resolve_path(path, roots=["/srv/ws", "/link"])) == expected


@pytest.mark.parametrize(
    "path", ["/srv", "/srv/wsx/a", "/srv/ws/../x", "/", "/srv/ws/.agentscope-runtime/x", "/Srv/ws"]
)
def test_absolute_paths_beside_the_root_are_refused(path: str) -> None:
    """A common beginning of the text is not the same directory, and '..' is worked out first."""
    with pytest.raises(PathRefused):
        resolve_path(path, roots=["/srv/ws"])


@given(PATHS)
@example("a/../~")
@example(" /a/..")
@example("a/../C:")
def test_any_text_is_refused_or_inside(path: str) -> None:
    """Whatever a model writes, a resolved path has only plain names and resolves to itself."""
    try:
        resolved = resolve_path(path)
    except PathRefused:
        return
    assert all(part not in {"", ".", ".."} and "/" not in part and "\0" not in part for part in resolved.parts)
    assert not any(is_reserved(part) for part in resolved.parts)
    assert resolve_path(str(resolved)) == resolved
    assert resolve_path(resolved) is resolved


def test_only_the_resolver_makes_a_path() -> None:
    """A WorkspacePath is a proof that its text was checked, so nobody else may make one."""
    with pytest.raises(TypeError):
        WorkspacePath(("..",), object())
    with pytest.raises(TypeError):
        WorkspacePath(("a",), None)


def test_name_parent_and_child() -> None:
    """A path is walked without text: the root is its own parent and has no name."""
    path = resolve_path("a/b")
    assert (path.name, str(path.parent), str(path.child("c"))) == ("b", "a", "a/b/c")
    root = resolve_path(".")
    assert (root.name, root.parent, str(root.child("c"))) == ("", root, "c")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "\udcb2", ".agentscope-runtime", "~x"])
def test_a_child_is_one_name(name: str) -> None:
    """A name that a directory lists leads nowhere but into that directory."""
    with pytest.raises(PathRefused):
        resolve_path(".").child(name)


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        (".agentscope-runtime", True),
        (".AGENTSCOPE-Runtime", True),
        (".agent\u017fcope-runtime", True),
        (".agentscope\u200b-run\ufefftime", True),
        (".agentscope-tmp-77", True),
        (".agentscope-runtime2", False),
        ("agentscope-runtime", False),
        ("", False),
    ],
)
def test_reserved_names(name: str, reserved: bool) -> None:
    """The runtime folder is out of reach under each name by which some file system would find it."""
    assert is_reserved(name) is reserved


def test_messages_show_a_path_in_one_short_line() -> None:
    """A path in a message cannot forge lines of a log, nor fill it."""
    assert shown("a\nb\ud83d\u202e") == "'a\\nb\\ud83d\\u202e'"
    assert len(shown("x" * 10_000)) == 201
