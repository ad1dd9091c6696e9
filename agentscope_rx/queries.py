"""What somebody looks for in texts: one meaning for every search."""

from __future__ import annotations

from typing import Final

from agentscope_rx.frozen import frozen

#: How a query is looked for: as it is, by all of its words in one text, or by any of them.
MODES: Final = ("phrase", "all", "any")


@frozen(kw_only=False)
class Query:
    """What is looked for.

    Args:
        wanted: Texts in lower case that are looked for as they are.
        every: Whether all of them must be in one text, and not only one.
    """

    wanted: tuple[str, ...]
    every: bool = True

    @classmethod
    def of(cls, query: str, mode: str = "phrase") -> Query:
        """The query that somebody has typed.

        Raises:
            ValueError: It is blank, or the mode is none of `MODES`.

        Examples:
            >>> Query.of("Two Words", "any")
            Query(wanted=('two', 'words'), every=False)
        """
        phrase = query.lower().strip()
        if not phrase:
            raise ValueError("query: must not be blank")
        if mode not in MODES:
            raise ValueError(f"matchMode: should be one of {', '.join(MODES)}, got {mode!r}")
        return cls((phrase,)) if mode == "phrase" else cls(tuple(phrase.split()), mode == "all")

    def finds(self, text: str) -> bool:
        """Whether it is found in a text, which is in lower case."""
        return (all if self.every else any)(each in text for each in self.wanted)
