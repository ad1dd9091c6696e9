"""A step of a recording, prepared once more under other settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import RunError
from agentscope_rx.lifting import effect_operator
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.preparation import Earlier, prepare
from agentscope_rx.replay.calls import output_of
from agentscope_rx.replay.driving import Driver, offline
from agentscope_rx.replay.given import Given
from agentscope_rx.replay.reading import Asked, Recording
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.replay.serving import Replaying, ServedRun
from agentscope_rx.replay.what_if_outcome import WhatIf
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Call, Run
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import Step

T = TypeVar("T")


@dataclass
class _Seen:
    """A step as it begins its request."""

    earlier: Earlier | None = None
    manifest: ContextManifest | None = None
    reached: dict[str, object] = field(default_factory=dict[str, object])


class RecordedStep(Replaying):
    """A replay that ends at one request."""

    def __init__(self, recording: Recording, run: int, step: int) -> None:
        super().__init__(recording, lenient=False, redaction=Redaction())
        self._run, self._step, self.seen = run, step, _Seen()

    def begins(self, call: Call, run: Run, /) -> ServedRun:
        recorded = self.next
        if recorded is None or recorded.number != self._run or self.recording.started is None:
            return super().begins(call, run)
        self.next = None
        served = self.runs[recorded.number] = _LookedAt(
            self, recorded, call, run, self.recording.started, step=self._step, seen=self.seen
        )
        return served

    @property
    def over(self) -> bool:
        """Whether the request was reached."""
        return self.seen.manifest is not None or super().over

    async def compare(self, builder: AgentBuilder[Any, Any], other: AgentBuilder[Any, Any]) -> WhatIf:
        """Replay up to the request, and prepare it again.

        Args:
            builder: The agent that was recorded.
            other: The one with other settings.

        Raises:
            ReplayMismatch: The agent is not the one that was recorded.
        """

        @effect_operator
        def look(step: Step) -> Step:
            handle, wanted = step.run, self.runs.get(self._run)
            if wanted is not None and handle.runtime is wanted.runtime and step.number == self._step and not self.over:
                self.seen.earlier = Earlier.of(step)
            return step

        def looked_at(pipeline: Pipeline) -> Pipeline:
            return pipeline.insert_after("begin_request", look, name="what_if")

        await Driver(self, builder.pipeline(looked_at)).run()
        seen = self.seen
        if seen.manifest is None or seen.earlier is None:
            raise self.mismatch or RunError(f"the replay has not come to step {self._step}")
        served = self.runs[self._run]
        async with offline(other, self).build() as agent:
            line = served.recorded.line
            context = RuntimeContext(user_id=line["user"], session_id=line["session"])
            call = agent.prepared_call(None, context, output=output_of(line))
            given = Given(seen.reached)
            prepared = await prepare(call.through(served.runtime.seen_through(outside=given)), earlier=seen.earlier)
        return WhatIf(
            step=self._step,
            before=seen.manifest,
            after=prepared.manifest,
            error=prepared.error,
            notes=tuple(f"{name} was asked now: it was not asked then" for name in given.unknown),
        )


class _LookedAt(ServedRun):
    """The run whose request is wanted."""

    def __init__(self, *args: Any, step: int, seen: _Seen) -> None:
        super().__init__(*args)
        self._step, self._seen = step, seen

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What came of something outside, kept for the second time."""
        value = await super().reach(name, work)
        self._seen.reached[name] = value
        return value

    def answer_to(self, step: Step, request: ModelRequest) -> Asked:
        """Stop, where it is the wanted request."""
        asked = super().answer_to(step, request)
        if step.number == self._step and step.purpose == "reasoning":
            self._seen.manifest = self.manifests[-1]
            self.run.cancel()
        return asked
