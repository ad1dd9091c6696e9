"""Context blocks: the pieces of a request that are no messages."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBlock:
    """A piece of text with an identity of its own.

    Args:
        id: What names it in a request; it survives when the text is rewritten.
        text: What the model reads.
        kind: `runtime`, `reference`, or the sort of instruction or material.
        required: Whether the request is refused rather than sent without it.
        priority: Which of several comes first (the higher), and goes last when room is short.
        revision: Which version of its source it is.

    Raises:
        ValueError: The id is blank.
    """

    id: str
    text: str
    kind: str
    required: bool = False
    priority: int = 0
    revision: str | None = None

    def __post_init__(self) -> None:
        if not self.id.strip():
            raise ValueError("the id of a context block may not be blank")

    @classmethod
    def runtime(
        cls, id: str, text: str, *, required: bool = False, priority: int = 0, revision: str | None = None
    ) -> ContextBlock:
        """Make a block of current state: it belongs to this request and is outdated by the next."""
        return cls(id=id, text=text, kind="runtime", required=required, priority=priority, revision=revision)

    @classmethod
    def reference(
        cls, id: str, text: str, *, required: bool = False, priority: int = 0, revision: str | None = None
    ) -> ContextBlock:
        """Make a block of material that carries no authority of its own."""
        return cls(id=id, text=text, kind="reference", required=required, priority=priority, revision=revision)

    def as_required(self) -> ContextBlock:
        """The same block, which must be in the request."""
        return replace(self, required=True)

    def with_priority(self, priority: int) -> ContextBlock:
        """The same block with another priority."""
        return replace(self, priority=priority)

    def with_revision(self, revision: str) -> ContextBlock:
        """The same block, saying which version of its source it is."""
        return replace(self, revision=revision)

    def with_text(self, text: str) -> ContextBlock:
        """The same block in other words."""
        return replace(self, text=text)
