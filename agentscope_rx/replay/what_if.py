"""`what_if`: a recorded request, prepared once more under other settings, and what that changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import InvalidOption, RunError
from agentscope_rx.frozen import frozen
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.lifting import effect_operator
from agentscope_rx.manifest import ContextManifest, ManifestItem
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.options import Arrangement
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.portal import refuse_running_loop
from agentscope_rx.preparation import Earlier, prepare
from agentscope_rx.replay.reading import Asked, Recording
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.replay.replaying import Driver, offline
from agentscope_rx.replay.serving import Replaying, ServedRun
from agentscope_rx.requests import Model, ModelRequest
from agentscope_rx.run import Call, Run
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import Step
from agentscope_rx.testing.virtual_loop import run_virtual

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])
C = TypeVar("C")
T = TypeVar("T")
_MOST_ITEMS: Final = 20


@frozen
class WhatIf:
    """A request as it was, and as it would have been.

    Args:
        step: Which reasoning step.
        before: The account of the request as it was sent.
        after: The account of the one that would have been.
        error: Why that would have been refused; None = it would not.
    """

    step: int
    before: ContextManifest
    after: ContextManifest
    error: Exception | None = None

    @property
    def kept(self) -> tuple[ManifestItem, ...]:
        """The items that both hold, word for word."""
        there = {(item.id, item.digest) for item in self.before.items}
        return tuple(item for item in self.after.items if (item.id, item.digest) in there)

    @property
    def dropped(self) -> tuple[ManifestItem, ...]:
        """The items that would be missing."""
        return _without(self.before, self.after)

    @property
    def added(self) -> tuple[ManifestItem, ...]:
        """The items that would be new."""
        return _without(self.after, self.before)

    @property
    def changed(self) -> tuple[ManifestItem, ...]:
        """The items that would say something else."""
        digests = {item.id: item.digest for item in self.before.items}
        return tuple(item for item in self.after.items if digests.get(item.id, item.digest) != item.digest)

    @property
    def tokens(self) -> int:
        """How many tokens more the request would have."""
        return self.after.estimated_input_tokens - self.before.estimated_input_tokens

    @property
    def prefix_tokens(self) -> int:
        """How many leading tokens more it would have in common with the request before it."""
        return self.after.prefix.tokens - self.before.prefix.tokens

    def __str__(self) -> str:
        old, new = self.before, self.after
        lines = [
            f"step {self.step}: {old.estimated_input_tokens:,} -> {new.estimated_input_tokens:,} tokens",
            f"limit: {_number(old.input_limit)} -> {_number(new.input_limit)} tokens",
            f"shared with the request before: {old.prefix.tokens:,} -> {new.prefix.tokens:,} tokens",
            f"kept {len(self.kept)}, dropped {len(self.dropped)}, added {len(self.added)}, changed {len(self.changed)}",
        ]
        for mark, items in (("-", self.dropped), ("+", self.added), ("~", self.changed)):
            lines += [f"  {mark} {item.zone}: {item.id} ({item.tokens:,})" for item in items[:_MOST_ITEMS]]
            if len(items) > _MOST_ITEMS:
                lines.append(f"  {mark} … {len(items) - _MOST_ITEMS} more")
        lines += [f"  {change.operator}: {change.reason}" for change in new.changes if change.action == "dropped"]
        if self.error is not None:
            lines.append(f"it would be refused: {self.error}")
        return "\n".join(lines)


def what_if(
    recording: str | Path,
    builder: BuilderT,
    *,
    step: int,
    run: int = 0,
    policy: ContextPolicy | None = None,
    pipeline: Arrangement | None = None,
    change: Callable[[BuilderT], AgentBuilder[Any, Any]] | None = None,
) -> WhatIf:
    """Prepare a recorded request once more under other settings; no model is called.

    The run is replayed up to the request. Then it is prepared again from the same session, with the same blocks of
    sources and workspace.

    Args:
        recording: The recording.
        builder: The agent that was recorded.
        step: Which reasoning step, from 0.
        run: Which run of the recording, from 0. Default: the first.
        policy: Another `ContextPolicy`. Default: the agent's.
        pipeline: Another arrangement of the pipeline. Default: the agent's.
        change: Any other change of the builder. Default: none.

    Raises:
        InvalidOption: There is no such run or step, or the agent has no policy.
        ReplayMismatch: The agent is not the one that was recorded.
        RunningLoopError: This thread runs an event loop; call it by `asyncio.to_thread(what_if, ...)`.

    Examples:
        >>> print(what_if("fix.jsonl", builder, step=7, policy=ContextPolicy(max_input_tokens=8_000)))
        step 7: 11,204 -> 7,950 tokens
        limit: 62,764 -> 8,000 tokens
        ...
    """
    refuse_running_loop()
    read = Recording.read(recording)
    if not 0 <= run < len(read.calls):
        raise InvalidOption("run", run, f"the recording has {len(read.calls)} runs, counted from 0")
    steps = {asked.items.step for asked in read.calls[run].asked if asked.items.purpose == "reasoning"}
    if step not in steps:
        raise InvalidOption("step", step, f"run {run} has requests of the steps 0 to {max(steps, default=-1)}")
    other: AgentBuilder[Any, Any] = builder if change is None else change(builder)
    if policy is not None:
        if not isinstance(other, HarnessBuilder):
            raise InvalidOption("policy", policy, "is for a HarnessAgent")
        other = other.context_policy(policy)
    if pipeline is not None:
        other = other.pipeline(pipeline)
    looking = _Looking(read, run, step)
    return run_virtual(lambda: looking.compare(builder, other))


@dataclass
class _Seen:
    """A step as it begins its request."""

    earlier: Earlier | None = None
    manifest: ContextManifest | None = None
    reached: dict[str, object] = field(default_factory=dict[str, object])


class _Looking(Replaying):
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
        @effect_operator
        def look(step: Step) -> Step:
            handle, wanted = step.run, self.runs.get(self._run)
            if wanted is not None and handle.runtime is wanted.runtime and step.number == self._step and not self.over:
                self.seen.earlier = Earlier(step, handle.previous_request, handle.pressure_level)
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
            call = agent.prepared_call(None, context)
            runtime = served.runtime.seen_through(outside=_Again(seen.reached))
            prepared = await prepare(call.through(runtime), earlier=seen.earlier)
        return WhatIf(step=self._step, before=seen.manifest, after=prepared.manifest, error=prepared.error)


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


class _Again:
    """The world outside, which gives what it gave; what it was not asked for then is asked for now."""

    def __init__(self, reached: dict[str, object]) -> None:
        self._reached = reached

    def model_for(self, step: Step, /) -> Model:
        """The model of the step, which nobody asks."""
        return step.card.model

    async def reach(self, name: str, work: Callable[[], Awaitable[T]], /) -> T:
        """What was given."""
        return self._reached[name] if name in self._reached else await work()  # type: ignore[return-value]

    async def call(self, call: ToolUseBlock, context: C, run: Callable[[C], Awaitable[T]], /) -> T:
        """No tool runs in a preparation.

        Raises:
            RunError: Always.
        """
        raise RunError(f"{call.name} was to run in a preparation")


def _without(one: ContextManifest, other: ContextManifest) -> tuple[ManifestItem, ...]:
    there = {item.id for item in other.items}
    return tuple(item for item in one.items if item.id not in there)


def _number(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"
