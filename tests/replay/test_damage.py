"""Recordings that something has happened to: an error says where, and nothing is replayed otherwise than it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentscope_rx.errors import RecordingDamaged
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.replay import Recorder, replay
from agentscope_rx.replay.recording import LONG_TEXT, VERSION, RecordingWriter
from agentscope_rx.testing.scripted_model import ScriptedModel, calls
from agentscope_rx.tools import tool


@tool
def look() -> str:
    """Look."""
    return "a page"


BUILDER = ReActAgent.builder(
    name="a", model=ScriptedModel([calls(("c1", "look", "{}")), "é" * LONG_TEXT, "Done."]), tools=[look]
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with a text beside it."""
    path = tmp_path_factory.mktemp("recordings") / "r.jsonl"
    with Recorder(path, secrets=()) as recorder:
        recorder.watch(BUILDER).call("Go.").run()
    return path


@st.composite
def damages(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes that are changed, removed, added, doubled, or cut off."""
    at = draw(st.integers(0, len(data) - 1))
    some = draw(st.binary(min_size=1, max_size=3) | st.sampled_from([b" ", b"\n", b"\r", b"\0", b'"', b"}", b"{}\n"]))
    lines = data.splitlines(keepends=True)
    line = data[:at].count(b"\n")
    return draw(
        st.sampled_from(
            [
                data[:at] + some + data[at:],
                data[:at] + some + data[at + len(some) :],
                data[:at] + data[at + len(some) :],
                data[:at],
                data + some,
                data[:at] + data[at : at + 1].swapcase() + data[at + 1 :],
                b"".join([*lines[: line + 1], *lines[line:]]),
                b"".join([*lines[:line], *lines[line + 1 :]]),
                b"".join([*lines[:line], *lines[line : line + 2][::-1], *lines[line + 2 :]]),
            ]
        )
    )


MANY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(data=st.data())
def test_any_damage_is_an_error_that_says_where(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever happens to a byte or a line: the error names the file and a line of it."""
    original, path = whole.read_bytes(), tmp_path / "r.jsonl"
    damaged = data.draw(damages(original))
    path.write_bytes(damaged)
    if not (blobs := tmp_path / "r.jsonl.blobs").exists():
        shutil.copytree(whole.with_name("r.jsonl.blobs"), blobs)
    if damaged == original:
        replay(path, BUILDER).check()
        return
    with pytest.raises(RecordingDamaged) as failed:
        replay(path, BUILDER)
    assert 1 <= failed.value.line <= damaged.count(b"\n") + 1
    assert f"{path}" in str(failed.value)


@MANY
@given(data=st.data())
def test_any_damage_of_a_text_beside_it_names_the_text(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    """It may be another one, a part of one, or gone."""
    path, blobs = tmp_path / "r.jsonl", tmp_path / "r.jsonl.blobs"
    shutil.copy(whole, path)
    (blob,) = whole.with_name("r.jsonl.blobs").iterdir()
    damaged = data.draw(damages(blob.read_bytes()) | st.none())
    blobs.mkdir(exist_ok=True)
    (blobs / blob.name).unlink(missing_ok=True)
    if damaged is not None:
        (blobs / blob.name).write_bytes(damaged)
    if damaged == blob.read_bytes():
        return
    with pytest.raises(RecordingDamaged, match=blob.name) as failed:
        replay(path, BUILDER)
    assert blob.name in whole.read_text().splitlines()[failed.value.line - 1]


@pytest.mark.parametrize("version", [0, VERSION + 1, "1", None])
def test_another_version_of_the_format_is_refused(tmp_path: Path, version: object) -> None:
    """A later library's recording is not read as if it were one of this one's."""
    path = tmp_path / "r.jsonl"
    writer = RecordingWriter(path)
    writer.write("header", version=version, started=None)
    writer.close()
    with pytest.raises(RecordingDamaged, match=f"version {version} of the format cannot be read here") as failed:
        replay(path, BUILDER)
    assert failed.value.line == 1
