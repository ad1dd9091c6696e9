"""Where sessions are kept."""

from agentscope_rx.stores.blobs import BlobStore as BlobStore
from agentscope_rx.stores.files import JsonFileStore as JsonFileStore
from agentscope_rx.stores.in_memory import InMemoryStore as InMemoryStore
from agentscope_rx.stores.keys import SessionKey as SessionKey
from agentscope_rx.stores.redis import RedisStore as RedisStore
from agentscope_rx.stores.sql import SqlStore as SqlStore
from agentscope_rx.stores.store import ANYBODY as ANYBODY
from agentscope_rx.stores.store import Anybody as Anybody
from agentscope_rx.stores.store import Lease as Lease
from agentscope_rx.stores.store import SessionStore as SessionStore
from agentscope_rx.stores.store import StateStore as StateStore
from agentscope_rx.stores.store import Stored as Stored
