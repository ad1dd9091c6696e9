"""`MEMORY.md` is written anew from what came to the ledgers, and nothing of either is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx.errors import ServerFailed
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.memory.files import MemoryFiles
from agentscope_rx.operators import text_operator
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import a_runtime, text
from agentscope_rx.testing.workspace_conformance import MakeWorkspace
from agentscope_rx.workspace import FileContent, LocalWorkspace
from tests.cases import case
from tests.memory.support import (
    ALICE,
    NOTHING,
    TODAY,
    WATERMARK,
    Ledger,
    Writer,
    finished,
    heard,
    prompts,
    remembering,
    rules,
    text_of,
    told,
    write,
)
from tests.support import until
from tests.virtual import virtual
from tests.workspace.places import disk, fsspec, memory, stored

ROOT = Path(__file__).parents[2]
YESTERDAY = "memory/2025-12-31.md"


def merging(writer: Any, files: Any, **options: Any) -> HarnessBuilder:
    """Agents whose calls do nothing for the memory but consolidate it."""
    memory = {"flush_trigger": "never", **options.pop("memory", {})}
    return remembering(writer, files=files, memory=memory, **options)


@virtual
async def test_the_memory_is_written_anew_from_the_ledgers() -> None:
    """The model gets the file, the new facts by day, and the limit; its answer is the file."""
    files = Ledger({"MEMORY.md": "- likes tea\n", YESTERDAY: "\n- met Bo\n", TODAY: "- <b>\n"}, due=True)
    writer = Writer(["# People\n- Bo"])
    agent = merging(writer, files, memory={"consolidation_max_tokens": 123}).build()
    events = await heard(agent)
    assert await files.text("MEMORY.md") == "# People\n- Bo\n"
    (prompt,) = prompts(writer)
    assert prompt == (
        "The file as it is:\n<memory>\n- likes tea\n</memory>\n\nWhat was written down since:\n<facts>\n"
        "### 2025-12-31.md\n- met Bo\n\n### 2026-01-01.md\n- &lt;b&gt;\n</facts>"
    )
    assert "at most 123 tokens (about 492 characters)" in rules(writer)[0]
    assert told(events, "memory_consolidation") == [{"ledgers": 2, "archived": 0}]
    assert await files.text(YESTERDAY) == "\n- met Bo\n"


@virtual
async def test_what_was_taken_in_is_not_read_again() -> None:
    """Only what came to a ledger since; where nothing came, nobody is asked; a ledger that shrank is read whole."""
    files = Ledger({YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["- one", "- two", "- three"])
    agent = merging(writer, files).build()
    for added in ("", "", "- met Eve\n"):
        if added:
            await write(files, YESTERDAY, added)
        await agent.call("go", ALICE)
        await finished(agent)
        await asyncio.sleep(1800)
    assert len(writer.requests) == 2
    assert "- met Eve" in prompts(writer)[1]
    assert "- met Bo" not in prompts(writer)[1]
    await files.write(YESTERDAY, b"- met Al\n")
    await agent.call("go", ALICE)
    await finished(agent)
    assert "- met Al" in prompts(writer)[2]


@virtual
async def test_the_gap_holds_for_all_processes() -> None:
    """Not again before it is over, whoever has done it last; a mark that is none, or of the future, holds nobody up."""
    files = Ledger({YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["- one", "- two"])
    for seconds, expected in ((0, 1), (1799, 1), (1, 2)):
        await asyncio.sleep(seconds)
        await write(files, YESTERDAY, f"- fact {seconds}\n")
        agent = merging(writer, files, runtime=a_runtime()).build()  # what one process knows another does not
        await agent.call("go", ALICE)
        await agent.close()
        assert len(writer.requests) == expected
    for mark in (
        '{"at": "2999-01-01T00:00:00+00:00"}',
        "yesterday",
        '{"at": 5, "ledgers": []}',
        '{"at": "2026-01-01"}',
    ):
        await files.write(WATERMARK, mark.encode())
        before = len(writer.requests)
        agent = merging(writer, files, runtime=a_runtime()).build()
        await agent.call("go", ALICE)
        await agent.close()
        assert len(writer.requests) == before + 1, mark


@virtual
async def test_a_gap_that_another_process_began_is_waited_for_once() -> None:
    """Who comes too early comes again when it is over, and not a whole gap later."""
    files = Ledger({YESTERDAY: "- met Bo\n", WATERMARK: '{"at": "2025-12-31T23:50:00+00:00"}'})
    writer = Writer(["- one"])
    agent = merging(writer, files).build()
    for seconds, expected in ((0, 0), (1199, 0), (1, 1)):
        await asyncio.sleep(seconds)
        await agent.call("go", ALICE)
        await finished(agent)
        assert len(writer.requests) == expected


@virtual
async def test_a_ledger_that_was_edited_is_read_anew() -> None:
    """Whether it has become shorter or longer since, or has as many bytes as before: what came to it is not lost."""
    files = Ledger({YESTERDAY: "- met Bo\n- met Eve\n"}, due=True)
    writer = Writer(["- one", "- two", "- three"])
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    for edited in ("- met Bo\n- met Eve\n", "- met Bo\n- met Ida\n", "- met Al\n- met Ida, and Jo\n- met Bo\n"):
        await files.write(YESTERDAY, edited.encode())
        await agent.call("go", ALICE)
        await finished(agent)
    assert ["Ida" in prompt for prompt in prompts(writer)] == [False, True, True]
    assert "- met Al" in prompts(writer)[2]


@virtual
async def test_a_line_that_was_changed_meanwhile_is_not_behind_the_others() -> None:
    """Half a line is no fact: the file is read again, whose last line somebody has gone on with."""
    files = Ledger({"MEMORY.md": "- lives in Bonn", YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["- lives in Bonn\n- met Bo", "- lives in Bonn no more\n- met Bo"])
    writer.hold()
    agent = merging(writer, files).build()
    await agent.call("go", ALICE)
    await until(lambda: writer.asked == 1)
    await write(files, "MEMORY.md", " no more")
    writer.let_go.set()
    await finished(agent)
    assert await files.text("MEMORY.md") == "- lives in Bonn no more\n- met Bo\n"


@virtual
async def test_what_is_written_fits_into_the_next_request() -> None:
    """A model with a small window is told of a smaller file, so that it can be merged another time."""
    files = Ledger({YESTERDAY: "- met Bo\n"}, due=True)
    whole = "- a fact of six words each\n" * 1_000
    writer = Writer([whole[:15_000], whole[:5_000], "- all"], context_window=6_000)
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    await heard(agent)
    assert len((await files.text("MEMORY.md")).strip()) == len(whole[:5_000].strip())
    await write(files, YESTERDAY, "- met Eve\n")
    assert told(await heard(agent), "memory_consolidation") == [{"ledgers": 1, "archived": 0}]
    assert await files.text("MEMORY.md") == "- all\n"


@pytest.mark.parametrize("char", ["<", "\U0001f980", "a ", "\n"])
@virtual
async def test_facts_of_whatever_text_fit_into_requests(char: str) -> None:
    """As they stand in them; all are read in the end, a long line in pieces, between its characters."""
    files = Ledger({YESTERDAY: char * 4_000 + "\n- met Bo\n"}, due=True)
    writer = Writer(["- one"] * 40, context_window=4_000)
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    built: list[Any] = []
    for _ in range(4):
        built += [value["context_manifest"] for value in told(await heard(agent), "context_build")]
    assert all(each.estimated_input_tokens <= each.input_limit for each in built if each.purpose == "memory")
    assert sum("- met Bo" in prompt for prompt in prompts(writer)) == 1
    assert not any("\ufffd" in prompt for prompt in prompts(writer))


@virtual
async def test_no_gap_is_after_each_call() -> None:
    """A gap of 0 leaves none out."""
    files = Ledger({YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["- one", "- two"])
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    for number in range(2):
        await write(files, YESTERDAY, f"- fact {number}\n")
        await agent.call("go", ALICE)
        await finished(agent)
    assert len(writer.requests) == 2


@virtual
async def test_one_at_a_time_merges_the_facts() -> None:
    """The next finds nothing to do, where both were due at once."""
    files, writer = Ledger({YESTERDAY: "- met Bo\n"}, due=True), Writer(["- one", "- two"])
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    writer.hold()
    for session in ("s1", "s2"):
        await agent.call("go", RuntimeContext(session_id=session))
    await until(lambda: writer.asked > 0)
    writer.let_go.set()
    await finished(agent)
    assert len(writer.requests) == 1


@virtual
async def test_an_answer_that_is_too_long_is_asked_for_once_more() -> None:
    """And then refused: the old file stays, and so do the facts that it was to take in."""
    long = "- " + "word " * 400
    files = Ledger({"MEMORY.md": "- likes tea\n", YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer([long, "- short", long, long, "- at last"])
    builder = merging(writer, files, memory={"consolidation_max_tokens": 100, "consolidation_min_gap": timedelta(0)})
    agent = builder.build()
    await heard(agent)
    assert await files.text("MEMORY.md") == "- short\n"
    assert prompts(writer)[1].startswith(prompts(writer)[0])
    assert prompts(writer)[1].endswith("Leave out more: the file may have 100 at most.")
    await write(files, YESTERDAY, "- met Eve\n")
    failed = told(await heard(agent), "memory_failed")
    assert failed == [{"work": "consolidation", "reason": "over_cap", "error_type": "ConsolidationRefused"}]
    assert await files.text("MEMORY.md") == "- short\n"
    await heard(agent)
    assert "- met Eve" in prompts(writer)[4]
    assert await files.text("MEMORY.md") == "- at last\n"


@virtual
async def test_a_memory_that_does_not_fit_is_left_alone() -> None:
    """Half of it would be written anew, and the other half be gone."""
    files = Ledger({"MEMORY.md": "- a fact\n" * 2_000, YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(context_window=4_000)
    events = await heard(merging(writer, files).build())
    assert [each["reason"] for each in told(events, "memory_failed")] == ["memory_too_large"]
    assert writer.requests == []


@virtual
async def test_ledgers_that_are_long_are_taken_in_by_rounds() -> None:
    """Each line once, none cut in two."""
    lines = [f"- fact number {number} of many\n" for number in range(600)]
    files = Ledger({YESTERDAY: "".join(lines), TODAY: "- the last\n"}, due=True)
    writer = Writer([f"- round {number}" for number in range(9)], context_window=8_000)
    agent = merging(writer, files).build()
    events = await heard(agent)
    read = "".join(prompts(writer))
    assert 1 < len(writer.requests) < 8
    assert all(read.count(line) == 1 for line in [*lines, "- the last\n"])
    assert told(events, "memory_consolidation") == [{"ledgers": 2, "archived": 0}]


@virtual
async def test_no_line_is_cut_to_fill_a_request() -> None:
    """What little room one ledger leaves is not filled with half a line of the next."""
    ledgers = {
        f"memory/2025-12-{day:02}.md": f"- fact {day} of which there is more to say\n" * 9 for day in range(1, 31)
    }
    files = Ledger(ledgers, due=True)
    writer = Writer(["- all"] * 40, context_window=3_500)
    await heard(merging(writer, files).build())
    assert len(writer.requests) > 2
    read = [line for prompt in prompts(writer) for line in prompt.splitlines() if line.startswith("- fact")]
    assert sorted(read) == sorted("".join(ledgers.values()).splitlines())


@pytest.mark.parametrize("name", ["notes.md", "2025-13-01.md", "2025-12-31.txt", ".2025-12-31.md"])
@virtual
async def test_other_files_are_no_ledgers(name: str) -> None:
    """They are neither read nor moved."""
    files = Ledger({f"memory/{name}": "- met Bo\n"}, due=True)
    writer = Writer()
    await heard(merging(writer, files, memory={"daily_file_retention_days": 1}).build())
    assert writer.requests == []
    assert await files.text(f"memory/{name}") == "- met Bo\n"


async def test_a_link_is_no_ledger(tmp_path: Path) -> None:
    """What it leads to may be anything; it is neither read nor moved."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "notes.md").write_text("- of somebody\n")
    (tmp_path / "memory" / "2025-01-01.md").symlink_to("../notes.md")
    writer = Writer()
    await heard(merging(writer, LocalWorkspace(tmp_path)).build())
    assert writer.requests == []
    assert (tmp_path / "memory" / "2025-01-01.md").is_symlink()


# -- the archive --------------------------------------------------------------------------------------------


@virtual
async def test_old_days_move_to_the_archive() -> None:
    """Those before the retention's days, once they are taken in; the rest stays."""
    files = Ledger({"memory/2025-12-21.md": "- old\n", "memory/2025-12-22.md": "- young\n"}, due=True)
    agent = merging(Writer(["- all"]), files, memory={"daily_file_retention_days": 10}).build()
    assert told(await heard(agent), "memory_consolidation") == [{"ledgers": 2, "archived": 1}]
    assert await files.text("memory/archive/2025-12-21.md") == "- old\n"
    assert await files.text("memory/2025-12-21.md") == ""
    assert await files.text("memory/2025-12-22.md") == "- young\n"
    assert list(json.loads(await files.text(WATERMARK))["ledgers"]) == ["memory/2025-12-22.md"]


@virtual
async def test_what_is_taken_in_in_part_does_not_move() -> None:
    """A ledger that is longer than what is read at once is archived when the last of it was."""
    lines = [f"- fact number {number} of many\n" for number in range(1_500)]
    files = Ledger({"memory/2025-01-01.md": "".join(lines)}, due=True)
    writer = Writer(["- all"] * 40, context_window=4_000)
    agent = merging(writer, files, memory={"consolidation_min_gap": timedelta(0)}).build()
    done = [told(await heard(agent), "memory_consolidation") for _ in range(3)]
    assert done[0] == [{"ledgers": 1, "archived": 0}]
    assert sum(each["archived"] for told_of in done for each in told_of) == 1
    assert all("".join(prompts(writer)).count(line) == 1 for line in lines)


@pytest.mark.parametrize("text", ["", "\n\n", "- met Bo\n\n\n"])
@virtual
async def test_a_ledger_with_nothing_more_to_take_in_moves_too(text: str) -> None:
    """An empty one, one of blank lines, and one to which an editor has added some."""
    files = Ledger({"memory/2025-01-01.md": text}, due=True)
    agent = merging(Writer(["- met Bo"]), files, memory={"consolidation_min_gap": timedelta(0)}).build()
    await heard(agent)
    assert await files.text("memory/archive/2025-01-01.md") == text


@virtual
async def test_an_empty_answer_is_told() -> None:
    """It changes nothing, and it is no success."""
    files = Ledger({"MEMORY.md": "- likes tea\n", YESTERDAY: "- met Bo\n"}, due=True)
    failed = told(await heard(merging(Writer([text(" ")]), files).build()), "memory_failed")
    assert failed == [{"work": "consolidation", "reason": "empty", "error_type": "ConsolidationRefused"}]


@virtual
async def test_nothing_moves_that_is_not_taken_in() -> None:
    """Else what a failing model has not read would never be in the memory; a name that is taken holds nobody up."""
    old = {"memory/2025-01-01.md": "- old\n", "memory/2025-01-02.md": "- older\n"}
    files = Ledger({**old, "memory/archive/2025-01-02.md": "- kept\n"}, due=True)
    memory = {"daily_file_retention_days": 10, "consolidation_min_gap": timedelta(0)}
    agent = merging(Writer([ServerFailed("down"), text(""), "- all"]), files, memory=memory).build()
    for _ in ("fails", "says nothing"):
        await heard(agent)
        assert await files.text("memory/2025-01-01.md") == "- old\n"
    await heard(agent)
    assert await files.text("memory/archive/2025-01-01.md") == "- old\n"
    assert await files.text("memory/archive/2025-01-02.md") == "- kept\n"
    assert await files.text("memory/2025-01-02.md") == "- older\n"


# -- others who write ---------------------------------------------------------------------------------------


@virtual
async def test_what_is_rewritten_meanwhile_is_read_again() -> None:
    """A fact that somebody has taken out does not come back; where it happens again, the file stays theirs."""
    files = Ledger({"MEMORY.md": "- lives in Bonn\n- likes tea\n", YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["- lives in Bonn\n- likes tea\n- met Bo", "- likes tea\n- met Bo"])
    writer.hold()
    agent = merging(writer, files).build()
    await agent.call("go", ALICE)
    await until(lambda: writer.asked == 1)
    await files.write("MEMORY.md", b"- likes tea\n")
    writer.let_go.set()
    await finished(agent)
    assert "Bonn" not in prompts(writer)[1]
    assert await files.text("MEMORY.md") == "- likes tea\n- met Bo\n"


@text_operator
def without_addresses(words: str) -> str:
    """No addresses."""
    return words.replace("bo@example.org", "[email]")


@virtual
async def test_what_is_redacted_for_the_model_stays_in_the_file() -> None:
    """It is not shown to who merges the facts, and it is still what its owner has written."""
    files = Ledger({"MEMORY.md": "- Bo: bo@example.org\n- likes tea\n", YESTERDAY: "- met Bo\n"}, due=True)
    writer = Writer(["# People\n- Bo: [email]\n- met Bo"])
    builder = merging(writer, files).pipeline(lambda own: own.insert_before("validate_request", without_addresses))
    await heard(builder.build())
    assert "- Bo: [email]\n- likes tea" in prompts(writer)[0]
    assert await files.text("MEMORY.md") == "# People\n- Bo: bo@example.org\n- met Bo\n"


class Busy(Ledger):
    """A memory that somebody else rewrites whenever it was read."""

    async def read(self, path: Any, **options: Any) -> Any:
        """Read, and be too late."""
        found = await super().read(path, **options)
        if str(path) == "MEMORY.md":
            await super().write(path, b"- " + str(len(found.data)).encode() + found.data)
        return found


@virtual
async def test_a_file_that_is_never_still_is_left_alone() -> None:
    """It is given up, and told."""
    files = Busy({"MEMORY.md": "- likes tea\n", YESTERDAY: "- met Bo\n"}, due=True)
    events = await heard(merging(Writer(["- a", "- b", "- c"]), files, workspace_context=False).build())
    assert [each["reason"] for each in told(events, "memory_failed")] == ["rewritten_meanwhile"]


# -- case O35 -----------------------------------------------------------------------------------------------

O35 = case("O35")
VARIANTS = {variant["name"]: variant for variant in O35["variants"]}


def told_files() -> Ledger:
    """The files of the case."""
    return Ledger({"MEMORY.md": O35["memory_md"], YESTERDAY: O35["daily"]}, due=True)


@virtual
async def test_o35_a_fact_that_comes_while_the_model_thinks_stays() -> None:
    """It is behind what the model wrote; and no fact is lost."""
    files = told_files()
    writer = Writer([VARIANTS["race"]["flush_reply"]])
    writer.hold()
    agent = merging(writer, files).build()
    await agent.call("go", ALICE)
    await until(lambda: writer.asked == 1)
    await write(files, "MEMORY.md", "- code is NEBULA-7\n")
    writer.let_go.set()
    await finished(agent)
    assert await files.text("MEMORY.md") == "# Memory\n- likes tea\n- met Bo\n- code is NEBULA-7\n"


@pytest.mark.parametrize("place", [memory, disk, stored, fsspec])
async def test_o35_a_fact_that_comes_between_reading_and_writing_stays(
    place: MakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a file is made anew of what is there then, wherever the file is."""
    async with place({"MEMORY.md": O35["memory_md"].encode()}) as files:
        read, rivals = files.read, [b"- code is NEBULA-7\n"]

        async def late(path: str, **options: Any) -> FileContent:
            found = await read(path, **options)
            if rivals:
                await files.write(path, found.data + rivals.pop())
            return found

        monkeypatch.setattr(files, "read", late)
        await MemoryFiles(files).rewrite("MEMORY.md", lambda before: before.data + b"- met Bo\n")
        expected = f"{O35['memory_md']}- code is NEBULA-7\n- met Bo\n"
        assert await text_of(files, "MEMORY.md") == expected


@pytest.mark.parametrize("answer", [text(""), text("  \n"), ServerFailed("500")])
@virtual
async def test_o35_an_empty_or_failed_answer_changes_nothing(answer: Any) -> None:
    """Both files stay byte for byte, of a flush and of a consolidation."""
    files = told_files()
    agent = remembering(Writer([answer, answer]), files=files).build()
    await agent.call("go", ALICE)
    await finished(agent)
    assert (await files.text("MEMORY.md"), await files.text(YESTERDAY)) == (O35["memory_md"], O35["daily"])
    assert await files.text(TODAY) == ""


@virtual
async def test_o35_the_same_facts_found_twice_are_written_once() -> None:
    """Also where the model does not notice that it has found them before."""
    files = told_files()
    twice = VARIANTS["twice"]
    agent = remembering(Writer([twice["flush_reply"], NOTHING, twice["flush_reply"]]), files=files).build()
    for _ in range(twice["runs"]):
        await agent.call("go", ALICE)
        await finished(agent)
    everything = "".join([await files.text(path) for path in ("MEMORY.md", YESTERDAY, TODAY)])
    assert (everything.count("likes tea"), everything.count("met Bo")) == (1, 1)


CRASH = """
import asyncio, os, sys
from agentscope_rx.memory.files import MemoryFiles
from agentscope_rx.workspace import LocalWorkspace

async def main():
    files = MemoryFiles(LocalWorkspace(sys.argv[1]))
    os.replace = lambda *_, **__: os._exit(9)  # the temporary file is written, the renaming is not done
    await files.rewrite("MEMORY.md", lambda _: b"- the new text\\n")

asyncio.run(main())
"""


def test_o35_a_crash_while_it_is_written(tmp_path: Path) -> None:
    """The old text is there, whole; and what the dead process has left is in no listing and in nobody's way."""
    (tmp_path / "MEMORY.md").write_text(O35["memory_md"])
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert (tmp_path / "MEMORY.md").read_text() == O35["memory_md"]

    @virtual
    async def afterwards() -> None:
        files = LocalWorkspace(tmp_path)
        assert [str(entry.path) for entry in await files.list()] == ["MEMORY.md"]
        await write(files, TODAY, "- met Bo\n")
        agent = merging(Writer(["- likes tea\n- met Bo"]), files).build()
        await agent.call("go", ALICE)
        await finished(agent)
        assert await text_of(files, "MEMORY.md") == "- likes tea\n- met Bo\n"

    afterwards()
