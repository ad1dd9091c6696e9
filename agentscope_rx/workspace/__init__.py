"""The files that an agent works on: one protocol, and the places where they can be."""

from agentscope_rx.workspace.editing import EditResult as EditResult
from agentscope_rx.workspace.editing import edit_text as edit_text
from agentscope_rx.workspace.filesystem import FileContent as FileContent
from agentscope_rx.workspace.filesystem import FileKind as FileKind
from agentscope_rx.workspace.filesystem import FileStat as FileStat
from agentscope_rx.workspace.filesystem import WorkspaceFS as WorkspaceFS
from agentscope_rx.workspace.fsspec import FsspecWorkspace as FsspecWorkspace
from agentscope_rx.workspace.globbing import GlobLimits as GlobLimits
from agentscope_rx.workspace.globbing import GlobResult as GlobResult
from agentscope_rx.workspace.globbing import glob_paths as glob_paths
from agentscope_rx.workspace.hiding import HidingWorkspace as HidingWorkspace
from agentscope_rx.workspace.in_memory import InMemoryWorkspace as InMemoryWorkspace
from agentscope_rx.workspace.isolation import IsolationScope as IsolationScope
from agentscope_rx.workspace.isolation import scope_folder as scope_folder
from agentscope_rx.workspace.isolation import scoped_workspace as scoped_workspace
from agentscope_rx.workspace.local import LocalWorkspace as LocalWorkspace
from agentscope_rx.workspace.overlay import OverlayWorkspace as OverlayWorkspace
from agentscope_rx.workspace.paths import RUNTIME_FOLDER as RUNTIME_FOLDER
from agentscope_rx.workspace.paths import WorkspacePath as WorkspacePath
from agentscope_rx.workspace.paths import resolve_path as resolve_path
from agentscope_rx.workspace.routing import RoutedWorkspace as RoutedWorkspace
from agentscope_rx.workspace.scoped import ScopedWorkspace as ScopedWorkspace
from agentscope_rx.workspace.session_files import SessionFiles as SessionFiles
from agentscope_rx.workspace.stored import StoredWorkspace as StoredWorkspace
