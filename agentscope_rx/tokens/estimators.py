"""Counters of tokens: exact with an encoding, approximate without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from agentscope_rx.logs import logger
from agentscope_rx.tokens.encodings import SHIPPED, EncodingName, Encodings, EncodingUnavailable, build
from agentscope_rx.tokens.word_classes import WordClassEstimator

PIECE_CHARS: Final = 65_536
"""A longer text is counted in pieces: tiktoken refuses a run of a million blanks."""

_NEAR_END: Final = 4_096
#: After a letter or digit, before what neither continues it nor is an apostrophe: a token ends there in both
#: encodings, and how the text is split on either side does not depend on the other.
_TOKEN_END: Final = re.compile(r"[^\W_](?=[\x00-&(-/:-@\[-`{-\x7f、。，．：；！？（）「」])")

_APPROXIMATE: Final = WordClassEstimator()


class TokenEstimator(Protocol):
    """Counts the tokens of a text, and says how it does so. Safe from any thread.

    Counts are remembered for the whole process under the class and the `method`: two estimators of one class that
    count differently must not share a method.
    """

    @property
    def method(self) -> str:
        """How is counted, as manifests and logs show it."""
        ...

    @property
    def exact(self) -> bool:
        """Whether a text's count is what the model itself would count."""
        ...

    def count(self, text: str, /) -> int:
        """How many tokens a text has; never raises for its content, and 0 only for the empty text."""
        ...


class Encoder(Protocol):
    """The part of `tiktoken.Encoding` that counting needs."""

    @property
    def name(self) -> str:
        """The encoding's name."""
        ...

    def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> Sequence[int]:
        """The tokens of a text."""
        ...


class TiktokenEstimator:
    """Counts with an encoding of tiktoken.

    Text that looks like a special token is counted as the text that it is. Longer text is counted in pieces of
    64 Ki characters, which end where a token ends; only in a text that goes on for 64 Ki characters without a
    blank or a mark after a letter may that add a token for each cut.

    Args:
        encoding: The encoding.
        proxy: Whether it only stands for that of the model, which is not known.
    """

    __slots__ = ("_encoding", "_failed", "exact", "method")

    def __init__(self, encoding: Encoder, *, proxy: bool = False) -> None:
        self._encoding = encoding
        self._failed = False
        self.exact: Final = not proxy
        self.method: Final = f"tiktoken:{encoding.name}{'(proxy)' if proxy else ''}+chat-v1"

    def count(self, text: str, /) -> int:
        """How many tokens a text has; 0 only for the empty text."""
        return self._count(text) if len(text) <= PIECE_CHARS else sum(map(self._count, pieces(text)))

    def _count(self, piece: str) -> int:
        if not piece:
            return 0
        try:
            return len(self._encoding.encode(piece, disallowed_special=()))
        except Exception as error:
            return self._estimate(piece, error)
        except BaseException as error:
            # A panic of Rust is none of Python's exceptions, and would get past everybody's handlers.
            if type(error).__name__ != "PanicException":
                raise
            return self._estimate(piece, error)

    def _estimate(self, piece: str, error: BaseException) -> int:
        if not self._failed:
            self._failed = True
            logger().warning("encoding_failed", encoding=self._encoding.name, error=type(error).__name__)
        return _APPROXIMATE.count(piece)


class ContextTokenEstimator:
    """The estimator for a model, chosen by its name. Cheap to make: the encoding is built at the first use.

    Building takes some 0.4 s; `await estimator.ready()`, or `preload()` at a server's start, has it done in a thread.
    Where the encoding cannot be built, counts are approximate, `method` and `exact` say so, and the log has one
    warning. Equal are those that count alike.

    Args:
        encoding: The encoding to count with; None = none, all counts are approximate.
        proxy: Whether it only stands for that of the model, which is not known.
        encodings: Where it comes from.

    Raises:
        InvalidOption: There is no such encoding; at the first use.

    Examples:
        >>> estimator = ContextTokenEstimator.for_model("gpt-5-mini")
        >>> estimator.count("Hello, world"), estimator.method, estimator.exact
        (3, 'tiktoken:o200k_base+chat-v1', True)
    """

    __slots__ = ("_chosen", "_encoding", "_encodings", "_proxy")

    def __init__(self, encoding: EncodingName | None, *, proxy: bool = False, encodings: Encodings = SHIPPED) -> None:
        self._encoding, self._proxy, self._encodings = encoding, proxy, encodings
        self._chosen: TokenEstimator | None = None

    @classmethod
    def approximate(cls) -> ContextTokenEstimator:
        """Make one that needs no encoding; how good it is stands in `WordClassEstimator`."""
        return cls(None)

    @classmethod
    def for_model(cls, name: str) -> ContextTokenEstimator:
        """Make the one for a model.

        Args:
            name: The model's name, as its provider has it. Counts are exact for OpenAI's chat models; for all
                others `o200k_base` stands in, and `exact` is false.

        Examples:
            >>> ContextTokenEstimator.for_model("qwen3-max").method
            'tiktoken:o200k_base(proxy)+chat-v1'
        """
        encoding = encoding_of(name)
        return cls(encoding or "o200k_base", proxy=encoding is None)

    @property
    def method(self) -> str:
        """How is counted."""
        return self._choice.method

    @property
    def exact(self) -> bool:
        """Whether the encoding is the model's own."""
        return self._choice.exact

    def count(self, text: str, /) -> int:
        """How many tokens a text has; 0 only for the empty text."""
        return self._choice.count(text)

    async def ready(self) -> None:
        """Build the encoding in a thread, where that is not done yet.

        Raises:
            InvalidOption: There is no such encoding.
        """
        if self._chosen is None and self._encoding is not None:
            await asyncio.to_thread(build, (self._encoding,), self._encodings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextTokenEstimator) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str | None, bool, Encodings]:
        return self._encoding, self._proxy, self._encodings

    @property
    def _choice(self) -> TokenEstimator:
        chosen = self._chosen
        if chosen is None:
            chosen = self._chosen = self._choose()
        return chosen

    def _choose(self) -> TokenEstimator:
        if self._encoding is None:
            return _APPROXIMATE
        try:
            return TiktokenEstimator(self._encodings.load(self._encoding), proxy=self._proxy)
        except EncodingUnavailable:
            return _APPROXIMATE


# -- which encoding -----------------------------------------------------------------------------------------

#: What may stand before a model's name: the provider, and the mark of a model that was trained further.
_BEFORE_NAME: Final = re.compile(r"(?:(?:openai|azure|openrouter)[/:]|ft:)*")
_FAMILIES: Final[tuple[tuple[EncodingName, re.Pattern[str]], ...]] = (
    ("o200k_base", re.compile(r"gpt-(?:5|4\.[15](?!\d)|4o|oss)|chatgpt-4o|o[134](?![\w.])")),
    ("cl100k_base", re.compile(r"gpt-(?:4|3\.?5)(?![\w.])")),
)


def encoding_of(model: str) -> EncodingName | None:
    """The encoding that a model is known to use, the same as in tiktoken's table; None = not known.

    Args:
        model: The model's name; `openai/`, `azure/` and `ft:` in front do not count.
    """
    name = model.strip().lower()
    start = _BEFORE_NAME.match(name)
    assert start is not None  # it matches the empty text too
    for encoding, family in _FAMILIES:
        if family.match(name, start.end()):
            return encoding
    return None


# -- pieces -------------------------------------------------------------------------------------------------


def pieces(text: str, size: int = PIECE_CHARS) -> Iterator[str]:
    """Cut a text into pieces, where a token ends if at all possible.

    Args:
        text: The text.
        size: How long a piece may be, in characters.
    """
    start = 0
    while len(text) - start > size:
        end = start + size
        end = _last_token_end(text, max(start, end - _NEAR_END), end) or _last_token_end(text, start, end) or end
        yield text[start:end]
        start = end
    yield text[start:]


def _last_token_end(text: str, start: int, end: int) -> int | None:
    ends = [found.end() for found in _TOKEN_END.finditer(text, start, end)]
    return ends[-1] if ends else None
