"""Where the state of sessions is kept."""

from agentscope_rx.stores.files import JsonFileStore as JsonFileStore
from agentscope_rx.stores.in_memory import InMemoryStore as InMemoryStore
from agentscope_rx.stores.keys import SessionKey as SessionKey
from agentscope_rx.stores.store import StateStore as StateStore
from agentscope_rx.stores.store import Stored as Stored
