"""Where the stores and workspaces of the tests are, as a text that another process can be given."""

from __future__ import annotations

import json

from agentscope_rx.stores import InMemoryStore, JsonFileStore, RedisStore, SessionStore, SqlStore
from agentscope_rx.workspace import FsspecWorkspace, LocalWorkspace, StoredWorkspace, WorkspaceFS


class Reachable(InMemoryStore):
    """A store that says it is not of this machine alone: for tests of a workspace that is not."""

    local = False


def store_at(place: str) -> SessionStore:
    """The store at a place: `memory`, `files <folder>`, `sql <url>` or `redis <prefix> <url>`."""
    match place.split(" "):
        case ["memory"]:
            return InMemoryStore()
        case ["files", root]:
            return JsonFileStore(root)
        case ["sql", url]:
            return SqlStore(url)
        case ["redis", prefix, url]:
            return RedisStore(url, prefix=prefix)
        case _:
            raise ValueError(place)


def workspace_at(place: str) -> WorkspaceFS:
    """The workspace at a place: `folder <path>`, `fsspec <url> <options as JSON>`, or that of a store."""
    match place.split(" ", 2):
        case ["folder", folder]:
            return LocalWorkspace(folder)
        case ["fsspec", url, options]:
            return FsspecWorkspace(url, storage_options=json.loads(options))
        case _:
            store = store_at(place)
            assert isinstance(store, SqlStore | RedisStore)
            return StoredWorkspace(store, "desk")
