"""What a recording leaves out: secrets, by the names that they go under and by how they look.

They are also found in JSON, with percent signs, and in Base64 that stands in one line. What is compressed, encrypted,
turned round or divided among several texts is not, nor is a secret that has neither a known form nor a known value nor
a name.

What is left out is left out in the replay, too, before anything is compared; so a recording without its secrets
replays as it was recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.replay.encodings import json_forms, without_hidden
from agentscope_rx.secret_names import is_secret
from agentscope_rx.tasks.todo import STATE_KEY

#: What stands in the place of a secret.
REMOVED: Final = "(removed)"
_SHORTEST: Final = 4
_SHORTEST_VALUE: Final = 8  # of the environment: shorter ones would be found in any text
_NAME: Final = (
    r"[\w.-]*(?:(?:api|access|auth|private|secret|signing|encryption|account|subscription)[_-]?keys?"
    r"|token|secrets?|passwords?|passwd|pwd|passphrase|credentials?|authorization|cookie)"
)
_FOLDERS: Final = ("PWD", "OLDPWD")  # of a shell, and no passwords
_REMEMBERED: Final = 4_096


@frozen(kw_only=False)
class SecretRule:
    """How one kind of secret is found in a text.

    Args:
        name: What it finds.
        pattern: A regular expression; its group `secret`, or all of it, is removed.
        hint: A text, in lower case, without which the pattern cannot match; empty = none.
    """

    name: str
    pattern: re.Pattern[str]
    hint: str = ""

    @classmethod
    def of(cls, name: str, pattern: str, *, hint: str = "") -> SecretRule:
        """A rule of a pattern as text.

        Examples:
            >>> Redaction([SecretRule.of("ticket", r"ticket-[0-9]+")]).text("see ticket-4711")
            'see (removed)'
        """
        return cls(name, re.compile(pattern), hint)

    def apply(self, text: str) -> str:
        """The text without what the rule finds."""
        if self.hint and self.hint not in text.lower():
            return text
        return self.pattern.sub(self._without, text)

    def _without(self, found: re.Match[str]) -> str:
        if "secret" not in self.pattern.groupindex or found.start("secret") < 0:
            return REMOVED
        whole, start = found.group(), found.start()
        return whole[: found.start("secret") - start] + REMOVED + whole[found.end("secret") - start :]


#: What is removed unless other rules are given.
DEFAULT_RULES: Final[tuple[SecretRule, ...]] = (
    SecretRule.of("private key", r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    SecretRule.of(
        "key of a provider",
        r"\b(?:(?:sk|rk|pk)-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
        r"|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,})",
    ),
    SecretRule.of("web token", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}"),
    SecretRule.of("authorization", r"(?i)\b(?:bearer|basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})"),
    SecretRule.of("password of an address", r"(?<=://)[^/\s:@]{1,256}:(?P<secret>[^/\s@]{1,256})@", hint="://"),
    SecretRule.of(
        "value under a secret name",
        rf"""(?i)\b{_NAME}\\?["']?\s{{0,8}}[:=]\s{{0,8}}(?P<quote>\\?["'])(?P<secret>[^"'\\\n]{{{_SHORTEST},}})(?P=quote)""",
    ),
    SecretRule.of(
        "variable of the environment",
        r"(?m)\b[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=(?P<secret>[^\s\"']{8,})",
    ),
)


class Redaction:
    """Removes secrets from what is written down.

    Args:
        rules: How they look.
        values: Secrets that are known; default: the values of the environment's variables with secret names.

    Attributes:
        found: Whether anything was removed so far.

    Examples:
        >>> redaction = Redaction(values=["hunter2-hunter2"])
        >>> redaction.text('curl -H "Authorization: Bearer abcdefgh1234"; echo hunter2-hunter2')
        'curl -H "Authorization: Bearer (removed)"; echo (removed)'
        >>> redaction.data({"password": "open sesame", "path": "."})
        {'password': '(removed)', 'path': '.'}
    """

    def __init__(self, rules: Iterable[SecretRule] = DEFAULT_RULES, values: Iterable[str] | None = None) -> None:
        self.rules = tuple(rules)
        known = _environment() if values is None else values
        forms = {form for value in known if value for form in json_forms(value)}
        self._values = tuple(sorted(forms, key=len, reverse=True))
        self._known: dict[str, str] = {}
        self.found = False

    def text(self, text: str) -> str:
        """A text without secrets."""
        known = self._known.get(text)
        if known is not None:
            return known
        clean = without_hidden(self._shown(text), self._is_secret, REMOVED)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[text] = clean
        self.found = self.found or clean != text
        return clean

    def _shown(self, text: str) -> str:
        """A text without the secrets that stand in it openly."""
        for value in self._values:
            text = text.replace(value, REMOVED)
        for rule in self.rules:
            text = rule.apply(text)
        return text

    def _is_secret(self, text: str) -> bool:
        return self._shown(text) != text

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """The pieces of a text without secrets, also where one lies in several pieces.

        There are as many as before, and none is empty that was not, as far as there is text; where a secret was
        removed they are divided elsewhere.

        Examples:
            >>> Redaction(values=["abcdef"]).pieces(["x abc", "d", "ef y"])
            ['x (re', 'm', 'oved) y']
        """
        whole = "".join(pieces)
        clean = self.text(whole)
        if clean == whole:
            return list(pieces)
        divided: list[str] = []
        at, wanted = 0, sum(1 for piece in pieces if piece)
        for piece in pieces:
            wanted -= bool(piece)
            end = len(clean) if not wanted and piece else min(at + len(piece), max(at, len(clean) - wanted))
            divided.append(clean[at:end])
            at = end
        return divided

    def data(self, value: object) -> object:
        """Plain data without secrets, at whatever depth; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            return {name: self._field(name, each) for name, each in fields.items()}
        if isinstance(value, list | tuple):
            return [self.data(each) for each in cast("Sequence[object]", value)]
        return value

    def _field(self, name: str, value: object) -> object:
        if isinstance(value, str) and len(value) >= _SHORTEST and name != STATE_KEY and is_secret(name):
            self.found = self.found or value != REMOVED
            return REMOVED
        return self.data(value)


def _environment() -> list[str]:
    named = {name: value for name, value in os.environ.items() if is_secret(name) and name not in _FOLDERS}
    return [value for value in named.values() if len(value) >= _SHORTEST_VALUE]
