"""The way out of a run: every event leaves here, and carries who runs for whom."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from agentscope_rx.events import PURPOSE_KEY, AgentEvent, Execution, stamp
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import NOTHING
from agentscope_rx.requests import Purpose
from agentscope_rx.runtime import Runtime

E = TypeVar("E", bound=AgentEvent)


@frozen
class RunIdentity:
    """Who runs, for whom: agent, session, turn (one user command) and run (one attempt at it).

    Args:
        reply_id: One id for the whole call, as `AGENT_START` has it.
    """

    agent_id: str
    agent_name: str
    user_id: str | None
    session_id: str
    turn_id: str
    run_id: str
    reply_id: str

    @property
    def execution(self) -> Execution:
        """The part that every event carries."""
        return Execution(agent_id=self.agent_id, session_id=self.session_id, turn_id=self.turn_id, run_id=self.run_id)


class Emitter:
    """The way out of a run: gives each event its identity and hands it on. Safe from any thread.

    Args:
        identity: Who runs, for whom.
        runtime: Where ids and moments come from.
        publish: Hands an event to the run's subscriber.
        purposes: Which model calls the subscriber wants to hear of.
        unseen: Hands an event to the subscriber past whoever sees the run. Default None: nobody does.
    """

    __slots__ = ("_clock", "_execution", "_identity", "_ids", "_publish", "_purposes", "_reply_id", "_unseen")

    def __init__(
        self,
        identity: RunIdentity,
        runtime: Runtime,
        publish: Callable[[AgentEvent], None],
        *,
        purposes: Collection[Purpose] = ("reasoning",),
        unseen: Callable[[AgentEvent], None] | None = None,
    ) -> None:
        self._identity, self._unseen = identity, unseen or publish
        self._ids, self._clock = runtime.ids, runtime.clock
        self._reply_id, self._execution = identity.reply_id, identity.execution
        self._publish, self._purposes = publish, frozenset(purposes)

    def __call__(self, event: E) -> E:
        event = self.stamped(event)
        self._publish(event)
        return event

    def stamped(self, event: E) -> E:
        """Give an event its identity, to be published later."""
        return stamp(
            event,
            id=self._ids.new_id("event"),
            created_at=self._clock.now(),
            call_reply_id=self._reply_id,
            execution=self._execution,
        )

    def apart(self, runtime: Runtime) -> Emitter:
        """The way out for what is no part of the run: events with ids and moments of another Runtime."""
        return Emitter(self._identity, runtime, self._unseen, purposes=self._purposes)

    def aside(self, event: E, purpose: Purpose) -> E:
        """Publish an event of a model call beside the conversation, if the subscriber wants to hear of it.

        It says so in its metadata, and has its identity either way: ids must not depend on who listens.
        """
        marked = replace(event, metadata={**(event.metadata or NOTHING), PURPOSE_KEY: purpose})
        stamp(
            marked,
            id=self._ids.new_id("event"),
            created_at=self._clock.now(),
            call_reply_id=self._reply_id,
            execution=self._execution,
        )
        if purpose in self._purposes:
            self._publish(marked)
        return marked
