"""A session while a run is in it."""

from agentscope_rx.session.answers import events_of as events_of
from agentscope_rx.session.answers import result_events as result_events
from agentscope_rx.session.intake import Intake as Intake
from agentscope_rx.session.intake import closable_calls as closable_calls
from agentscope_rx.session.intake import messages_of as messages_of
from agentscope_rx.session.intake import take_in as take_in
from agentscope_rx.session.stored import RequestCache as RequestCache
from agentscope_rx.session.stored import StateCache as StateCache
from agentscope_rx.session.stored import StoredSession as StoredSession
