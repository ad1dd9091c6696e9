"""Tool calls in pieces: whose a piece is, whatever ids, indexes and names are left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.answers import DONE, calls, chunk, piece, read

END = chunk({}, "tool_calls")


def test_empty_id_and_name_on_later_deltas() -> None:
    """A repeated empty id and a name of null do not overwrite what the first delta said."""
    answer = read(
        chunk({"role": "assistant", "content": None, "tool_calls": [piece(0, "call_a1", name="bash", arguments="")]}),
        calls(piece(0, "", name="", arguments='{"cmd": ')),
        calls(piece(0, "", name=None, arguments='"ls"}')),
        END,
    )
    assert answer.triples() == [("call_a1", "bash", '{"cmd": "ls"}')]


def test_new_id_opens_a_new_call_whatever_the_index() -> None:
    """Two complete calls with one index but different ids are two calls, also where the reason is `stop`."""
    answer = read(
        calls(piece(0, "call_a", name="read_file", arguments='{"path":"a"}')),
        calls(piece(0, "call_b", name="read_file", arguments='{"path":"b"}')),
        chunk({}, "stop"),
    )
    assert answer.triples() == [
        ("call_a", "read_file", '{"path":"a"}'),
        ("call_b", "read_file", '{"path":"b"}'),
    ]


def test_new_id_opens_a_new_call_before_the_first_has_arguments() -> None:
    """A new id with a name opens a call also where the one before has no arguments at all."""
    answer = read(calls(piece(0, "a", name="now", arguments="")), calls(piece(0, "b", name="now")), END)
    assert answer.triples() == [("a", "now", ""), ("b", "now", "")]


def test_interleaved_fragments_and_a_first_index_of_1() -> None:
    """Fragments belong to the call of their index, wherever counting starts; there is no phantom call."""
    answer = read(
        calls(piece(1, "x1", name="add", arguments="")),
        calls(piece(2, "x2", name="mul", arguments="")),
        calls(piece(1, arguments='{"a":')),
        calls(piece(2, arguments='{"b":'), piece(1, arguments="1}")),
        calls(piece(2, arguments="2}")),
        END,
    )
    assert answer.triples() == [("x1", "add", '{"a":1}'), ("x2", "mul", '{"b":2}')]


def test_no_ids_and_one_index() -> None:
    """A name that comes again after complete arguments opens a new call."""
    answer = read(
        calls(piece(0, name="f", arguments='{"a":1}')),
        calls(piece(0, name="f", arguments='{"a":2}')),
        calls(piece(0, name="g", arguments="")),
        calls(piece(0, arguments="{}")),
        END,
    )
    assert [call[1:] for call in answer.triples()] == [("f", '{"a":1}'), ("f", '{"a":2}'), ("g", "{}")]


def test_name_that_comes_again_alone_opens_nothing_until_arguments_follow() -> None:
    """Some servers repeat the name at the end: that is a call only if it gets arguments of its own."""
    first = (calls(piece(0, name="f", arguments="{}")), calls(piece(0, name="f", arguments="")))
    assert [call[1:] for call in read(*first, END).triples()] == [("f", "{}")]
    answer = read(*first, calls(piece(0, arguments='{"a":')), calls(piece(0, arguments="1}")), END)
    assert [call[1:] for call in answer.triples()] == [("f", "{}"), ("f", '{"a":1}')]


def test_neither_index_nor_id() -> None:
    """Without an index a piece belongs to the last call."""
    answer = read(
        calls(piece(name="f", arguments='{"a"')),
        calls(piece(arguments=":1}")),
        calls(piece(name="g", arguments="{}")),
        END,
    )
    assert [call[1:] for call in answer.triples()] == [("f", '{"a":1}'), ("g", "{}")]


def test_id_without_index() -> None:
    """Ids alone tell calls apart, also interleaved."""
    answer = read(
        calls(piece(None, "a", name="f", arguments="{")),
        calls(piece(None, "b", name="g", arguments="{")),
        calls(piece(None, "a", arguments='"x":1}')),
        calls(piece(None, "b", arguments="}")),
        END,
    )
    assert answer.triples() == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_identity_on_every_delta() -> None:
    """Id and name may come again with each piece."""
    answer = read(*(calls(piece(0, "a", name="read", arguments=part)) for part in ("", '{"p":', '"x"', "}", "")), END)
    assert answer.triples() == [("a", "read", '{"p":"x"}')]


def test_new_id_on_every_delta() -> None:
    """A piece without a name continues an unfinished call, although it brings another id."""
    answer = read(
        calls(piece(0, "a", name="read", arguments="")),
        *(calls(piece(0, f"b{n}", name="", arguments=part)) for n, part in enumerate('{"p": 1}')),
        END,
    )
    assert answer.triples() == [("a", "read", '{"p": 1}')]


def test_name_or_id_that_comes_late() -> None:
    """A call is let out when it is known: with its name, and with an id that comes before its arguments."""
    answer = read(calls(piece(0, "a")), calls(piece(0, arguments="{")), calls(piece(0, name="f", arguments="}")), END)
    assert answer.triples() == [("a", "f", "{}")]
    answer = read(calls(piece(0, name="f", arguments="")), calls(piece(0, "a", arguments="{}")), END)
    assert answer.triples() == [("a", "f", "{}")]


def test_name_in_pieces() -> None:
    """A name may come in pieces, or growing, before the arguments begin."""
    for pieces in (("edit_ex", "isting"), ("edit_ex", "edit_existing")):
        head = (calls(piece(0, "a", name=pieces[0])), calls(piece(0, name=pieces[1], arguments="")))
        assert read(*head, calls(piece(0, arguments="{}")), END).triples() == [("a", "edit_existing", "{}")]


def test_ids_are_unique_within_an_answer() -> None:
    """Calls of one id are told apart by a suffix that collides with nothing."""
    answer = read(
        calls(piece(0, "a", name="f", arguments="{}"), piece(1, "a", name="g", arguments="{")),
        calls(piece(1, arguments="}")),
        calls(piece(2, "a_2", name="h", arguments="{}")),
        calls(piece(0, "a", name="f", arguments='{"x":1}')),
        END,
    )
    assert answer.triples() == [
        ("a", "f", "{}"),
        ("a_2", "g", "{}"),
        ("a_2_2", "h", "{}"),
        ("a_3", "f", '{"x":1}'),
    ]


def test_ids_that_are_missing_come_from_the_request() -> None:
    """A call without an id gets one that is the same for the same request and differs between requests."""
    data = (calls(piece(0, name="f", arguments="{}"), piece(1, name="f", arguments="{}")), END)
    first, again, other = (read(*data, call_id=call_id).triples() for call_id in ("step-1", "step-1", "step-2"))
    assert first == again
    assert len({call[0] for call in (*first, *other)}) == 4
    assert all(call[0].startswith("call_") for call in first)


@pytest.mark.parametrize(
    ("arguments", "text"), [({"a": [1]}, '{"a":[1]}'), ({}, "{}"), ("", ""), (None, ""), ([1], "[1]")]
)
def test_arguments_as_an_object(arguments: object, text: str) -> None:
    """Arguments that come as JSON instead of its text become its text."""
    (call,) = read(calls(piece(0, "a", name="f", arguments=arguments)), END).triples()
    assert call == ("a", "f", text)


def test_shapes_beside_the_rule() -> None:
    """A single call instead of a list, a function's fields beside the id, a number as id."""
    data = chunk({"tool_calls": {"id": 7, "name": "f", "arguments": "{}"}})
    assert read(data, END).triples() == [("7", "f", "{}")]


def test_call_without_a_name_is_let_out_at_the_end() -> None:
    """A call that never gets a name is still one, for which the agent can answer."""
    assert read(calls(piece(0, "a", arguments="{}")), DONE).triples() == [("a", "", "{}")]


def test_calls_come_in_the_order_of_their_index() -> None:
    """A call that has no arguments yet is let out before a later one that has."""
    answer = read(calls(piece(0, "a", name="now"), piece(1, "b", name="f", arguments="{}")), END)
    assert answer.triples() == [("a", "now", ""), ("b", "f", "{}")]


# -- every way at once --------------------------------------------------------------------------------------

NAMES = st.sampled_from(["f", "g", "read_file"])
TEXTS = st.dictionaries(st.sampled_from("ab}{"), st.text('a}{"\\ü', max_size=4), max_size=2)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[tuple[str, str, str]], list[bytes]]:
    """Calls, and chunks that a lawful provider could send for them: ids once or always, indexes from anywhere."""
    import json

    expected = [
        (f"id{n}", draw(NAMES), json.dumps(draw(TEXTS), ensure_ascii=False)) for n in range(draw(st.integers(1, 4)))
    ]
    first, same_index = draw(st.integers(0, 2)), draw(st.booleans())
    repeats_id, repeats_name = draw(st.booleans()), draw(st.booleans())
    queues: list[list[dict[str, Any]]] = []
    for number, (id, name, arguments) in enumerate(expected):
        ends = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        parts = [arguments[a:b] for a, b in zip([0, *ends], [*ends, len(arguments)], strict=True)]
        index = first if same_index else first + number
        head = piece(index, id, name=name, arguments="")
        tails = [
            piece(index, id if repeats_id else "", name=name if repeats_name else None, arguments=part)
            for part in parts
        ]
        queues.append([head, *tails])
    sent: list[dict[str, Any]] = []
    opened = 0
    while any(queues):
        if same_index:  # such a provider sends one call after the other
            chosen = next(n for n, queue in enumerate(queues) if queue)
        else:
            ready = [n for n, queue in enumerate(queues) if queue and n <= opened]
            chosen = draw(st.sampled_from(ready))
        opened = max(opened, chosen + 1)
        sent.append(queues[chosen].pop(0))
    return expected, [calls(each) for each in sent]


@given(conversations())
def test_calls_are_put_together_again(conversation: tuple[list[tuple[str, str, str]], list[bytes]]) -> None:
    """Calls cut and mixed in any lawful way come out as they were."""
    expected, data = conversation
    assert read(*data, END).triples() == expected
