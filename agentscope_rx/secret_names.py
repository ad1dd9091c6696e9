"""Which values are secret, by the names that they go under."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

NOT_SHOWN: Final = "(not shown)"
_SECRET: Final = re.compile(
    r"(?:api|access|auth|private|secret|signing|encryption|account|subscription)[_-]?keys?\Z"
    r"|(?:\A|[^a-z])key\Z(?<!session[_-]key)"
    r"|(?:token|secrets?|passwords?|passwd|pwd|passphrase|credentials?|authorization|cookie)\Z",
    re.IGNORECASE,
)
#: Shorter ones would be found in any text.
_SHORTEST: Final = 4


def is_secret(name: str) -> bool:
    """Whether what goes under a name is secret.

    Examples:
        >>> [name for name in ("api_key", "apiKey", "X-Api-Key", "max_tokens", "monkey") if is_secret(name)]
        ['api_key', 'apiKey', 'X-Api-Key']
    """
    return _SECRET.search(name) is not None


def without_secrets(name: str, value: object) -> object:
    """The value, for somebody to read; what is secret in it, at whatever depth, is not shown.

    Examples:
        >>> without_secrets("headers", {"accept": "text/plain", "authorization": "Bearer 1234"})
        {'accept': 'text/plain', 'authorization': '(not shown)'}
    """
    if is_secret(name):
        return NOT_SHOWN
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, object]", value)
        return {key: without_secrets(str(key), each) for key, each in fields.items()}
    if type(value) in (list, tuple):
        kind = cast("type[list[object]]", type(value))
        return kind(without_secrets("", each) for each in cast("list[object]", value))
    return value


def secrets_of(fields: Mapping[str, str]) -> Iterator[str]:
    """The secret values among headers or parameters, each also without the scheme before it."""
    for name, value in fields.items():
        if is_secret(name):
            for text in {value, value.rpartition(" ")[2]}:
                if len(text) >= _SHORTEST:
                    yield text
