"""A session while a run is in it."""

from agentscope_rx.session.answers import events_of as events_of
from agentscope_rx.session.answers import result_events as result_events
from agentscope_rx.session.conflicts import ConflictPolicy as ConflictPolicy
from agentscope_rx.session.folding import FoldCache as FoldCache
from agentscope_rx.session.folding import fold as fold
from agentscope_rx.session.forking import Branch as Branch
from agentscope_rx.session.intake import CLOSED_TEXT as CLOSED_TEXT
from agentscope_rx.session.intake import NOT_RUN_TEXT as NOT_RUN_TEXT
from agentscope_rx.session.intake import Intake as Intake
from agentscope_rx.session.intake import UncertainCalls as UncertainCalls
from agentscope_rx.session.intake import closable_calls as closable_calls
from agentscope_rx.session.intake import messages_of as messages_of
from agentscope_rx.session.intake import take_in as take_in
from agentscope_rx.session.intake import uncertain_calls as uncertain_calls
from agentscope_rx.session.journal import EventJournal as EventJournal
from agentscope_rx.session.journal import Journal as Journal
from agentscope_rx.session.log import Projection as Projection
from agentscope_rx.session.log import SessionLog as SessionLog
from agentscope_rx.session.log_record import LogRecord as LogRecord
from agentscope_rx.session.logged import Holder as Holder
from agentscope_rx.session.logged import LoggedSession as LoggedSession
from agentscope_rx.session.logged import Recovery as Recovery
from agentscope_rx.session.request_reader import LoggedRequest as LoggedRequest
from agentscope_rx.session.stored import RequestCache as RequestCache
from agentscope_rx.session.stored import StateCache as StateCache
from agentscope_rx.session.stored import StoredSession as StoredSession
