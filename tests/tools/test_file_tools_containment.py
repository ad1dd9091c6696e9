"""The file tools see what is in the workspace, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.errors import PathRefused
from agentscope_rx.tools.file_tools import NO_MATCHES, FileTools
from agentscope_rx.workspace import LocalWorkspace


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ("read_file", "link/secret.txt"),
        ("read_file", "file"),
        ("read_file", "../out/secret.txt"),
        ("read_file", "/etc/hostname"),
        ("read_file", "loop"),
        ("list_files", "link"),
        ("grep_files", "link"),
        ("grep_files", "file"),
    ],
)
async def test_no_tool_leads_out_of_the_workspace(tmp_path: Path, tool: str, path: str) -> None:
    """O31: links that lead out are refused by every tool, and none shows them; a link inside works."""
    for folder in ("ws/sub", "out"):
        (tmp_path / folder).mkdir(parents=True)
    for file, text in {"ws/in.txt": "in", "ws/sub/y.txt": "y", "out/secret.txt": "top"}.items():
        (tmp_path / file).write_text(text)
    for link, target in {
        "link": "../out",
        "ok": "./sub",
        "file": "../out/secret.txt",
        "loop": "loop",
    }.items():
        (tmp_path / "ws" / link).symlink_to(target)
    made = FileTools(LocalWorkspace(tmp_path / "ws"))
    with pytest.raises(PathRefused):
        await (made.grep_files("top", path) if tool == "grep_files" else getattr(made, tool)(path))
    assert await made.read_file("ok/y.txt") == "y"
    assert await made.list_files() == "[FILE] in.txt (2 bytes)\n[DIR] ok\n[DIR] sub"
    assert await made.grep_files("o") == NO_MATCHES
