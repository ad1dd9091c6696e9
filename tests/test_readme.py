"""The README is true: its programs run, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The code blocks in one language."""
    return [code for kind, code in BLOCKS.findall(README.read_text(encoding="utf-8")) if kind == language]


def test_the_first_agent_runs_and_prints_its_pipeline(tmp_path: Path) -> None:
    """The first program runs as it stands, and its pipeline is the one that is shown."""
    command = [sys.executable, "-c", blocks("python")[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    shown = next(block for block in blocks("text") if block.startswith("step\n"))
    assert shown.strip() in done.stdout
    assert done.stdout.startswith("The export works. None\nIt was a rounding error.\nthe request: ")
    assert done.stderr == ""


def test_the_operators_run() -> None:
    """The operators of the README fit into a pipeline and do what they say."""
    program = next(block for block in blocks("python") if "history_operator" in block) + (
        "from agentscope_rx import ReActAgent\n"
        "from agentscope_rx.testing import ScriptedModel\n"
        "model = ScriptedModel([str(n) for n in range(50)])\n"
        "builder = ReActAgent.builder(name='a', model=model).pipeline(\n"
        "    lambda p: p.insert_after('assemble_request', with_the_rule)"
        ".insert_after('with_the_rule', forget_the_beginning))\n"
        "for n in range(45):\n"
        "    builder.call('x').run()\n"
        "print(len(model.requests[-1].conversation) <= 41, 'Export columns' in model.requests[-1].tail[0].text)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_the_long_conversation_runs(tmp_path: Path) -> None:
    """Its program compacts, expands and undoes, and prints what it says."""
    program = next(block for block in blocks("python") if "undo_compaction" in block)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "compacted: 3 messages are 2\nreplaced: A question.\n"
    assert done.stderr == ""


def test_the_files_of_two_users(tmp_path: Path) -> None:
    """The program about files runs, and each user sees what is theirs."""
    program = next(block for block in blocks("python") if "agent.files(" in block)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "alice ['AGENTS.md', 'notes.md']\nbob []\n"


def test_the_workspaces_of_the_docs(tmp_path: Path) -> None:
    """The program of docs/workspaces.md runs, and each user sees what is theirs."""
    page = (README.parent / "docs" / "workspaces.md").read_text(encoding="utf-8")
    (program,) = [code for kind, code in BLOCKS.findall(page) if kind == "python"]
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "alice ['AGENTS.md', 'notes.md']\nbob ['AGENTS.md']\n"
    assert done.stderr == ""


def test_the_memory_runs() -> None:
    """Its program remembers over two sessions, and tells of it."""
    program = next(block for block in blocks("python") if "FlushTrigger" in block)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    flush, consolidation, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"memory_flush \{.*'path': 'memory/[0-9-]{10}\.md', 'facts': 1, 'calls': 1\}", flush)
    assert consolidation == "memory_consolidation {'ledgers': 1, 'archived': 0}"
    assert rest == ["Tom.", "# Home", "- lives in Bonn", "- has a cat, Tom", ""]
    assert done.stderr == ""


def test_the_approval_runs() -> None:
    """The program about permissions asks, is answered, and goes on."""
    approval = next(block for block in blocks("python") if "agent.respond" in block)
    program = approval + "\n\nimport asyncio\nasyncio.run(publish())\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "PERMISSION_ASKING",
        "execute {'command': 'npm publish'} allow execute(npm publish)",
        "Published.",
    ]


def test_the_handlers_run() -> None:
    """The handlers behind HTTP give the question as it is written down, take the answer, and go on."""
    asking = next(block for block in blocks("python") if "agent.respond" in block).partition("async def publish")[0]
    program = (
        asking
        + next(block for block in blocks("python") if "def post_answers" in block)
        + (
            "print(builder.call('Publish it.', RuntimeContext(session_id='s')).run().reason)\n"
            "print(get_pending('s').decode()[:50])\n"
            'print(post_answers(\'s\', b\'{"answers": {"c1": {"type": "confirmation", "confirmed": true}}}\'))\n'
        )
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "PERMISSION_ASKING",
        '{"version":1,"pending":[{"call":{"type":"tool_use"',
        "Published.",
    ]


def test_its_make_targets_exist() -> None:
    """Every make target that the README names is in the Makefile."""
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z-]+)", README.read_text(encoding="utf-8"))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_recorded_run_replays(tmp_path: Path) -> None:
    """Its program records, replays and asks what if, and prints what it says."""
    program = next(block for block in blocks("python") if "Recorder(" in block)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == next(block for block in blocks("text") if block.startswith("step 0: system"))
    assert done.stderr == ""


def test_the_session_becomes_a_recording(tmp_path: Path) -> None:
    """Its program serves a session, makes a recording of it and asks what if, and prints what it says."""
    program = next(block for block in blocks("python") if "SessionRecorder()" in block)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == next(block for block in blocks("text") if block.startswith("alice.jsonl"))
    assert done.stderr == ""
