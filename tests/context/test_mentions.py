"""`@path` in what a user says: which words are paths, what comes of them, and what never does."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx import InMemoryWorkspace, Msg, PermissionRule, RuntimeContext
from agentscope_rx.context.mentions import attached, mentioned_paths
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.history import History
from agentscope_rx.messages import DataBlock, Role, TextBlock, URLSource
from agentscope_rx.operators import Operator, Step, attach_files
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.testing import a_step, calls, check_operator
from agentscope_rx.testing.fake_provider import tool_calls
from agentscope_rx.workspace import resolve_path
from tests.context.support import ALICE, BOB, data_of, harness, manifests, model_of, scripted
from tests.support import watch
from tests.virtual import virtual

FILES = {"src/app.py": 'print("a < b")', "README.md": "Read me.", "my notes.md": "Tea.", "secrets/key.txt": "top"}


def last_said(agent: HarnessAgent) -> list[str]:
    """The texts of the newest user message that the model has read."""
    (message,) = [each for each in model_of(agent).requests[-1].conversation.messages if each.role is Role.USER][-1:]
    return [block.text for block in message.content if isinstance(block, TextBlock)]


# -- which words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Look at @src/app.py.", ["src/app.py"]),
        ("@./a @/srv/x/b, @~/c; (@d/e) '@f.g' [@h/i]", ["./a", "/srv/x/b", "~/c", "d/e", "f.g", "h/i"]),
        ('@"my notes.md" and @"plain"', ["my notes.md", "plain"]),
        ("@README.md? @README.md!", ["README.md"]),
        ("@alice, mail bob@example.org or a@b/c", []),
        ("@ @. @/ @\"\" @''", ["/"]),
        ("first\n@a/b\n\t@c/d", ["a/b", "c/d"]),
        ("@app/会话.txt", ["app/会话.txt"]),
        ("看@文档/说明.md。（@a.md）、@b.md，「@c.md」", ["文档/说明.md", "a.md", "b.md", "c.md"]),
        ('@😀/笑.md! @"笔记，一.md"', ["😀/笑.md", "笔记，一.md"]),
        ("**@a.py** @b.py,@c.py;@d.py and @e.py—so", ["a.py", "b.py", "c.py", "d.py", "e.py"]),
        ("@property @dataclass(frozen=True) @f() é@b.org a.b@c.d", []),
        ("@f(1).txt @[id].tsx @app.get('/x')", ["f(1).txt", "[id].tsx", "app.get"]),
    ],
)
def test_which_words_are_paths(text: str, paths: list[str]) -> None:
    """A mention begins a word; names of people and addresses are none; punctuation behind it is not part of it."""
    assert list(mentioned_paths(text)) == paths


@given(st.text(max_size=200))
def test_any_text_can_be_looked_through(text: str) -> None:
    """Nothing raises, no path is blank, and what closes the tag of an attachment is never in one."""
    assert all(path.strip() for path in mentioned_paths(text))
    body = attached(resolve_path("a"), f"{text}</attached_file>{text}</ATTACHED_FILE >")
    assert body.lower().count("</attached_file") == 1
    assert body.endswith("\n</attached_file>")


# -- what comes of them -------------------------------------------------------------------------------------


@virtual
async def test_mentioned_files_stand_behind_the_message() -> None:
    """Letter by letter, each once, in the request and in the history; the message itself stays as it was."""
    agent = scripted(workspace=InMemoryWorkspace(FILES)).build()
    await agent.call('Compare @src/app.py with @./src/../README.md, @"my notes.md" and @src/app.py.', ALICE)
    said = last_said(agent)
    assert said == [
        'Compare @src/app.py with @./src/../README.md, @"my notes.md" and @src/app.py.',
        '<attached_file path="src/app.py">\nprint("a < b")\n</attached_file>',
        '<attached_file path="README.md">\nRead me.\n</attached_file>',
        '<attached_file path="my notes.md">\nTea.\n</attached_file>',
    ]
    first = next((await agent.state(ALICE)).context.messages)
    assert first.metadata["agentscope.attached_files"] == ["src/app.py", "README.md", "my notes.md"]


@virtual
async def test_a_file_is_read_once() -> None:
    """What was said stays what was read then, through further steps and calls; a later mention reads it anew."""
    files = InMemoryWorkspace({"a.txt": "old"})
    agent = scripted(calls(("c1", "nothing", "{}")), "done", "done", "done", workspace=files).build()
    await agent.call("See @a.txt.", ALICE)
    await files.write("a.txt", b"new")
    await agent.call("Go on.", ALICE)
    messages = [*model_of(agent).requests[-1].conversation.messages]
    assert [block.text for block in messages[0].content if isinstance(block, TextBlock)][1].count("old") == 1
    await agent.call("And now @a.txt?", ALICE)
    assert "new" in last_said(agent)[1]


@virtual
async def test_only_the_beginning_of_a_long_file() -> None:
    """1,000 lines, and a note that says how to go on; of very long lines 64 KiB."""
    long = "\n".join(f"line {number}" for number in range(5_000))
    agent = scripted(workspace=InMemoryWorkspace({"long.txt": long, "wide.txt": "x" * 1_000_000})).build()
    await agent.call("@long.txt @wide.txt", ALICE)
    _, first, second = last_said(agent)
    assert first.startswith('<attached_file path="long.txt">\nline 0\n')
    assert "line 999\n[Lines 1 to 1000 shown" in first
    assert len(second) < 66_000
    assert "was cut" in second


@virtual
async def test_a_file_says_nothing_to_terminals() -> None:
    """Its escapes are taken out, as those in results of tools are; a picture or an archive is named, and not shown."""
    files = InMemoryWorkspace({"a.txt": "\x1b[31mred\x1b[0m", "b.bin": "top\0secret"})
    agent = scripted(workspace=files).build()
    await agent.call("@a.txt @b.bin", ALICE)
    _, first, second = last_said(agent)
    assert first == '<attached_file path="a.txt">\nred\n</attached_file>'
    assert "is binary" in second
    assert "secret" not in second


@virtual
async def test_what_cannot_be_read_stays_a_word() -> None:
    """The call goes on, what can be read is there, and the manifest says what was not and why."""
    agent = scripted(workspace=InMemoryWorkspace(FILES)).build()
    seen = await watch(agent, "@nothing/here @src @../x @README.md", ALICE)
    assert [text[:31] for text in last_said(agent)[1:]] == ['<attached_file path="README.md"']
    (manifest,) = manifests(seen)
    reasons = [change["reason"] for change in data_of(manifest)["changes"] if change["operator"] == "attach_files"]
    assert [reason for reason in reasons if reason.startswith("not_attached")] == [
        "not_attached:'nothing/here':FileNotFoundError",
        "not_attached:'../x':PathRefused",
    ]


@virtual
async def test_other_blocks_and_several_messages() -> None:
    """Each message has its own files; pictures stay where they are; at most 20 files come along with one."""
    files = {f"d/{number}.txt": str(number) for number in range(30)}
    agent = scripted(workspace=InMemoryWorkspace({**FILES, **files})).build()
    picture = DataBlock(source=URLSource(url="https://example.org/a.png"))
    many = " ".join(f"@{path}" for path in files)
    await agent.call([Msg.user("See @README.md", picture), Msg.user(many)], ALICE)
    first, second = [each for each in model_of(agent).requests[-1].conversation.messages if each.role is Role.USER]
    assert [type(block) for block in first.content] == [TextBlock, DataBlock, TextBlock]
    assert len(second.content) == 21


@virtual
async def test_words_that_are_no_files_take_no_place_of_files() -> None:
    """Pasted code is full of them; what is more than a limit is told, and no file of it is read."""
    files = {f"d/{number}.txt": str(number) for number in range(30)}
    agent = scripted(workspace=InMemoryWorkspace(files)).build()
    code = " ".join(f"@pytest.mark.m{number}" for number in range(50))
    many = " ".join(f"@{path}" for path in files)
    for said, attached_files, more in ((f"{code} {many}", 20, 10), (f"{code} {code.replace('m', 'n')} {many}", 0, 30)):
        seen = await watch(agent, said, ALICE)
        assert len(last_said(agent)) == 1 + attached_files
        changes = data_of(manifests(seen)[0])["changes"]
        assert [each["reason"] for each in changes if "limit" in str(each["reason"])] == [
            f"not_attached:{more} more:limit"
        ]


async def test_hostile_mentions_in_requests(tmp_path: Path) -> None:
    """What a provider gets of them, letter by letter: the files that may be read, and of all others nothing."""
    folder = tmp_path / "ws"
    for path in ("ws/.agentscope-runtime", "ws/文档", "out", "ws/sub"):
        (tmp_path / path).mkdir(parents=True)
    files = {
        "文档/说明.md": "会话",
        "😀.txt": "smile",
        "a b.md": "spaces",
        "sub/y.txt": "inside",
        "calls.txt": "see @sub/y.txt",
    }
    for path, content in files.items():
        (folder / path).write_text(content)
    (folder / ".agentscope-runtime/log").write_text("top secret")
    (tmp_path / "out/secret.txt").write_text("top secret")
    (folder / "out").symlink_to("../out")
    (folder / "ok").symlink_to("sub")
    (folder / "huge.bin").touch()
    os.truncate(folder / "huge.bin", 1 << 40)
    outside = " ".join(
        f"@{path}" for path in ["out/secret.txt", "../out/secret.txt", f"{tmp_path}/out/secret.txt", *OUTSIDE]
    )
    names = '看@文档/说明.md。@😀.txt @"a b.md" @ok/y.txt @./ok/y.txt @huge.bin @sub @calls.txt b@sub/y.txt'
    said = f"{names} {outside}"
    reading = tool_calls(("c1", "read_file", '{"path": "calls.txt"}'))
    async with harness(reading, "See @sub/y.txt.", "done", workspace=folder, filesystem_tools=True) as (
        agent,
        provider,
    ):
        await agent.call(said, ALICE)
        (folder / "sub/y.txt").write_text("changed")
        await agent.call("Go on.", ALICE)
    first, second, third = ([m for m in request.messages if m["role"] == "user"] for request in provider.requests)
    assert first[0]["content"].startswith(said)
    found = re.findall(r'<attached_file path="(.+?)">\n(.*?)\n</attached_file>', first[0]["content"], re.DOTALL)
    assert [path for path, _ in found] == ["文档/说明.md", "😀.txt", "a b.md", "ok/y.txt", "huge.bin", "calls.txt"]
    shown = {**files, "ok/y.txt": files["sub/y.txt"]}
    assert all(text == shown[path] for path, text in found if path != "huge.bin")
    assert first[0] == second[0] == third[0]  # as they were when they were mentioned
    assert all(b"top secret" not in request.raw for request in provider.requests)
    assert all(len(request.raw) < 200_000 for request in provider.requests)


@virtual
async def test_what_tools_and_models_say_is_no_mention() -> None:
    """Only what users say is looked through."""
    files = InMemoryWorkspace({**FILES, "a.txt": "@README.md"})
    agent = scripted(
        calls(("c1", "read_file", '{"path": "a.txt"}')), "See @README.md.", workspace=files, filesystem_tools=True
    ).build()
    await agent.call("Look.", ALICE)
    assert not [m for m in (await agent.state(ALICE)).context.messages if "attached_file" in m.text]


# -- what never does ----------------------------------------------------------------------------------------

OUTSIDE = [
    *("../out/secret.txt", "/etc/passwd", "~/.bashrc", "link", "link/secret.txt", ".agentscope-runtime/log"),
    *(".agentscope-isolated", "..\\out\\secret.txt", "pipe", "./pipe", "/dev/zero", "a\u2028b/c"),
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_mention_leads_out(tmp_path: Path, path: str) -> None:
    """As for the tools; the message stays as it was, and nothing hangs."""
    for folder in ("ws/.agentscope-runtime", "out"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "out/secret.txt").write_text("top")
    (tmp_path / "ws/.agentscope-runtime/log").write_text("top")
    (tmp_path / "ws/link").symlink_to("../out")
    os.mkfifo(tmp_path / "ws/pipe")
    agent = scripted(workspace=tmp_path / "ws").build()
    seen = await watch(agent, f"Look at @{path} now", RuntimeContext(session_id="s"))
    assert seen.error is None
    assert last_said(agent) == [f"Look at @{path} now"]


async def test_absolute_paths_below_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are paths of the workspace, of the project, or of a home that one of them lies in."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "ws/a.txt").write_text("A")
    (tmp_path / "project/b.txt").write_text("B")
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = scripted(workspace=tmp_path / "ws", project=tmp_path / "project").build()
    await agent.call(f"@{tmp_path}/ws/a.txt @~/project/b.txt", RuntimeContext(session_id="s"))
    assert [text.splitlines()[1] for text in last_said(agent)[1:]] == ["A", "B"]


async def test_nobody_mentions_the_files_of_another(tmp_path: Path) -> None:
    """A user reaches neither another one's files nor the results of other sessions."""
    agent = scripted(workspace=tmp_path).build()
    await agent.files(ALICE).write("notes/a.txt", b"alice's")
    own = next(tmp_path.rglob("a.txt"))
    await agent.call(f"@notes/a.txt @{own} @{own.relative_to(tmp_path)}", BOB)
    assert len(last_said(agent)) == 1
    await agent.call("@notes/a.txt", ALICE)
    assert "alice's" in last_said(agent)[1]


@virtual
async def test_what_the_model_may_not_read_is_not_attached() -> None:
    """A deny rule for `read_file` holds; a question would only ask the one who has named the file."""
    rules = [PermissionRule.deny("read_file", "secrets/**"), PermissionRule.ask("read_file", "README.md")]
    agent = scripted(workspace=InMemoryWorkspace(FILES), permission_rules=rules, permission_mode="dont_ask").build()
    await agent.call("@secrets/key.txt @README.md", ALICE)
    assert "top" not in json.dumps(last_said(agent))
    assert "Read me." in last_said(agent)[1]


@virtual
async def test_it_can_be_switched_off() -> None:
    """Then there is no operator for it, and what was said is what was said."""
    builder = scripted(workspace=InMemoryWorkspace(FILES)).disable_at_path_expansion()
    agent = builder.build()
    await agent.call("@README.md", ALICE)
    assert last_said(agent) == ["@README.md"]
    assert "attach_files" not in agent.pipeline.names
    with pytest.raises(InvalidOption, match="at_path_expansion"):
        builder.at_path_expansion("yes")  # type: ignore[arg-type]


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator, with a mention and without."""

    class Broken(InMemoryWorkspace):
        async def read(self, path: Any, *, offset: int = 0, limit: int | None = None) -> Any:
            raise RuntimeError("no")

    def making(files: InMemoryWorkspace) -> Operator:
        return attach_files(files_of=lambda _: files, permissions=PermissionContextState())

    def mentioning(history: History) -> Step:
        return a_step(history=history.append(replace(Msg.user("See @README.md."), id="new")))

    await check_operator(lambda: making(InMemoryWorkspace(FILES)))
    await check_operator(lambda: making(InMemoryWorkspace(FILES)), step=mentioning, failing=lambda: making(Broken()))
