"""Everything for testing agents, operators, tools, models and stores; none of it needs pytest."""

from agentscope_rx.testing.fake_provider import FakeProvider as FakeProvider
from agentscope_rx.testing.network import forbid_real_requests as forbid_real_requests
from agentscope_rx.testing.scripted_model import ScriptedModel as ScriptedModel
from agentscope_rx.testing.scripted_model import ScriptedTurn as ScriptedTurn
from agentscope_rx.testing.scripted_model import calls as calls
from agentscope_rx.testing.scripted_model import text as text
from agentscope_rx.testing.virtual_loop import VirtualLoop as VirtualLoop
from agentscope_rx.testing.virtual_loop import VirtualLoopError as VirtualLoopError
from agentscope_rx.testing.virtual_loop import run_virtual as run_virtual
