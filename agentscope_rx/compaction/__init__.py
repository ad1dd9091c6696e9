"""How long conversations are made shorter without losing what matters."""

from agentscope_rx.compaction.config import BeforeCompaction as BeforeCompaction
from agentscope_rx.compaction.config import CompactionConfig as CompactionConfig
from agentscope_rx.compaction.config import CompactionRequest as CompactionRequest
from agentscope_rx.compaction.config import PruneConfig as PruneConfig
from agentscope_rx.compaction.config import Strategy as Strategy
from agentscope_rx.compaction.config import ToolResultEvictionConfig as ToolResultEvictionConfig
from agentscope_rx.compaction.config import TruncateArgsConfig as TruncateArgsConfig
