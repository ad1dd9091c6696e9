"""Agents whose every reasoning step is an Rx pipeline, and whose every event leaves through one observable.

A name is loaded when it is first used: a program that needs a message class does not load the HTTP models.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from agentscope_rx.__about__ import __version__ as __version__

if TYPE_CHECKING:
    from agentscope_rx.blocks import ContextBlock as ContextBlock
    from agentscope_rx.builder import AgentBuilder as AgentBuilder
    from agentscope_rx.compaction.config import CompactionConfig as CompactionConfig
    from agentscope_rx.compaction.config import PruneConfig as PruneConfig
    from agentscope_rx.compaction.config import ToolResultEvictionConfig as ToolResultEvictionConfig
    from agentscope_rx.compaction.config import TruncateArgsConfig as TruncateArgsConfig
    from agentscope_rx.condensing import condense as condense
    from agentscope_rx.context.policy import CategoryBudget as CategoryBudget
    from agentscope_rx.context.policy import ContextPolicy as ContextPolicy
    from agentscope_rx.context.policy import SourceFailurePolicy as SourceFailurePolicy
    from agentscope_rx.context.sources import ContextRequest as ContextRequest
    from agentscope_rx.event_stream import EventStream as EventStream
    from agentscope_rx.event_stream import Reply as Reply
    from agentscope_rx.harness_agent import HarnessAgent as HarnessAgent
    from agentscope_rx.harness_builder import HarnessBuilder as HarnessBuilder
    from agentscope_rx.interaction_json import answers_from_json as answers_from_json
    from agentscope_rx.interaction_json import answers_to_json as answers_to_json
    from agentscope_rx.interaction_json import pending_from_json as pending_from_json
    from agentscope_rx.interaction_json import pending_to_json as pending_to_json
    from agentscope_rx.interactions import approve as approve
    from agentscope_rx.interactions import reject as reject
    from agentscope_rx.manifest import ContextManifest as ContextManifest
    from agentscope_rx.memory import FlushTrigger as FlushTrigger
    from agentscope_rx.memory import MemoryConfig as MemoryConfig
    from agentscope_rx.messages import GenerateReason as GenerateReason
    from agentscope_rx.messages import Msg as Msg
    from agentscope_rx.messages import Role as Role
    from agentscope_rx.models import HttpxChatModel as HttpxChatModel
    from agentscope_rx.models import OpenAIChatModel as OpenAIChatModel
    from agentscope_rx.permission_context import PermissionMode as PermissionMode
    from agentscope_rx.permission_context import PermissionRule as PermissionRule
    from agentscope_rx.permissions import PermissionDecision as PermissionDecision
    from agentscope_rx.pipeline import Pipeline as Pipeline
    from agentscope_rx.preparation import PreparedRequest as PreparedRequest
    from agentscope_rx.pulling import Stream as Stream
    from agentscope_rx.pulling import block as block
    from agentscope_rx.pulling import iterate as iterate
    from agentscope_rx.pulling import last as last
    from agentscope_rx.react_agent import ReActAgent as ReActAgent
    from agentscope_rx.requests import ExecutionConfig as ExecutionConfig
    from agentscope_rx.requests import GenerateOptions as GenerateOptions
    from agentscope_rx.runtime import Runtime as Runtime
    from agentscope_rx.runtime_context import RuntimeContext as RuntimeContext
    from agentscope_rx.session import ConflictPolicy as ConflictPolicy
    from agentscope_rx.session import UncertainCalls as UncertainCalls
    from agentscope_rx.shutdown import shut_down as shut_down
    from agentscope_rx.shutdown import shut_down_on_signals as shut_down_on_signals
    from agentscope_rx.stores import InMemoryStore as InMemoryStore
    from agentscope_rx.stores import JsonFileStore as JsonFileStore
    from agentscope_rx.stores import RedisStore as RedisStore
    from agentscope_rx.stores import SqlStore as SqlStore
    from agentscope_rx.tasks import PlanModeConfig as PlanModeConfig
    from agentscope_rx.tasks import TaskContextOptions as TaskContextOptions
    from agentscope_rx.tokens import ContextTokenEstimator as ContextTokenEstimator
    from agentscope_rx.tokens import preload as preload
    from agentscope_rx.tools import ToolContext as ToolContext
    from agentscope_rx.tools import Toolkit as Toolkit
    from agentscope_rx.tools import tool as tool
    from agentscope_rx.tools.config import ToolsConfig as ToolsConfig
    from agentscope_rx.tools.shell_tool import ShellSettings as ShellSettings
    from agentscope_rx.usage import ChatUsage as ChatUsage
    from agentscope_rx.verification import VerificationService as VerificationService
    from agentscope_rx.workspace import FsspecWorkspace as FsspecWorkspace
    from agentscope_rx.workspace import InMemoryWorkspace as InMemoryWorkspace
    from agentscope_rx.workspace import IsolationScope as IsolationScope
    from agentscope_rx.workspace import LocalWorkspace as LocalWorkspace
    from agentscope_rx.workspace import StoredWorkspace as StoredWorkspace

_HOME = {
    "ContextBlock": "agentscope_rx.blocks",
    "AgentBuilder": "agentscope_rx.builder",
    "CompactionConfig": "agentscope_rx.compaction.config",
    "PruneConfig": "agentscope_rx.compaction.config",
    "ToolResultEvictionConfig": "agentscope_rx.compaction.config",
    "TruncateArgsConfig": "agentscope_rx.compaction.config",
    "condense": "agentscope_rx.condensing",
    "CategoryBudget": "agentscope_rx.context.policy",
    "ContextPolicy": "agentscope_rx.context.policy",
    "SourceFailurePolicy": "agentscope_rx.context.policy",
    "ContextRequest": "agentscope_rx.context.sources",
    "EventStream": "agentscope_rx.event_stream",
    "Reply": "agentscope_rx.event_stream",
    "HarnessAgent": "agentscope_rx.harness_agent",
    "HarnessBuilder": "agentscope_rx.harness_builder",
    "answers_from_json": "agentscope_rx.interaction_json",
    "answers_to_json": "agentscope_rx.interaction_json",
    "pending_from_json": "agentscope_rx.interaction_json",
    "pending_to_json": "agentscope_rx.interaction_json",
    "approve": "agentscope_rx.interactions",
    "reject": "agentscope_rx.interactions",
    "ContextManifest": "agentscope_rx.manifest",
    "FlushTrigger": "agentscope_rx.memory",
    "MemoryConfig": "agentscope_rx.memory",
    "GenerateReason": "agentscope_rx.messages",
    "Msg": "agentscope_rx.messages",
    "Role": "agentscope_rx.messages",
    "HttpxChatModel": "agentscope_rx.models",
    "OpenAIChatModel": "agentscope_rx.models",
    "PermissionMode": "agentscope_rx.permission_context",
    "PermissionRule": "agentscope_rx.permission_context",
    "PermissionDecision": "agentscope_rx.permissions",
    "Pipeline": "agentscope_rx.pipeline",
    "PreparedRequest": "agentscope_rx.preparation",
    "Stream": "agentscope_rx.pulling",
    "block": "agentscope_rx.pulling",
    "iterate": "agentscope_rx.pulling",
    "last": "agentscope_rx.pulling",
    "ReActAgent": "agentscope_rx.react_agent",
    "ExecutionConfig": "agentscope_rx.requests",
    "GenerateOptions": "agentscope_rx.requests",
    "Runtime": "agentscope_rx.runtime",
    "RuntimeContext": "agentscope_rx.runtime_context",
    "ConflictPolicy": "agentscope_rx.session",
    "UncertainCalls": "agentscope_rx.session",
    "shut_down": "agentscope_rx.shutdown",
    "shut_down_on_signals": "agentscope_rx.shutdown",
    "InMemoryStore": "agentscope_rx.stores",
    "JsonFileStore": "agentscope_rx.stores",
    "RedisStore": "agentscope_rx.stores",
    "SqlStore": "agentscope_rx.stores",
    "PlanModeConfig": "agentscope_rx.tasks",
    "TaskContextOptions": "agentscope_rx.tasks",
    "ContextTokenEstimator": "agentscope_rx.tokens",
    "preload": "agentscope_rx.tokens",
    "ToolContext": "agentscope_rx.tools",
    "Toolkit": "agentscope_rx.tools",
    "tool": "agentscope_rx.tools",
    "ToolsConfig": "agentscope_rx.tools.config",
    "ShellSettings": "agentscope_rx.tools.shell_tool",
    "ChatUsage": "agentscope_rx.usage",
    "VerificationService": "agentscope_rx.verification",
    "FsspecWorkspace": "agentscope_rx.workspace",
    "InMemoryWorkspace": "agentscope_rx.workspace",
    "IsolationScope": "agentscope_rx.workspace",
    "LocalWorkspace": "agentscope_rx.workspace",
    "StoredWorkspace": "agentscope_rx.workspace",
}


__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return ["__version__", *_HOME]
