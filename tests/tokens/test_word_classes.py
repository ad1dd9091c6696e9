"""The word-class estimate against the truth of `o200k_base`."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agentscope_rx.tokens.encodings import load
from agentscope_rx.tokens.word_classes import WordClassEstimator
from tests.tokens.texts import varied

ESTIMATOR = WordClassEstimator()
TEXTS = varied()
#: Texts drawn at random from whole scripts: as documented, no estimate by classes gets these right.
DRAWN = ("random", "scripts")


def truth(text: str) -> int:
    return len(load("o200k_base").encode(text, disallowed_special=()))


@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind not in DRAWN])
def test_the_estimate_is_near_the_truth(kind: str) -> None:
    """Prose, code, JSON, emoji, blanks: from a fifth too low to a third too high, as documented."""
    assert 0.8 <= ESTIMATOR.count(TEXTS[kind]) / truth(TEXTS[kind]) <= 1.35


@pytest.mark.parametrize("kind", DRAWN)
def test_drawn_text_is_not_far_off(kind: str) -> None:
    """Even what no one writes is not off by more than a half."""
    assert 0.5 <= ESTIMATOR.count(TEXTS[kind]) / truth(TEXTS[kind]) <= 1.5


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        ("上下文压缩必须在请求发送之前触发。", 0.6, 1.0),
        ("これはテストです。", 0.6, 1.0),
        ("이것은 시험이다. ", 0.6, 1.0),
        ("plain english words here. ", 0.2, 0.4),
        ("调用 read_file 读取 config.yaml 失败；", 0.3, 0.6),
        ("😀", 1.0, 3.0),
    ],
)
def test_tokens_for_each_character(text: str, lowest: float, highest: float) -> None:
    """Chinese, Japanese and Korean are not counted at the rate of English, at which nothing would be compacted."""
    assert lowest <= ESTIMATOR.count(text * 200) / len(text * 200) <= highest


@pytest.mark.parametrize("kind", TEXTS)
def test_more_text_never_has_fewer_tokens(kind: str) -> None:
    """A text that grows line by line, as history does, does not shrink in the estimate."""
    text = TEXTS[kind][:600]
    counts = [ESTIMATOR.count(text[:end]) for end in range(len(text) + 1)]
    assert all(later >= earlier - 1 for earlier, later in pairwise(counts))
    assert counts[0] == 0
