"""Bytes become text, or are said to be none, without ever filling the memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.workspace.text import LineWindow, binary_type, decode_text


@pytest.mark.parametrize(
    ("data", "text", "lossy"),
    [
        (b"plain", "plain", False),
        ("\ufeffü".encode(), "ü", False),
        (b"caf\xe9!", "caf\ufffd!", True),
        (b"a\0b", "a\ufffdb", False),
        ("ü".encode()[:1], "\ufffd", True),
        (b"\xed\xa0\xbd", "\ufffd\ufffd\ufffd", True),
    ],
)
def test_decoding(data: bytes, text: str, lossy: bool) -> None:
    """What is no UTF-8 is replaced and reported, and neither NUL nor surrogate comes out."""
    decoded = decode_text(data)
    assert (decoded.text, decoded.lossy) == (text, lossy)


def test_a_cut_within_a_character_is_no_error() -> None:
    """Bytes that were cut lose the character that was cut, and are not called invalid for it."""
    for length in range(4, 8):
        decoded = decode_text("abc\U0001f600x".encode()[:length], cut=True)
        assert (decoded.text, decoded.lossy) == ("abc" if length < 7 else "abc\U0001f600", False)
    assert decode_text(b"\xff\xe2", cut=True).lossy


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n....", "PNG image"),
        (b"%PDF-1.4\n", "PDF document"),
        (b"\xff\xfea\0", "UTF-16 text"),
        (b"RIFF\x10\0\0\0WEBP", "RIFF media"),
        (b"x" * 8000 + b"\0", "unknown type"),
        (b"RIFF is a format, GIF89a another", None),
        (b"x" * 9000 + b"\0", None),
        (b"", None),
        ("ü".encode("latin-1"), None),
    ],
)
def test_binary_files_are_recognised(data: bytes, kind: str | None) -> None:
    """A signature or a NUL near the beginning makes a file binary; words that look like one do not."""
    assert binary_type(data) == kind


@given(
    st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"\n")),
    st.integers(0, 6),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 10),
)
def test_windows_pick_the_lines_of_the_whole(data: bytes, first: int, count: int, most: int, piece: int) -> None:
    """However a file is cut into pieces, the window holds the lines that it would have of the whole file."""
    window = LineWindow(first=first, count=count, max_bytes=most)
    for start in range(0, len(data), piece):
        window.feed(data[start : start + piece])
    window.close()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    asked = lines[first : first + count]
    expected: list[bytes] = []
    for line in asked:
        if sum(len(kept) + 1 for kept in expected) + len(line) > most:
            break
        expected.append(line)
    if asked and not expected:
        assert (window.cut, window.lines) == (True, [asked[0][:most]])
        return
    assert not window.cut
    assert window.lines == [line.removesuffix(b"\r") for line in expected]
    assert window.seen == min(first, len(lines)) + len(expected)
    goes_on = window.position < len(data)
    assert goes_on == (len(lines) > first + len(expected))
    if goes_on:
        assert data[window.position :].split(b"\n")[0] == lines[first + len(expected)]


def test_a_window_keeps_little_of_a_long_line() -> None:
    """A file of one endless line does not fill the memory."""
    window = LineWindow(first=0, count=10, max_bytes=100)
    for _ in range(50):
        window.feed(b"x" * 1000)
    assert (window.full, window.cut, window.lines) == (True, True, [b"x" * 100])


def test_many_lines_are_skipped_at_once() -> None:
    """A window far down a file is reached by counting, and its position is exact."""
    window = LineWindow(first=99_999, count=1, max_bytes=100)
    for _ in range(10):
        window.feed(b"ab\r\n" * 10_000 + b"")
    window.feed(b"tail")
    window.close()
    assert (window.lines, window.seen, window.position) == ([b"ab"], 100_000, 400_000)
