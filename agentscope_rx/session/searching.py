"""What searching in sessions means, and how an index spares reading those that cannot hold what is looked for.

A message is searched as the text of what a person would say that it says, all in lower case. A query is found in it as
it is, or by its words, wherever they stand. An index holds trigrams: each three letters or digits in a row. What is
found in a text has all its trigrams in it, so whoever lacks one need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Final, cast
from zlib import crc32

from agentscope_rx.errors import SessionError
from agentscope_rx.messages import HintBlock, Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.queries import Query
from agentscope_rx.session.folding import records
from agentscope_rx.session.transcript import is_fork, messages_said
from agentscope_rx.stores import SessionKey, SessionStore
from agentscope_rx.stores.search_index import EVERYTHING, SearchIndex, search_index_of

_GRAM: Final = 3
_MOST_ASKED: Final = 64
_MOST_TOLD: Final = 20_000


def terms_of(query: Query) -> Sequence[Collection[str]]:
    """Collections of terms of which one is in every session where a query is found; none where that says nothing."""
    each = [set(trigrams(text)) for text in query.wanted]
    if query.every:
        together = set[str]().union(*each)
        return [sorted(together)[:_MOST_ASKED]] if together else []
    return [sorted(terms)[:_MOST_ASKED] for terms in each] if all(each) else []


def trigrams(text: str) -> Iterator[str]:
    """The terms of a text in lower case."""
    for is_word, characters in groupby(text, str.isalnum):
        if is_word:
            word = "".join(characters)
            for at in range(len(word) - _GRAM + 1):
                yield f"{crc32(word[at : at + _GRAM].encode()):08x}"


async def sessions_to_read(
    store: SessionStore, keys: Sequence[SessionKey], query: Query, *, user_id: str | None, agent_id: str | None = None
) -> Sequence[SessionKey]:
    """Those of a user's sessions in which something may be found.

    Args:
        store: Where they are kept; what its index does not know yet of them is told to it.
        keys: The sessions.
        query: What is looked for.
        user_id: Whose they are; None = nobody's.
        agent_id: The agent that they were had with; None = any.
    """
    index, terms = search_index_of(store), terms_of(query)
    if index is None or not terms:
        return keys
    asked = set(keys)
    behind = [each for each in await index.behind(user_id=user_id, agent_id=agent_id) if each[0] in asked]
    found = {key for key, told in behind if not await _told(store, index, key, told)}
    found.update(await index.holding(terms, user_id=user_id, agent_id=agent_id))
    return [key for key in keys if key in found]


async def _told(store: SessionStore, index: SearchIndex, key: SessionKey, after: int) -> bool:
    """Tell an index what is new in a session; whether that could be read."""
    terms, seq = set[str](), after
    try:
        async with aclosing(records(store, key, after)) as new:
            async for _, record in new:
                seq = record.seq
                if is_fork(record):
                    terms.add(EVERYTHING)  # its past is in another log, which its transcript has too
                for message in messages_said(record):
                    terms.update(_terms_of(message))
                if len(terms) > _MOST_TOLD:
                    await index.index(key, terms, after=after, through=seq)
                    terms, after = set[str](), seq
        if seq > after:
            await index.index(key, terms, after=after, through=seq)
    except SessionError:
        return False
    return True


def _terms_of(message: Msg) -> Collection[str]:
    terms = set(trigrams(text_of(message)))
    return terms if len(terms) <= _MOST_TOLD else (EVERYTHING,)


# -- words --------------------------------------------------------------------------------------------------


def text_of(message: Msg) -> str:
    """The text of a message that is searched, in lower case."""
    return "\n".join(_texts(message)).lower()


def _texts(message: Msg) -> Iterator[str]:
    """What a person would say that the message says."""
    for block in message.content:
        match block:
            case TextBlock(text=text):
                yield text
            case ToolUseBlock(name=name, input=input):
                yield name
                yield from _words(input)
            case ToolResultBlock(name=name):
                yield name
                yield block.text
            case HintBlock(hint=hint):
                yield hint
            case _:
                pass


def _words(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[object, object]", value).items():
            yield str(name)
            yield from _words(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[object]", value):
            yield from _words(each)
    elif value is not None:
        yield str(value)
