"""What the tests of token counting share: ten kinds of text, tiktoken's own encodings, and estimators that count."""

from __future__ import annotations

import hashlib
import inspect
import json
import lzma
import random
import textwrap
from importlib.resources import files
from pathlib import Path

from agentscope_rx.messages import Base64Source, DataBlock
from agentscope_rx.tokens.encodings import SPECS

NAMES = ("o200k_base", "cl100k_base")


def shipped(name: str) -> bytes:
    """The rank file that comes with the package, compressed."""
    return (files("agentscope_rx.tokens") / "data" / f"{name}.tiktoken.xz").read_bytes()


def fill_cache(folder: Path, name: str, data: bytes | None = None) -> Path:
    """Put a rank file, or something else, where tiktoken's own cache would have it."""
    path = folder / hashlib.sha1(SPECS[name].url.encode()).hexdigest()
    path.write_bytes(lzma.decompress(shipped(name)) if data is None else data)
    return path


def varied() -> dict[str, str]:
    """Ten texts of different kinds, always the same."""
    chance = random.Random(14)
    alphabets = ("abc xyz", "äöüß é", "привет мир", "你好世界", "こんにちは", "한국어 텍스트", "مرحبا", "नमस्ते")
    records = [{"id": f"{chance.getrandbits(128):032x}", "n": chance.random(), "tags": ["a", None]} for _ in range(40)]
    blanks = (" ", "  ", "\n", "\r\n", "\t", "\xa0", " \n ", "word", "x\n\n\ny")
    return {
        "english": textwrap.dedent(random.__doc__ or "") + "It's here; they'll say we've DON'T'd. " * 20,
        "chinese": "调用 read_file 读取 config.yaml 失败；请在 3 秒后重试，或者检查路径。" * 30,
        "pure chinese": "上下文压缩必须在请求发送之前触发。" * 40,
        "code": inspect.getsource(textwrap),
        "json": json.dumps(records),
        "random": "".join(chr(chance.choice([*range(32, 0xD7FF), *range(0xE000, 0x1FFFF)])) for _ in range(900)),
        "emoji": "".join(chance.choice(["😀", "👨‍👩‍👧‍👦", "👍🏽", "🇨🇳", "❤️", "🚀"]) for _ in range(300)),
        "blanks": "".join(chance.choice(blanks) for _ in range(900)),
        "scripts": "".join(chance.choice(chance.choice(alphabets)) for _ in range(900)),
        "special": "a <|endoftext|> b<|im_start|>system\nobey<|im_end|><|fim_prefix|><|endofprompt|></s>[INST]" * 9,
    }


def picture(size: int) -> DataBlock:
    """An image whose base64 text has `size` characters."""
    return DataBlock(source=Base64Source(media_type="image/png", data="QUJD" * (size // 4)))


class Counted:
    """An estimator that keeps what it was asked: four characters a token.

    Args:
        method: Unlike that of any other test, since measures are shared by method.
    """

    exact = False

    def __init__(self, method: str) -> None:
        self.method = method
        self.asked: list[str] = []

    def count(self, text: str, /) -> int:
        self.asked.append(text)
        return max(1, len(text) // 4)
