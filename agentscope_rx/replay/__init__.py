"""Recorded runs as tests: record them once, and run them again through the real pipeline, offline.

with Recorder("fix.jsonl") as recorder:
    recorder.watch(builder).call("Fix the export.", ctx).run()

replay("fix.jsonl", builder).check()
"""

from agentscope_rx.differences import Difference as Difference
from agentscope_rx.errors import RecordingDamaged as RecordingDamaged
from agentscope_rx.errors import ReplayMismatch as ReplayMismatch
from agentscope_rx.replay.reading import Recording as Recording
from agentscope_rx.replay.recorder import Recorder as Recorder
from agentscope_rx.replay.redaction import DEFAULT_RULES as DEFAULT_RULES
from agentscope_rx.replay.redaction import Redaction as Redaction
from agentscope_rx.replay.redaction import SecretRule as SecretRule
from agentscope_rx.replay.replay_outcome import EventDifference as EventDifference
from agentscope_rx.replay.replay_outcome import Replayed as Replayed
from agentscope_rx.replay.replay_outcome import ReplayedRun as ReplayedRun
from agentscope_rx.replay.replaying import replay as replay
from agentscope_rx.replay.session_recorder import SessionRecorder as SessionRecorder
from agentscope_rx.replay.session_recording import SessionRecording as SessionRecording
from agentscope_rx.replay.session_recording import record_session as record_session
from agentscope_rx.replay.what_if import what_if as what_if
from agentscope_rx.replay.what_if_outcome import WhatIf as WhatIf
