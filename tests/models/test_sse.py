"""Server-sent events: every way of writing them, every way of cutting them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.models.sse import SseEvent, SseParser


def read(pieces: Iterable[bytes]) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.flush()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b'data: {"a": 1}\n\ndata: {"b": 2}\n\n', [("", b'{"a": 1}'), ("", b'{"b": 2}')]),
        (b'data:{"a": 1}\n\n', [("", b'{"a": 1}')]),
        (b"data:  two blanks\n\n", [("", b" two blanks")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [("", b"a"), ("", b"b")]),
        (b": comment\n\ndata: a\n: inside\n\n:\n\n", [("", b"a")]),
        (b"retry: 3000\n\nid: 7\n\ndata: a\n\n", [("", b"a")]),
        (b"id: 7\ndata: a\nretry: 1\n\n", [("", b"a")]),
        (b'data: {\ndata: "a": 1}\n\n', [("", b'{\n"a": 1}')]),
        (b"data: \n\n", [("", b"")]),
        (b"data\n\n", [("", b"")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [("error", b"x"), ("", b"y")]),
        (b"event: ping\n\ndata: y\n\n", [("", b"y")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"data: a", [("", b"a")]),
        (b"data: a\n", [("", b"a")]),
        (b"data: a\r", [("", b"a")]),
        (b"\n\n\n\n\ndata: a\n\n\n\n", [("", b"a")]),
        (b"database: a\nwhatever\n\n", []),
        (b"", []),
        (b"\xef\xbb", []),
        ("data: grüße 🍸\n\n".encode(), [("", "grüße 🍸".encode())]),
    ],
)
def test_what_a_stream_means(stream: bytes, events: list[SseEvent]) -> None:
    """Each way of writing events means the same in one piece and byte by byte."""
    assert read([stream]) == events
    assert read(stream[i : i + 1] for i in range(len(stream))) == events


def test_event_is_there_as_soon_as_it_is_complete() -> None:
    """An event comes with the feed that brings its blank line, not later, also where the line ends with CR."""
    parser = SseParser()
    assert parser.feed(b"data: {}\n") == []
    assert parser.feed(b"\ndata: {}") == [("", b"{}")]
    assert parser.feed(b"\r\n\r") == [("", b"{}")]
    assert parser.feed(b"\ndata: 1\n\n") == [("", b"1")]


def test_flush_gives_the_rest_once() -> None:
    """What is left at the end is given once."""
    parser = SseParser()
    parser.feed(b"event: error\ndata: cut of")
    assert parser.flush() == [("error", b"cut of")]
    assert parser.flush() == []


LINES = st.sampled_from(
    [
        b'data: {"a": 1}',
        b"data:",
        b"data: \xf0\x9f\x8d\xb8\xc3\xa9",
        b"data",
        b"event: error",
        b"event:x",
        b"id: 1",
        b"retry: 5",
        b": ping",
        b":",
        b"other: x",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=20).map(b"".join)


@given(stream=st.one_of(STREAMS, st.binary(max_size=60)), places=st.lists(st.integers(0, 500), max_size=8))
def test_where_bytes_are_cut_does_not_matter(stream: bytes, places: list[int]) -> None:
    """Any bytes, cut anywhere, give the events that they give in one piece."""
    assert read(cut(stream, places)) == read([stream])


class Body(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


async def read_with_httpx2(pieces: list[bytes]) -> list[SseEvent]:
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, stream=Body(pieces)))
    async with (
        httpx2.AsyncClient(transport=transport) as client,
        client.sse("http://127.0.0.1/", method="GET") as source,
    ):
        events = [(event.event, event.data.encode()) async for event in source]
    return [("" if name == "message" else name, data) for name, data in events]


@given(
    blocks=st.lists(
        st.tuples(st.lists(LINES.filter(bool), max_size=4), LINES.filter(lambda line: line[:4] == b"data"), ENDS),
        max_size=8,
    ),
    places=st.lists(st.integers(0, 500), max_size=5),
)
async def test_same_events_as_httpx2(blocks: list[tuple[list[bytes], bytes, bytes]], places: list[int]) -> None:
    """Where each block has data, the events are those that the event source of httpx2 gives."""
    stream = b"".join(b"".join(line + end for line in (*lines, data, b"")) for lines, data, end in blocks)
    pieces = [piece for piece in cut(stream, places) if piece]
    assert read(pieces) == await read_with_httpx2(pieces)
