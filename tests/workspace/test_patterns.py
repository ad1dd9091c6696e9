"""Glob patterns mean what a shell's do, and cost little whatever they are."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.workspace.patterns import PathPattern


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", "src/deep/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("/*.py", ["a.py"], ["src/a.py"]),
        ("./*.py", ["a.py"], ["src/a.py"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/b/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py", "src/a.txt"]),
        ("**/test_*.py", ["test_a.py", "tests/x/test_b.py"], ["tests/b.py"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a"]),
        ("**", ["a", "a/b"], []),
        ("**/a/**/b", ["a/b", "x/a/y/z/b"], ["b", "a", "a/b/c"]),
        ("*.{ts,tsx}", ["a.ts", "x/a.tsx"], ["a.js", "a.{ts,tsx}"]),
        ("{src,lib}/{a,{b,c}}.py", ["src/a.py", "lib/c.py"], ["src/d.py"]),
        ("{a}", ["{a}"], ["a"]),
        ("[ab]?.md", ["a1.md", "b2.md"], ["c1.md", "a.md"]),
        ("[!ab].md", ["c.md"], ["a.md"]),
        ("[", ["["], ["a"]),
        ("A.md", ["A.md"], ["a.md"]),
        ("a.md", [], ["aXmd"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], does_not: list[str]) -> None:
    """Each kind of wildcard finds what it should and nothing else."""
    compiled = PathPattern(pattern)
    assert [path for path in fits + does_not if compiled.matches(path)] == fits


@pytest.mark.parametrize("pattern", ["", "  ", "a" * 1001, "{a,b}" * 7])
def test_patterns_have_limits(pattern: str) -> None:
    """A pattern that means nothing, or too much, is refused."""
    with pytest.raises(ValueError):
        PathPattern(pattern)


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 300 + "b", "*?" * 60 + "b", "**/*a*a*a/" * 20 + "b"])
@pytest.mark.timeout(5)
def test_no_pattern_takes_long(pattern: str) -> None:
    """A pattern comes from a model, so none may take a time that grows like a power of its length."""
    assert not PathPattern(pattern).matches("a" * 250)
    assert not PathPattern(pattern).matches("/".join(["a" * 50] * 50))


@pytest.mark.parametrize(
    ("pattern", "directory", "may"),
    [
        ("*.py", "a/b", True),
        ("src/*.py", "src", True),
        ("src/*.py", "src/a", False),
        ("src/*.py", "docs", False),
        ("src/**", "src/a/b", True),
        ("src/**/test/*.py", "src/a/b", True),
        ("src/**/test/*.py", "lib", False),
        ("**/a.py", "x/y/z", True),
        ("{a,b}/c", "b", True),
        ("{a,b}/c", "c", False),
        ("a/b", "a/b", False),
    ],
)
def test_directories_in_which_nothing_fits_are_known(pattern: str, directory: str, may: bool) -> None:
    """A walk saves itself what the pattern rules out."""
    assert PathPattern(pattern).may_match_below(directory) is may


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "*", "**", "?", "a*"]), min_size=1, max_size=5).map("/".join),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=2, max_size=5),
)
def test_no_path_that_fits_is_lost(pattern: str, names: list[str]) -> None:
    """Every directory on the way to a path that fits may hold something."""
    compared = PathPattern(pattern)
    if compared.matches("/".join(names)):
        assert all(compared.may_match_below("/".join(names[:depth])) for depth in range(1, len(names)))


def fits_slowly(parts: list[str], names: list[str]) -> bool:
    """What a pattern means, said as shortly as possible and however long it takes."""
    if not parts:
        return not names
    if parts[0] == "**":
        return (len(parts) == 1 and bool(names)) or any(
            fits_slowly(parts[1:], names[taken:]) for taken in range(len(names) + 1) if len(parts) > 1
        )
    return bool(names) and fnmatchcase(names[0], parts[0]) and fits_slowly(parts[1:], names[1:])


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "*", "**", "?", "a*"]), min_size=2, max_size=5),
    st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4),
)
def test_the_names_that_fit_in_a_directory(parts: list[str], directory: list[str]) -> None:
    """Asked about all names of a directory at once, a pattern says what it says about each path."""
    pattern, names = PathPattern("/".join(parts)), ["a", "b", "ab", "c"]
    expected = [name for name in names if fits_slowly(parts, [*directory, name])]
    assert pattern.fitting("/".join(directory), names) == expected
    assert [name for name in names if pattern.matches("/".join([*directory, name]))] == expected
