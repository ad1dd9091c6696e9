"""`agentscope-rx sessions`: look at the sessions of a store, take them elsewhere, and remove old ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line, plain
from agentscope_rx.cli.run import NAME, folder_of
from agentscope_rx.cli.tally import counted
from agentscope_rx.errors import InvalidOption, LogUnreadable
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.session import SessionLog
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.reading import said_in
from agentscope_rx.session.transfer import exported, imported
from agentscope_rx.stores import ANYBODY, JsonFileStore, RedisStore, SessionKey, SessionStore, SqlStore
from agentscope_rx.wire import from_json, to_json
from agentscope_rx.workspace.paths import RUNTIME_FOLDER

_DAY: Final = 86_400.0
_LINE: Final = 160
_LOOK_AGAIN: Final = 0.5  # seconds between two looks at a log that is followed


@dataclass(frozen=True, kw_only=True)
class SessionsOptions:
    """Which sessions.

    Args:
        workspace: The folder whose sessions they are; the current one if left out.
        store: The address of a store in its place: sqlite:///..., postgresql://..., mysql://... or redis://...
        agent: Only those of this agent; for one session, the agent whose it is: agentscope-rx if left out.
        user: Only those of this user; for one session, the user whose it is: nobody in particular if left out.
        json: Print lines of JSON.
        debug: Show the traceback of an error.
    """

    workspace: Path = Path()
    store: str | None = None
    agent: str | None = None
    user: str | None = None
    json: bool = False
    debug: bool = False


async def list_sessions(options: SessionsOptions) -> ExitCode:
    """Print the ids of all sessions."""
    store, after = store_of(options), None
    user = ANYBODY if options.user is None else options.user
    while page := await store.list(agent_id=options.agent, user_id=user, after=after):
        for key in page:
            if options.json:
                _print_json(to_json({"agentId": key.agent_id, "userId": key.user_id, "sessionId": key.session_id}))
            else:
                _print("\t".join(map(one_line, (key.agent_id, key.user_id or "", key.session_id))))
        after = page[-1]
    return ExitCode.DONE


async def show(session: str, options: SessionsOptions, *, last: int) -> ExitCode:
    """Print what was said in a session, the newest `last` messages; 0 = all."""
    store, key = store_of(options), key_of(session, options)
    messages = await _messages(store, key)
    shown = messages[-last:] if last else messages
    for message in shown:
        if options.json:
            _print_json(message.to_json())
        else:
            _print("\n".join(_lines(message)))
    if len(shown) < len(messages):
        say(f"the last {len(shown)} of {counted(len(messages), 'message')}; --last 0 shows all")
    return ExitCode.DONE


async def tail(session: str, options: SessionsOptions, *, last: int, follow: bool) -> ExitCode:
    """Print the newest records of a session's log, and those that come."""
    store, key = store_of(options), key_of(session, options)
    await check_there(store, key)
    log = SessionLog(store, key)
    newest = [record async for record in log.scan()][-last:] if last else [record async for record in log.scan()]
    for record in newest:
        _print_record(record, options)
    after = newest[-1].seq if newest else 0
    while follow:
        await asyncio.sleep(_LOOK_AGAIN)
        async for record in log.scan(after):
            _print_record(record, options)
            after = record.seq
    return ExitCode.DONE


async def export(session: str, options: SessionsOptions) -> ExitCode:
    """Print a session as lines of JSON, for `import`."""
    store, key = store_of(options), key_of(session, options)
    await check_there(store, key)
    async for line in exported(store, key):
        _print_json(line)
    return ExitCode.DONE


async def import_session(file: Path, options: SessionsOptions, *, session: str | None) -> ExitCode:
    """Put an exported session into the store; under its own ids where none are given."""
    lines = (await asyncio.to_thread(_content, file)).splitlines()
    key = _own_key(lines, options, session)
    many = await imported(store_of(options), key, lines)
    say(f"imported session {one_line(key.session_id)} ({counted(many, 'line')})")
    return ExitCode.DONE


async def prune(days: float, options: SessionsOptions) -> ExitCode:
    """Delete the sessions that nobody has touched for so many days."""
    if not 0 <= days < float("inf"):
        raise InvalidOption("--older-than", days, "a number of days, not negative")
    pruned = await store_of(options).prune(untouched_for=days * _DAY)
    if options.json:
        _print_json(to_json({"deleted": pruned}))
    else:
        _print(f"deleted {counted(pruned, 'session')}")
    return ExitCode.DONE


def store_of(options: SessionsOptions) -> SessionStore:
    """The store that the options mean.

    Raises:
        ConfigError: It is none, or what it needs is not installed.
    """
    if options.store is None:
        return JsonFileStore(folder_of(options.workspace).root / RUNTIME_FOLDER)
    scheme = urlsplit(options.store).scheme
    return RedisStore(options.store) if scheme in ("redis", "rediss", "unix") else SqlStore(options.store)


def _content(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InvalidOption("file", str(file), f"cannot be read: {error.strerror}") from None


def key_of(session: str, options: SessionsOptions) -> SessionKey:
    """The session that a name on the command line means."""
    return SessionKey(agent_id=options.agent or NAME, user_id=options.user, session_id=session)


def _own_key(lines: list[bytes], options: SessionsOptions, session: str | None) -> SessionKey:
    try:
        head = cast("dict[str, Any]", from_json(lines[0]))
        own = SessionKey(agent_id=head["agentId"], user_id=head["userId"], session_id=head["sessionId"])
    except (ValueError, KeyError, TypeError, IndexError):
        raise LogUnreadable("the file is no exported session") from None
    return SessionKey(
        agent_id=options.agent or own.agent_id,
        user_id=own.user_id if options.user is None else options.user,
        session_id=session or own.session_id,
    )


async def check_there(store: SessionStore, key: SessionKey) -> None:
    """Refuse a session that is not there.

    Raises:
        InvalidOption: It is not.
    """
    if await store.get(key) is None and not await store.read_after(key, 0, limit=1):
        raise _not_there(key)


def _not_there(key: SessionKey) -> InvalidOption:
    return InvalidOption("session", key.session_id, f"there is none of agent {key.agent_id!r} and this user")


async def _messages(store: SessionStore, key: SessionKey) -> Sequence[Msg]:
    said = await said_in(store, key)
    if said is None:
        raise _not_there(key)
    return said.messages


# -- printing -----------------------------------------------------------------------------------------------


def _lines(message: Msg) -> Iterator[str]:
    head = f"{message.timestamp}  {message.role.value}"
    yield f"{head} {message.name}" if message.name else head
    for block in message.content:
        match block:
            case TextBlock(text=text):
                yield from (f"  {line}" for line in plain(text).splitlines())
            case ToolUseBlock(name=name):
                yield f"  -> {one_line(f'{name} {block.content or to_json(block.input).decode()}', limit=_LINE)}"
            case ToolResultBlock(name=name, state=state):
                yield f"  <- {one_line(f'{name} ({state.value}): {block.text}', limit=_LINE)}"
            case _:
                yield f"  [{block.type}]"


def _print_record(record: LogRecord, options: SessionsOptions) -> None:
    if options.json:
        _print_json(
            to_json(
                {
                    "seq": record.seq,
                    "occurredAt": record.occurred_at,
                    "type": record.type,
                    "version": record.version,
                    "executionRunId": record.run_id or None,
                    "turnId": record.turn_id or None,
                    "stepId": record.step_id or None,
                    "payload": record.payload,
                }
            )
        )
        return
    at = datetime.fromtimestamp(record.occurred_at / 1_000, UTC)
    payload = to_json(record.payload).decode()
    _print(one_line(f"{record.seq:6} {at:%Y-%m-%d %H:%M:%S} {record.type} {payload}", limit=_LINE))


def _print(text: str) -> None:
    print(plain(text), flush=True)


def _print_json(line: bytes) -> None:
    print(harmless_json(line.decode()), flush=True)
