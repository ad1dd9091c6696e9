"""Rules for paths: compared as written and as what they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.permissions import DangerousPaths, paths
from agentscope_rx.permissions.paths import PathTarget
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace


async def target(path: Any, **options: Any) -> PathTarget:
    found = await paths(InMemoryWorkspace(), "path", **options)({"path": path})
    assert isinstance(found, PathTarget)
    return found


@pytest.mark.parametrize(
    ("path", "content", "fits"),
    [
        ("src/a.py", "src/**", True),
        ("src/a.py", "*.py", True),
        ("src/a.py", "/*.py", False),
        ("./src/../secrets/k", "secrets/**", True),
        ("src/../../x", "src/**", False),
        ("src/a.py", "src", False),
        ("src/a.py", "[", False),
        ("src/a.py", " ", False),
    ],
)
async def test_what_is_allowed(path: str, content: str, fits: bool) -> None:
    """A path is compared without its detours; a broken pattern allows nothing, nor is a refused path allowed."""
    assert (await target(path)).covered_by([content]) is fits


@pytest.mark.parametrize(
    ("path", "content", "fits"),
    [
        ("secrets/k", "secrets/**", True),
        ("SECRETS/k", "secrets/**", True),
        ("src/a.py", "secrets/**", False),
        ("src/a.py", " ", True),
        ("../x", "secrets/**", True),
        (5, "secrets/**", True),
        ("src/ﬁle", "src/file", True),
    ],
)
async def test_what_is_denied(path: Any, content: str, fits: bool) -> None:
    """Case and compatible letters make no difference; what cannot be compared may be meant."""
    assert (await target(path)).touched_by(content) is fits


async def test_links_do_not_hide_a_file(tmp_path: Path) -> None:
    """Both what was written and what it leads to have to be allowed; one is enough to be denied."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "open").symlink_to(tmp_path / "secrets")
    found = await paths(LocalWorkspace(tmp_path), "path", edits=True)({"path": "open/k"})
    assert isinstance(found, PathTarget)
    assert found.names == ("open/k", "secrets/k")
    assert found.touched_by("secrets/**")
    assert not found.covered_by(["open/**"])
    assert found.covered_by(["open/**", "secrets/**"])
    assert not found.edits_inside(["open"])
    assert found.edits_inside(["open", "secrets"])
    assert found.suggestions == ("open/**", "secrets/**")


@pytest.mark.parametrize(
    ("path", "content", "touched", "covered"),
    [
        (".", "secrets/**", True, False),
        (None, "secrets/**", True, False),
        (".", "**", True, True),
        ("src", "secrets/**", False, False),
        ("src", "src/**", True, True),
        ("src/deep", "src/**", True, True),
        ("src", "src/deep/**", True, False),
        ("src", "src/*", True, False),
        ("src", "*.py", True, False),
        ("src", "s*/k", True, False),
        ("src", "src/a.py", True, False),
    ],
)
async def test_a_tool_that_goes_through_directories(path: Any, content: str, touched: bool, covered: bool) -> None:
    """It is about all that lies below: a rule about some of that denies it, and only one about all of it allows it."""
    found = await target(path, tree=True)
    assert (found.touched_by(content), found.covered_by([content])) == (touched, covered)


async def test_edits_inside_directories() -> None:
    """Only what edits, and only inside, by whole names."""
    assert (await target("src/a", edits=True)).edits_inside(["src"])
    assert (await target("src", edits=True)).edits_inside(["src/"])
    assert (await target("a", edits=True)).edits_inside(["."])
    assert not (await target("srcx/a", edits=True)).edits_inside(["src"])
    assert not (await target("src/a")).edits_inside(["src"])
    assert not (await target("../a", edits=True)).edits_inside(["."])


async def test_dangerous_files() -> None:
    """A change of them is a danger, whatever their case and depth; a look is none, and a tool may have its own list."""
    for path in (".env", "app/.ENV", ".git/hooks/x", "a/.ssh/id", "home/.bashrc"):
        assert path in (await target(path, edits=True)).danger
        assert (await target(path)).danger == ""
    assert (await target("src/env.py", edits=True)).danger == ""
    own = DangerousPaths(files=frozenset({"prod.yaml"}), directories=frozenset())
    assert (await target("a/prod.yaml", edits=True, dangerous=own)).danger
    assert (await target(".env", edits=True, dangerous=own)).danger == ""


@pytest.mark.parametrize(
    ("path", "tree", "suggested"),
    [
        ("src/a.py", False, ("src/**",)),
        ("a.py", False, ("/a.py",)),
        ("we[i]rd/a", False, ("we[[]i]rd/**",)),
        ("{a,b}/x", False, ()),
        ("../x", False, ()),
        ("src", True, ("src/**",)),
        (".", True, ("**",)),
    ],
)
async def test_suggestions(path: str, tree: bool, suggested: tuple[str, ...]) -> None:
    """What is suggested allows the very call."""
    found = await target(path, tree=tree)
    assert found.suggestions == suggested
    assert not suggested or found.covered_by(suggested)
