"""tiktoken's encodings, built from rank files that come with this package: nothing is ever downloaded.

tiktoken itself fetches the ranks on first use, without a time limit. Here they are package data, byte for byte what
tiktoken pins; where they are missing or damaged, a copy in the folder that `TIKTOKEN_CACHE_DIR` names does as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import os
import threading
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from agentscope_rx.errors import AgentScopeError, InvalidOption
from agentscope_rx.logs import logger

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from tiktoken import Encoding

EncodingName: TypeAlias = Literal["o200k_base", "cl100k_base"]
"""The encodings that this package holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingSpec:
    """What makes an encoding, its ranks apart; all values are those of `tiktoken_ext.openai_public`.

    Args:
        sha256: The digest of the rank file, as tiktoken pins it.
        url: Where tiktoken would fetch the file; its own cache names the file after it.
        pattern: How text is split before pairs of bytes are merged.
        special_tokens: Text that stands for a token of its own, where that is allowed. In counting it never is.
    """

    sha256: str
    url: str
    pattern: str
    special_tokens: Mapping[str, int]


_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

SPECS: Final[Mapping[str, EncodingSpec]] = {
    "o200k_base": EncodingSpec(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        url="https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        pattern=(
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}"
            rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
    "cl100k_base": EncodingSpec(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        url="https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}


class EncodingUnavailable(AgentScopeError):
    """An encoding cannot be built here.

    Args:
        name: The encoding.
        reason: Why, in snake case, as the warning in the log has it.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the encoding {name!r} cannot be built ({reason}): reinstall agentscope-rx and tiktoken, "
            "or count with ContextTokenEstimator.approximate()"
        )
        self.name, self.reason = name, reason


class Encodings:
    """Builds each encoding once and keeps it; safe from any thread.

    Args:
        folder: Where the rank files are, as `<name>.tiktoken.xz`; None = those of this package.
        environ: Where `TIKTOKEN_CACHE_DIR` is looked up.
    """

    def __init__(self, folder: Traversable | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self._folder, self._environ = folder, environ
        self._known: dict[str, Encoding | EncodingUnavailable] = {}
        self._lock = threading.Lock()

    def load(self, name: str) -> Encoding:
        """Give an encoding; the first time takes some 0.4 s and 80 MB, and failing is remembered too.

        Args:
            name: An `EncodingName`.

        Raises:
            InvalidOption: There is no such encoding here.
            EncodingUnavailable: It cannot be built; a warning in the log said why, once.
        """
        known = self._known.get(name)
        if known is None:
            if name not in SPECS:
                raise InvalidOption("encoding", name, f"it is one of {', '.join(SPECS)}")
            with self._lock:
                known = self._known.get(name)
                if known is None:
                    known = self._known[name] = self._build(name, SPECS[name])
        if isinstance(known, EncodingUnavailable):
            raise EncodingUnavailable(name, known.reason)  # a new one: an error gathers the traces of its raisers
        return known

    def _build(self, name: str, spec: EncodingSpec) -> Encoding | EncodingUnavailable:
        ranks = self._shipped(name, spec) or self._cached(spec)
        if ranks is None:
            return _unavailable(name, "no_ranks")
        try:
            from tiktoken import Encoding
        except ImportError:
            return _unavailable(name, "no_tiktoken")
        try:
            return Encoding(
                name,
                pat_str=spec.pattern,
                mergeable_ranks=_parsed(ranks),
                special_tokens=dict(spec.special_tokens),
            )
        except Exception as error:
            return _unavailable(name, "refused_by_tiktoken", error=type(error).__name__)

    def _shipped(self, name: str, spec: EncodingSpec) -> bytes | None:
        from importlib.resources import files

        folder = self._folder or files("agentscope_rx.tokens") / "data"
        try:
            ranks = lzma.decompress((folder / f"{name}.tiktoken.xz").read_bytes())
        except (OSError, lzma.LZMAError, EOFError) as error:
            logger().warning("shipped_ranks_unreadable", encoding=name, error=type(error).__name__)
            return None
        if _is(ranks, spec):
            return ranks
        logger().warning("shipped_ranks_changed", encoding=name)
        return None

    def _cached(self, spec: EncodingSpec) -> bytes | None:
        """The file in tiktoken's own cache; a wrong one is left where it is, which tiktoken would delete."""
        folder = self._environ.get("TIKTOKEN_CACHE_DIR")
        if not folder:
            return None
        try:
            ranks = Path(folder, hashlib.sha1(spec.url.encode(), usedforsecurity=False).hexdigest()).read_bytes()
        except OSError:
            return None
        return ranks if _is(ranks, spec) else None


#: The encodings of this process.
SHIPPED: Final = Encodings()


def load(name: str) -> Encoding:
    """Give an encoding of this process, built on first use.

    Args:
        name: `o200k_base` or `cl100k_base`.

    Raises:
        InvalidOption: There is no such encoding here.
        EncodingUnavailable: It cannot be built.

    Examples:
        >>> load("o200k_base").encode("Hello, world", disallowed_special=())
        [13225, 11, 2375]
    """
    return SHIPPED.load(name)


async def preload(*names: EncodingName) -> None:
    """Build encodings in a thread, so that no later count has to wait for them; for servers, at their start.

    One that cannot be built is a warning in the log, and counts are approximate then.

    Args:
        names: Which; none = `o200k_base`.

    Raises:
        InvalidOption: There is no such encoding here.
    """
    await asyncio.to_thread(build, names or ("o200k_base",), SHIPPED)


def build(names: Sequence[str], encodings: Encodings) -> None:
    """Build encodings, and go on where one cannot be built.

    Raises:
        InvalidOption: There is no such encoding here.
    """
    for name in names:
        try:
            encodings.load(name)
        except EncodingUnavailable:
            pass  # a warning in the log since it was tried, and counts are approximate


# -- small steps --------------------------------------------------------------------------------------------


def _is(ranks: bytes, spec: EncodingSpec) -> bool:
    return hashlib.sha256(ranks).hexdigest() == spec.sha256


def _parsed(ranks: bytes) -> dict[bytes, int]:
    return {b64decode(token): int(rank) for token, rank in (line.split() for line in ranks.splitlines())}


def _unavailable(name: str, reason: str, **facts: str) -> EncodingUnavailable:
    logger().warning("tokens_counted_approximately", encoding=name, reason=reason, **facts)
    return EncodingUnavailable(name, reason)
