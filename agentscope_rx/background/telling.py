"""Telling a session something without holding it: a record at the end of its log, between those of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentscope_rx.agent import Agent
from agentscope_rx.errors import InvalidOption, StateConflict
from agentscope_rx.events import ConfirmResult
from agentscope_rx.inbox import Command, CommandKind, Sender
from agentscope_rx.interactions import Answer
from agentscope_rx.messages import MetadataKey, Msg
from agentscope_rx.options import AgentOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.secret_names import is_secret
from agentscope_rx.session import FoldCache, Intake, fold
from agentscope_rx.session.answers import answers_of
from agentscope_rx.session.folding import Folded
from agentscope_rx.session.log_record import Origin, written
from agentscope_rx.state import AgentState, Record
from agentscope_rx.stores import SessionKey
from agentscope_rx.wire import from_json, to_json

_LONGEST_KEY = 200


class Teller:
    """Reads a session, and tells it something; whoever holds it meanwhile.

    Args:
        agent: Whose session it is.
        key: The session.

    Raises:
        InvalidOption: The agent keeps only states.
    """

    def __init__(self, agent: Agent[Any], key: SessionKey) -> None:
        options: AgentOptions = agent.options
        store = options.log_store
        if store is None:
            rule = "work in the background needs logs; build the agent with state_only(False)"
            raise InvalidOption("state_only", True, rule)
        self.store, self.key = store, key
        self.runtime = options.runtime
        self._cache = self.runtime.single(FoldCache)

    async def read(self) -> Folded:
        """The session as it is now."""
        folded = await fold(self.store, self.key, self._cache)
        self._cache.keep(self.store, self.key, folded)
        return folded

    async def tell(self, about: Callable[[AgentState], Record | None]) -> AgentState:
        """Add a record.

        Args:
            about: Makes it of the state that it comes behind; None = there is nothing to tell. Called again where
                somebody else has written meanwhile.

        Returns:
            The state with it.
        """
        while True:
            folded = await self.read()
            record = about(folded.state)
            if record is None:
                return folded.state
            origin = Origin(event_id=self.runtime.ids.new_id("record"), occurred_at=self.runtime.clock.now())
            body = written(folded.seq + 1, record, origin)
            try:
                await self.store.append(self.key, [body], expected_seq=folded.seq)
            except StateConflict:
                continue
            return record.apply(folded.state)

    def intake(self) -> Intake:
        """How messages get their identity, from now on."""
        return Intake(new_id=lambda: self.runtime.ids.new_id("message"), now=self.runtime.clock.now())


def sender_of(context: RuntimeContext) -> Sender:
    """What of a context is kept with a command: what can be written, and is not secret by its name."""
    kept = {name: value for name, value in context.attributes.items() if not is_secret(name) and _is_json(value)}
    return Sender(user_id=context.user_id, session_id=context.session_id, attributes=kept)


def context_of(sender: Sender) -> RuntimeContext:
    """The context again, without what was not kept."""
    return RuntimeContext(user_id=sender.user_id, session_id=sender.session_id, attributes=sender.attributes)


def _is_json(value: object) -> bool:
    try:
        return from_json(to_json(value)) == value
    except (ValueError, TypeError):
        return False


def checked_key(key: str) -> str:
    """A key under which a command may be given.

    Raises:
        InvalidOption: It is blank or too long.
    """
    if not isinstance(key, str) or not key.strip() or len(key) > _LONGEST_KEY:  # type: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("key", key, f"1 to {_LONGEST_KEY} characters, not blank")
    return key


def digest_of(kind: CommandKind, messages: Sequence[Msg]) -> str:
    """What a command says, in short: the same for equal input, whenever it was given."""
    said = [replace(message, id="", timestamp="").to_json() for message in messages]
    return hashlib.sha256(b"\n".join((kind.encode(), *said))).hexdigest()


def answer_messages(answers: Mapping[str, Answer], state: AgentState, intake: Intake) -> tuple[Msg, ...]:
    """Answers to calls that wait, as messages that carry them.

    Raises:
        InteractionMismatch: An answer fits no call that waits.
    """
    given = answers_of(answers, state.context, intake.accept)
    calls = {call.id: call for call in state.context.open_calls}
    confirmed = [
        ConfirmResult(
            confirmed=approval.approved,
            tool_call=calls[id]
            if approval.input is None
            else replace(calls[id], input=approval.input, content=json.dumps(dict(approval.input))),
            rules=approval.rules or None,
            reason=approval.reason,
        )
        for id, approval in given.approvals.items()
    ]
    if not confirmed:
        return given.results
    carrier = replace(Msg.user(""), metadata={MetadataKey.CONFIRM_RESULTS: confirmed})
    return (carrier, *given.results)


def command(kind: CommandKind, id: str, *, turn_id: str, sender: Sender, messages: Sequence[Msg] = ()) -> Command:
    """Something that a session is told to do."""
    return Command(
        id=id,
        kind=kind,
        turn_id=turn_id,
        digest=digest_of(kind, messages),
        sender=sender,
        messages=tuple(messages),
    )
