"""Everything for testing agents, operators, tools, models and stores; none of it needs pytest."""

from agentscope_rx.testing.conformance import check_operator as check_operator
from agentscope_rx.testing.fake_provider import FakeProvider as FakeProvider
from agentscope_rx.testing.marbles import assert_marbles as assert_marbles
from agentscope_rx.testing.marbles import marbles as marbles
from agentscope_rx.testing.model_conformance import check_model as check_model
from agentscope_rx.testing.network import forbid_real_requests as forbid_real_requests
from agentscope_rx.testing.outlines import outline as outline
from agentscope_rx.testing.outlines import outline_manifest as outline_manifest
from agentscope_rx.testing.recorder import Recorded as Recorded
from agentscope_rx.testing.recorder import Signal as Signal
from agentscope_rx.testing.recorder import record as record
from agentscope_rx.testing.scripted_model import ScriptedModel as ScriptedModel
from agentscope_rx.testing.scripted_model import ScriptedTurn as ScriptedTurn
from agentscope_rx.testing.scripted_model import calls as calls
from agentscope_rx.testing.scripted_model import text as text
from agentscope_rx.testing.store_conformance import check_store as check_store
from agentscope_rx.testing.tool_conformance import check_tool as check_tool
from agentscope_rx.testing.values import RecordingRun as RecordingRun
from agentscope_rx.testing.values import a_history as a_history
from agentscope_rx.testing.values import a_run as a_run
from agentscope_rx.testing.values import a_runtime as a_runtime
from agentscope_rx.testing.values import a_step as a_step
from agentscope_rx.testing.virtual_loop import VirtualLoop as VirtualLoop
from agentscope_rx.testing.virtual_loop import VirtualLoopError as VirtualLoopError
from agentscope_rx.testing.virtual_loop import run_virtual as run_virtual
from agentscope_rx.testing.workspace_conformance import check_workspace as check_workspace
