"""Recorder: runs as a file, with what they get from outside, what they ask, and what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agentscope_rx.__about__ import __version__
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.call import Call, OpenSession
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import InvalidOption
from agentscope_rx.replay.clocks import RunClock
from agentscope_rx.replay.recorded_run import RecordedRun
from agentscope_rx.replay.recording import VERSION, RecordingWriter
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.requests import Itemizer, RequestItems
from agentscope_rx.replay.states import state_data
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Run
from agentscope_rx.session import RequestCache
from agentscope_rx.state import AgentState
from agentscope_rx.step import Step
from agentscope_rx.stores import SessionKey
from agentscope_rx.tokens import MeasuredRatio

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])
#: What a process remembers beside sessions; a recording begins without it, as a replay does.
AFRESH: Final = (RequestCache, MeasuredRatio)


class Recorder:
    """Records the runs of agents into a file, which `replay` plays again without a model, tools or a network.

    Writing is done by a thread of its own. Secrets are left out. When the recorder is closed the file has its name;
    before, it is `<file>.partial`.

    Args:
        path: The file; an earlier recording of this name is replaced.
        rules: How secrets look, where the built-in rules are not enough: `(*DEFAULT_RULES, SecretRule.of(...))`.
        secrets: Secrets that are known. Default: the values of the environment's variables with secret names.
        note: What else is to be known of the recording, as plain data; `Recording.note` has it. Default: nothing.

    Raises:
        OSError: The file cannot be written.

    Examples:
        >>> from agentscope_rx import ReActAgent
        >>> from agentscope_rx.testing import ScriptedModel
        >>> builder = ReActAgent.builder(name="helper", model=ScriptedModel(["Hello."]))
        >>> with Recorder(folder / "hello.jsonl") as recorder:
        ...     recorder.watch(builder).call("Hi").run().text
        'Hello.'
        >>> replay(folder / "hello.jsonl", builder).runs[0].result.text
        'Hello.'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        rules: Iterable[SecretRule] = DEFAULT_RULES,
        secrets: Iterable[str] | None = None,
        note: Mapping[str, object] | None = None,
    ) -> None:
        self._writer = RecordingWriter(Path(path))
        self._note = dict(note or {})
        self.redaction = Redaction(rules, secrets)
        self.itemizer = Itemizer(self.redaction)
        self._runs = self._watched = 0
        self._origin: tuple[Any, float] | None = None
        self._known_items: set[str] = set()
        self._states: dict[SessionKey, AgentState] = {}
        self._closed = False

    def watch(self, builder: BuilderT) -> BuilderT:
        """A builder whose agents are recorded; it shares sessions and all else with the one that is given.

        Args:
            builder: Any builder.

        Raises:
            InvalidOption: The recorder is closed.
        """
        if self._closed:
            raise InvalidOption("recorder", self, "is closed; make another one")
        runtime = builder.shared_runtime.seen_through(afresh=AFRESH)
        number, self._watched = self._watched, self._watched + 1
        return builder.runtime(runtime).witnessed_by(_Watched(self, number))

    def begin(self, call: Call, watched: int) -> RecordedRun:
        """A run begins.

        Args:
            call: What is called.
            watched: By which of the builders that are watched: each remembers requests for itself.
        """
        runtime = call.options.runtime
        if self._origin is None:
            started, origin = runtime.clock.now(), runtime.clock.monotonic()
            if isinstance(runtime.clock, RunClock):  # a replay is recorded
                started, origin = runtime.clock.started, 0.0
            self._origin = (started, origin)
            self._write_header(started)
        number, self._runs = self._runs, self._runs + 1
        started, origin = self._origin
        book = _Pages(self, number, call.options.key_of(call.context))
        facts = {"builder": watched}
        return RecordedRun(book, call, clock=RunClock(started, 0.0), origin=origin, facts=facts)

    def write(self, type: str, **fields: object) -> None:
        """Put a line into the recording; what comes after the end is left out."""
        if not self._closed:
            self._writer.write(type, **fields)

    def write_items(self, draft: RequestDraft, items: RequestItems, before: RequestItems | None) -> None:
        """Put the items of a request into the recording that it does not have yet."""
        for fields in self.itemizer.new_items(draft, items, before, self._known_items):
            self.write("item", **fields)

    def state_to_write(self, key: SessionKey, state: AgentState) -> object:
        """The state of a session as plain data; None where the recording has it from the run before."""
        return state_data(state, self._states.get(key), self.redaction)

    def keep_state(self, key: SessionKey, state: AgentState) -> None:
        """Note how a run has left a session."""
        self._states[key] = state

    def close(self) -> None:
        """Write what waits; later runs are not recorded.

        Raises:
            OSError: Something could not be written, and there is no recording.
        """
        if not self._closed and self._origin is None:
            self._write_header(None)
        self._closed = True
        self._writer.close()

    def _write_header(self, started: datetime | None) -> None:
        note = self.redaction.data(self._note)
        self._writer.write("header", version=VERSION, started=started, library=__version__, note=note)

    def discard(self) -> None:
        """Leave no recording, and an earlier one as it was."""
        self._closed = True
        self._writer.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class _Watched:
    """Sees the runs of one builder."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder, self._number = recorder, number

    def begins(self, call: Call, run: Run, /) -> RecordedRun:
        """A run begins."""
        return self._recorder.begin(call, self._number)


class _Pages:
    """The part of a recording that is of one run."""

    deltas = True
    lies_in_session = False

    def __init__(self, recorder: Recorder, number: int, key: SessionKey) -> None:
        self._recorder, self._number, self._key = recorder, number, key
        self.redaction = recorder.redaction

    def write(self, type: str, /, **fields: object) -> None:
        """Write a line."""
        self._recorder.write(type, run=self._number, **fields)

    def opens(self, session: OpenSession, /) -> object:
        """The state of the session, where the recording does not have it."""
        return self._recorder.state_to_write(self._key, session.found)

    def items_of(self, step: Step, request: ModelRequest, before: RequestItems | None, /) -> RequestItems:
        """A request, after lines for its items."""
        items = self._recorder.itemizer.of(step, request)
        self._recorder.write_items(step.draft, items, before)
        return items

    def closes(self, session: OpenSession, /) -> None:
        """Remember how the run leaves its session."""
        self._recorder.keep_state(self._key, session.state)
