"""Identities as keys and as names of folders. Nothing else turns an id that came from outside into either."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from typing import Final

from agentscope_rx.errors import InvalidIdentifier
from agentscope_rx.frozen import frozen

_LONGEST_ID: Final = 512
_LONGEST_NAME: Final = 150
_KEPT_OF_LONG: Final = 64


@frozen
class SessionKey:
    """Which session of which user of which agent.

    Args:
        agent_id: The agent.
        user_id: The user; None = nobody's in particular, which is not the same as any name.
        session_id: The session.

    Raises:
        InvalidIdentifier: An id is blank, longer than 512 characters, or holds control characters or lone
            surrogates.
    """

    agent_id: str
    user_id: str | None
    session_id: str

    def __post_init__(self) -> None:
        check_identifier("agent_id", self.agent_id)
        check_identifier("session_id", self.session_id)
        if self.user_id is not None:
            check_identifier("user_id", self.user_id)


def check_identifier(what: str, value: str) -> str:
    """Give the id back, or raise `InvalidIdentifier`."""
    if not value.strip() or len(value) > _LONGEST_ID or any(map(_refused, value)):
        raise InvalidIdentifier(what, value)
    return value


def _refused(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs")


def folder_name(identifier: str) -> str:
    """A name for a folder: different ids give different names, also on disks that do not tell `A` from `a`.

    Short ids can be read back (base32); of long ones the beginning can, and a hash tells them apart.

    Examples:
        >>> folder_name("alice")
        's_mfwgsy3f'
    """
    raw = identifier.encode()
    name = base64.b32encode(raw).decode().rstrip("=").lower()
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_KEPT_OF_LONG]}-{hashlib.sha256(raw).hexdigest()}"
    return f"s_{name}"
