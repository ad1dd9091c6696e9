"""The files that an agent works on: one protocol, and the places where they can be."""

from agentscope_rx.workspace.filesystem import FileContent as FileContent
from agentscope_rx.workspace.filesystem import FileKind as FileKind
from agentscope_rx.workspace.filesystem import FileStat as FileStat
from agentscope_rx.workspace.filesystem import WorkspaceFS as WorkspaceFS
from agentscope_rx.workspace.in_memory import InMemoryWorkspace as InMemoryWorkspace
from agentscope_rx.workspace.local import LocalWorkspace as LocalWorkspace
from agentscope_rx.workspace.paths import RUNTIME_FOLDER as RUNTIME_FOLDER
from agentscope_rx.workspace.paths import WorkspacePath as WorkspacePath
from agentscope_rx.workspace.paths import resolve_path as resolve_path
