"""Each operator's docstring has a picture in marbles, and the picture is true: the real operator plays it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentscope_rx import operators
from agentscope_rx.testing import Picture, assert_pipeline, pictures_in, run_virtual
from tests.operators.scenes import SCENES

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "agentscope_rx" / "lifting.py", *sorted((ROOT / "operators").glob("_*.py"))]
#: By what a function gives it is an operator, or a guard.
GIVES = ("Operator", "Callable[[Attempt], Attempt]")


def operators_in(code: str) -> Iterator[ast.FunctionDef]:
    """The public functions of a module that give an operator or a guard."""
    functions = (node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef))
    for node in functions:
        if not node.name.startswith("_") and node.returns is not None and ast.unparse(node.returns) in GIVES:
            yield node


FOUND = {node.name: node for path in FILES for node in operators_in(path.read_text("utf-8"))}
PICTURES = {
    (picture.name, picture.case): picture
    for node in FOUND.values()
    for picture in pictures_in(ast.get_docstring(node) or "")
}


def lacking(found: dict[str, ast.FunctionDef]) -> list[str]:
    """The operators whose docstring has no picture under their own name."""
    drawn = {name: [each.name for each in pictures_in(ast.get_docstring(node) or "")] for name, node in found.items()}
    return [name for name, names in drawn.items() if name not in names or set(names) != {name}]


async def play(picture: Picture) -> None:
    """Play a picture with its scene."""
    scene = SCENES[picture.name, picture.case]()
    await assert_pipeline(scene.operator, picture, scene.steps, chunks=scene.chunks, error=scene.error)


def test_all_operators_are_looked_at() -> None:
    """Whatever the package offers as an operator or guard is among those whose docstrings are read."""
    offered = {
        name
        for name, each in inspect.getmembers(operators, inspect.isfunction)
        if inspect.signature(each).return_annotation in GIVES
    }
    assert offered == set(FOUND)


def test_every_operator_has_a_picture() -> None:
    """One under its own name."""
    assert lacking(FOUND) == []


def test_an_operator_without_a_picture_is_found() -> None:
    """With no docstring, with one in words, and with the picture of another operator."""
    drawn = '    """Do.\n\n        --s--|\n        {0}\n        --t--|\n    """\n'
    code = (
        "def bare() -> Operator:\n    ...\n"
        'def told() -> Operator:\n    """Do it."""\n'
        f"def taken() -> Callable[[Attempt], Attempt]:\n{drawn.format('drawn')}"
        f"def drawn() -> Operator:\n{drawn.format('drawn')}"
        "def number() -> int:\n    ...\n"
    )
    assert lacking({node.name: node for node in operators_in(code)}) == ["bare", "told", "taken"]


def test_every_picture_has_a_scene_and_every_scene_a_picture() -> None:
    """A scene is played because a docstring draws it; its words are those of the picture."""
    assert set(PICTURES) == set(SCENES)
    words = {key: (picture.words, SCENES[key]().words) for key, picture in PICTURES.items()}
    assert {key: said for key, said in words.items() if said[0] != said[1]} == {}


@pytest.mark.parametrize("key", PICTURES, ids=[f"{name}, {case}" if case else name for name, case in PICTURES])
def test_a_picture_is_true(key: tuple[str, str]) -> None:
    """The real operator does what its docstring draws, second by second."""
    run_virtual(lambda: play(PICTURES[key]))


def wrong(picture: Picture) -> Iterator[Picture]:
    """A picture with one thing drawn wrong, each time another."""
    yield replace(picture, comes_out="-" + picture.comes_out)
    yield replace(picture, comes_out=re.sub("[st]", "u", picture.comes_out, count=1))
    yield replace(picture, comes_out=re.sub("[st]", "-", picture.comes_out, count=1))
    yield replace(
        picture, comes_out=picture.comes_out.replace("|", "#").replace("#", "|", picture.comes_out.count("#"))
    )
    yield replace(picture, events=picture.events + "--z" if picture.events else "--z")
    if picture.events:
        yield replace(picture, events="")
        yield replace(picture, events="-" + picture.events)
        yield replace(picture, legend=dict.fromkeys(picture.legend, "SOMETHING"))
    if picture.model:
        yield replace(picture, model=f"{picture.model}-z|")
        yield replace(picture, model="")


@pytest.mark.parametrize("key", PICTURES, ids=[f"{name}, {case}" if case else name for name, case in PICTURES])
def test_a_picture_that_is_wrong_fails(key: tuple[str, str]) -> None:
    """A second too late, another letter, one step less, another end, an event more, no event, an answer more."""
    for other in wrong(PICTURES[key]):
        if other == PICTURES[key]:
            continue
        with pytest.raises((AssertionError, ValueError)):
            run_virtual(lambda other=other: play(other))
