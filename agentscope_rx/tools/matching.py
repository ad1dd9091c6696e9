"""How a model's words for a search are understood, by every tool that searches texts."""

from __future__ import annotations

from collections.abc import Callable

from agentscope_rx.queries import Query
from agentscope_rx.tools.arguments import InvalidArguments


def query_of(query: str, mode: str) -> Query:
    """What a model looks for.

    Args:
        query: The words.
        mode: `phrase`: the query as it is. `all`: all of its words. `any`: one of them.

    Raises:
        InvalidArguments: The query is blank, or there is no such mode.
    """
    try:
        return Query.of(query, mode)
    except ValueError as error:
        raise InvalidArguments(str(error)) from None


def matcher(query: str, mode: str) -> Callable[[str], bool]:
    """What tells whether a text, in lower case, is meant by a query; arguments and errors as of `query_of`."""
    return query_of(query, mode).finds
