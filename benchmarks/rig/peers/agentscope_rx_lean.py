"""As agentscope_rx_, without the openai SDK: the model class over httpx2."""
from agentscope_rx.models import HttpxChatModel

from peers.agentscope_rx_ import AgentscopeRx


class AgentscopeRxLean(AgentscopeRx):
    LABEL = "agentscope_rx, no SDK"
    VENV = "agentscope_rx"
    DISTS = ("agentscope-rx", "httpx2")
    IMPORT = "from agentscope_rx import ReActAgent, RuntimeContext, tool; from agentscope_rx.models import HttpxChatModel; import httpx2"
    CONTEXT = ("no compaction in this version, so `roomy` is the default; max_iters=100000 in all workloads, "
               "since the default of 10 would end the longer ones")
    SUPPORTS = {"W1", "W2", "W3", "W4", "W6"}
    MODEL = HttpxChatModel
    CLIENT = "httpx2"


PEER = AgentscopeRxLean
