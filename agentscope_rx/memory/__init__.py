"""What an agent remembers over sessions: facts of each day, and a file that is made of them and shown to the model."""

from agentscope_rx.memory.config import FlushTrigger as FlushTrigger
from agentscope_rx.memory.config import MemoryConfig as MemoryConfig
