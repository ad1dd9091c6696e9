"""`attach_files`: what a user mentions as `@path` stands behind the message, from the first step of the call on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from agentscope_rx.context.mentions import MOST_FILES, MOST_TRIED, attached, inside, mentioned_paths, refused_note
from agentscope_rx.draft import Change
from agentscope_rx.errors import PathRefused
from agentscope_rx.history import Exchange
from agentscope_rx.lifting import Operator, proposed
from agentscope_rx.messages import Msg, Role, TextBlock
from agentscope_rx.permission_context import PermissionContextState
from agentscope_rx.permissions import JudgedCall, decide, paths
from agentscope_rx.step import Step
from agentscope_rx.stores import SessionKey
from agentscope_rx.tools.file_tools import FileToolLimits, FileTools
from agentscope_rx.tools.texts import clean
from agentscope_rx.wire import clean_text
from agentscope_rx.workspace import WorkspaceFS, WorkspacePath

ATTACHED_KEY: Final = "agentscope.attached_files"
_NAME: Final = "attach_files"
_READER: Final = "read_file"
_LIMITS: Final = FileToolLimits(lines=1_000, read_bytes=64 * 1024)


def attach_files(
    *,
    files_of: Callable[[SessionKey], WorkspaceFS],
    roots: tuple[str, ...] = (),
    permissions: PermissionContextState,
) -> Operator:
    """Put the files that the new user messages mention as `@path` behind them.

        --s-------|
        attach_files
        -----t----|     t.history holds each file that could be read, its first 1,000 lines or 64 KiB

        --s-------|
        attach_files     nothing is mentioned
        --s-------|

    They become part of the history, as they were then. A path that leads out of the workspace, that `read_file` is
    denied, or that cannot be read leaves the message as it was, and the manifest says so; so it does of what is more
    than 20 files, or more than 100 words that look like paths.

    Args:
        files_of: Gives what a session sees of the workspace.
        roots: Folders of this machine that are its root, so that absolute paths below them are understood. Default:
            none.
        permissions: What the agent says of all its sessions.
    """

    def attach_files(step: Step) -> Step | Awaitable[Step]:
        if step.number or step.purpose != "reasoning":
            return step
        found = [(each, names) for each in _newly_said(step) if (names := _mentioned(each.messages[0]))]
        return _Attaching(step, files_of, roots, permissions).run(found) if found else step

    return Operator(
        name=_NAME, kind="history", handle=attach_files, function=attach_files, note="@path in what the user says"
    )


class _Attaching:
    """The files of one call."""

    def __init__(
        self,
        step: Step,
        files_of: Callable[[SessionKey], WorkspaceFS],
        roots: tuple[str, ...],
        policy: PermissionContextState,
    ) -> None:
        who = step.identity
        self._step, self._roots = step, roots
        self._files = files_of(SessionKey(agent_id=who.agent_id, user_id=who.user_id, session_id=who.session_id))
        self._permissions = step.run.state.permission_context.under(policy)
        self._refused: list[Change] = []

    async def run(self, found: list[tuple[Exchange, tuple[str, ...]]]) -> Step:
        history = self._step.history
        for exchange, names in found:
            message = await self._with_files(exchange.messages[0], names)
            if message is not exchange.messages[0]:
                history = history.with_exchange(exchange, Exchange(message))
        step = proposed(self._step, history, _NAME)
        return replace(step, changes=(*step.changes, *self._refused)) if self._refused else step

    async def _with_files(self, message: Msg, names: tuple[str, ...]) -> Msg:
        texts: dict[str, str] = {}
        outside = self._step.run.runtime.outside
        for at, name in enumerate(names):
            if len(texts) == MOST_FILES or at == MOST_TRIED:
                self._refused.append(_change(message, f"not_attached:{len(names) - at} more:limit"))
                break
            try:
                path, text = await outside.reach(f"attachment/{name}", partial(self._attached, name))
                texts.setdefault(path, text)
            except (OSError, ValueError) as error:
                self._refused.append(_change(message, refused_note(name, error)))
        if not texts:
            return message
        blocks = (TextBlock(text=text) for text in texts.values())
        metadata = {**message.metadata, ATTACHED_KEY: [*texts]}
        return replace(message, content=(*message.content, *blocks), metadata=metadata)

    async def _attached(self, name: str) -> tuple[str, str]:
        """A file's path, and what is shown of it."""
        path = inside(name, self._roots)
        await self._check_allowed(path)
        text = await FileTools(self._files, limits=_LIMITS).read_file(str(path))
        return str(path), attached(path, clean(text))

    async def _check_allowed(self, path: WorkspacePath) -> None:
        """Refuse what a rule denies the model: that the user asks for it makes it no other file."""
        target = await paths(self._files, "path")({"path": str(path)})
        decision = decide(JudgedCall(tool_name=_READER, read_only=True, target=target), self._permissions)
        if decision.reason == "deny_rule":
            raise PathRefused(decision.message)


def _newly_said(step: Step) -> Iterator[Exchange]:
    """What users have said since the last answer, newest first."""
    for leaf in reversed(step.history.leaves):
        for exchange in reversed(leaf.exchanges):
            if exchange.messages[0].role is not Role.USER:
                return
            yield exchange


def _mentioned(message: Msg) -> tuple[str, ...]:
    if ATTACHED_KEY in message.metadata:
        return ()
    texts = (block.text for block in message.content if isinstance(block, TextBlock) and "@" in block.text)
    return mentioned_paths("\n".join(texts))


def _change(message: Msg, reason: str) -> Change:
    return Change(operator=_NAME, zone="conversation", action="kept", item_id=message.id, reason=clean_text(reason))
