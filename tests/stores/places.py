"""Where the stores of the tests are, as a text that another process can be given."""

from __future__ import annotations

from agentscope_rx.stores import InMemoryStore, JsonFileStore, RedisStore, SessionStore, SqlStore


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
