"""Context blocks: the pieces of a request that are no messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentscope_rx.frozen import frozen

#: Kinds of block that are shown without tags: the application's prompt and the library's own words.
PLAIN: Final = frozenset({"system_input", "empty_response", "conclude", "output_reminder"})
#: The kind of the facts about a session; they stand together in tags of their own.
SESSION: Final = "session"
#: The kind of what says whether the session is planning; it stands with those facts.
PLAN_STATE: Final = "plan_state"
RUNTIME_KINDS: Final = frozenset({SESSION, PLAN_STATE})
#: Kinds of the blocks that show the session's task; they stand together in tags of their own.
TODO_STATE: Final = "todo_state"
REQUIREMENTS: Final = "requirements"
VERIFICATION: Final = "verification"
TASK_KINDS: Final = (TODO_STATE, REQUIREMENTS, VERIFICATION)
#: Kinds of transient block that are no material of any source.
OWN_KINDS: Final = PLAIN | RUNTIME_KINDS | frozenset(TASK_KINDS)


@frozen
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
        TypeError: Id, text or revision is no text.
        ValueError: The id is blank, or the revision is.
    """

    id: str
    text: str
    kind: str
    required: bool = False
    priority: int = 0
    revision: str | None = None

    def __post_init__(self) -> None:
        for name in ("id", "text", "revision"):
            value: object = getattr(self, name)
            if not isinstance(value, str) and not (name == "revision" and value is None):
                raise TypeError(f"the {name} of a context block is a text, not {value!r:.80}")
        if not self.id.strip():
            raise ValueError("the id of a context block may not be blank")
        if self.revision is not None and not self.revision.strip():
            raise ValueError(f"the revision of the context block {self.id!r} may not be blank; None = it has none")

    @property
    def blank(self) -> bool:
        """Whether it says nothing; such a block is not shown."""
        return not self.text.strip()

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


# -- the order in which the model reads them ----------------------------------------------------------------


def by_priority(blocks: Sequence[ContextBlock]) -> list[ContextBlock]:
    """Those that say something: the higher priority first, then by id."""
    return sorted((b for b in blocks if not b.blank), key=lambda block: (-block.priority, block.id))


def system_order(blocks: Sequence[ContextBlock]) -> list[ContextBlock]:
    """The System zone as it is read: the prompt, then the instructions by priority."""
    prompt = [block for block in blocks if block.kind in PLAIN and not block.blank]
    return [*prompt, *by_priority([block for block in blocks if block.kind not in PLAIN])]


def transient_order(blocks: Sequence[ContextBlock]) -> list[ContextBlock]:
    """Current state as it is read: what sources say by priority, the task, facts about the session, our own words."""
    shown = [block for block in blocks if not block.blank]
    own = [block for block in shown if block.kind in PLAIN]
    task = [block for kind in TASK_KINDS for block in shown if block.kind == kind]
    session = [block for block in shown if block.kind in RUNTIME_KINDS]
    state = [block for block in shown if block.kind not in OWN_KINDS]
    return [*by_priority(state), *task, *session, *own]
