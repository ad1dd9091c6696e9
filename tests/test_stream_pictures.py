"""The pictures in the docstrings of what makes and takes streams are true: the real functions play them."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops

from agentscope_rx import bridge, event_stream, pulling, streams
from agentscope_rx.bridge import from_aiter, from_awaitable, from_coroutine
from agentscope_rx.event_stream import EventStream
from agentscope_rx.events import Custom
from agentscope_rx.pulling import iterate, last
from agentscope_rx.streams import Sink, loop, run_with_sink
from agentscope_rx.testing import Picture, assert_marbles, marbles, pictures_in
from tests.virtual import virtual

#: Those that block a thread: virtual time cannot draw them.
BLOCKING: Final = {"block", "pull_blocking"}
Letters = Observable[str]


def functions(module: object) -> dict[str, str]:
    """The public functions of a module that take or give an Observable, with their docstrings."""
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    bodies = [
        tree.body,
        *(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EventStream"),
    ]
    found: dict[str, str] = {}
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            kinds = [ast.unparse(each) for each in (node.returns, *(arg.annotation for arg in node.args.args)) if each]
            if any("Observable" in kind or "SharedRun" in kind for kind in kinds):
                found[node.name] = ast.get_docstring(node) or ""
    return found


FOUND = {name: doc for module in (bridge, streams, pulling, event_stream) for name, doc in functions(module).items()}
PICTURES = {(each.name, each.case): each for doc in FOUND.values() for each in pictures_in(doc)}


# -- the scenes --------------------------------------------------------------------------------------------------------


def play_loop(drawn: Callable[[], Letters]) -> Letters:
    letters = iter("abc")
    following = {"a": "b", "b": "c"}
    return loop(lambda _: drawn().pipe(ops.map(lambda _: next(letters))), "", following.get)


def play_sink(drawn: Callable[[], Letters]) -> Letters:
    def work(sink: Sink[str]) -> Letters:
        return drawn().pipe(ops.do_action(sink.emit))

    return run_with_sink(work)


async def generated(source: Letters) -> AsyncIterator[str]:
    async for each in iterate(source):
        yield each


async def slowly(source: Letters) -> AsyncIterator[str]:
    async for each in iterate(source, maxsize=2, overflow="drop_oldest"):
        yield each
        await asyncio.sleep(2)


def play_share(drawn: Callable[[], Letters]) -> Letters:
    stream = EventStream(drawn().pipe(ops.map(lambda letter: Custom(name=letter, value={}))))
    shared = stream.share_run(history=1).start()
    return reactivex.timer(4).pipe(
        ops.flat_map(lambda _: shared),
        ops.map(lambda event: event.name if isinstance(event, Custom) else "?"),
    )


#: What plays a picture: of what goes in it makes what comes out. `drawn` gives what goes in, for each time anew.
SCENES: Final[dict[tuple[str, str], Callable[[Callable[[], Letters]], Letters]]] = {
    ("loop", ""): play_loop,
    ("run_with_sink", ""): play_sink,
    ("from_aiter", ""): lambda drawn: from_aiter(lambda: generated(drawn())),
    ("from_coroutine", ""): lambda drawn: from_coroutine(lambda: last(drawn())),
    ("from_awaitable", ""): lambda drawn: from_awaitable(last(drawn()), lambda letter: chr(ord(letter) + 1)),
    ("iterate", ""): lambda drawn: from_aiter(lambda: iterate(drawn())),
    ("iterate", 'overflow="drop_oldest", maxsize=2, the consumer takes 2 s for each'): lambda drawn: from_aiter(
        lambda: slowly(drawn())
    ),
    ("last", ""): lambda drawn: from_coroutine(lambda: last(drawn())),
    ("last", "it fails"): lambda drawn: from_coroutine(lambda: last(drawn())),
    ("share_run", "history=1, and a watcher who comes at 4 s"): play_share,
}


async def play(picture: Picture) -> None:
    """Play a picture with its scene."""
    source = SCENES[picture.name, picture.case](lambda: marbles(picture.goes_in))
    await assert_marbles(source, picture.comes_out, ticks=True)


def test_each_has_pictures_and_each_picture_has_a_scene() -> None:
    """Whatever takes or gives an Observable is drawn, under its own name."""
    drawn = {name: {each.name for each in pictures_in(doc)} for name, doc in FOUND.items()}
    assert drawn == {name: set[str]() if name in BLOCKING else {name} for name in FOUND}
    assert set(PICTURES) == set(SCENES)


@pytest.mark.parametrize("key", PICTURES, ids=[" ".join(key) for key in PICTURES])
@virtual
async def test_a_picture_is_true(key: tuple[str, str]) -> None:
    """What is drawn happens, second by second; a second later it would be another picture."""
    picture = PICTURES[key]
    await play(picture)
    for wrong in (f"-{picture.comes_out}", re.sub("[ab#]", "z", picture.comes_out, count=1)):
        with pytest.raises(AssertionError, match="the stream is not"):
            await play(replace(picture, comes_out=wrong))
