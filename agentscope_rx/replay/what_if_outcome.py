"""What comes of `what_if`: a request as it was and as it would have been, and in what they differ."""

from __future__ import annotations

from typing import Final

from agentscope_rx.compactions import CompactionOutcome
from agentscope_rx.frozen import frozen
from agentscope_rx.manifest import ContextManifest, ManifestItem

_MOST_ITEMS: Final = 20


@frozen
class WhatIf:
    """A request as it was, and as it would have been.

    Args:
        step: Which reasoning step.
        before: The account of the request as it was sent.
        after: The account of the one that would have been.
        error: Why that would have been refused; None = it would not.
        notes: What is to be known of the comparison: what was asked anew, and what nobody could know.
    """

    step: int
    before: ContextManifest
    after: ContextManifest
    error: Exception | None = None
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[ManifestItem, ...]:
        """The items that both hold, word for word."""
        there = {(item.id, item.digest) for item in self.before.items}
        return tuple(item for item in self.after.items if (item.id, item.digest) in there)

    @property
    def dropped(self) -> tuple[ManifestItem, ...]:
        """The items that would be missing."""
        return _without(self.before, self.after)

    @property
    def added(self) -> tuple[ManifestItem, ...]:
        """The items that would be new."""
        return _without(self.after, self.before)

    @property
    def changed(self) -> tuple[ManifestItem, ...]:
        """The items that would say something else."""
        digests = {item.id: item.digest for item in self.before.items}
        return tuple(item for item in self.after.items if digests.get(item.id, item.digest) != item.digest)

    @property
    def tokens(self) -> int:
        """How many tokens more the request would have."""
        return self.after.estimated_input_tokens - self.before.estimated_input_tokens

    @property
    def prefix_tokens(self) -> int:
        """How many leading tokens more it would have in common with the request before it."""
        return self.after.prefix.tokens - self.before.prefix.tokens

    def __str__(self) -> str:
        old, new = self.before, self.after
        lines = [
            f"step {self.step}: {old.estimated_input_tokens:,} -> {new.estimated_input_tokens:,} tokens",
            f"limit: {_number(old.input_limit)} -> {_number(new.input_limit)} tokens",
            f"shared with the request before: {old.prefix.tokens:,} -> {new.prefix.tokens:,} tokens",
            f"kept {len(self.kept)}, dropped {len(self.dropped)}, added {len(self.added)}, changed {len(self.changed)}",
        ]
        for mark, items in (("-", self.dropped), ("+", self.added), ("~", self.changed)):
            lines += [f"  {mark} {item.zone}: {item.id} ({item.tokens:,})" for item in items[:_MOST_ITEMS]]
            if len(items) > _MOST_ITEMS:
                lines.append(f"  {mark} … {len(items) - _MOST_ITEMS} more")
        lines += [f"  {change.operator}: {change.reason}" for change in new.changes if change.action == "dropped"]
        if new.compaction is not None and new.compaction.outcome is CompactionOutcome.PLANNED:
            lines.append("  the summary of a compaction is planned: nobody was asked, and it counts with its limit")
        if self.error is not None:
            lines.append(f"it would be refused: {self.error}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _without(one: ContextManifest, other: ContextManifest) -> tuple[ManifestItem, ...]:
    there = {item.id for item in other.items}
    return tuple(item for item in one.items if item.id not in there)


def _number(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"
