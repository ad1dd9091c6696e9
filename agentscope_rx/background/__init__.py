"""Work in the background: sessions that are told what to do, runners that do it, and events for who watches."""

from agentscope_rx.background.durable import DbosOptions as DbosOptions
from agentscope_rx.background.durable import DbosRunner as DbosRunner
from agentscope_rx.background.in_process import InProcessRunner as InProcessRunner
from agentscope_rx.background.opening import OpenRunner as OpenRunner
from agentscope_rx.background.runner import SessionRunner as SessionRunner
from agentscope_rx.background.runner import Worker as Worker
from agentscope_rx.background.session import AgentSession as AgentSession
from agentscope_rx.background.tasks import SessionTask as SessionTask
from agentscope_rx.background.tasks import TaskReport as TaskReport
from agentscope_rx.background.watching import SessionEvent as SessionEvent
from agentscope_rx.inbox import TaskStatus as TaskStatus
