"""The file of a recording: whole or not there, without secrets, and damage is found where it is."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.sources import ContextRequest
from agentscope_rx.errors import InvalidOption, RecordingDamaged
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.replay import DEFAULT_RULES, Recorder, Recording, Redaction, SecretRule, replay
from agentscope_rx.replay.recording import LONG_TEXT, RecordingLines, RecordingWriter
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing.scripted_model import ScriptedModel, ScriptedTurn, calls
from agentscope_rx.tools import tool
from agentscope_rx.workspace import InMemoryWorkspace
from tests.replay.story import record_story, story_builder

KEY = "sk-" + "planted0123456789"
PASSWORD = "correct-horse-battery"
TOKEN = "eyJhbGciOiJIUzI1NiJ9." + base64.urlsafe_b64encode(b'{"sub":"1234567890"}').decode().rstrip("=") + ".abcdefgh"
PLAIN = "a-secret-that-looks-like-nothing"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short story."""
    path = tmp_path_factory.mktemp("recordings") / "story.jsonl"
    record_story(path, steps=6)
    return path


# -- secrets ------------------------------------------------------------------------------------------------


def test_no_planted_secret_is_in_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a secret comes from, also in pieces of an answer, it is in no line and no blob; and what was recorded
    without it replays as it was recorded."""
    monkeypatch.setenv("EXAMPLE_API_KEY", PLAIN)

    @tool
    async def read(path: str, password: str = "") -> str:
        """Read a file."""
        return f'{{"api_key": "{PASSWORD}"}}\n' + f"authorization: Bearer {TOKEN}\n" * 2 + "x" * LONG_TEXT + PLAIN

    async def source(_: ContextRequest) -> list[ContextBlock]:
        return [ContextBlock.runtime("db", f"postgres://admin:{PASSWORD}@db/orders")]

    pieces = (KEY[:7], KEY[7:12], KEY[12:])
    turns = [
        calls(("c1", "read", f'{{"path": "a", "password": "{PASSWORD}"}}'), text=f"I use {PLAIN}."),
        ScriptedTurn(chunks=tuple(_text(piece) for piece in ("The key is ", *pieces, "."))),
        "Done.",
    ]
    builder = HarnessAgent.builder(
        name="a",
        model=ScriptedModel(turns),
        tools=[read],
        workspace=InMemoryWorkspace(),
        sys_prompt=f"Use the key {KEY}.",
        generate_options=GenerateOptions(additional_headers={"x-api-key": PASSWORD}),
    ).context_source("db", source)
    path = tmp_path / "r.jsonl"
    with Recorder(path) as recorder:
        watched = recorder.watch(builder)
        ctx = RuntimeContext(session_id="s", attributes={"token": PASSWORD})
        watched.call(f"My key is {KEY}, the other {PLAIN}.", ctx).run()
        watched.call("Go on.", ctx).run()
    files = [path, *sorted((tmp_path / "r.jsonl.blobs").iterdir())]
    assert len(files) > 1
    for file in files:
        text = file.read_text()
        for secret in (KEY, PASSWORD, TOKEN, PLAIN, *pieces):
            assert secret not in text
    replay(path, builder).check()


def _text(text: str) -> Any:
    from agentscope_rx.requests import ModelChunk

    return ModelChunk(text=text)


def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    """Rules can be added, and known secrets be named."""
    builder = HarnessAgent.builder(name="a", model=ScriptedModel(["Done."]), workspace=InMemoryWorkspace())
    rules = (*DEFAULT_RULES, SecretRule.of("ticket", r"ticket-[0-9]+"))
    path = tmp_path / "r.jsonl"
    with Recorder(path, rules=rules, secrets=["my-name"]) as recorder:
        recorder.watch(builder).call("ticket-4711 of my-name").run()
    assert "ticket-4711" not in path.read_text()
    assert "my-name" not in path.read_text()
    replay(path, builder, rules=rules).check()


def test_the_folder_of_a_shell_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PWD` is a folder: paths stay, or what is said of them would be another thing in a replay."""
    for name in ("PWD", "OLDPWD", "EXAMPLE_PWD"):
        monkeypatch.setenv(name, f"/home/{name}/project")
    text = "/home/PWD/project /home/OLDPWD/project"
    assert Redaction().text(f"{text} /home/EXAMPLE_PWD/project") == f"{text} (removed)"


@given(st.lists(st.text(alphabet="abks-0123456789 ", max_size=12), max_size=8), st.integers(0, 7))
def test_pieces_hold_together_what_the_whole_does(texts: list[str], at: int) -> None:
    """The pieces of a text make up the text without secrets, as many as there were; none becomes empty for want of
    sharing."""
    pieces = [*texts[:at], KEY[:8], KEY[8:], *texts[at:]]
    redaction = Redaction(values=[])
    clean = redaction.pieces(pieces)
    assert "".join(clean) == redaction.text("".join(pieces))
    assert len(clean) == len(pieces)
    if len("".join(clean)) >= len(pieces):
        assert [bool(each) for each in clean] == [bool(each) for each in pieces]


@given(st.text())
def test_a_text_without_secrets_stays_so(text: str) -> None:
    """Removing secrets twice is removing them once, or a replay would see other texts."""
    redaction = Redaction(values=["abc"])
    once = redaction.text(f'{text} password="{text}" Bearer {text}abcabcabc')
    assert redaction.text(once) == once


CLOTHES: list[Callable[[str], str]] = [
    lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    lambda text: base64.b64encode(f"me:{text}!".encode()).decode().rstrip("="),
    lambda text: base64.urlsafe_b64encode(f"a?~{text}".encode()).decode(),
    lambda text: quote(f"x y={text}", safe=""),
    lambda text: quote_plus(f"x y={text}"),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    lambda text: json.dumps({"x": text}),
    lambda text: json.dumps({"x": json.dumps({"y": text}, ensure_ascii=False)}),
]


@pytest.mark.parametrize("hide", CLOTHES)
@pytest.mark.parametrize("secret", [KEY, 'pass "word"\\ & slash/é', "AKIA" + "ABCDEFGHIJKLMNOP"])
def test_secrets_are_found_in_other_clothes(hide: Callable[[str], str], secret: str, monkeypatch: Any) -> None:
    """Keys of known forms and values of the environment, in Base64, with percent signs and in JSON; in pieces, too."""
    monkeypatch.setenv("EXAMPLE_PASSWORD", 'pass "word"\\ & slash/é')
    hidden, redaction = hide(secret), Redaction()
    for clean in (redaction.text(f"before {hidden} after"), "".join(redaction.pieces(["before ", *hidden, " after"]))):
        assert clean.startswith("before ")
        assert clean.endswith(" after")
        assert "removed" in clean
        assert hidden not in clean
        assert secret not in clean


def test_words_that_hide_nothing_stay() -> None:
    """Digests, ids, addresses and encoded texts are data."""
    text = (
        "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 /a/long/path/to/some/file.py caf%C3%A9?a=%20 "
    )
    text += base64.b64encode(b"nothing to see here, move along").decode() + " 550e8400-e29b-41d4-a716-446655440000"
    assert Redaction(values=["a-secret-value"]).text(text) == text


# -- the file -----------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$blob", "$value"]), inner),
    max_leaves=8,
)


@given(values=st.lists(VALUES, max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, values: Sequence[object]) -> None:
    """Lines come back as they were, whatever they look like, long texts from beside the file."""
    path = tmp_path_factory.mktemp("lines") / "r.jsonl"
    writer = RecordingWriter(path)
    writer.write("header", version=1)
    for value in (*values, "é" * LONG_TEXT):
        writer.write("value", value=value)
    writer.close()
    read = [line["value"] for line in RecordingLines(path) if line["type"] == "value"]
    assert read == [*values, "é" * LONG_TEXT]


def test_an_unclosed_recording_has_not_its_name(tmp_path: Path) -> None:
    """What has the name of a recording is whole; an earlier one stays until then, and whoever goes on is told."""
    path = tmp_path / "r.jsonl"
    path.write_text("an earlier one")
    recorder = Recorder(path)
    builder = HarnessAgent.builder(name="a", model=ScriptedModel(["Done."]), workspace=InMemoryWorkspace())
    recorder.watch(builder).call("Go.").run()
    assert path.read_text() == "an earlier one"
    recorder.close()
    assert len(Recording.read(path).calls) == 1
    assert os.listdir(tmp_path) == ["r.jsonl"]
    with pytest.raises(InvalidOption):
        recorder.watch(builder)


@pytest.mark.parametrize("at", [0, 1, 7, -2])
def test_a_damaged_line_is_named(recording: Path, tmp_path: Path, at: int) -> None:
    """A line that was cut, changed by a letter, lost or said twice: the error says where."""
    lines = recording.read_bytes().splitlines(keepends=True)
    number = at % len(lines)
    line = lines[number]
    damages = {
        "no line of JSON": [*lines[:number], line[: len(line) // 2]],
        "was changed": [*lines[:number], line.replace(b'"type":"', b'"type":"x', 1), *lines[number + 1 :]],
        "others were lost or added": [*lines[:number], *lines[number + 1 :]],
        "lost or added": [*lines[: number + 1], line, *lines[number + 1 :]],
    }
    for why, damaged in damages.items():
        path = tmp_path / "damaged.jsonl"
        path.write_bytes(b"".join(damaged))
        with pytest.raises(RecordingDamaged, match=why) as failed:
            replay(path, story_builder())
        assert failed.value.line == number + 1 + (why == "lost or added")
        assert str(path) in str(failed.value)


def test_a_file_that_ends_early_or_is_another_is_named(recording: Path, tmp_path: Path) -> None:
    """Its end is part of a recording; a newer format and no recording at all are told apart."""
    lines = recording.read_bytes().splitlines(keepends=True)
    path = tmp_path / "damaged.jsonl"
    for data, why, line in (
        (b"".join(lines[:-1]), "ends before the recording does", len(lines)),
        (b"", "ends before the recording does", 1),
        (b'{"a": 1}\n', "no line of a recording", 1),
        (b"\xff\xfe", "no line of JSON", 1),
    ):
        path.write_bytes(data)
        with pytest.raises(RecordingDamaged, match=why) as failed:
            Recording.read(path)
        assert failed.value.line == line


def test_a_damaged_blob_is_named(tmp_path: Path) -> None:
    """The error names the line that wants it, and the file."""
    builder = HarnessAgent.builder(name="a", model=ScriptedModel(["x" * LONG_TEXT]), workspace=InMemoryWorkspace())
    path = tmp_path / "r.jsonl"
    with Recorder(path) as recorder:
        recorder.watch(builder).call("Go.").run()
    (blob,) = (tmp_path / "r.jsonl.blobs").iterdir()
    line = 1 + next(at for at, text in enumerate(path.read_text().splitlines()) if blob.name in text)
    blob.write_text("another text")
    with pytest.raises(RecordingDamaged, match="was changed") as failed:
        replay(path, builder)
    assert failed.value.line == line
    blob.unlink()
    with pytest.raises(RecordingDamaged, match="cannot be read"):
        replay(path, builder)


def test_a_recording_is_readable(recording: Path) -> None:
    """Each line is an object that says what it is; each message stands there once."""
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    assert [line["n"] for line in lines] == [*range(1, len(lines) + 1)]
    items = [line["digest"] for line in lines if line["type"] == "item"]
    assert len(items) == len(set(items))
    assert {"header", "run", "opened", "item", "request", "answer", "tool", "event", "end", "closed"} <= {
        line["type"] for line in lines
    }
