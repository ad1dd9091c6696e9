"""What a model may call: tools, the set of them, and what a tool is told."""

from agentscope_rx.tools.context import CancelToken, ToolContext
from agentscope_rx.tools.signature import Injected
from agentscope_rx.tools.tool import Tool, schema_tool, tool
from agentscope_rx.tools.toolkit import ToolGroup, Toolkit

__all__ = ["CancelToken", "Injected", "Tool", "ToolContext", "ToolGroup", "Toolkit", "schema_tool", "tool"]
