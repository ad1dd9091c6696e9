"""Estimators: equal to tiktoken, never raising, and honest about what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from agentscope_rx.tokens import ContextTokenEstimator, TokenEstimator
from agentscope_rx.tokens.encodings import Encodings, load
from agentscope_rx.tokens.estimators import PIECE_CHARS, TiktokenEstimator, encoding_of, pieces
from tests.tokens.texts import NAMES, fill_cache, varied

TEXTS = varied()
MODELS = {"o200k_base": "gpt-5", "cl100k_base": "gpt-4"}
APPROXIMATE = ContextTokenEstimator.approximate()
ESTIMATORS = (APPROXIMATE, *(ContextTokenEstimator.for_model(model) for model in MODELS.values()))
O200K = (
    *("gpt-5", "gpt-5-mini", "gpt-5.1-2026-01-01", "gpt-4.1", "gpt-4.1-nano", "gpt-4.5-preview"),
    *("gpt-4o", "gpt-4o-mini", "chatgpt-4o-latest", "o1", "o1-mini", "o3", "o3-pro", "o4-mini"),
    *("gpt-oss-20b", "gpt-oss:120b", "ft:gpt-4o-mini:acme"),
    *("openai/gpt-4o", "GPT-4o", "openai:gpt-5", "openrouter/openai/gpt-5"),
)
CL100K = ("gpt-4", "gpt-4-turbo", "gpt-4-0613", "gpt-3.5-turbo", "gpt-35-turbo", "ft:gpt-4-0613:acme")
SPECIAL = ("<|endoftext|>", "<|im_start|>system\nobey<|im_end|>", "<|fim_prefix|><|endofprompt|>", "</s>[INST]")

#: What is special to the patterns of the encodings.
ODD = st.sampled_from("_'’\u0301sSdxX9 \n\r\t/.")

any_text = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"])) | st.lists(
    st.sampled_from([*SPECIAL, "\0", "\ud83d", "\ude00", "\n", " ", "x"])
).map("".join)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tiktoken.Encoding]:
    """tiktoken's own encodings, from its own cache, which it checks against its own digests."""
    cache = tmp_path_factory.mktemp("cache")
    for name in NAMES:
        fill_cache(cache, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        return {name: tiktoken.get_encoding(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", TEXTS)
def test_counts_equal_those_of_tiktoken(name: str, kind: str, theirs: Mapping[str, tiktoken.Encoding]) -> None:
    """For a model known to use the encoding the count of text is exact, text of special tokens included."""
    expected = len(theirs[name].encode_ordinary(TEXTS[kind]))
    assert ContextTokenEstimator.for_model(MODELS[name]).count(TEXTS[kind]) == expected


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.method)
@given(text=any_text)
@example(text="\ud83d")
@example(text="\x00")
@example(text=SPECIAL[0])
@example(text=" " * 1000)
@example(text="\u0301")
def test_any_text_has_a_count(estimator: ContextTokenEstimator, text: str) -> None:
    """Half an emoji, NUL, special tokens: at least one token, and never an error; only the empty text has none."""
    count = estimator.count(text)
    assert isinstance(count, int)
    assert count >= 1 if text else count == 0


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.method)
@pytest.mark.parametrize("character", [" ", "\n", "\t", "\xa0", "a", "7", "!", "好", "😀", "\ud800"])
def test_a_million_of_a_kind_are_counted(
    estimator: ContextTokenEstimator, character: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A run on which tiktoken itself raises or panics is counted, without a failure that ends in an estimate."""
    assert 1 <= estimator.count(character * 1_000_000) <= 5_000_000
    assert caplog.records == []


# -- pieces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", TEXTS)
def test_pieces_never_count_less_than_the_whole(name: str, kind: str) -> None:
    """Of a text of several pieces no token is lost, and each cut adds one at most."""
    text = TEXTS[kind] * (3 * PIECE_CHARS // len(TEXTS[kind]))
    whole = len(load(name).encode(text, disallowed_special=()))
    cuts = sum(1 for _ in pieces(text)) - 1
    assert cuts >= 2
    assert whole <= TiktokenEstimator(load(name)).count(text) <= whole + (cuts if kind in ("emoji", "blanks") else 0)


@pytest.mark.parametrize("name", NAMES)
@given(
    chunks=st.lists(
        st.tuples(
            st.text(ODD | st.characters(codec="utf-8"), max_size=4),
            st.sampled_from("a7é好ß"),
            st.sampled_from(' \n\t.,;:-_/\\"(){}[]<>|#~`、。'),
        ),
        min_size=2,
    )
)
@example(chunks=[("a" * 13, "a", "_"), ("_", "a", ".")])
@example(chunks=[("it", "é", " "), ("aaaaaae'me", "a", "n"), ("s.", "a", ".")])
def test_a_cut_after_a_letter_is_where_a_token_ends(name: str, chunks: list[tuple[str, str, str]]) -> None:
    """Whatever stands around it: pieces of at most 16 characters have the tokens of the whole, one by one."""
    text = "".join("".join(chunk) for chunk in chunks)
    cut = list(pieces(text, 16))
    assert "".join(cut) == text
    assert all(len(piece) <= 16 for piece in cut)
    encoding = load(name)
    tokens = [token for piece in cut for token in encoding.encode(piece, disallowed_special=())]
    assert tokens == encoding.encode(text, disallowed_special=())


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 33])
def test_a_text_without_ends_is_cut_anyhow(length: int) -> None:
    """Text that offers no good place is cut at the limit; no character is lost or doubled."""
    cut = list(pieces("x" * length, 16))
    assert "".join(cut) == "x" * length
    assert all(len(piece) == 16 for piece in cut[:-1])
    assert len(cut[-1]) <= 16


# -- failures of tiktoken -----------------------------------------------------------------------------------


class PanicException(BaseException):
    """What a panic of Rust looks like from Python."""


class Failing:
    """An encoding that fails."""

    name = "failing"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> list[int]:
        raise self.error


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), ValueError("stack"), MemoryError()])
def test_a_failure_of_tiktoken_gives_an_estimate(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Even a panic, which is no `Exception`, ends in an estimate, and in one warning."""
    estimator = TiktokenEstimator(Failing(error))
    for _ in range(3):
        assert estimator.count(TEXTS["english"]) == APPROXIMATE.count(TEXTS["english"])
    (record,) = caplog.records
    assert record.getMessage() == "encoding_failed"
    assert (getattr(record, "encoding", None), getattr(record, "error", None)) == ("failing", type(error).__name__)


def test_an_interrupt_is_no_failure_of_tiktoken() -> None:
    """Ctrl-C while counting is let through."""
    with pytest.raises(KeyboardInterrupt):
        TiktokenEstimator(Failing(KeyboardInterrupt())).count("x")


# -- which estimator ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", O200K)
def test_models_of_o200k(model: str) -> None:
    """OpenAI's newer chat models, whoever serves them, are counted exactly with `o200k_base`."""
    estimator = ContextTokenEstimator.for_model(model)
    assert (estimator.method, estimator.exact) == ("tiktoken:o200k_base+chat-v1", True)


@pytest.mark.parametrize("model", CL100K)
def test_models_of_cl100k(model: str) -> None:
    """OpenAI's older chat models are counted exactly with `cl100k_base`."""
    estimator = ContextTokenEstimator.for_model(model)
    assert (estimator.method, estimator.exact) == ("tiktoken:cl100k_base+chat-v1", True)


@pytest.mark.parametrize(
    "model", ["qwen3-max", "deepseek-chat", "claude-5", "o1x", "gpt-4all", "gpt-2", "my o3", "", " "]
)
def test_other_models_have_a_proxy(model: str) -> None:
    """A model that is not known to use an encoding is counted with `o200k_base`, and the count says so."""
    estimator = ContextTokenEstimator.for_model(model)
    assert (estimator.method, estimator.exact) == ("tiktoken:o200k_base(proxy)+chat-v1", False)
    assert estimator.count(TEXTS["english"]) == ContextTokenEstimator.for_model("gpt-5").count(TEXTS["english"])


@pytest.mark.parametrize("model", tiktoken.model.MODEL_TO_ENCODING)
def test_no_model_is_known_otherwise_than_to_tiktoken(model: str) -> None:
    """Where our table names an encoding it is the one of tiktoken's table."""
    expected = tiktoken.model.MODEL_TO_ENCODING[model]
    assert encoding_of(model) in (expected, None)
    if re.match(r"gpt-\d.*\d|gpt-4|o\d", model):
        assert encoding_of(model) == expected


def test_the_approximate_one_says_so() -> None:
    """`approximate()` needs no encoding and is never exact."""
    assert (APPROXIMATE.method, APPROXIMATE.exact) == ("approx:wordclass-v1+chat-v1", False)


async def test_without_an_encoding_counts_are_approximate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It never fails a run: method and exactness tell, and each reason is in the log once."""
    encodings = Encodings(tmp_path, {})
    for _ in range(2):
        estimator: TokenEstimator
        estimator = made = ContextTokenEstimator("o200k_base", encodings=encodings)
        await made.ready()
        assert (estimator.method, estimator.exact) == ("approx:wordclass-v1+chat-v1", False)
        assert estimator.count(TEXTS["json"]) == APPROXIMATE.count(TEXTS["json"])
    assert [record.getMessage() for record in caplog.records] == [
        "shipped_ranks_unreadable",
        "tokens_counted_approximately",
    ]


async def test_ready_builds_before_the_first_count(tmp_path: Path) -> None:
    """After `ready()` the encoding is there: even without its file the count is exact."""
    file = fill_cache(tmp_path, "cl100k_base")
    encodings = Encodings(tmp_path, {"TIKTOKEN_CACHE_DIR": str(tmp_path)})
    estimator = ContextTokenEstimator("cl100k_base", encodings=encodings)
    await estimator.ready()
    file.unlink()
    assert (estimator.count("Hello, world"), estimator.exact) == (3, True)
    await ContextTokenEstimator.approximate().ready()
