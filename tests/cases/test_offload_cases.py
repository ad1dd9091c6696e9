"""Cases O04, O32 and O34: tool results that are too large, one by one or all together."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import ContextPolicy
from agentscope_rx.compaction import ToolResultEvictionConfig
from agentscope_rx.compactions import CompactionOutcome
from agentscope_rx.context.counting import counter_for
from agentscope_rx.errors import ContextBudgetExceeded
from agentscope_rx.history import Exchange
from agentscope_rx.messages import Msg
from agentscope_rx.stores import JsonFileStore, SessionKey
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply, from_case
from agentscope_rx.tools.file_tools import FileTools
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace
from tests.cases import case
from tests.cases.long_sessions import ALICE, LongSession, Script, conversation_of, long_session, options_of
from tests.cases.playing import CaseTool, calls_of
from tests.stores.conftest import Place
from tests.stores.places import store_at

ROOT = Path(__file__).parents[2]
POINTER = re.compile(r"kept in the file (\S+)\]")


def results_of(body: dict[str, Any]) -> dict[str, str]:
    """The results in a request, by the id of their call."""
    return {each["tool_call_id"]: each["content"] for each in body["messages"] if each["role"] == "tool"}


def pointers(texts: Sequence[str]) -> list[str]:
    """The files that results point to."""
    return [found[1] for text in texts if (found := POINTER.search(text))]


# -- together over the window -------------------------------------------------------------------------------


def cost(text: str) -> int:
    return Exchange(Msg.user(text)).measure(counter_for(None, "fake-model"))


async def test_o04_many_results_that_are_too_much_together(tmp_path: Path) -> None:
    """As many as it takes move into files, no more; all twelve stay paired, and each file holds the original."""
    the = case("O04")
    script = Script(the["model"], the["summary"])
    original = the["history"][2]["content"]
    limit = the["config"]["context_policy"]["max_input_tokens"]
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        seen = await session.watch(None)
        assert (seen.error, seen.result.text) == (None, "done")
        (body,) = session.main
        assert session.summary == []
        results = results_of(body)
        assert list(results) == [id for id, _, _ in calls_of(body)] == [f"p{i}" for i in range(1, 13)]
        moved = [text for text in results.values() if text != original]
        paths = pointers(moved)
        assert len(paths) == len(moved) >= 1
        preview = ToolResultEvictionConfig().preview_chars
        for path, text in zip(paths, moved, strict=True):
            assert (tmp_path / path).read_text() == original
            assert original[:preview] in text
            assert text.endswith(original[-preview:])
        (manifest,) = seen.manifests()
        assert (manifest.validation, list(manifest.transforms)) == ("passed", ["tool_result_offload"])
        assert manifest.input_limit == limit
        assert manifest.estimated_input_tokens <= limit
        assert manifest.estimated_input_tokens + cost(original) - cost(moved[0]) > limit
        assert manifest.compaction is not None
        assert manifest.compaction.outcome is CompactionOutcome.POSTPONED
        assert await session.said() == ["collect", " ".join(results), *results.values(), "done"]


async def test_o04_where_not_even_pointers_fit(tmp_path: Path) -> None:
    """ContextBudgetExceeded; nothing is sent, and the history is as it was."""
    the = case("O04")
    options: dict[str, Any] = {"context_policy": ContextPolicy(max_input_tokens=700)}
    async with long_session(tmp_path, Script([]), the["history"], **options) as session:
        before = await session.history()
        seen = await session.watch(None)
        assert isinstance(seen.error, ContextBudgetExceeded)
        assert session.provider.requests == []
        assert await session.history() == before
        assert [each.validation for each in seen.manifests()] == ["budget_exceeded"]
        # The session is as large as before, and so is what the next turn would send.
        session.builder = session.builder.context_policy(ContextPolicy())


# -- ids that are no file names -----------------------------------------------------------------------------


def o32() -> tuple[dict[str, Any], str, str]:
    """The case, its long id, and what the tool answers."""
    the = case("O32")
    return the, the["model"][0]["call"][0][0], the["tools"]["execute"]


def reading_back(the: dict[str, Any]) -> Any:
    """The case's replies, and between them one that reads the file that the notice names."""
    replies = [from_case(reply) for reply in the["model"]]

    def reply(request: RecordedRequest) -> ScriptedReply:
        results = results_of(request.body)
        if len(results) == 1:
            (path,) = pointers([*results.values()])
            return fake.tool_calls(("r1", "read_file", json.dumps({"path": path})))
        return replies.pop(0)

    return reply


async def test_o32_an_id_that_is_far_too_long_for_a_file_name(tmp_path: Path) -> None:
    """The result moves into a file with a short name that `read_file` gives back whole; the id stays what it was."""
    the, id, text = o32()
    execute = CaseTool("execute", text)
    files = FileTools(LocalWorkspace(tmp_path))
    options: dict[str, Any] = {"tools": [execute, files.read_file], **options_of(the["config"])}
    async with long_session(tmp_path, Script(reading_back(the)), make=lambda _: options) as session:
        seen = await session.watch("go")
        assert (seen.error, seen.result.text) == (None, "ok")
        assert len(execute.calls) == 1
        _, second, third = session.main
        assert calls_of(second) == [(id, "execute", "{}")]
        ((answered, notice),) = results_of(second).items()
        assert answered == id
        (path,) = pointers([notice])
        assert len(Path(path).name.encode()) <= 100
        assert len(path) <= 150
        assert id not in notice
        assert "Qz9/+a==" not in notice
        assert (tmp_path / path).read_text() == text
        assert results_of(third)["r1"] == text.removesuffix("\n") or results_of(third)["r1"] == text
        assert (text[:50] in notice, notice.endswith(text[-50:])) == (True, True)
        first, offloading, last = (list(each.transforms) for each in seen.manifests())
        assert (first, offloading, last) == ([], ["tool_result_offload"], [])


class FullDisk(InMemoryWorkspace):
    """A workspace with no room for another file."""

    async def write(self, path: Any, data: Any, **options: Any) -> Any:
        """Fail as a full disk does."""
        raise OSError(errno.ENOSPC, "No space left on device")


async def check_stays(session: LongSession, text: str, code: str) -> None:
    """The whole result goes to the model, nothing points anywhere, and the account says what happened."""
    seen = await session.watch("go")
    assert (seen.error, seen.result.text) == (None, "ok")
    assert results_of(session.main[1]) == {o32()[1]: text}
    assert len(session.main) == 2
    assert (await session.said())[2] == text
    _, second = seen.manifests()
    assert list(second.transforms) == [f"tool_result_offload_failed:{code}"]
    assert second.validation == "passed"


async def test_o32_a_full_disk(tmp_path: Path) -> None:
    """The original stays, without a pointer to what is not there."""
    the, _, text = o32()
    store = JsonFileStore(tmp_path)
    options: dict[str, Any] = {
        "workspace": FullDisk(),
        "state_store": store,
        "tools": the["tools"],
        **options_of(the["config"]),
    }
    tools = options.pop("tools")
    async with long_session(tmp_path, Script(the["model"]), tools=tools, **options) as session:
        await check_stays(session, text, "OSError")


async def test_o32_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The same where a real file system refuses."""
    the, _, text = o32()
    (tmp_path / "large_tool_results").write_text("a file, where the folder would be")
    options = options_of(the["config"])
    async with long_session(tmp_path, Script(the["model"]), tools=the["tools"], **options) as session:
        await check_stays(session, text, "NotADirectoryError")


# -- one text everywhere ------------------------------------------------------------------------------------

FRESH = """
import asyncio, json, sys
from agentscope_rx import RuntimeContext
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.models import HttpxChatModel
from tests.stores.places import store_at

async def main() -> None:
    folder, place, url, eviction, said = sys.argv[1:]
    model = HttpxChatModel("fake-model", base_url=url, api_key="test-key")
    builder = HarnessAgent.builder(
        name="tester", model=model, workspace=folder, tool_result_eviction=json.loads(eviction),
        state_store=store_at(place),
    )
    found = {"transforms": []}
    async with builder.build() as agent:
        async for event in agent.stream_events(said, RuntimeContext(user_id="alice", session_id="s1")):
            match event.type:
                case "CUSTOM" if event.name == "context_build":
                    found["transforms"].append(list(event.value["context_manifest"].transforms))
                case "AGENT_RESULT":
                    found["text"] = event.result.text
    print(json.dumps(found))

asyncio.run(main())
"""


async def in_a_fresh_process(session: LongSession, at: str, eviction: Any, said: str) -> dict[str, Any]:
    """A call by an agent of another process; what its manifests say, and its answer."""
    command = [str(session.folder), at, session.provider.base_url, json.dumps(eviction), said]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FRESH, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


@pytest.mark.parametrize("place", ["files", "redis"], indirect=True)
async def test_o34_what_the_model_sees_is_what_is_saved(place: Place, tmp_path: Path) -> None:
    """The request, the stored state and the first request of a fresh process hold one shortened text; the log holds
    the original."""
    at = place()
    the = case("O34")
    original, config = the["tools"]["execute"], the["config"]["tool_result_eviction"]
    script = Script([*the["model"], {"text": "seen again"}])
    options: dict[str, Any] = {"state_store": store_at(at), **options_of(the["config"])}
    async with long_session(tmp_path, script, tools=the["tools"], **options) as session:
        seen = await session.watch("go")
        assert (seen.error, seen.result.text) == (None, "seen")
        fresh = await in_a_fresh_process(session, at, config, the["then"]["content"])
        assert fresh == {"text": "seen again", "transforms": [[]]}
        assert [list(each.transforms) for each in seen.manifests()] == [[], ["tool_result_offload"]]
        assert len(session.tools["execute"].calls) == 1
        assert (len(session.main), len(session.summary)) == (3, 0)
        (shown,) = results_of(session.main[1]).values()
        (later,) = results_of(session.main[2]).values()
        (saved,) = await saved_results(at)
        assert shown == later == saved
        (path,) = pointers([shown])
        assert not path.startswith(("/", "~", "."))
        assert shown.count(original[:16]) == 1
        assert shown.count(original[-16:]) == 1
        assert original[:17] not in shown
        assert original[-17:] not in shown
        assert (tmp_path / path).read_text() == original
        assert len(original) == 600
        assert conversation_of(session.main[2])[-1] == ("user", the["then"]["content"])
        (result,) = [
            each.tool_result for each in (await session.agent.state(ALICE)).context.messages if each.tool_result
        ]
        assert result.text == shown
        log = session.agent.session_log(ALICE)
        (recorded,) = [each.payload async for each in log.scan() if each.type == "tool/results"]
        assert recorded["messages"][0]["content"][0]["output"][0]["text"] == original
        assert [each.tool_result.text for each in await log.transcript() if each.tool_result] == [original]


async def saved_results(at: str) -> list[str]:
    """The texts of the tool results in what is stored of the session, read as plain JSON."""
    stored = await store_at(at).get(SessionKey(agent_id="tester", user_id="alice", session_id="s1"))
    assert stored is not None
    messages = json.loads(stored.body)["state"]["context"]
    blocks = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    return ["\n".join(part["text"] for part in block["output"]) for block in blocks]
