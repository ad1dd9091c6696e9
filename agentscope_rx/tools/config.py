"""Which tools an agent offers, of those that it has: `tools.json`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from agentscope_rx.errors import InvalidOption
from agentscope_rx.logs import logger
from agentscope_rx.wire import from_json

TOOLS_FILE: Final = "tools.json"


class ToolsConfig(BaseModel):
    """Which tools are on offer; the names may hold `*` and `?`.

    Args:
        allow: Only these are; those of the to-do list, of planning and of tasks in any case. Default: all.
        deny: These are never, whatever `allow` says. Default: none.

    Examples:
        >>> config = ToolsConfig(allow=("*_file",), deny=("write_*",))
        >>> [config.offers(name) for name in ("read_file", "write_file", "execute")]
        [True, False, False]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @field_validator("allow", "deny")
    @classmethod
    def _named(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not all(name.strip() for name in names):
            raise ValueError("a name is blank")
        return names

    @classmethod
    def from_file(cls, data: bytes, where: str) -> ToolsConfig:
        """The content of a `tools.json`.

        Args:
            data: The content.
            where: The file, for messages.

        Raises:
            InvalidOption: It is none.
        """
        try:
            return cls.model_validate(from_json(data))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "the whole"
            raise InvalidOption(TOOLS_FILE, where, f"{field}: {first['msg']}") from None
        except ValueError as error:
            raise InvalidOption(TOOLS_FILE, where, f"one object of JSON with `allow` and `deny` ({error})") from None

    def offers(self, name: str, *, always: Collection[str] = ()) -> bool:
        """Whether a tool is on offer.

        Args:
            name: The tool.
            always: Tools that `allow` need not name.
        """
        if _fits(name, self.deny):
            return False
        return not self.allow or name in always or _fits(name, self.allow)

    def warn_of_unknown(self, names: Collection[str]) -> None:
        """Warn of entries that no tool has the name of: a denial with a typing error denies nothing."""
        unknown = [each for each in (*self.allow, *self.deny) if not any(fnmatchcase(name, each) for name in names)]
        if unknown:
            logger().warning("tools_config_unknown", names=unknown, known=sorted(names))


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
