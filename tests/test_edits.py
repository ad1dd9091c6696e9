"""What leads from one history to another, against naive lists."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentscope_rx.edits import Edit, apply_edits, edits_between
from agentscope_rx.history import Exchange, History
from tests.histories import histories, leaf_ids, long, said


@st.composite
def edited(draw: st.DrawFn, history: History) -> History:
    """Another version: exchanges rewritten, left out, or several neighbours replaced by others.

    Leaves in which nothing happens stay shared, as they do when an operator makes the version.
    """
    fresh = iter(range(10**6))
    leaves: list[History] = []
    for leaf in history.leaves:
        if not draw(st.booleans()):
            leaves.append(History(leaves=(leaf,)))
            continue
        out: list[Exchange] = []
        touched = {draw(st.integers(0, len(leaf.exchanges) - 1)) for _ in range(draw(st.integers(0, 3)))}
        skip = 0
        for at, exchange in enumerate(leaf.exchanges):
            skip -= 1
            if skip >= 0:
                continue
            match draw(st.sampled_from(["rewrite", "drop", "replace"])) if at in touched else "keep":
                case "rewrite":
                    out.append(exchange.map(lambda message: message.with_metadata(edit=1)))
                case "drop":
                    pass
                case "replace":
                    skip = draw(st.integers(1, 5))
                    new = range(draw(st.integers(1, 3)))
                    out.extend(Exchange(said(f"new{next(fresh)}")) for _ in new)
                case _:
                    out.append(exchange)
        leaves.append(History(out))
    return History(leaves=tuple(leaf for part in leaves for leaf in part.leaves))


@given(histories(), st.data())
def test_edits_lead_from_one_history_to_the_other(before: History, data: st.DataObject) -> None:
    """What was found between two histories, applied to the first, gives the second."""
    after = data.draw(edited(before))
    edits = edits_between(before, after)
    assert apply_edits(edits, before) == after
    assert [x for edit in edits for x in edit.removed] == [x for x in before if not any(x is y for y in after)]
    assert [x for edit in edits for x in edit.inserted] == [x for x in after if not any(x is y for y in before)]


@given(histories(), st.data())
def test_edits_share_untouched_leaves(before: History, data: st.DataObject) -> None:
    """Applying edits keeps every leaf in which no exchange is removed; without edits it gives the very history."""
    edits = edits_between(before, data.draw(edited(before)))
    after = apply_edits(edits, before)
    removed = {exchange.id for edit in edits for exchange in edit.removed}
    untouched = {id(leaf) for leaf in before.leaves if not any(x.id in removed for x in leaf.exchanges)}
    assert untouched <= leaf_ids(after)
    assert apply_edits((), before) is before
    assert edits_between(before, before) == ()
    assert apply_edits(edits_between(before, History(list(before))), before) is before


@given(histories(), st.data())
def test_a_view_keeps_its_own_words(before: History, data: st.DataObject) -> None:
    """Where a view has put an exchange in other words, an edit that only rewrites it leaves the view's version."""
    after = data.draw(edited(before))
    edits = edits_between(before, after)
    redacted = before.map(lambda exchange: exchange.map(lambda message: message.with_metadata(redacted=True)))
    result = apply_edits(edits, redacted)
    assert [exchange.id for exchange in result] == [exchange.id for exchange in after]
    for ours, theirs in zip(result, after, strict=True):
        new = theirs.id.startswith("new")
        assert ours is theirs if new else all(message.metadata["redacted"] for message in ours.messages)


@given(histories(), st.data())
def test_edits_skip_what_a_view_leaves_out(before: History, data: st.DataObject) -> None:
    """A view from which exchanges are gone takes the edits of the others, and gets nothing back."""
    edits = edits_between(before, data.draw(edited(before)))
    gone = frozenset(data.draw(st.lists(st.sampled_from([x.id for x in before] or ["none"]), max_size=5)))
    result = apply_edits(edits, before.without(gone))
    assert not gone & {exchange.id for exchange in result}
    ids = [exchange.id for exchange in result]
    assert len(ids) == len(set(ids))


@given(histories(), st.data())
def test_reordering_is_refused(history: History, data: st.DataObject) -> None:
    """Two exchanges that changed places are no edit, wherever they are."""
    items = list(history)
    assume(len(items) > 1)
    one, other = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=2, max_size=2, unique=True))
    items[one], items[other] = items[other], items[one]
    with pytest.raises(ValueError, match="reordered"):
        edits_between(history, History(items))
    if len(history.leaves) > 1:
        with pytest.raises(ValueError, match="reordered"):
            edits_between(history, History(leaves=history.leaves[::-1]))


@given(histories(), st.data())
def test_bare_insertion_is_refused(history: History, data: st.DataObject) -> None:
    """An exchange that takes no other's place is no edit, wherever it is; its id is named."""
    items = list(history)
    items.insert(data.draw(st.integers(0, len(items))), Exchange(said("new")))
    with pytest.raises(ValueError, match="'new' was added but takes no other's place"):
        edits_between(history, History(items))
    with pytest.raises(ValueError, match="'new' was added"):
        edits_between(history, history.append(said("new")))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 70), st.data())
def test_what_comes_first_may_stand_for_what_goes_behind(kept: int, gone: int, rest: int, data: st.DataObject) -> None:
    """A summary before messages that stay is an edit: applied it gives the same, and views keep what they show."""
    before = long(kept + gone + rest)
    head, tail = list(before)[:kept], list(before)[kept + gone :]
    summary = Exchange(said("new"))
    after = History(leaves=(*History([summary, *head]).leaves, *before.replace_first(kept + gone).leaves))
    edits = edits_between(before, after)
    assert apply_edits(edits, before) == after
    redacted = before.map(lambda exchange: exchange.map(lambda message: message.with_metadata(redacted=True)))
    assert [x.messages[0].metadata.get("redacted") for x in apply_edits(edits, redacted)][1:] == [True] * (kept + rest)
    left_out = data.draw(st.sampled_from([x.id for x in before]))
    shown = apply_edits(edits, before.without(frozenset((left_out,))))
    assert [x.id for x in shown] == [x.id for x in after if x.id != left_out]
    with pytest.raises(ValueError, match="'new' was added"):
        edits_between(before, History([summary, *head, *list(before)[kept : kept + gone], *tail]))


@given(histories(), st.data())
def test_an_exchange_that_is_there_twice_is_refused(history: History, data: st.DataObject) -> None:
    """Wherever the second one is; nothing is searched for ever."""
    items = list(history)
    assume(items)
    at = data.draw(st.integers(0, len(items) - 1))
    items.insert(data.draw(st.integers(0, len(items))), items[at])
    with pytest.raises(ValueError, match="more than once|reordered"):
        edits_between(history, History(items))


def test_what_edits_look_like() -> None:
    """Neighbours that gave way are one edit with what took their place; a rewritten exchange is one by itself."""
    before = History.of(*(said(f"m{at}") for at in range(6)))
    m = list(before)
    new, other = Exchange(said("s")), Exchange(said("m3", "other words"))
    after = History([m[0], new, other, m[4]])
    assert edits_between(before, after) == (
        Edit((m[1], m[2]), (new,)),
        Edit((m[3],), (other,)),
        Edit((m[5],), ()),
    )
    assert [edit.rewrites for edit in edits_between(before, after)] == [False, True, False]
