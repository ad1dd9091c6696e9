"""Facts are compared by what they say."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.memory.facts import facts_in, in_own_words, without_known

WORDS = st.text("abc ü.-#*:0", min_size=0, max_size=12)
TEXTS = st.lists(WORDS, max_size=8).map("\n".join)


def said(text: str) -> set[str]:
    """The facts of a text, by a rule that is written down a second time."""
    found: set[str] = set()
    for line in text.splitlines():
        fact = re.sub(r"^(?:[-*+•]\s+)?(?:\d{1,2}:\d{2}(?::\d{2})?\s+)?", "", line.strip())
        fact = re.sub(r"\s+", " ", fact).casefold().rstrip(" .")
        if fact and not fact.startswith("#"):
            found.add(fact)
    return found


@given(TEXTS, TEXTS)
def test_each_new_fact_stays_and_no_known_one_does(text: str, known: str) -> None:
    """What is left holds exactly the facts that are not known."""
    assert said(without_known(text, known)) == said(text) - said(known)


@given(TEXTS, TEXTS)
def test_written_down_once_it_is_known(text: str, known: str) -> None:
    """A second time there is nothing left; and nothing is what holds no new fact."""
    left = without_known(text, known)
    assert without_known(text, known, left) == ""
    assert (left == "") == (said(text) <= said(known))


@given(TEXTS)
def test_each_line_comes_once(text: str) -> None:
    """A fact that a text says twice is in what is left once."""
    lines = [line for line in without_known(text).splitlines() if said(line)]
    assert len(lines) == len(said(text))


@given(st.lists(st.sampled_from(["- mail a@b", "- mail c@d", "- tea", "# Home"]), max_size=6), TEXTS)
def test_what_was_shown_in_other_words_keeps_its_own(original: list[str], text: str) -> None:
    """None of it is lost, whatever was made of it, it stands where its other words stood, and nothing else changes."""

    def worded(line: str) -> str:
        return re.sub(r"\w@\w", "[mail]", line)

    made = f"{text}\n* MAIL [mail].\n# End" if "- mail a@b" in original else text
    found = in_own_words(made, "\n".join(original), worded).splitlines()
    own = [line for line in original if "@" in line]
    assert [line for line in found if "@" in line] == own
    kept = [line for line in made.splitlines() if line and (not own or "[mail]" not in line)]
    assert [line for line in found if line and "@" not in line] == kept
    assert "- mail a@b" not in original or found[-1] == "# End"


def test_how_many_facts() -> None:
    """The lines with a bullet; a text without one is one fact."""
    assert [facts_in(text) for text in ("- a\n- b", "a\nb", " - a\nb")] == [2, 1, 1]
