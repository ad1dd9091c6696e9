"""Tool results that move into files: which, where to, and what stays of them in the conversation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeVar

from agentscope_rx.compaction.config import ToolResultEvictionConfig
from agentscope_rx.compaction.pruning import with_result_text
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Leaf, Measure
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock
from agentscope_rx.wire import clean_text
from agentscope_rx.workspace import WorkspaceFS
from agentscope_rx.workspace.conditions import version_of
from agentscope_rx.workspace.filesystem import FileKind

P = TypeVar("P", Leaf, Exchange)
EVICTED_KEY: Final = "agentscope.tool_result_evicted"
PATH_KEY: Final = "agentscope.tool_result_path"
SIZE_KEY: Final = "agentscope.tool_result_chars"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH: Final = 40
_DIGITS: Final = 16
_CONFIGS: Final = 64


def text_of(result: ToolResultBlock) -> str:
    """All text of a result, joined without a separator."""
    return "".join(block.text for block in result.output if isinstance(block, TextBlock))


def is_evicted(result: ToolResultBlock) -> bool:
    """Whether a result lies in a file already."""
    return bool(result.metadata.get(EVICTED_KEY))


# -- which --------------------------------------------------------------------------------------------------


class _LargestResult:
    """The characters of the largest result that may move, as a measure."""

    def __init__(self, excluded: frozenset[str]) -> None:
        self._excluded = excluded

    def of(self, exchange: Exchange, /) -> int:
        results = (message.tool_result for message in exchange.messages[1:])
        return max((len(text_of(each)) for each in results if each and self.may_move(each)), default=0)

    def join(self, parts: Sequence[int], /) -> int:
        return max(parts, default=0)

    def may_move(self, result: ToolResultBlock) -> bool:
        return result.name not in self._excluded and not is_evicted(result)


@lru_cache(_CONFIGS)
def _largest(excluded: frozenset[str]) -> _LargestResult:
    return _LargestResult(excluded)


def oversized(history: History, config: ToolResultEvictionConfig) -> Iterator[tuple[Msg, ToolResultBlock]]:
    """The results of a history that are too large to stay, oldest first; leaves without one are passed over."""
    by = _largest(config.excluded_tool_names)
    for part in _parts_over(history.leaves, by, config.max_result_chars):
        for exchange in _parts_over(part.exchanges, by, config.max_result_chars):
            for message in exchange.messages[1:]:
                result = message.tool_result
                if result and by.may_move(result) and len(text_of(result)) > config.max_result_chars:
                    yield message, result


def _parts_over(parts: Sequence[P], by: Measure[int], limit: int) -> Iterator[P]:
    return (part for part in parts if part.measure(by) > limit)


# -- where to -----------------------------------------------------------------------------------------------


@frozen
class ResultFolder:
    """Where the results of a session go.

    Args:
        files: The workspace.
        path: The folder.
    """

    files: WorkspaceFS
    path: str

    @classmethod
    def of(
        cls, files: WorkspaceFS, config: ToolResultEvictionConfig, *, agent: str, user_id: str | None, session_id: str
    ) -> ResultFolder:
        """The folder of a session: below that of its agent, under a name that says nothing of user and session."""
        owner = hashlib.sha256(f"{user_id!r} {session_id!r}".encode("utf-8", "replace")).hexdigest()[:_DIGITS]
        return cls(files=files, path=f"{config.eviction_path.rstrip('/')}/{_safe(agent)}/{owner}")

    def file_for(self, result: ToolResultBlock) -> str:
        """The file of a result: short whatever the call's id is, and another one for another text."""
        digest = hashlib.sha256(_data(text_of(result))).hexdigest()[:_DIGITS]
        return f"{self.path}/{_safe(result.id)}-{digest}"

    async def keep(self, path: str, text: str) -> None:
        """Write a result; a file that holds the same already is as good.

        Raises:
            OSError: It cannot be written, or something else lies there.
        """
        data = _data(text)
        try:
            await self.files.write(path, data, create_only=True)
        except FileExistsError:
            if (await self.files.stat(path)).version != version_of(data):
                raise

    async def drop_older_than(self, moment: datetime, *, mentioned: frozenset[str]) -> None:
        """Delete what is older and mentioned no more.

        Args:
            moment: The moment.
            mentioned: Files that are.
        """
        for entry in await self.files.list(self.path):
            old = entry.kind is FileKind.FILE and entry.modified < moment.timestamp()
            if old and str(entry.path) not in mentioned:
                await self.files.delete(entry.path)


def mentioned_files(history: History) -> frozenset[str]:
    """The files that the results of a history have moved to."""
    return frozenset(history.measure(_MENTIONED))


class _Mentioned:
    """The files of results, as a measure."""

    def of(self, exchange: Exchange, /) -> tuple[str, ...]:
        results = (message.tool_result for message in exchange.messages[1:])
        return tuple(str(each.metadata[PATH_KEY]) for each in results if each and PATH_KEY in each.metadata)

    def join(self, parts: Sequence[tuple[str, ...]], /) -> tuple[str, ...]:
        return tuple(path for part in parts for path in part)


_MENTIONED: Final[Measure[tuple[str, ...]]] = _Mentioned()


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name)[:_NAME_LENGTH]


def _data(text: str) -> bytes:
    return clean_text(text).encode()


# -- what stays ---------------------------------------------------------------------------------------------


def pointing_to(message: Msg, result: ToolResultBlock, path: str, *, preview_chars: int) -> Msg:
    """The TOOL message that says where the text of its result is, with its beginning and its end.

    Args:
        message: The message, with the whole result.
        result: Its result.
        path: Where the text is.
        preview_chars: How much of the beginning and of the end stays.
    """
    text = text_of(result)
    marks = {EVICTED_KEY: True, PATH_KEY: path, SIZE_KEY: len(text)}
    return with_result_text(message, result, _notice(text, path, preview_chars), **marks)


def without_preview(message: Msg, result: ToolResultBlock) -> Msg:
    """The TOOL message of a result that lies in a file, without what was left of its text."""
    size, path = result.metadata.get(SIZE_KEY), result.metadata.get(PATH_KEY)
    if not isinstance(size, int) or not isinstance(path, str):
        return message
    return with_result_text(message, result, _header(size, path))


def _notice(text: str, path: str, preview_chars: int) -> str:
    header = _header(len(text), path)
    length = min(preview_chars, len(text) // 2)
    if not length:
        return header
    return f"{header}\n\nFirst {length:,} characters:\n{text[:length]}\n\nLast {length:,} characters:\n{text[-length:]}"


def _header(size: int, path: str) -> str:
    return (
        f"[The result is too large to be shown here: {size:,} characters, kept in the file {path}]\n"
        f"[Read what is needed of it: read_file with path={path}, offset and limit; or search it with grep_files.]"
    )
