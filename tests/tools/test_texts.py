"""Texts of results: what is taken out of them, and how failures are told."""

from __future__ import annotations

import pytest

from agentscope_rx.tools.texts import clean, cut, error_text, split_unfinished


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(""), "ValueError: (no message)"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration(), "StopIteration: (no message)"),
        (ExceptionGroup("two", [ValueError("a"), OSError("b")]), "ExceptionGroup: two (2 sub-exceptions)"),
        (ValueError("\x1b[31m\ud800"), "ValueError: \ufffd"),
    ],
)
def test_errors_are_told_by_class_and_message(error: BaseException, text: str) -> None:
    """An error's text is never empty and holds no traceback; nor escapes."""
    assert error_text(error).splitlines()[0] == text


def test_the_members_of_a_group_are_told() -> None:
    """ "Unhandled errors in a TaskGroup" alone helps nobody."""
    group = ExceptionGroup("two", [ValueError("a"), OSError("b")])
    assert error_text(group).splitlines()[1:] == ["- ValueError: a", "- OSError: b"]


def test_sequences_of_one_control_character_go_too() -> None:
    """What begins with U+009B does to a terminal what ESC [ does."""
    assert clean("\x9b31mred\x9b0m") == "red"


def test_an_escape_sequence_may_come_in_two_pieces() -> None:
    """Wherever a text is split, the pieces together are cleaned as the whole is."""
    whole = "a\x1b[31;1mred\x1b[0m \x1b]0;title\x1b\\b\x1b]8;;u\x07c\x1b"
    for at in range(len(whole)):
        ready, kept = split_unfinished(whole[:at])
        assert clean(ready) + clean(kept + whole[at:]) == clean(whole) == "ared bc"


@pytest.mark.parametrize("length", [100, 101, 5000])
@pytest.mark.parametrize("limit", [0, 10, 60, 99])
def test_a_cut_text_is_shorter_than_the_note_only_where_it_must(length: int, limit: int) -> None:
    """Whatever the limit, the note is there, and where it leaves room the text is within the limit."""
    text = cut("x" * length, limit)
    assert " characters cut " in text
    assert len(text) <= max(limit, 36)
    assert cut("x" * length, length) == "x" * length
