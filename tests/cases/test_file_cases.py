"""Case O31: links that lead out of the workspace, played by an agent whose model tries them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import PermissionRule, RuntimeContext
from agentscope_rx.events import ToolResultEnd, ToolResultState
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing import fake_provider as fake
from tests.cases import case
from tests.cases.playing import check_pairs
from tests.context.support import data_of, harness, manifests
from tests.support import watch

O31 = case("O31")
TRIES: list[tuple[str, str]] = [(tool, path) for tool, path in O31["try"] if " " not in tool]
MORE = {
    "write_file": {"content": "new"},
    "edit_file": {"old_string": "top", "new_string": "bottom"},
}
#: What no request holds by chance.
SECRET = O31["tree"]["out/secret.txt"] + "-secret-of-o31"


def planted(root: Path) -> Path:
    """The tree of the case; gives the workspace."""
    for name, content in O31["tree"].items():
        path, _, target = name.partition(" -> ")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if target:
            (root / path).symlink_to(target)
        else:
            (root / path).write_text(content)
    (root / "out/secret.txt").write_text(SECRET)
    return root / "ws"


def is_untouched(out: Path) -> bool:
    """Whether nothing is new outside the workspace, and nothing is changed there."""
    return [(path.name, path.read_text()) for path in out.iterdir()] == [("secret.txt", SECRET)]


@pytest.mark.parametrize("user", [None, "alice"])
@pytest.mark.parametrize("place", ["workspace", "project"])
async def test_o31_only_what_stays_inside_succeeds(tmp_path: Path, place: str, user: str | None) -> None:
    """Each other call is a result marked as an error, and the run goes on; the deny rule holds through a link."""
    folder = planted(tmp_path)
    (folder / "sub/private").mkdir()
    (folder / "sub/private/z").write_text("private text")
    (tmp_path / "desk").mkdir()
    if place == "workspace":
        places: dict[str, Any] = {"workspace": folder}
    else:
        places = {"workspace": tmp_path / "desk", "project": folder, "project_writable": True}
    tried = fake.tool_calls(
        *((f"c{n}", tool, json.dumps({"path": path, **MORE.get(tool, {})})) for n, (tool, path) in enumerate(TRIES))
    )
    rules = [
        rule
        for verb, path in O31["rules"]
        for tool in ("read_file", "write_file", "edit_file", "list_files")
        for rule in [PermissionRule.allow(tool, path) if verb == "allow" else PermissionRule.deny(tool, path)]
    ]
    context = RuntimeContext(user_id=user, session_id="s1")
    async with harness(tried, "done", filesystem_tools=True, permission_rules=rules, **places) as (agent, provider):
        seen = await watch(agent, "Try them.", context)
    assert seen.error is None
    ended = {event.tool_call_id: event.state for event in seen.of(ToolResultEnd)}
    succeeded = [path for n, (_, path) in enumerate(TRIES) if ended[f"c{n}"] is ToolResultState.SUCCESS]
    assert succeeded == ["ok/y.txt"]
    check_pairs(provider.requests[1].body)
    told = [message["content"] for message in provider.requests[1].messages if message["role"] == "tool"]
    assert told[-1] == "y"
    assert ended[f"c{TRIES.index(('read_file', 'ok/private/z'))}"] is ToolResultState.DENIED
    assert not any(secret in each for each in told for secret in (SECRET, "private text", str(tmp_path)))
    assert is_untouched(tmp_path / "out")


async def test_o31_linked_workspace_files_are_refused_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither loaded nor overwritten: the instructions, and the memory that a flush would write."""
    folder = planted(tmp_path)
    for name in ("AGENTS.md", "MEMORY.md"):
        (folder / name).symlink_to("../out/secret.txt")
    memory = {"model": ScriptedModel(["- met Bo", "- met Bo, all of it"]), "consolidation_min_gap": 0}
    context = RuntimeContext(session_id="s1")
    async with harness("done", workspace=folder, memory=memory) as (agent, provider):
        seen = await watch(agent, "go", context)
    assert seen.error is None
    assert SECRET.encode() not in provider.requests[0].raw
    (manifest,) = manifests(seen)
    reasons = [change["reason"] for change in data_of(manifest)["changes"]]
    assert "file_refused:AGENTS.md:PathRefused" in reasons
    assert "workspace_file_refused" in caplog.text
    assert all((folder / name).is_symlink() for name in ("AGENTS.md", "MEMORY.md"))
    assert is_untouched(tmp_path / "out")
