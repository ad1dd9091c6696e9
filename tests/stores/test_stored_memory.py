"""The memory of agents on many machines, whose files are in a database, in Redis or in a bucket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.workspace import FileKind, WorkspaceFS
from tests.buckets import S3Server
from tests.memory.flushing import flush_at_once
from tests.memory.support import ALICE, WATERMARK, Writer, finished, prompts, remembering, text_of
from tests.stores.places import Reachable, workspace_at

BOB = RuntimeContext(user_id="bob", session_id="s2")
_numbers = count(1)


@pytest.fixture(params=["sqlite", "postgres", "redis", "mysql", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of a workspace, as another process can be told."""
    match request.param:
        case "sqlite":
            return f"sql sqlite:///{tmp_path}/files.db"
        case "postgres":
            return f"sql {request.getfixturevalue('postgres')()}"
        case "redis":
            return f"redis memory-{next(_numbers)}: {request.getfixturevalue('redis_url')}"
        case "mysql":
            return f"sql {request.getfixturevalue('mysql')}"
        case _:
            server: S3Server = request.getfixturevalue("s3")
            bucket = server.bucket()
            return f"fsspec {bucket.url} {json.dumps(bucket.options)}"


def agents(place: str, writer: Writer, *answers: object, **options: object) -> HarnessBuilder:
    """Agents on the workspace, as a process of their own would have it."""
    own = {"state_store": Reachable(), "runtime": Runtime()}
    return remembering(writer, *answers, files=workspace_at(place), **own, **options)


async def noted(place: str) -> None:
    """Say that the memory was consolidated just now."""
    mark: dict[str, object] = {"at": datetime.now(UTC).isoformat(), "ledgers": {}}
    await workspace_at(place).write(WATERMARK, json.dumps(mark).encode())


async def files_below(workspace: WorkspaceFS, path: str) -> list[str]:
    found: list[str] = []
    for entry in await workspace.list(path):
        below = await files_below(workspace, str(entry.path)) if entry.kind is FileKind.DIRECTORY else [str(entry.path)]
        found += below
    return found


async def facts_in(place: str, paths: Sequence[str]) -> list[str]:
    text = "\n".join([await text_of(workspace_at(place), path) for path in paths])
    return [line for line in text.splitlines() if line.startswith("- ")]


async def test_facts_are_written_down_once(place: str) -> None:
    """What is known already is not written again, by whichever machine; both read what the other has found."""
    await noted(place)
    for context, facts in ((ALICE, "- likes tea"), (BOB, "- likes tea\n- met Bo")):
        agent = agents(place, Writer([facts])).build()
        await agent.call("Hello.", context)
        await finished(agent)
    assert await facts_in(place, await files_below(workspace_at(place), "memory")) == ["- likes tea", "- met Bo"]


async def test_the_memory_is_written_anew_and_old_days_are_archived(place: str) -> None:
    """From the ledgers, which the model reads as far as they are new; the other machine's agent sees it."""
    workspace = workspace_at(place)
    await workspace.write("MEMORY.md", b"- likes tea\n")
    await workspace.write("memory/2025-01-01.md", b"- met Bo\n")
    writer = Writer(["- likes tea\n- knows Bo"])
    memory = {"flush_trigger": "never", "daily_file_retention_days": 30, "consolidation_min_gap": timedelta(0)}
    agent = agents(place, writer, memory=memory).build()
    for _ in range(2):
        await agent.call("Hello.", ALICE)
        await finished(agent)
    assert await text_of(workspace, "MEMORY.md") == "- likes tea\n- knows Bo\n"
    assert "- met Bo" in prompts(writer)[0]
    assert len(writer.requests) == 1
    assert await files_below(workspace, "memory") == [WATERMARK, "memory/archive/2025-01-01.md"]
    own = ScriptedModel(["hello"])
    await agents(place, Writer(), memory=memory).model(own).build().call("And?", BOB)
    assert "knows Bo" in "".join(message.text for message in own.requests[0].tail)


async def test_users_do_not_see_each_others_facts(place: str) -> None:
    """Neither in a request, nor by a tool, nor through the model that keeps the memory; what all share is seen."""
    await noted(place)
    await workspace_at(place).write("MEMORY.md", b"- the office is in Bonn\n")
    looks = calls(("c1", "memory_search", '{"query": "secret"}'))
    own = ScriptedModel(["hello", "hello", looks, "nothing", "hello"])
    writer = Writer(["- secret of alice", "- secret of bob"])
    agent = agents(place, writer, isolation="user").model(own).build()
    for context in (ALICE, BOB, BOB, ALICE):
        await agent.call("Hello.", context)
        await finished(agent)
    result = str([*own.requests[3].conversation.messages][-1])
    assert "secret of bob" in result
    assert "secret of alice" not in result
    assert not any("alice" in prompt for prompt in prompts(writer)[1:3])
    assert all("in Bonn" in prompt for prompt in prompts(writer))
    assert await files_below(workspace_at(place), "memory") == [WATERMARK]


@pytest.mark.timeout(180)  # two processes, and a server that takes one request at a time
async def test_processes_that_write_at_once_lose_nothing(place: str) -> None:
    """Each fact of each is in the user's memory, and what all have found is there once."""
    await noted(place)
    names, asked = ("one", "two"), 4
    await flush_at_once(place, names, asked, "alice")
    ledgers = [path for path in await files_below(workspace_at(place), ".") if path.endswith(".md")]
    assert not any(path.startswith("memory/") for path in ledgers)
    assert sorted(await facts_in(place, ledgers)) == sorted(
        f"- {name} said {number}" for name in (*names, "everybody") for number in range(asked)
    )
