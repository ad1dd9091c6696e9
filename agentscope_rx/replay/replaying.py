"""`replay`: recorded runs through the real pipeline, offline and in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.portal import refuse_running_loop
from agentscope_rx.replay.driving import Driver
from agentscope_rx.replay.reading import Recording
from agentscope_rx.replay.recorder import Recorder
from agentscope_rx.replay.redaction import DEFAULT_RULES, Redaction, SecretRule
from agentscope_rx.replay.replay_outcome import Replayed, replayed_run
from agentscope_rx.replay.serving import Replaying
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing.virtual_loop import run_virtual


def replay(
    path: str | Path,
    builder: AgentBuilder[Any, Any],
    *,
    update: bool = False,
    context: Callable[[RuntimeContext], RuntimeContext] | None = None,
    rules: Sequence[SecretRule] = DEFAULT_RULES,
) -> Replayed:
    """Run what was recorded again: the real pipeline of a builder, with models, tools, sources, files, clock and ids
    from the recording.

    Nothing is asked over the network, no tool runs, no file is written, and waits take no time. It stops at the first
    request that is not the recorded one.

    Args:
        path: The recording.
        builder: The agent, as it is now; its model and its store are not used.
        update: Whether requests that differ are accepted: they get the recorded answers, and the recording is written
            anew with them. The outcome tells of each. Default False.
        context: Adds what the application hands along and a recording does not hold. Default: nothing.
        rules: The rules that the recording was made with.

    Raises:
        ReplayMismatch: A request differs; the error says in which step, shows the items, and names the operators.
        RecordingDamaged: The recording cannot be read; the error says where.
        RunningLoopError: This thread runs an event loop; call it by `asyncio.to_thread(replay, ...)`.

    Examples:
        >>> print(replay(folder / "hello.jsonl", builder))
        ...hello.jsonl: 1 run, 1 request
        all as recorded
    """
    refuse_running_loop()
    recording = Recording.read(path)
    redaction = Redaction(rules)
    replaying = Replaying(recording, lenient=update, redaction=redaction)
    recorder = Recorder(path, rules=rules, note=recording.note) if update else None
    driver = Driver(replaying, builder, context, recorder)
    try:
        seconds = run_virtual(driver.run)
        if replaying.mismatch is not None:
            raise replaying.mismatch
    except BaseException:
        if recorder is not None:
            recorder.discard()
        raise
    if recorder is not None:
        recorder.close()
    runs = tuple(replayed_run(call, replaying.runs[call.number]) for call in recording.calls)
    return Replayed(path=Path(path), runs=runs, seconds=seconds, updated=update)
