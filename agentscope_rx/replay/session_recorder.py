"""SessionRecorder: runs in the logs of their sessions, with all that a strict replay needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.recent import Recent
from agentscope_rx.records import RunTraced
from agentscope_rx.replay.clocks import RunClock
from agentscope_rx.replay.recorded_run import RecordedRun
from agentscope_rx.replay.recorder import AFRESH
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.requests import BLOCK_ZONES, Itemizer, RequestItems
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Run
from agentscope_rx.runtime import Runtime
from agentscope_rx.session import LoggedSession
from agentscope_rx.step import Step
from agentscope_rx.stores import SessionKey, StateStore

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])
_Place: TypeAlias = tuple[Runtime, StateStore, SessionKey]


class SessionRecorder:
    """Records runs into the logs of their sessions; `record_session` makes a recording of one, for `replay`.

    A log holds messages, requests and changes anyway. Beside these it then holds the pieces of answers with their
    moments, what tools, sources and the workspace gave, events without their pieces, time and ids: about as much
    again as what was said. Secrets are left out of this part. One recorder may watch the agents of a server.

    Args:
        rules: How secrets look, where the built-in rules are not enough.
        secrets: Secrets that are known. Default: the values of the environment's variables with secret names.
        note: What else is to be known of the runs, as plain data; a recording has that of its first run.

    Examples:
        >>> from agentscope_rx import InMemoryStore, ReActAgent, RuntimeContext
        >>> from agentscope_rx.testing import ScriptedModel
        >>> model, store = ScriptedModel(["Hello."]), InMemoryStore()
        >>> plain = ReActAgent.builder(name="helper", model=model, state_store=store)
        >>> builder, alice = SessionRecorder().watch(plain), RuntimeContext(session_id="alice")
        >>> builder.call("Hi", alice).run().text
        'Hello.'
        >>> log = builder.build().session_log(alice)
        >>> print(asyncio.run(record_session(log, folder / "alice.jsonl")))
        ...alice.jsonl: 1 run
        >>> replay(folder / "alice.jsonl", plain).check()
    """

    def __init__(
        self,
        *,
        rules: Iterable[SecretRule] = DEFAULT_RULES,
        secrets: Iterable[str] | None = None,
        note: Mapping[str, object] | None = None,
    ) -> None:
        self.rules, self._note = tuple(rules), dict(note or {})
        self.secrets = None if secrets is None else tuple(secrets)
        self._remembered: Recent[_Place, tuple[Runtime, str]] = Recent()

    def watch(self, builder: BuilderT) -> BuilderT:
        """A builder whose agents are recorded, and have logs with full requests; all else is as in the one given.

        Args:
            builder: Any builder.
        """
        return builder.configured({"state_only": False, "log_requests": True}).witnessed_by(self)

    def begins(self, call: Call, run: Run, /) -> RecordedRun:
        """A run begins."""
        base, memory = self._runtime_of(call)
        book = _LogPages(Redaction(self.rules, self.secrets))
        clock, origin = RunClock(base.clock.now(), 0.0), base.clock.monotonic()
        facts = {"memory": memory, "started": clock.started.isoformat(), "note": self._note}
        return RecordedRun(book, call.through(base), clock=clock, origin=origin, facts=facts)

    def _runtime_of(self, call: Call) -> tuple[Runtime, str]:
        """The Runtime as one session remembers it, and the name of that memory: no other session changes it."""
        options = call.options
        place = options.runtime, options.store, options.key_of(call.context)
        known = self._remembered.get(place)
        if known is None:
            known = options.runtime.seen_through(afresh=AFRESH), options.runtime.ids.new_id("memory")
            self._remembered.put(place, known)
        return known


class _LogPages:
    """One run, in the log of its session: a journal, whose lines become a record whenever records are written."""

    deltas = False
    lies_in_session = True

    def __init__(self, redaction: Redaction) -> None:
        self.redaction = redaction
        self._itemizer = Itemizer(redaction, zones=BLOCK_ZONES)
        self._known_items: set[str] = set()
        self._lines: list[Mapping[str, Any]] = []

    @property
    def filled(self) -> bool:
        """Whether there are lines that are in no record yet."""
        return bool(self._lines)

    def record(self) -> RunTraced:
        """The lines since the last record."""
        lines, self._lines = self._lines, []
        return RunTraced(lines)

    def write(self, type: str, /, **fields: object) -> None:
        """Take down a line."""
        self._lines.append({"type": type, **fields})

    def opens(self, session: OpenSession, /) -> object:
        """Join the session; its log has the state."""
        assert isinstance(session, LoggedSession)  # `watch` has seen to it
        session.journals.append(self)
        return None

    def items_of(self, step: Step, request: ModelRequest, before: RequestItems | None, /) -> RequestItems:
        """A request, without what the log's own record of it holds."""
        items = self._itemizer.of(step, request)
        for fields in self._itemizer.new_items(step.draft, items, before, self._known_items):
            self.write("item", **fields)
        return items

    def closes(self, session: OpenSession, /) -> None:
        """The log has the state."""
