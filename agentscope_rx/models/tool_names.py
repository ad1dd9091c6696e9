"""Names of tools as every provider takes them."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_VALID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INVALID_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_KEPT: Final = 55


def wire_name(name: str) -> str:
    """The name itself, or in place of one that providers refuse a valid one; equal names give equal ones.

    Models invent names, and a provider refuses the whole request for one of an old call. The name in messages,
    events and log stays as the model wrote it.

    Examples:
        >>> wire_name("read_file"), wire_name("browser.tabs.open")
        ('read_file', 'browser_tabs_open_28eee230')
    """
    if _VALID.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_INVALID_CHARACTER.sub('_', name)[:_KEPT] or 'tool'}_{digest}"


def wire_speaker(name: str) -> str:
    """The name of a speaker in the characters that providers take; empty where none of them is left."""
    return _INVALID_CHARACTER.sub("_", name).strip("_")[:64]
