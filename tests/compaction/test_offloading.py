"""Tool results that move into files: which, where to, what stays, and what becomes of the files."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentscope_rx.compaction import ToolResultEvictionConfig
from agentscope_rx.compaction.offloading import EVICTED_KEY, PATH_KEY, ResultFolder, mentioned_files, oversized
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.draft import RequestDraft
from agentscope_rx.history import History
from agentscope_rx.messages import Msg, ToolResultBlock, ToolResultState
from agentscope_rx.operators import offload_to_fit, offload_tool_results, text_operator
from agentscope_rx.request_tokens import draft_tokens
from agentscope_rx.step import Step
from agentscope_rx.testing import a_run, a_runtime, run_virtual
from agentscope_rx.workspace import InMemoryWorkspace
from agentscope_rx.workspace.paths import resolve_path
from tests.compaction.support import COUNTER, PICTURE, asked, card, conversations, passed, said, seen, step_of, user
from tests.virtual import virtual


def config(**options: Any) -> ToolResultEvictionConfig:
    """Small limits."""
    usual: dict[str, Any] = {"max_result_chars": 100, "preview_chars": 10}
    return ToolResultEvictionConfig(**{**usual, **options})


def one(text: str = "x" * 101, **fields: Any) -> History:
    """A question, and a call with this result."""
    return History.of(user("u"), asked("a", "c1"), seen("r", "c1", text, **fields))


async def moved(history: History, workspace: InMemoryWorkspace, **options: Any) -> Step:
    """The step behind the operator."""
    return await passed(step_of(history), offload_tool_results(config=config(**options), workspace=workspace))


def result_in(step: Step, id: str = "r") -> ToolResultBlock:
    """A result of the session afterwards."""
    (message,) = [each for each in step.state.context.messages if each.id == id]
    assert message.tool_result is not None
    return message.tool_result


async def files_of(workspace: InMemoryWorkspace, folder: str = "large_tool_results") -> dict[str, str]:
    """All files below a folder."""
    found: dict[str, str] = {}
    for entry in await workspace.list(folder):
        if entry.kind == "directory":
            found.update(await files_of(workspace, str(entry.path)))
        else:
            found[str(entry.path)] = (await workspace.read(entry.path)).data.decode()
    return found


# -- which --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "options", "moves"),
    [
        (seen("r", "c1", "x" * 100), {}, False),
        (seen("r", "c1", "x" * 101), {}, True),
        (seen("r", "c1", "x" * 60, "y" * 41), {}, True),  # all its texts, joined without a separator
        (seen("r", "c1", "x" * 50, "y" * 50), {}, False),
        (seen("r", "c1", PICTURE, PICTURE), {}, False),
        (seen("r", "c1", "é" * 101), {}, True),
        (seen("r", "c1", "x" * 101, metadata={EVICTED_KEY: True}), {}, False),
        (seen("r", "c1", "x" * 101), {"excluded_tool_names": {"look"}}, False),
        (seen("r", "c1", "x" * 101), {"max_result_chars": 101}, False),
    ],
)
def test_which_results_are_too_large(message: Any, options: dict[str, Any], moves: bool) -> None:
    """By characters, strictly more than the limit."""
    history = History.of(asked("a", "c1"), message)
    assert [found.id for found, _ in oversized(history, config(**options))] == (["r"] if moves else [])


def test_the_defaults() -> None:
    """80,000 characters, previews of 2,000, and six tools whose results stay."""
    default = ToolResultEvictionConfig()
    assert (default.max_result_chars, default.preview_chars, default.eviction_path) == (
        80_000, 2_000, "large_tool_results",
    )  # fmt: skip
    assert default.excluded_tool_names == {
        "read_file", "write_file", "edit_file", "memory_search", "memory_get", "session_search",
    }  # fmt: skip
    assert default.retention is None


@virtual
async def test_every_result_of_a_history_is_looked_at() -> None:
    """Not only the newest; equal ones of different calls each get their file."""
    messages = [asked("a", "c1", "c2"), seen("r1", "c1", "x" * 200), seen("r2", "c2", "x" * 200)]
    history = History.of(
        *messages, *(said(f"b{at}") for at in range(100)), asked("z", "c1"), seen("r3", "c1", "y" * 200)
    )
    workspace = InMemoryWorkspace()
    await moved(history, workspace)
    assert sorted((await files_of(workspace)).values()) == ["x" * 200, "x" * 200, "y" * 200]


# -- what stays ---------------------------------------------------------------------------------------------


@virtual
async def test_what_stays_says_where_the_rest_is() -> None:
    """Size, path, how to read it, beginning and end; media, id, name, state and metadata are kept."""
    text = "".join(chr(97 + at % 26) for at in range(12_345))
    result = seen("r", "c1", text[:6_000], PICTURE, text[6_000:], state=ToolResultState.ERROR, metadata={"own": 1})
    workspace = InMemoryWorkspace()
    step = await moved(History.of(asked("a", "c1"), result.with_metadata(m=1)), workspace)
    block = result_in(step)
    ((path, content),) = (await files_of(workspace)).items()
    assert content == text
    assert block.text == (
        f"[The result is too large to be shown here: 12,345 characters, kept in the file {path}]\n"
        f"[Read what is needed of it: read_file with path={path}, offset and limit; or search it with grep_files.]\n\n"
        f"First 10 characters:\n{text[:10]}\n\nLast 10 characters:\n{text[-10:]}"
    )
    assert block.output[1:] == (PICTURE,)
    assert (block.id, block.name, block.state) == ("c1", "look", ToolResultState.ERROR)
    assert (block.metadata["own"], block.metadata[EVICTED_KEY], block.metadata[PATH_KEY]) == (1, True, path)
    assert next(m for m in step.history.messages if m.id == "r").metadata == {"m": 1}
    assert mentioned_files(step.history) == {path}


@virtual
async def test_previews_are_at_most_half_of_the_text() -> None:
    """A short text is not told twice; without previews only the notice stays."""
    step = await moved(one("abcde" * 30), InMemoryWorkspace(), preview_chars=10_000)
    assert "First 75 characters:\n" + "abcde" * 15 + "\n\nLast 75" in result_in(step).text
    bare = await moved(one(), InMemoryWorkspace(), preview_chars=0)
    assert result_in(bare).text.count("\n") == 1


# -- where to -----------------------------------------------------------------------------------------------


@virtual
async def test_a_file_has_a_name_that_can_be_none_else() -> None:
    """Below the agent's folder and the session's, by call and text; the session's ids are not in it."""
    workspace = InMemoryWorkspace()
    await moved(one(), workspace)
    (path,) = await files_of(workspace)
    assert re.fullmatch(r"large_tool_results/agent/[0-9a-f]{16}/c1-[0-9a-f]{16}", path)


@settings(max_examples=60)
@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_no_name_leads_out_of_the_folder(agent: str, call: str, user_id: str, session: str) -> None:
    """Whatever agent, call, user and session are called."""
    folder = ResultFolder.of(
        InMemoryWorkspace(), config(eviction_path="out/"), agent=agent, user_id=user_id, session_id=session
    )
    path = folder.file_for(ToolResultBlock(id=call, name="look"))
    assert re.fullmatch(r"out/[A-Za-z0-9_-]{0,40}/[0-9a-f]{16}/[A-Za-z0-9_-]{0,40}-[0-9a-f]{16}", path)
    assert len(path) < 150


def test_users_and_sessions_have_folders_of_their_own() -> None:
    """Also where two together read the same."""

    def path(user_id: str | None, session: str) -> str:
        return ResultFolder.of(InMemoryWorkspace(), config(), agent="a", user_id=user_id, session_id=session).path

    all_of_them = [path("u", "s"), path("u", "t"), path("v", "s"), path(None, "s"), path("None", "s"), path("us", "")]
    assert len(set(all_of_them)) == len(all_of_them)


@virtual
async def test_a_result_of_lone_surrogates_can_be_kept() -> None:
    """The file is UTF-8 whatever a tool has said."""
    workspace = InMemoryWorkspace()
    await moved(one("\ud83d" * 200), workspace)
    assert len(await files_of(workspace)) == 1


# -- writing ------------------------------------------------------------------------------------------------


@virtual
async def test_a_file_of_equal_content_is_as_good_as_written() -> None:
    """A preparation that was rejected leaves its files, and the next one finds them."""
    workspace = InMemoryWorkspace()
    await moved(one(), workspace)
    step = await moved(one(), workspace)
    assert result_in(step).metadata[EVICTED_KEY]
    assert len(await files_of(workspace)) == 1


@virtual
async def test_a_file_of_other_content_is_not_overwritten() -> None:
    """The result stays, and the manifest's changes say so."""
    workspace = InMemoryWorkspace()
    await moved(one(), workspace)
    (path,) = await files_of(workspace)
    await workspace.write(path, b"somebody else's")
    step = await moved(one(), workspace)
    assert result_in(step).text == "x" * 101
    assert [(each.action, each.item_id, each.reason) for each in step.changes] == [
        ("kept", "r", "tool_result_offload_failed:FileExistsError")
    ]
    assert await files_of(workspace) == {path: "somebody else's"}


@virtual
async def test_what_cannot_be_written_stays() -> None:
    """A read-only workspace loses nothing; of several results those that can be written move."""
    step = await moved(one(), InMemoryWorkspace(read_only=True))
    assert result_in(step).text == "x" * 101
    assert step.changes[0].reason.startswith("tool_result_offload_failed:")
    assert step.history is step.run.state.context


@virtual
async def test_a_dry_run_writes_nothing() -> None:
    """The request is shown as it would be."""
    workspace = InMemoryWorkspace()
    operator = offload_tool_results(config=config(), workspace=workspace)
    dry = replace(step_of(one()), dry_run=True)
    step = await passed(dry, operator)
    shown = [each.tool_result.text for each in step.draft.conversation.messages if each.tool_result]
    assert "kept in the file" in shown[0]
    with pytest.raises(FileNotFoundError):
        await workspace.list("large_tool_results")


@text_operator
def swollen(text: str) -> str:
    return text * 10 if text == "x" * 50 else text


@virtual
async def test_what_only_a_request_shows_moves_only_there() -> None:
    """A result that a view operator made large is moved in the view; the history keeps its own."""
    workspace = InMemoryWorkspace()
    history = one("x" * 50)
    step = await passed(step_of(history), swollen, offload_tool_results(config=config(), workspace=workspace))
    assert step.state.context is history
    (shown,) = [each.tool_result for each in step.draft.conversation.messages if each.tool_result]
    assert shown.metadata[EVICTED_KEY]
    assert list((await files_of(workspace)).values()) == ["x" * 500]


@virtual
async def test_old_files_are_deleted_once_nothing_mentions_them() -> None:
    """By age and by the history: younger ones, mentioned ones and those of other sessions stay."""
    runtime = a_runtime()
    workspace = InMemoryWorkspace(clock=runtime.clock)
    run = a_run(one("old " * 50), runtime=runtime)
    operator = offload_tool_results(config=config(retention=timedelta(hours=1)), workspace=workspace)
    first = await passed(step_of(run), operator)
    other = f"{next(iter(await files_of(workspace))).rsplit('/', 2)[0]}/ffffffffffffffff/c1-0"
    await workspace.write(other, b"another session's")
    await asyncio.sleep(3_700)
    grown = first.state.context.append(asked("a2", "c2"), seen("r2", "c2", "new " * 50))
    mentioned = a_run(grown, runtime=runtime)
    await passed(step_of(mentioned), operator)
    assert len(await files_of(workspace)) == 3
    forgotten = a_run(History.of(user("u"), asked("a3", "c3"), seen("r3", "c3", "more" * 50)), runtime=runtime)
    await passed(step_of(forgotten), operator)
    left = await files_of(workspace)
    assert sorted(left.values()) == ["another session's", "more" * 50, "new " * 50]


# -- as many as needed --------------------------------------------------------------------------------------


def fitting(limit: int, workspace: InMemoryWorkspace, **options: Any) -> Any:
    """The last resort, with previews of 200 characters."""
    policy = ContextPolicy(max_input_tokens=limit)
    return offload_to_fit(config=config(preview_chars=200, **options), policy=policy, workspace=workspace)


def several(*sizes: int) -> History:
    """Results of so many characters."""
    return History.of(user("u"), *(each for at, size in enumerate(sizes) for each in _result(at, size)))


def _result(at: int, size: int) -> tuple[Msg, Msg]:
    return asked(f"a{at}", f"c{at}"), seen(f"r{at}", f"c{at}", "x" * size)


async def fitted(history: History, limit: int, **options: Any) -> tuple[set[str], Step]:
    """The results that moved, and the step."""
    step = await passed(step_of(history), fitting(limit, InMemoryWorkspace(), **options))
    return {
        m.id for m in step.state.context.messages if m.tool_result and m.tool_result.metadata.get(EVICTED_KEY)
    }, step


@virtual
async def test_the_largest_goes_first_and_no_more_than_needed() -> None:
    """Results that are each within the limit and together are not: one by one, by size."""
    history = several(3_000, 5_000, 4_000)
    assert (await fitted(history, 20_000))[0] == set()
    assert (await fitted(history, 11_000))[0] == {"r1"}
    assert (await fitted(history, 6_000))[0] == {"r1", "r2"}
    assert (await fitted(history, 3_000))[0] == {"r0", "r1", "r2"}


@virtual
async def test_previews_go_before_the_request_is_refused() -> None:
    """Where moving is not enough, what stays of results gets shorter."""
    names, step = await fitted(several(3_000, 3_000, 3_000), 1_500)
    assert names == {"r0", "r1", "r2"}
    texts = [m.tool_result.text for m in step.state.context.messages if m.tool_result]
    assert any("First" not in text for text in texts)
    assert draft_tokens(step.draft, COUNTER) <= 1_500


@virtual
async def test_excluded_tools_go_last() -> None:
    """Their results stay as long as others are enough; and go before a request is refused."""
    history = History.of(
        *several(2_000).messages, asked("b", "d", name="read_file"), seen("s", "d", "x" * 5_000, name="read_file")
    )
    assert (await fitted(history, 6_500))[0] == {"r0"}
    assert (await fitted(history, 3_000))[0] == {"r0", "s"}


@virtual
async def test_media_cannot_move() -> None:
    """A result of a picture and a few words gets no shorter, and is left alone."""
    history = History.of(user("u"), asked("a", "c"), seen("r", "c", "small", PICTURE), *several(3_000).messages)
    names, step = await fitted(history, 2_900)
    assert names == {"r0"}
    assert draft_tokens(step.draft, COUNTER) <= 2_900


@settings(max_examples=40)
@given(conversations(), st.integers(100, 3_000))
def test_it_is_the_last_resort(history: History, limit: int) -> None:
    """What fits is not touched; what does not fits afterwards, or nothing that moved could be shorter."""

    async def prepared() -> None:
        before = draft_tokens(step_of(history).draft, COUNTER)
        names, step = await fitted(history, limit)
        after = draft_tokens(step.draft, COUNTER)
        assert (after == before) == (step.state.context is history)
        assert after <= before
        if before <= limit:
            assert not names
        elif after > limit:
            for message in step.state.context.messages:
                result = message.tool_result
                assert result is None or len(result.text) < 400
                assert result is None or "First" not in result.text

    run_virtual(prepared)


def test_paths_of_notices_are_paths_of_the_workspace() -> None:
    """What the model is told to read, the resolver takes."""

    async def named() -> None:
        step = await moved(one(), InMemoryWorkspace())
        assert str(resolve_path(str(result_in(step).metadata[PATH_KEY]))) == result_in(step).metadata[PATH_KEY]

    run_virtual(named)


@virtual
async def test_nothing_is_done_beside_the_conversation() -> None:
    """The requests of summaries are not offloaded, and nothing that nobody counts."""
    operators = (offload_tool_results(config=config(), workspace=InMemoryWorkspace()), fitting(10, InMemoryWorkspace()))
    history = one()
    step = replace(step_of(history), purpose="summary", draft=RequestDraft(conversation=history))
    assert (await passed(step, *operators, commit=False)).history is history
    uncounted = replace(step_of(history), card=replace(card(), counter=None))
    assert (await passed(uncounted, operators[1], commit=False)).history is history
