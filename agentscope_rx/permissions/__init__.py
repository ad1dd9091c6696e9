"""Whether a tool call may run: read `order.py` first."""

from agentscope_rx.permissions.commands import commands as commands
from agentscope_rx.permissions.decision import CallTarget as CallTarget
from agentscope_rx.permissions.decision import PermissionDecision as PermissionDecision
from agentscope_rx.permissions.judging import judge as judge
from agentscope_rx.permissions.order import JudgedCall as JudgedCall
from agentscope_rx.permissions.order import decide as decide
from agentscope_rx.permissions.paths import DangerousPaths as DangerousPaths
from agentscope_rx.permissions.paths import paths as paths
