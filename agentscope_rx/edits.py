"""What turns one history into another: edits, found by the ids of exchanges, and made again on other versions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Leaf, same_objects


@frozen(kw_only=False)
class Edit:
    """Neighbouring exchanges that gave way to others: at once manifest entry, log record and unit of undo.

    One that is in both has stayed, behind what stands for the others.
    """

    removed: tuple[Exchange, ...]
    inserted: tuple[Exchange, ...]

    @property
    def rewrites(self) -> bool:
        """Whether one exchange was only rewritten, under its own id."""
        return len(self.removed) == len(self.inserted) == 1 and self.removed[0].id == self.inserted[0].id


def shared_exchanges(before: History, after: History) -> int:
    """How many exchanges both begin with; leaves that both have are not looked into."""
    count = at = 0
    while at < min(len(before.leaves), len(after.leaves)) and before.leaves[at] is after.leaves[at]:
        count += len(after.leaves[at].exchanges)
        at += 1
    old, new = (chain.from_iterable(leaf.exchanges for leaf in each.leaves[at:]) for each in (before, after))
    for one, other in zip(old, new, strict=False):
        if one is not other and one != other:
            break
        count += 1
    return count


def unshared(before: History, after: History) -> tuple[list[Exchange], list[Exchange]]:
    """The exchanges of both, where each leaf that both have is shortened to its first exchange."""
    left, right = {id(leaf) for leaf in before.leaves}, {id(leaf) for leaf in after.leaves}
    return _new_in(before, right), _new_in(after, left)


def _new_in(history: History, known: set[int]) -> list[Exchange]:
    found: list[Exchange] = []
    for leaf in history.leaves:
        found.extend(leaf.exchanges[:1] if id(leaf) in known else leaf.exchanges)
    return found


def edits_between(before: History, after: History) -> tuple[Edit, ...]:
    """What turns `before` into `after`, found by exchange id.

    What comes before an exchange that stays, and takes the place of those behind it, makes one edit with it.

    Raises:
        ValueError: Exchanges were reordered, one is there twice, or some were added that take no other's place.
    """
    if before is after:
        return ()
    old, new = unshared(before, after)
    common = {exchange.id for exchange in old} & {exchange.id for exchange in new}
    found: list[Edit] = []
    i = j = 0
    while i < len(old) or j < len(new):
        gone, came = i, j
        while i < len(old) and old[i].id not in common:
            i += 1
        while j < len(new) and new[j].id not in common:
            j += 1
        if j > came and i == gone:
            # A summary stands at the very beginning, also where what the user said last does and stays.
            kept = _kept_between(old[i:], new[j:], common) if not gone and not came else 0
            if not kept:
                raise ValueError(f"exchange {new[came].id!r} was added but takes no other's place")
            i, j = i + kept, j + kept
            while i < len(old) and old[i].id not in common:
                i += 1
            while j < len(new) and new[j].id not in common:
                j += 1
        if i > gone:
            found.append(Edit(tuple(old[gone:i]), tuple(new[came:j])))
        if i < len(old) and j < len(new):
            if old[i].id != new[j].id:
                raise ValueError(f"exchanges were reordered: {old[i].id!r} against {new[j].id!r}")
            if old[i] is not new[j]:
                found.append(Edit((old[i],), (new[j],)))
            i, j = i + 1, j + 1
        elif i < len(old) or j < len(new):
            raise ValueError(f"exchange {(old[i] if i < len(old) else new[j]).id!r} is there more than once")
    return tuple(found)


def _kept_between(old: Sequence[Exchange], new: Sequence[Exchange], common: Collection[str]) -> int:
    """How many exchanges stay before the next that gives way; 0 where none does."""
    at = 0
    while at < min(len(old), len(new)) and old[at].id == new[at].id:
        at += 1
    return at if at < len(old) and old[at].id not in common else 0


def apply_edits(edits: Sequence[Edit], view: History) -> History:
    """Make the same edits on another version of the history.

    Where `view` already holds an exchange in other words than the edit expects, its version stays: what was
    redacted stays redacted. Leaves that no edit touches stay the same objects.
    """
    edit_of = {exchange.id: edit for edit in edits for exchange in edit.removed}
    leaves: list[Leaf] = []
    placed: set[int] = set()
    for leaf in view.leaves:
        if any(exchange.id in edit_of for exchange in leaf.exchanges):
            leaves.extend(History(_edited(leaf, edit_of, placed, view)).leaves)
        else:
            leaves.append(leaf)
    return view if same_objects(leaves, view.leaves) else History(leaves=tuple(leaves))


def _edited(leaf: Leaf, edit_of: Mapping[str, Edit], placed: set[int], view: History) -> Iterator[Exchange]:
    """The exchanges of a leaf after the edits; what an edit inserts comes once, in the place of the first removed."""
    for exchange in leaf.exchanges:
        edit = edit_of.get(exchange.id)
        if edit is None:
            yield exchange
        elif edit.rewrites:
            yield edit.inserted[0] if exchange is edit.removed[0] else exchange
        elif id(edit) not in placed:
            placed.add(id(edit))
            yield from _placed(edit, view)


def _placed(edit: Edit, view: History) -> Iterator[Exchange]:
    """What an edit inserts; of what has stayed the view's version, and nothing where the view leaves it out."""
    stayed = {each.id: each for each in edit.removed} if len(edit.removed) > 1 else {}
    if stayed.keys().isdisjoint(each.id for each in edit.inserted):
        yield from edit.inserted
        return
    shown = {each.id: each for each in view if each.id in stayed}
    for each in edit.inserted:
        if each.id not in stayed:
            yield each
        elif (version := shown.get(each.id)) is not None:
            yield each if version is stayed[each.id] else version
