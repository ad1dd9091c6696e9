"""Text from outside cannot do anything to the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import agentscope_rx.events as ev
from agentscope_rx.cli import main
from agentscope_rx.cli.flow import Flow
from agentscope_rx.cli.plain import fitted, harmless_json, one_line, plain
from agentscope_rx.cli.render import LiveView
from agentscope_rx.messages import ToolResultState, ToolUseBlock
from agentscope_rx.testing.fake_provider import text, tool_calls
from tests.cli.command import MODEL
from tests.cli.conftest import Serve

#: A title, a cleared screen, a link, a device string, raw C1, carriage return, bell, reversed text, and markup.
EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\\x1bP$qm\x1b\\\x9b2J"
    "safe\rover\x07\u202eesrever[bold red]x[/bold red]:boom:"
)
SHOWN = "clicksafeoveresrever[bold red]x[/bold red]:boom:"


def terminal(width: int = 60) -> tuple[Console, io.StringIO]:
    """A console that thinks that it is a terminal, without colours of its own."""
    file = io.StringIO()
    return Console(
        file=file, force_terminal=True, width=width, color_system=None, markup=False, emoji=False, highlight=False
    ), file


def test_plain_text_keeps_what_is_harmless() -> None:
    """Control sequences, control characters and marks of direction go; markup is text like any other."""
    assert plain(EVIL) == SHOWN
    assert plain("tab\tand\nline") == "tab\tand\nline"
    assert one_line("a\n b\x1b[31mc", limit=3) == "a …"
    assert fitted("  x\t\x1b[0m", 10) == "  x"


def test_json_keeps_its_value_and_loses_its_teeth() -> None:
    """What a terminal could act on is written as an escape, which reads as the same value."""
    line = json.dumps({"t": EVIL}, ensure_ascii=False)
    assert json.loads(harmless_json(line)) == {"t": EVIL}
    assert not any(letter in harmless_json(line) for letter in "\x1b\x9b\x07\u202e")


def test_a_run_shows_evil_text_as_text(serve: Serve, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text of the model, its thinking, arguments and what a tool found come out plain."""
    (folder / "evil.txt").write_text(EVIL)
    arguments = json.dumps({"path": "evil.txt", "offset": 0, "pattern": EVIL})
    serve([tool_calls(("c1", "read_file", arguments), text=EVIL), text(EVIL, reasoning=EVIL, deltas=7)])
    assert main(["run", "x", "--model", MODEL]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert not any(letter in shown for letter in "\x9b\x07\r\u202e")
    assert shown.count("[bold red]x[/bold red]:boom:") >= 3


def event_script() -> Sequence[ev.AgentEvent]:
    """Evil text in every place of every event that is shown."""
    return [
        ev.ModelCallStart(reply_id="r", model=EVIL),
        ev.TextBlockStart(reply_id="r", block_id="t"),
        *(ev.TextBlockDelta(reply_id="r", block_id="t", delta=letter) for letter in EVIL),
        ev.TextBlockEnd(reply_id="r", block_id="t"),
        ev.ToolCallStart(reply_id="r", tool_call_id="c", tool_call_name=EVIL),
        ev.ToolCallDelta(reply_id="r", tool_call_id="c", tool_call_name=EVIL, delta=EVIL),
        ev.ToolCallEnd(reply_id="r", tool_call_id="c", tool_call_name=EVIL),
        ev.ToolResultStart(reply_id="r", tool_call_id="c", tool_call_name=EVIL),
        ev.ToolResultTextDelta(reply_id="r", tool_call_id="c", tool_call_name=EVIL, delta=EVIL),
        ev.ToolResultEnd(reply_id="r", tool_call_id="c", tool_call_name=EVIL, state=ToolResultState.ERROR),
        ev.DataBlockStart(reply_id="r", block_id="d", media_type=EVIL),
        ev.Custom(name="model_retry", value={"error": EVIL, "attempt": 2}),
        ev.Custom(name="compaction_failed", value={"reason": EVIL}),
        ev.Custom(name="compaction_end", value={"messages_before": EVIL, "tokens_before": EVIL}),
        ev.RequireExternalExecution(reply_id="r", tool_calls=(ToolUseBlock(id="c", name=EVIL),)),
        ev.RequireUserConfirm(reply_id="r", tool_calls=(ToolUseBlock(id="c", name=EVIL),)),
        ev.ExceedMaxIters(reply_id="r", max_iters=3, current_iter=3),
        ev.AgentEnd(reply_id="r"),
    ]


def test_no_event_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even cut into single letters, and in names, arguments and media types, nothing evil gets through."""

    def still(view: LiveView, what: str) -> None:
        """The spinner moves the cursor, as it should."""

    monkeypatch.setattr(LiveView, "_wait", still)
    console, file = terminal(width=200)
    view = LiveView(console)
    for event in event_script():
        view.show(event)
    view.close()
    assert "\x1b" not in file.getvalue()
    assert "owned" not in file.getvalue()
    assert file.getvalue().count("[bold red]x[/bold red]") >= 5


def written(pieces: Sequence[str], *, width: int, indent: int = 0) -> str:
    console, file = terminal(width)
    flow = Flow(console, indent=indent)
    flow.begin()
    for piece in pieces:
        flow.write(piece)
    flow.end()
    return file.getvalue()


def test_lines_are_wrapped_at_words() -> None:
    """A word that does not fit goes to the next line, and items of a list hang."""
    assert written(["one two thr", "ee four"], width=10) == "one two\nthree four\n"
    assert written(["- one two three\n", "next"], width=11, indent=2) == "  - one two\n    three\n  next\n"
    assert written(["  kept\n\n12. a b"], width=40) == "  kept\n\n12. a b\n"


def test_wide_letters_count_twice() -> None:
    """Letters that take two columns are counted so."""
    assert written(["日本 日本 日本"], width=10) == "日本 日本\n日本\n"


@given(st.text(alphabet=st.sampled_from("ab 日\n\t-.\x1b[;m]\x07\u202e"), max_size=60), st.data())
def test_pieces_make_no_difference(whole: str, data: st.DataObject) -> None:
    """However a text is cut into pieces, the same lines come out, and nothing that a terminal acts on."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown = written(pieces, width=12, indent=2)
    assert shown == written([whole], width=12, indent=2)
    assert not any(letter in shown for letter in "\x1b\x07\u202e")
    assert "".join(shown.split()) == "".join(plain(whole).split()) or "\x1b" in whole
