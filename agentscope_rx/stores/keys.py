"""Identities as keys and as names of folders. Nothing else turns an id that came from outside into either."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from typing import Final, cast

from agentscope_rx.errors import InvalidIdentifier
from agentscope_rx.frozen import frozen
from agentscope_rx.wire import from_json, to_json

_LONGEST_ID: Final = 512
_LONGEST_NAME: Final = 150
_KEPT_OF_LONG: Final = 64
_PREFIX: Final = "s_"

#: The folder of sessions without a user; the folder of a user begins with s_.
NOBODY: Final = "nobody"


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

    @property
    def agent_folder(self) -> str:
        """The agent's id as a name."""
        return folder_name(self.agent_id)

    @property
    def user_folder(self) -> str:
        """The user's id as a name, or that of nobody."""
        return user_folder(self.user_id)

    @property
    def session_folder(self) -> str:
        """The session's id as a name."""
        return folder_name(self.session_id)

    @property
    def path(self) -> str:
        """A name for the session among all others, of lower-case ASCII.

        Examples:
            >>> SessionKey(agent_id="a1", user_id=None, session_id="s1").path
            's_meyq/nobody/s_omyq'
        """
        return f"{self.agent_folder}/{self.user_folder}/{self.session_folder}"

    def to_json(self) -> bytes:
        """The three ids."""
        return to_json([self.agent_id, self.user_id, self.session_id])

    @classmethod
    def from_json(cls, data: bytes) -> SessionKey:
        """The key that was written with `to_json`."""
        agent_id, user_id, session_id = cast("tuple[str, str | None, str]", from_json(data))
        return cls(agent_id=agent_id, user_id=user_id, session_id=session_id)


def check_identifier(what: str, value: str) -> str:
    """Give the id back, or raise `InvalidIdentifier`."""
    is_text = isinstance(value, str)  # type: ignore[reportUnnecessaryIsInstance]
    if not is_text or not value.strip() or len(value) > _LONGEST_ID or any(map(_refused, value)):
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
    return f"{_PREFIX}{name}"


def user_folder(user_id: str | None) -> str:
    """As `folder_name`; no user is nobody."""
    return NOBODY if user_id is None else folder_name(user_id)


def is_whole(name: str) -> bool:
    """Whether a folder's name says all of the id."""
    return "-" not in name


def identifier_of(name: str) -> str:
    """The id of a folder whose name is whole.

    Examples:
        >>> identifier_of("s_mfwgsy3f")
        'alice'
    """
    encoded = name.removeprefix(_PREFIX).upper()
    return base64.b32decode(encoded + "=" * (-len(encoded) % 8)).decode()
