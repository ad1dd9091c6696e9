"""Records: the facts by which a session changes, each with what it means for the state."""

from agentscope_rx.records.asked import RequestPrepared as RequestPrepared
from agentscope_rx.records.changed import PermissionModeChanged as PermissionModeChanged
from agentscope_rx.records.changed import PermissionsReplaced as PermissionsReplaced
from agentscope_rx.records.changed import PlanModeChanged as PlanModeChanged
from agentscope_rx.records.changed import StateReplaced as StateReplaced
from agentscope_rx.records.changed import TasksChanged as TasksChanged
from agentscope_rx.records.changed import VerificationRecorded as VerificationRecorded
from agentscope_rx.records.runs import RecoveryApplied as RecoveryApplied
from agentscope_rx.records.runs import RunEnded as RunEnded
from agentscope_rx.records.runs import RunStarted as RunStarted
from agentscope_rx.records.runs import ToolsDispatched as ToolsDispatched
from agentscope_rx.records.said import CallsClosed as CallsClosed
from agentscope_rx.records.said import InputAccepted as InputAccepted
from agentscope_rx.records.said import OutcomesReconciled as OutcomesReconciled
from agentscope_rx.records.said import ReplyBroken as ReplyBroken
from agentscope_rx.records.said import ReplyRecorded as ReplyRecorded
from agentscope_rx.records.said import ResultsRecorded as ResultsRecorded
from agentscope_rx.records.shortened import CompactionUndone as CompactionUndone
from agentscope_rx.records.shortened import ContextCleared as ContextCleared
from agentscope_rx.records.shortened import HistoryEdited as HistoryEdited
from agentscope_rx.records.shortened import LimitLearned as LimitLearned
from agentscope_rx.records.waiting import CallsConfirmed as CallsConfirmed
from agentscope_rx.records.waiting import CallsExecuted as CallsExecuted
from agentscope_rx.records.waiting import CallsPaused as CallsPaused
